"""The training jobs of one Pulumi program: what they share, and how those that are refused end the program.

Each job decides in a task of its own. The program waits for the tasks as it does for registrations. A job that is
refused does not stop the others: the program ends with the errors of all jobs in one message, after everything else was
registered. docs/decisions/0019 has the rules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pulumi
from pulumi.runtime.rpc_manager import RPCManager
from pulumi.runtime.settings import SETTINGS, get_root_resource
from pulumi.runtime.stack import Stack
from torchx_pulumi.kube import PodReader

from torchx_pulumi_components.input_resolution import wait_for
from torchx_pulumi_components.shared_reads import shared_reads
from torchx_pulumi_components.stack_state import as_inputs, read_outputs

T = TypeVar("T")

PLANS_AT_ONCE = 8
"""Jobs of one program that are planned at the same time. Each sends a few requests, one after the other."""

STACK_TYPE = "::pulumi:pulumi:Stack::"


class JobRefusedError(pulumi.RunError):
    """A job or an image was refused, or a job did not reach its goal. What depends on it fails with this error."""

    def __init__(self, message: str, what: str) -> None:
        super().__init__(message)
        self.what = what
        """What was refused, for example `job 'train'`."""


@dataclass(slots=True)
class Deferral:
    """Jobs whose failed waits a program collects; see `failures_deferred`."""

    failures: list[str] = field(default_factory=list)
    jobs: list[Awaitable[object]] = field(default_factory=list)
    """Ends of the jobs. They raise nothing."""


_deferral: ContextVar[Deferral | None] = ContextVar("deferral", default=None)


def current_deferral() -> Deferral | None:
    """Return what collects failures of waits here. None: they are raised."""
    return _deferral.get()


@contextmanager
def failures_deferred() -> Iterator[list[str]]:
    """Collect failures of waits of the jobs that are created inside, instead of raising them.

    The jobs have ended their waits when the block ends. A program that exports its outputs and then raises
    `pulumi.RunError` with what was collected fails with its outputs written.
    """
    deferral = Deferral()
    token = _deferral.set(deferral)
    try:
        yield deferral.failures
    finally:
        _deferral.reset(token)
    for job in deferral.jobs:
        wait_for(job)


class ProgramJobs:
    """The training jobs of one program."""

    def __init__(self) -> None:
        self.connections: dict[tuple[str | None, str | None], PodReader] = {}
        """Clusters by kubeconfig and context, for all jobs."""
        self._shared: dict[int, PodReader] = {}
        self._planning = asyncio.Semaphore(PLANS_AT_ONCE)
        self._tasks: list[asyncio.Task[None]] = []
        self._errors: dict[pulumi.Resource, str] = {}
        self._finished: dict[pulumi.Resource, Awaitable[object]] = {}
        self._waits_for: dict[pulumi.Resource, list[pulumi.Resource]] = {}
        """Jobs to those that they wait for."""
        self._warnings: set[str] = set()
        self._end = _End(self)
        self._exports_kept = False

    def warn_once(self, text: str) -> None:
        """Log a warning that holds for all jobs of the program."""
        if text not in self._warnings:
            self._warnings.add(text)
            pulumi.log.warn(text)

    def add(self, component: pulumi.Resource, task: asyncio.Task[None], finished: Awaitable[object]) -> None:
        """Let the program wait for a job, and fail at its end if the job is refused.

        Args:
            component: Component of the job.
            task: What the program waits for.
            finished: End of the job, for what depends on it.
        """
        self._tasks.append(task)
        self._finished[component] = finished
        manager = SETTINGS.rpc_manager
        manager.rpcs.append(task)
        self._end.attach(manager)
        root: Any = get_root_resource()
        if isinstance(root, Stack) and not self._exports_kept:
            self._exports_kept = True
            register = root.register_outputs
            root.register_outputs = lambda outputs: manager.rpcs.append(  # type: ignore[method-assign]
                asyncio.ensure_future(_register_exports(register, outputs))
            )

    @property
    def errors(self) -> list[str]:
        """Messages of the jobs that were refused, or did not reach their goals, in the order of the program."""
        return [self._errors[component] for component in self._finished if component in self._errors]

    def refuse(self, component: pulumi.Resource, message: str) -> None:
        """Let the program end with the error of a job."""
        self._errors[component] = message

    def shared_reads(self, cluster: PodReader | None) -> PodReader | None:
        """Return a cluster with reads that all jobs of the program share (`shared_reads`). None: no cluster is read."""
        if cluster is None:
            return None
        return self._shared.setdefault(id(cluster), shared_reads(cluster))

    async def wait_for(self, component: pulumi.Resource, resources: Iterable[pulumi.Resource]) -> None:
        """Wait for the ends of the jobs among some resources and below the components among them.

        Args:
            component: Component of the job that waits.
            resources: What it depends on.

        Raises:
            pulumi.RunError: The job would wait for itself.
            JobRefusedError: One of these jobs was refused, or did not reach its goal.
        """
        jobs = self._waits_for[component] = [*self._among(resources)]
        if self._leads_to(component, jobs):
            raise pulumi.RunError(
                f"job {component.pulumi_resource_name!r} depends on itself: depends_on, or an Output among the "
                "arguments, names a component around it, or a job that depends on it; name what the job needs instead"
            )
        for job in jobs:
            await asyncio.shield(self._finished[job])

    def _among(self, resources: Iterable[pulumi.Resource]) -> Iterator[pulumi.Resource]:
        for resource in resources:
            if resource in self._finished:
                yield resource
            if isinstance(resource, pulumi.ComponentResource):
                yield from self._among(list(resource._childResources))

    def _leads_to(self, job: pulumi.Resource, others: Iterable[pulumi.Resource]) -> bool:
        """Return whether one of some jobs is a job, or waits for it."""
        left, seen = [*others], set[pulumi.Resource]()
        while left:
            other = left.pop()
            if other is job:
                return True
            if other not in seen:
                seen.add(other)
                left += self._waits_for.get(other, ())
        return False

    async def plan(self, call: Callable[[], T]) -> T:
        """Return the result of a call that plans a job, in a thread: it waits for responses of the cluster."""
        async with self._planning:
            return await asyncio.to_thread(call)

    async def ended(self) -> None:
        """Wait for all jobs, and if some were refused, for all registrations of the others."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        manager = SETTINGS.rpc_manager
        while self.errors and any(not one.done() for one in manager.rpcs if isinstance(one, asyncio.Future)):
            await asyncio.wait([one for one in manager.rpcs if isinstance(one, asyncio.Future)])


def program_jobs() -> ProgramJobs:
    """Return the jobs of the program that runs."""
    manager = SETTINGS.rpc_manager
    if not isinstance(manager.rpcs, _Rpcs):
        manager.rpcs = _Rpcs(manager.rpcs)
    return manager.rpcs.jobs


class _Rpcs(list[Awaitable[Any]]):
    """What Pulumi waits for at the end of a program. A refused job does not end this, see `_End`.

    `pulumi.runtime.test` begins each program with a new list and the same manager.
    """

    def __init__(self, rpcs: Iterable[Awaitable[Any]]) -> None:
        super().__init__(rpcs)
        self.jobs = ProgramJobs()

    def pop(self, index: Any = -1) -> Awaitable[Any]:
        """Remove one and return it, without the error of a refused job."""
        return _without_refusals(super().pop(index))


async def _without_refusals(awaitable: Awaitable[Any]) -> Any:
    try:
        return await awaitable
    except JobRefusedError:
        return None


class _End:
    """What a program waits for last: it raises the errors of the jobs."""

    def __init__(self, jobs: ProgramJobs) -> None:
        self._jobs = jobs

    def attach(self, manager: RPCManager) -> None:
        """Let the program wait for this after all else: Pulumi takes the newest first."""
        if self not in manager.rpcs:
            manager.rpcs.insert(0, self)

    def __await__(self) -> Generator[Any, Any, None]:
        """Wait for everything else, and raise.

        Raises:
            pulumi.RunError: Jobs were refused, or did not reach their goals.
        """
        return self._raise().__await__()

    async def _raise(self) -> None:
        manager = SETTINGS.rpc_manager
        while True:
            # Registrations may have begun meanwhile. These are waited for first.
            await asyncio.sleep(0)
            if manager.rpcs:
                self.attach(manager)
                return
            pending = [output for output in SETTINGS.outputs if not output.done()]
            if not self._jobs.errors or not pending:
                break
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        if self._jobs.errors:
            # These are the same errors. Another program of this process must not find them.
            if isinstance(manager.unhandled_exception, JobRefusedError):
                manager.unhandled_exception = manager.exception_traceback = None
            ended = [output for output in SETTINGS.outputs if not output.cancelled()]
            SETTINGS.outputs.difference_update(each for each in ended if isinstance(each.exception(), JobRefusedError))
            raise pulumi.RunError("\n".join(self._jobs.errors))


async def _register_exports(register: Callable[[Mapping[str, Any]], None], outputs: Mapping[str, Any]) -> None:
    """Register the exports of a program. Those that depend on a refused job keep their last values."""
    refused = [name for name, value in outputs.items() if await _is_refused(value)]
    stored = next((found for urn, found in read_outputs().items() if STACK_TYPE in urn), {}) if refused else {}
    last = {name: as_inputs(stored[name]) for name in refused if name in stored}
    register({**{name: value for name, value in outputs.items() if name not in refused}, **last})


async def _is_refused(value: Any) -> bool:
    try:
        await pulumi.Output.from_input(value).future()
    except JobRefusedError:
        return True
    except Exception:  # noqa: BLE001 - the registration fails with it
        return False
    return False


class Barrier(pulumi.Resource):
    """Child of a job's component for which whatever depends on the job waits. It is not registered.

    The other children are registered after the decision, which may be later than the resources that depend on them.
    """

    def __init__(self, component: pulumi.ComponentResource, urn: Awaitable[str]) -> None:
        # Not that of the base class, which registers.
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
        """Return the URN of the job's component, once its objects are created.

        Raises:
            JobRefusedError: The job was refused, or did not reach its goal.
        """
        return await asyncio.shield(self._urn)


@contextmanager
def behind_barrier(component: pulumi.ComponentResource) -> Iterator[None]:
    """Register children of a job inside that only its barrier represents: the same ones, whenever a program looks."""
    listed = set(component._childResources)
    try:
        yield
    finally:
        component._childResources = listed
