"""Refuse a launch in a fork of a process that had loaded gRPC, which would hang. Forks are seen from the import on."""

from __future__ import annotations

import os
import sys

from torchx_pulumi.model.errors import DeployError

_forked = False
"""This process is a fork of one that had loaded gRPC."""


def _note_fork() -> None:
    global _forked  # the hook of a fork takes no arguments
    _forked = _forked or "grpc" in sys.modules


os.register_at_fork(after_in_child=_note_fork)


def check_process() -> None:
    """Check that gRPC, by which the engine reaches the program of a launch, works in this process.

    Raises:
        DeployError: It does not: its threads are not in a fork.
    """
    if _forked:
        raise DeployError(
            f"process {os.getpid()} was forked after gRPC was loaded, by an earlier launch or by the program, and gRPC "
            "does not work in a fork: nothing was changed. Launch in the process that it was forked from, also in "
            "threads of it, or in a new process: multiprocessing.get_context('spawn'), or subprocess"
        )
