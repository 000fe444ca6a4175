"""The inline program of a launch's `up` (Pulumi's Automation API). Imports Pulumi; the driver imports it late."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pulumi import automation
from semver import VersionInfo
from torchx_pulumi.model.registration_plan import RegistrationPlan
from torchx_pulumi.model.versions import VERSIONS
from torchx_pulumi_components.prerendered import register_app

LOOP_WAIT_S = 5.0

_OLDEST_SUPPORTED = VersionInfo(*VERSIONS["pulumi"].oldest)
"""Version that is reported without a process."""


class ServedCommand(automation.PulumiCommand):
    """The CLI of the Automation API. `process` starts the real one: a call here only passes on the program's port."""

    def __init__(self, wait: Callable[[int], None]) -> None:
        self.command = "pulumi"
        self.version = _OLDEST_SUPPORTED
        self._wait = wait

    def run(  # the signature is Pulumi's
        self,
        args: list[str],
        cwd: str,  # noqa: ARG002
        additional_env: Mapping[str, str],  # noqa: ARG002
        on_output: Any = None,  # noqa: ARG002
        on_error: Any = None,  # noqa: ARG002
    ) -> automation.CommandResult:
        """Pass on the port of the program, and return when the engine has ended. Its result is not known here."""
        self._wait(int(next(word for word in args if word.startswith("--client=")).rpartition(":")[2]))
        return automation.CommandResult("", "", 0)


class QuietStack(automation.Stack):
    """An existing stack whose `up` does not ask the CLI for outputs: engine events have them."""

    def __init__(self, name: str, workspace: automation.Workspace) -> None:
        self.name = name
        self.workspace = workspace

    def outputs(self) -> automation.OutputMap:
        """Return no outputs, which saves three processes."""
        return {}

    def info(self, show_secrets: bool = True) -> Any:  # noqa: ARG002  # the signature is Pulumi's
        """Return a value that is not None, as `up` needs."""
        return True


def serve(run: RegistrationPlan, stack: str, folder: Path, wait: Callable[[int], None]) -> None:
    """Serve the program of a run to an engine.

    Args:
        run: The run.
        stack: Name of the stack, which exists.
        folder: Folder with the project's file.
        wait: Takes the port of the program, and returns when the engine has ended.
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
    """Close the event loop of a program. Pulumi leaves it open, with tasks and sockets, if the engine exits early."""
    end = time.monotonic() + LOOP_WAIT_S
    while loop.is_running() and time.monotonic() < end:
        time.sleep(0.01)
    if loop.is_running() or loop.is_closed():
        return
    # Pulumi's own handler stops the loop when a task cannot reach the engine. CLI 3.274 ends before the program.
    loop.set_exception_handler(lambda _loop, _context: None)
    # It may have asked for that after the loop ended; a stop that waits would end the next run early.
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.run_until_complete(_cancel_tasks())
    loop.close()


async def _cancel_tasks() -> None:
    """Cancel all other tasks of the running loop, and wait for them."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
