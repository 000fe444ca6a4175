"""A program in a process of its own, for processes that were forked after gRPC was loaded: it hangs in those.

Its `main` reads the run from its first line of input, prints the port of its server, and ends with its input.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from torchx_pulumi.errors import DeployError
from torchx_pulumi.runs.ready_run import ReadyRun

_forked = False
"""This process is a fork of one that had loaded gRPC."""


def is_forked() -> bool:
    """Say whether gRPC cannot be used in this process."""
    return _forked


def _note_fork() -> None:
    global _forked  # a fork is known to nothing but the module that it happened to
    _forked = _forked or "grpc" in sys.modules


os.register_at_fork(after_in_child=_note_fork)


@contextlib.contextmanager
def serving(run: ReadyRun, stack: str, folder: Path, env: Mapping[str, str]) -> Iterator[int]:
    """Start the program of a run, give the port of its server, and end it afterwards.

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
            raise DeployError(f"the program of the launch could not be started in a process of its own: {words}")
        try:
            yield int(port)
        finally:
            with contextlib.suppress(BrokenPipeError):
                host.stdin.close()


def main() -> None:
    """Serve one program."""
    from torchx_pulumi_stacks.automation.inline import serve

    stack, folder = sys.argv[1:]
    run = ReadyRun(**json.loads(sys.stdin.readline()))

    def wait(port: int) -> None:
        sys.stdout.write(f"{port}\n")
        sys.stdout.flush()
        sys.stdin.read()

    serve(run, stack, Path(folder), wait)
