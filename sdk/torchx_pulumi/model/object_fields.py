"""Read fields of observed objects: an absent value, or one of another type, reads as None or empty; never raises."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, TypeGuard

from torchx_pulumi.model.timestamps import EPOCH, parse_time


def at(obj: object, *path: str) -> Any:
    """Return the value at a path of keys, or None if the path breaks off.

    >>> at({"status": {"state": {"phase": "Running"}}}, "status", "state", "phase")
    'Running'
    >>> at({"status": None}, "status", "state", "phase") is None
    True
    """
    for key in path:
        if not isinstance(obj, Mapping):
            return None
        obj = obj.get(key)
    return obj


def text_at(obj: object, *path: str) -> str | None:
    """Return the text at a path, or None if it is absent or empty."""
    value = at(obj, *path)
    return value if isinstance(value, str) and value else None


def is_finite(value: object) -> TypeGuard[float]:
    """Return whether a value is a number that a float can hold. JSON has larger ones, and Python reads NaN in it.

    >>> [is_finite(value) for value in (1, 2.5, True, "1", float("nan"), float("inf"), 10**400)]
    [True, True, False, False, False, False, False]
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def number_at(obj: object, *path: str) -> int | None:
    """Return the whole number at a path, also if it is written as text or as 2.0."""
    value = at(obj, *path)
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:
        return None
    return int(number) if is_finite(number) else None


MAX_DIGITS = 20
"""Digits of the largest resourceVersion, which has 64 bits. A longer one was not given by an API server."""


def version_number(version: str | None) -> int:
    """Return a resourceVersion as a number, or -1 if it is unknown and orders nothing.

    >>> version_number("120"), version_number("a1"), version_number(None)
    (120, -1, -1)
    """
    known = version is not None and len(version) <= MAX_DIGITS and version.isdecimal()
    return int(version) if version is not None and known else -1


def mapping_at(obj: object, *path: str) -> Mapping[str, Any]:
    """Return the mapping at a path; empty if it is absent."""
    value = at(obj, *path)
    return value if isinstance(value, Mapping) else {}


def items_at(obj: object, *path: str) -> list[Mapping[str, Any]]:
    """Return the mappings in the list at a path; entries of other types are left out."""
    value = at(obj, *path)
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        return []
    return [item for item in value if isinstance(item, Mapping)]


def is_being_deleted(obj: object) -> bool:
    """Return whether an object has a deletion timestamp."""
    return text_at(obj, "metadata", "deletionTimestamp") is not None


def time_at(obj: object, *path: str) -> datetime | None:
    """Return the time at a path as an aware time in UTC, or None if it is absent.

    >>> time_at({"t": "2026-01-02T03:04:05Z"}, "t")
    datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
    >>> time_at({"startedAt": "1970-01-01T00:00:00Z"}, "startedAt") is None
    True
    """
    value = at(obj, *path)
    if isinstance(value, datetime):
        # Clients of Kubernetes read times themselves.
        value = value.isoformat()
    found = parse_time(value, default_zone=timezone.utc)
    # Kubelets write 1970 for the start of a container that did not start, and Go year 1 for a time that is not set.
    return found if found is not None and found > EPOCH else None


def earliest(times: Iterable[datetime | None]) -> datetime | None:
    """Return the first of the times that are known."""
    return min((time for time in times if time is not None), default=None)


def latest(times: Iterable[datetime | None]) -> datetime | None:
    """Return the last of the times that are known."""
    return max((time for time in times if time is not None), default=None)
