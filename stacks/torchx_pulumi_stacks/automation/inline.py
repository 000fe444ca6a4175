"""The one `up` of a launch, an inline program of Pulumi's Automation API. Loads Pulumi; the driver imports it late."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pulumi import automation
from semver import VersionInfo
from torchx_pulumi.runs.ready_run import ReadyRun
from torchx_pulumi_components.ready import register_ready

from torchx_pulumi_stacks.automation.engine import Ended, RunningCli
from torchx_pulumi_stacks.automation.relay import Relay

LOADED_BY = os.getpid()
"""The process that loaded gRPC, whose threads a fork does not take along."""

LOOP_WAIT_S = 5.0

_NEWEST_KNOWN = VersionInfo(3, 259, 0)
"""Asking the CLI for its version is a process of its own. One that is too old refuses what it does not know."""


class RunningCommand(automation.PulumiCommand):
    """The CLI as the Automation API calls it: started before, so that a call only waits for its end."""

    def __init__(self, running: RunningCli, relay: Relay) -> None:
        self.command = "pulumi"
        self.version = _NEWEST_KNOWN
        self._running = running
        self._relay = relay
        self.ended: Ended | None = None
        """How it ended."""

    def run(  # the signature is Pulumi's
        self,
        args: list[str],
        cwd: str,  # noqa: ARG002
        additional_env: Mapping[str, str],  # noqa: ARG002
        on_output: Any = None,  # noqa: ARG002
        on_error: Any = None,  # noqa: ARG002
    ) -> automation.CommandResult:
        """Let the engine reach the program; a failure is no exception here, for its reason is in the notes."""
        self._relay.pass_on_to(int(next(word for word in args if word.startswith("--client=")).rpartition(":")[2]))
        self.ended = self._running.wait()
        return automation.CommandResult(self.ended.stdout, self.ended.stderr, self.ended.code)


class QuietStack(automation.Stack):
    """A stack that is there already, and whose `up` asks the CLI nothing more: events told its outputs."""

    def __init__(self, name: str, workspace: automation.Workspace) -> None:
        self.name = name
        self.workspace = workspace

    def outputs(self) -> automation.OutputMap:
        """Return nothing; three processes saved."""
        return {}

    def info(self, show_secrets: bool = True) -> Any:  # noqa: ARG002  # the signature is Pulumi's
        """Return something, as `up` wants it."""
        return True


def up(run: ReadyRun, stack: str, folder: Path, running: RunningCli, relay: Relay) -> Ended:
    """Register a run in a stack whose `up` was started.

    Args:
        run: What is registered.
        stack: Name of the stack, which exists.
        folder: Folder with the project's file.
        running: The CLI.
        relay: Where it looks for the program.

    Raises:
        KeyboardInterrupt: The user interrupted it; it has ended.
    """
    command = RunningCommand(running, relay)
    loops: list[asyncio.AbstractEventLoop] = []

    def program() -> None:
        loops.append(asyncio.get_running_loop())
        register_ready(run)

    workspace = automation.LocalWorkspace(work_dir=str(folder), program=program, pulumi_command=command)
    try:
        QuietStack(stack, workspace).up(suppress_outputs=True, suppress_progress=True)
    finally:
        for loop in loops:
            _end(loop)
    if command.ended is None:
        raise AssertionError("unreachable: up calls the CLI once")
    return command.ended


def _end(loop: asyncio.AbstractEventLoop) -> None:
    """Close the loop of a program. Pulumi leaves it open, tasks and sockets in it, where the engine went away."""
    end = time.monotonic() + LOOP_WAIT_S
    while loop.is_running() and time.monotonic() < end:
        time.sleep(0.01)
    if loop.is_running() or loop.is_closed():
        return
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.close()
