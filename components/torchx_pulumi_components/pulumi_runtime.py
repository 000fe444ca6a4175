"""The only uses of Pulumi's SDK beyond its public interface. docs/decisions/0022 has the reasons.

The first use looks at a version of the SDK that was not tested, before anything is registered.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from typing import Any, TypeVar

import grpc
import pulumi
from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped]  # no stubs
from google.protobuf.struct_pb2 import Struct  # type: ignore[import-untyped]  # no stubs
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.pulumi_pieces import RELEASES, examine_sdk
from torchx_pulumi.model.versions import SDK_ADVICE, SDK_TESTED

T = TypeVar("T")


class DeferredError(pulumi.RunError):
    """Fails what depends on it and nothing else. The program ends after that, with what `end_with` was given."""


@functools.cache
def _checked_version() -> str:
    """Return the version of the SDK. The first call warns about what was changed.

    Raises:
        pulumi.RunError: The SDK is not supported, or lacks what is needed.
    """
    found = version("pulumi")
    check = examine_sdk(found)
    if check.problem:
        raise pulumi.RunError(f"{check.problem}; nothing was changed; {SDK_ADVICE}")
    if check.warning:
        pulumi.log.warn(f"{check.warning}; read previews with care, or {SDK_ADVICE}")
    return found


@functools.cache
def _private(module: str, name: str) -> Any:
    """Return a name of a module in `pulumi.runtime`.

    Raises:
        pulumi.RunError: The SDK is not supported, or lacks the name.
    """
    found = _checked_version()
    try:
        return getattr(import_module(f"pulumi.runtime.{module}"), name)
    except (ImportError, AttributeError) as error:
        raise pulumi.RunError(
            f"the Python package pulumi {found} lacks pulumi.runtime.{module}.{name}, which jobs in a program need; "
            f"nothing was changed; install it again with `pip install --force-reinstall '{SDK_TESTED}'`"
        ) from error


# Engine, configuration and event loop.


def call_engine(function: str, arguments: Mapping[str, Any]) -> Any:
    """Return the result of a function of the engine, with the marks of secrets in it.

    `pulumi.runtime.invoke` removes them, and says only whether there were any.

    Raises:
        DeployError: The engine refuses, with its own words.
    """
    given = Struct()
    given.update(arguments)
    request = _private("proto.resource_pb2", "ResourceInvokeRequest")(tok=function, args=given)
    try:
        response = _private("settings", "get_monitor")().Invoke(request)
    except grpc.RpcError as error:
        raise DeployError(str(error.details() if isinstance(error, grpc.Call) else error)) from error
    return MessageToDict(getattr(response, "return"))


def is_mocked() -> bool:
    """Return whether the program runs on Pulumi's mocks."""
    return isinstance(_private("settings", "get_monitor")(), _private("mocks", "MockMonitor"))


def config_keys() -> set[str]:
    """Return the keys of the stack's configuration, of all projects."""
    return {*_private("config", "CONFIG").get(), *pulumi.runtime.get_config_env()}


# Resources.


def is_protected(resource: pulumi.Resource | None) -> bool:
    """Return whether a resource protects its children. None: the stack, which does not."""
    return bool(getattr(resource, "_protect", None))


async def former_urns(resource: pulumi.Resource | None) -> list[str]:
    """Return the former URNs of a resource, by its aliases. None: the stack, which has none."""
    return [str(await pulumi.Output.from_input(each).future()) for each in getattr(resource, "_aliases", ())]


async def alias_urns(aliases: Iterable[Any], name: str, token: str, parent: pulumi.Resource | None) -> list[str]:
    """Return the URNs that aliases in the options of a resource stand for.

    Args:
        aliases: The aliases.
        name: Name of the resource.
        token: Its type token.
        parent: Its parent. None: the stack.
    """
    urn_of = _private("resource", "collapse_alias_to_urn")
    return [str(await urn_of(each, name, token, parent).future()) for each in aliases]


def children_of(component: pulumi.ComponentResource) -> set[pulumi.Resource]:
    """Return the resources below a component, for which its dependents wait."""
    return set(component._childResources)


class Barrier(pulumi.Resource):
    """Child of a component for which whatever depends on the component waits. It is not registered.

    The other children are registered after a decision, which may be later than the resources that depend on them.
    """

    def __init__(self, component: pulumi.ComponentResource, urn: Awaitable[str]) -> None:
        """Add the barrier.

        Args:
            component: The component.
            urn: Ends with the URN of the component when its children are created, or with a `DeferredError`.
        """
        # Not the constructor of the base class, which registers.
        self.__dict__["urn"] = _Urn(urn)
        self._component = component
        self._type, self._name = component.pulumi_resource_type, f"{component.pulumi_resource_name}-barrier"
        self._childResources: set[pulumi.Resource] = set()
        component._childResources.add(self)


class _Urn:
    """Stands for the Output of a URN. An Output with an error would end the program before the others."""

    def __init__(self, urn: Awaitable[str]) -> None:
        self._urn = urn

    async def future(self) -> str:
        return await asyncio.shield(self._urn)


@contextmanager
def behind_barrier(component: pulumi.ComponentResource) -> Iterator[None]:
    """Register children of a component inside that only its barrier represents, whenever a program looks."""
    listed = children_of(component)
    try:
        yield
    finally:
        component._childResources = listed


# Large properties. The SDK converts each value on its way to the engine and back: 0.7 s for 1,000 tasks of a job.


def bypass_conversion(resource: str, name: str, value: Mapping[str, Any]) -> bool:
    """Send a property of a custom resource to the engine without the SDK's conversion.

    The SDK is given an empty object for it, and knows no outputs of the resource except `metadata`.

    Args:
        resource: Name of the resource, which is registered later.
        name: Name of the property.
        value: Its value, as plain JSON.

    Returns:
        Whether it is sent. False: the release of the SDK was not tested, and the resource needs the property itself.
    """
    if version("pulumi") not in RELEASES:
        return False
    settings, passed = _private("settings", "SETTINGS"), Struct()
    passed.update(value)
    settings.monitor = _BypassingMonitor(settings.monitor, resource, name, passed)
    return True


class _BypassingMonitor:
    """The engine, as a program calls it."""

    def __init__(self, engine: Any, resource: str, name: str, value: Struct) -> None:
        self._engine = engine
        self._resource, self._name, self._value = resource, name, value

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def RegisterResource(self, request: Any, *given: Any, **named: Any) -> Any:  # noqa: N802 - the name is Pulumi's
        if not request.custom or request.name != self._resource:
            return self._engine.RegisterResource(request, *given, **named)
        request.object.fields[self._name].struct_value.CopyFrom(self._value)
        response = self._engine.RegisterResource(request, *given, **named)
        for name in response.object.fields.keys() - {"metadata"}:
            del response.object.fields[name]
        return response


# The end of a program. Pulumi waits for a list, takes the newest one first, and ends with the first error.


class _Pending(list[Awaitable[Any]]):
    """What Pulumi waits for at the end of one program.

    `pulumi.runtime.test` begins each program with a new list.
    """

    def __init__(self, pending: Iterable[Awaitable[Any]]) -> None:
        super().__init__(pending)
        self.kept: dict[Callable[[], Any], Any] = {}
        self.end: _End | None = None

    def pop(self, index: Any = -1) -> Awaitable[Any]:
        return _without_deferred(super().pop(index))

    def unfinished(self) -> list[asyncio.Future[Any]]:
        return [each for each in self if isinstance(each, asyncio.Future)]


async def _without_deferred(awaitable: Awaitable[Any]) -> Any:
    try:
        return await awaitable
    except DeferredError:
        return None


def _pending() -> _Pending:
    manager = _private("settings", "SETTINGS").rpc_manager
    if not isinstance(manager.rpcs, _Pending):
        manager.rpcs = _Pending(manager.rpcs)
    return manager.rpcs


def once_per_program(make: Callable[[], T]) -> T:
    """Call a function once in the program that runs; later calls give the same result."""
    kept = _pending().kept
    if make not in kept:
        kept[make] = make()
    found: T = kept[make]
    return found


def wait_at_end(task: asyncio.Task[Any]) -> None:
    """Let the program that runs wait for a task."""
    _pending().append(task)


async def registrations_ended() -> None:
    """Wait until everything that the program has begun to register is registered."""
    while any(not each.done() for each in _pending().unfinished()):
        await asyncio.wait(_pending().unfinished())


def end_with(errors: Callable[[], Sequence[str]], last_exports: Callable[[], Mapping[str, Any]]) -> None:
    """Let the program that runs end with errors after everything else was registered.

    Args:
        errors: Returns them when all else has ended. Empty: the program ends well.
        last_exports: Returns what the program exported last. An export that fails with a `DeferredError` keeps it.
    """
    pending = _pending()
    if pending.end is None:
        pending.end = _End(errors)
        stack: Any = pulumi.runtime.get_root_resource()
        if isinstance(stack, _private("stack", "Stack")):
            register = stack.register_outputs
            stack.register_outputs = lambda outputs: pending.append(
                asyncio.ensure_future(_register_exports(register, outputs, last_exports))
            )
    pending.end.attach(pending)


class _End:
    """What a program waits for last: it raises the errors."""

    def __init__(self, errors: Callable[[], Sequence[str]]) -> None:
        self._errors = errors

    def attach(self, pending: _Pending) -> None:
        if self not in pending:
            pending.insert(0, self)

    def __await__(self) -> Generator[Any, Any, None]:
        return self._raise().__await__()

    async def _raise(self) -> None:
        settings = _private("settings", "SETTINGS")
        manager = settings.rpc_manager
        while True:
            # Registrations may have begun meanwhile. These are waited for first.
            await asyncio.sleep(0)
            if manager.rpcs:
                self.attach(manager.rpcs)
                return
            outputs = [output for output in settings.outputs if not output.done()]
            if not self._errors() or not outputs:
                break
            await asyncio.wait(outputs, return_when=asyncio.FIRST_COMPLETED)
        if errors := self._errors():
            # These are the same errors. Another program of this process must not find them.
            if isinstance(manager.unhandled_exception, DeferredError):
                manager.unhandled_exception = manager.exception_traceback = None
            ended = [output for output in settings.outputs if not output.cancelled()]
            settings.outputs.difference_update(each for each in ended if isinstance(each.exception(), DeferredError))
            raise pulumi.RunError("\n".join(errors))


async def _register_exports(
    register: Callable[[Mapping[str, Any]], None],
    outputs: Mapping[str, Any],
    last_exports: Callable[[], Mapping[str, Any]],
) -> None:
    failed = [name for name, value in outputs.items() if await _is_deferred(value)]
    last = last_exports() if failed else {}
    kept = {name: last[name] for name in failed if name in last}
    register({**{name: value for name, value in outputs.items() if name not in failed}, **kept})


async def _is_deferred(value: object) -> bool:
    try:
        await pulumi.Output.from_input(value).future()
    except DeferredError:
        return True
    except Exception:  # noqa: BLE001 - the registration fails with it
        return False
    return False
