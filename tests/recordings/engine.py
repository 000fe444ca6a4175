"""A mock engine that notes every registration with its URN and options, and a run of a program on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pulumi
from pulumi import get_project, get_stack
from pulumi.runtime.mocks import MockMonitor
from pulumi.runtime.proto import resource_pb2
from pulumi.runtime.rpc import deserialize_properties
from pulumi.runtime.stack import wait_for_rpcs

UID = "11111111-2222-3333-4444-555555555555"
"""Uid of every object that is made."""


class _Mocks(pulumi.runtime.Mocks):
    def __init__(self, state: Mapping[str, Any]) -> None:
        self.state = state

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        outputs = dict(args.inputs)
        if "metadata" in outputs:
            outputs["metadata"] = {**outputs["metadata"], "uid": UID}
        return f"{args.name}-id", outputs

    def call(self, args: pulumi.runtime.MockCallArgs) -> dict[str, Any]:
        if args.token == "pulumi:pulumi:readStackResourceOutputs":
            return {"outputs": {urn: {"outputs": outputs} for urn, outputs in self.state.items()}}
        return {}


class _Monitor(MockMonitor):
    """Notes what a registration says beyond its inputs."""

    def __init__(self, mocks: _Mocks) -> None:
        super().__init__(mocks)
        self.made: list[dict[str, Any]] = []
        self.outputs: dict[str, Any] = {}

    def make_urn(self, parent: str, type_: str, name: str) -> str:
        """Make a URN as the engine does: with all parents but the stack, where Pulumi's own mock has one of them."""
        above = parent.split("::")[2] if parent else ""
        kind = type_ if above in ("", "pulumi:pulumi:Stack") else f"{above}${type_}"
        return "::".join([f"urn:pulumi:{get_stack()}", get_project(), kind, name])

    def RegisterResource(self, request: Any) -> Any:
        response = super().RegisterResource(request)
        if request.type != "pulumi:pulumi:Stack":
            trigger = None
            if request.HasField("replacement_trigger"):
                trigger = request.replacement_trigger.string_value
            self.made.append(
                {
                    "urn": response.urn,
                    "inputs": deserialize_properties(request.object),
                    "ignore_changes": sorted(request.ignoreChanges),
                    "replace_on_changes": sorted(request.replaceOnChanges),
                    "delete_before_replace": request.deleteBeforeReplace,
                    "replacement_trigger": trigger,
                    "depends_on": sorted(request.dependencies),
                }
            )
        return response

    def RegisterResourceOutputs(self, request: resource_pb2.RegisterResourceOutputsRequest) -> Any:
        self.outputs[request.urn] = deserialize_properties(request.outputs)
        return super().RegisterResourceOutputs(request)


def run_program(
    program: Callable[[], Any],
    *,
    state: Mapping[str, Any],
    organization: str | None = None,
    project: str = "proj",
    stack: str = "dev",
) -> list[dict[str, Any]]:
    """Run a program and return what it registered, by URN.

    Args:
        program: Makes the resources.
        state: URN to the outputs that the stack's state has before.
        organization: Of the stack. None: none.
        project: Of the stack.
        stack: Its name.
    """
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loops: list[asyncio.AbstractEventLoop] = []

    def begin_thread() -> None:
        loops.append(asyncio.new_event_loop())
        asyncio.set_event_loop(loops[-1])

    async def main() -> None:
        try:
            program()
        finally:
            await wait_for_rpcs()

    mocks = _Mocks(state)
    monitor = _Monitor(mocks)
    try:
        with ThreadPoolExecutor(2, initializer=begin_thread) as executor:
            loop.set_default_executor(executor)
            pulumi.runtime.set_mocks(
                mocks, project=project, stack=stack, preview=False, monitor=monitor, organization=organization
            )
            loop.run_until_complete(main())
    finally:
        asyncio.set_event_loop(None)
        for used in (loop, *loops):
            used.close()
    made = [{**item, "outputs": monitor.outputs.get(item["urn"])} for item in monitor.made]
    return sorted(made, key=lambda item: str(item["urn"]))
