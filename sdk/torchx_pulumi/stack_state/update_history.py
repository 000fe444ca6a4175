"""The history that Pulumi keeps of a stack in a folder or an object store: its last updates, without their values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from torchx_pulumi.model.object_fields import number_at, text_at
from torchx_pulumi.stack_state.checkpoint import decode_checkpoint
from torchx_pulumi.stack_state.stacks import StackName
from torchx_pulumi.storage.stores import Store

HISTORY = ".pulumi/history"
SUFFIXES = (".history.json", ".history.json.gz")

AT_ONCE = 8
"""Entries that are read at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackUpdate:
    """One update of a stack."""

    kind: str
    """`update`, `refresh`, `destroy`, `import` or `rename`, as Pulumi writes it."""
    result: str
    """`succeeded`, `failed` or `in-progress`."""
    started_at: datetime | None
    """None: not known."""
    finished_at: datetime | None
    """None: it has not ended, or that is not known."""
    message: str
    """What was given with `--message`, or the commit. Empty: nothing."""
    started_by: str = ""
    """`cli`, `auto.local` or `auto.inline`, as Pulumi writes it. Empty: not known."""


def read_updates(store: Store, name: StackName, most: int) -> list[StackUpdate]:
    """Return the last updates of a stack, the newest first. Entries that are damaged are left out.

    Args:
        store: The backend's files.
        name: The stack.
        most: Number of updates to return at most; so many files are read.

    Raises:
        OSError: The backend cannot be read.
    """
    folder = f"{HISTORY}/{name}"
    files = [file for file in store.paths(folder) if file.endswith(SUFFIXES)]
    newest = sorted(files, key=_written_at, reverse=True)[:most]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = pool.map(lambda file: _read(store.read_bytes(f"{folder}/{file}"), file), newest)
        return [update for update in found if update is not None]


def _written_at(file: str) -> tuple[int, str]:
    """Return the time in a file's name, `STACK-NANOSECONDS.history.json`; names of a stack differ in length."""
    digits = file.partition(".history.")[0].rpartition("-")[2]
    return (int(digits) if digits.isdecimal() else 0), file


def _read(data: bytes | None, file: str) -> StackUpdate | None:
    """Return an update. None: its file was removed after it was listed, or is damaged."""
    try:
        value: Any = None if data is None else json.loads(decode_checkpoint(data, file))
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, Mapping):
        return None
    return StackUpdate(
        kind=text_at(value, "kind") or "",
        result=text_at(value, "result") or "",
        started_at=_time(value, "startTime"),
        finished_at=_time(value, "endTime"),
        message=text_at(value, "message") or "",
        started_by=text_at(value, "environment", "exec.kind") or "",
    )


def _time(value: Mapping[str, Any], name: str) -> datetime | None:
    seconds = number_at(value, name)
    try:
        return datetime.fromtimestamp(seconds, timezone.utc) if seconds else None
    except (ValueError, OverflowError, OSError):
        return None
