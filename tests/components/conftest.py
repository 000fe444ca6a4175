"""A mock engine that remembers what it was asked for, with a loop of its own for every test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from types import SimpleNamespace
from typing import Any

import pulumi
import pytest
from pulumi.runtime.mocks import MockMonitor
from pulumi.runtime.stack import wait_for_rpcs
from torchx_pulumi_components import run_objects, waiting
from torchx_pulumi_components.plugin import TorchxProvider, provider
from torchx_pulumi_components.resources import STASH


def _as_created(metadata: dict[str, Any], name: str) -> dict[str, Any]:
    """Return metadata of a resource as provider and server do, with marks of secrets where they were."""
    uid = f"uid-of-{name}"
    if pulumi.runtime.rpc._special_sig_key in metadata:
        return {**metadata, "value": {**metadata["value"], "uid": uid}}
    return {"name": f"{name}-generated", **metadata, "uid": uid}


class RecordingMocks(pulumi.runtime.Mocks):
    """Answers as an empty cluster does, and keeps every registration."""

    def __init__(self) -> None:
        self.resources: list[pulumi.runtime.MockResourceArgs] = []
        self.state: dict[str, Any] = {}
        """URN to outputs: what the stack's state had before."""
        self.outputs: dict[str, Any] = {}
        """URN to the outputs that a component registered."""

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        self.resources.append(args)
        state = dict(args.inputs)
        if "metadata" in state:
            state["metadata"] = _as_created(state["metadata"], args.name)
        if args.typ == STASH:
            state["output"] = state["input"]
        return f"{args.name}-id", state

    def call(self, args: pulumi.runtime.MockCallArgs) -> dict[str, Any]:
        if args.token == "pulumi:pulumi:readStackResourceOutputs":
            return {"outputs": {urn: {"outputs": outputs} for urn, outputs in self.state.items()}}
        return {}

    def of_type(self, token: str) -> list[pulumi.runtime.MockResourceArgs]:
        return [resource for resource in self.resources if resource.typ == token]

    def one(self, token: str) -> pulumi.runtime.MockResourceArgs:
        (resource,) = self.of_type(token)
        return resource


class RecordingMonitor(MockMonitor):
    """Keeps the outputs of components, which Pulumi's own mocks drop."""

    def make_urn(self, parent: str, type_: str, name: str) -> str:
        """Make a URN as the engine does: without the type of the stack."""
        return super().make_urn("" if "::pulumi:pulumi:Stack::" in parent else parent, type_, name)

    def RegisterResourceOutputs(self, request: Any) -> Any:
        found = pulumi.runtime.rpc.deserialize_properties(request.outputs)
        self.mocks.outputs[request.urn] = found  # type: ignore[attr-defined]
        return super().RegisterResourceOutputs(request)


class Engine:
    """A mock engine, and the way to run a program on it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.mocks = RecordingMocks()

    def run(
        self, program: Callable[[], Any], *, preview: bool = False, stack: str = "dev", project: str = "proj"
    ) -> Any:
        """Run a program and wait until all that it registered is there."""
        self.mocks.resources.clear()
        self.mocks.outputs.clear()
        monitor = RecordingMonitor(self.mocks)
        pulumi.runtime.set_mocks(self.mocks, project=project, stack=stack, preview=preview, monitor=monitor)

        async def main() -> Any:
            try:
                return program()
            finally:
                # Also after an error: what is left over would be waited for in the next test, on another loop.
                await wait_for_rpcs()

        return self.loop.run_until_complete(main())

    def record(self, name: str = "") -> Any:
        """Return the record that a component registered; without a name, that of the one component."""
        (found,) = [each["record"] for urn, each in self.records().items() if urn.endswith(f"::{name}" if name else "")]
        return found

    def records(self) -> dict[str, Any]:
        """Return the records that components registered, as the state has them: URN to outputs."""
        return {
            urn: {"record": outputs["record"]} for urn, outputs in self.mocks.outputs.items() if "record" in outputs
        }

    def value(self, output: pulumi.Output[Any]) -> Any:
        return self.loop.run_until_complete(output.future())


class _Threads(ThreadPoolExecutor):
    """Threads that know the program for which they answer, as those of newer releases of Pulumi do."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        return super().submit(copy_context().run, call, *args, **options)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is waited for is asked about sooner, and given up after a tenth of the time."""
    for module in (run_objects, waiting):
        monkeypatch.setattr(module, "POLL_S", 0.02)
    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: 10 * time.monotonic()))


@pytest.fixture(scope="session")
def plugin() -> TorchxProvider:
    """The provider of other languages; to read the types of all components takes a tenth of a second."""
    return provider()


@pytest.fixture
def engine() -> Iterator[Engine]:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    # Pulumi's mocks give every thread that answers a loop of its own, and close none.
    loops: list[asyncio.AbstractEventLoop] = []

    def begin_thread() -> None:
        loops.append(asyncio.new_event_loop())
        asyncio.set_event_loop(loops[-1])

    with _Threads(4, initializer=begin_thread) as executor:
        loop.set_default_executor(executor)
        yield Engine(loop)
    asyncio.set_event_loop(None)
    for used in (loop, *loops):
        used.close()
