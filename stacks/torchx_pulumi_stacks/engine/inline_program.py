"""The one `up` of a launch, an inline program of Pulumi's Automation API. Loads Pulumi; the driver imports it late."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pulumi import automation
from semver import VersionInfo
from torchx_pulumi.model.registration_plan import RegistrationPlan
from torchx_pulumi_components.prerendered import register_app

LOOP_WAIT_S = 5.0

_NEWEST_KNOWN = VersionInfo(3, 259, 0)
"""Asking the CLI for its version is a process of its own. One that is too old refuses what it does not know."""


class ServedCommand(automation.PulumiCommand):
    """The CLI as the Automation API calls it: started elsewhere, so that a call only names the program's port."""

    def __init__(self, wait: Callable[[int], None]) -> None:
        self.command = "pulumi"
        self.version = _NEWEST_KNOWN
        self._wait = wait

    def run(  # the signature is Pulumi's
        self,
        args: list[str],
        cwd: str,  # noqa: ARG002
        additional_env: Mapping[str, str],  # noqa: ARG002
        on_output: Any = None,  # noqa: ARG002
        on_error: Any = None,  # noqa: ARG002
    ) -> automation.CommandResult:
        """Let the engine reach the program until it ends; how it ended is not known here."""
        self._wait(int(next(word for word in args if word.startswith("--client=")).rpartition(":")[2]))
        return automation.CommandResult("", "", 0)


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


def serve(run: RegistrationPlan, stack: str, folder: Path, wait: Callable[[int], None]) -> None:
    """Offer the program of a run to an engine.

    Args:
        run: What is registered.
        stack: Name of the stack, which exists.
        folder: Folder with the project's file.
        wait: Takes the port where the program is offered, and returns when the engine has ended.
    """
    command = ServedCommand(wait)
    loops: list[asyncio.AbstractEventLoop] = []

    def program() -> None:
        loops.append(asyncio.get_running_loop())
        register_app(run)

    workspace = automation.LocalWorkspace(work_dir=str(folder), program=program, pulumi_command=command)
    try:
        QuietStack(stack, workspace).up(suppress_outputs=True, suppress_progress=True)
    finally:
        for loop in loops:
            end_loop(loop)


def end_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Close the loop of a program. Pulumi leaves it open, tasks and sockets in it, where the engine went away."""
    end = time.monotonic() + LOOP_WAIT_S
    while loop.is_running() and time.monotonic() < end:
        time.sleep(0.01)
    if loop.is_running() or loop.is_closed():
        return
    loop.run_until_complete(_cancel_tasks())
    loop.close()


async def _cancel_tasks() -> None:
    """Cancel all other tasks of the running loop, of which there may be none, and wait for their ends."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
