"""RFC 3339 times, as Kubernetes, Pulumi, Docker and this package write them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone, tzinfo
from functools import lru_cache

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
SECOND_NS = 1_000_000_000

_RFC_3339 = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)?", re.ASCII)


def parse_nanoseconds(text: str) -> int | None:
    """Return an RFC 3339 time with a zone in nanoseconds since 1970, or None for any other text.

    >>> parse_nanoseconds("1970-01-01T00:00:01.000000002Z")
    1000000002
    """
    found = _RFC_3339.fullmatch(text)
    if found is None or found[4] is None:
        return None
    try:
        return _seconds(found[1], found[2], found[4]) * SECOND_NS + int((found[3] or "0")[:9].ljust(9, "0"))
    except ValueError:
        return None


def parse_time(value: object, *, default_zone: tzinfo | None = None) -> datetime | None:
    """Return an RFC 3339 time in UTC; digits after the microseconds are dropped.

    Args:
        value: The text. Any other value is not a time.
        default_zone: Zone of a time that has none. None: such a time is not read.

    Returns:
        None: the value is not a time.

    >>> parse_time("2026-01-02T03:04:05.123456789+01:00")
    datetime.datetime(2026, 1, 2, 2, 4, 5, 123456, tzinfo=datetime.timezone.utc)
    """
    found = _RFC_3339.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None
    day, time, fraction, zone = found.groups()
    try:
        # Python 3.10 reads neither nanoseconds nor Z.
        read = datetime.fromisoformat(f"{day}T{time}.{(fraction or '')[:6]:0<6}{_offset(zone)}")
        zoned = read if read.tzinfo else read.replace(tzinfo=default_zone)
        return zoned.astimezone(timezone.utc) if zoned.tzinfo else None
    except (ValueError, OverflowError):
        return None


def to_nanoseconds(time: datetime) -> int:
    """Return the nanoseconds since 1970 of a time that has a zone."""
    return (time - EPOCH) // timedelta(microseconds=1) * 1000


def format_time(time: datetime) -> str:
    """Return a time that has a zone in UTC and whole seconds, as Kubernetes writes it.

    >>> format_time(EPOCH), format_time(datetime(1, 2, 3, tzinfo=timezone.utc))
    ('1970-01-01T00:00:00Z', '0001-02-03T00:00:00Z')

    Raises:
        ValueError: The time has no zone.
    """
    if time.tzinfo is None:
        raise ValueError(f"time {time.isoformat()} has no zone; pass an aware one")
    # strftime writes years before 1000 with fewer than four digits.
    return time.astimezone(timezone.utc).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def time_text(time: datetime | None) -> str | None:
    """Return a time as `format_time` does. None: it is not known."""
    return None if time is None else format_time(time)


@lru_cache(maxsize=16)
def _seconds(day: str, time: str, zone: str) -> int:
    return int((datetime.fromisoformat(f"{day}T{time}{_offset(zone)}") - EPOCH).total_seconds())


def _offset(zone: str | None) -> str:
    return "+00:00" if zone in ("Z", "z") else zone or ""
