"""Serve the program of a run in a new process if this one was forked after it loaded gRPC, which would hang.

`main` of the new process reads the run from the first line of stdin, prints the port of its server, and ends with
stdin.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.registration_plan import RegistrationPlan

_forked = False
"""This process is a fork of one that had loaded gRPC."""


def is_forked() -> bool:
    """Return whether gRPC cannot be used in this process."""
    return _forked


def _note_fork() -> None:
    global _forked  # the hook of a fork takes no arguments
    _forked = _forked or "grpc" in sys.modules


os.register_at_fork(after_in_child=_note_fork)


@contextlib.contextmanager
def serving(run: RegistrationPlan, stack: str, folder: Path, env: Mapping[str, str]) -> Iterator[int]:
    """Start the program of a run in a new process, yield the port of its server, and end it.

    Raises:
        DeployError: It does not start.
    """
    words = [sys.executable, "-c", f"from {__name__} import main; main()", stack, str(folder)]
    paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(
        words, env={**env, **paths}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as host:
        if host.stdin is None or host.stdout is None:
            raise AssertionError("unreachable: both were asked for")
        try:
            host.stdin.write(f"{json.dumps(dataclasses.asdict(run))}\n")
            host.stdin.flush()
            port = host.stdout.readline().strip()
        except BrokenPipeError:
            port = ""
        if not port.isdigit():
            raise DeployError(f"the program of the launch could not be started in a new process: {words}")
        try:
            yield int(port)
        finally:
            with contextlib.suppress(BrokenPipeError):
                host.stdin.close()


def load_inline() -> Any:
    """Import Pulumi; 0.5 s the first time."""
    # A fork with a gRPC that watches for forks hangs; without that, children that start programs are fine.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
    return importlib.import_module("torchx_pulumi_stacks.engine.inline_program")


def preload() -> None:
    """Load Pulumi in the background, if `serve` will need it in this process."""
    if not is_forked():
        threading.Thread(target=load_inline, name="torchx-pulumi-preload").start()


def serve(run: RegistrationPlan, stack: str, folder: Path, env: Mapping[str, str], wait: Callable[[int], None]) -> None:
    """Serve the program of a run to an engine, in this process if gRPC works in it, else in a new one.

    Args:
        run: The run.
        stack: Name of the stack, which exists.
        folder: Folder with the project's file.
        env: Environment of a new process.
        wait: Takes the port of the program, and returns when the engine has ended.
    """
    if is_forked():
        with serving(run, stack, folder, env) as port:
            wait(port)
    else:
        load_inline().serve(run, stack, folder, wait)


def main() -> None:
    """Serve one program; the entry point of the new process."""
    stack, folder = sys.argv[1:]
    run = RegistrationPlan(**json.loads(sys.stdin.readline()))

    def wait(port: int) -> None:
        sys.stdout.write(f"{port}\n")
        sys.stdout.flush()
        sys.stdin.read()

    load_inline().serve(run, stack, Path(folder), wait)
