"""RFC 3339 times: every form that Kubernetes, Pulumi and Docker write, and values that are not times."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from torchx_pulumi.model.timestamps import format_time, parse_nanoseconds, parse_time, to_nanoseconds

NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("2026-01-02T12:00:00Z", 0),
        ("2026-01-02t12:00:00z", 0),
        ("2026-01-02T13:00:00+01:00", 0),
        ("2026-01-02T12:00:00.5Z", 500_000),
        ("2026-01-02T12:00:00.123456789Z", 123_456),
        ("2026-01-02T12:00:00.1234567890123Z", 123_456),
    ],
)
def test_times_with_a_zone_are_read_in_utc(text: str, microseconds: int) -> None:
    assert parse_time(text) == NOON + timedelta(microseconds=microseconds)


@pytest.mark.parametrize(
    "value",
    [
        *(None, 5, "", "noon", "2026-01-02", "2026-13-02T12:00:00Z", "2026-01-02T12:00:00", "2026-01-02 12:00:00Z"),
        *("0001-01-01T00:00:00+14:00", "2026-01-02T12:00:00Z and more", "2026-01-02T12:00:00+99:00"),
    ],
)
def test_other_values_are_not_times(value: object) -> None:
    assert parse_time(value) is None


def test_a_time_without_a_zone_has_the_default_one() -> None:
    assert parse_time("2026-01-02T12:00:00", default_zone=timezone.utc) == NOON


@pytest.mark.parametrize("text", ["2026-01-02T12:00:00", "2026-13-02T12:00:00Z", "step"])
def test_no_nanoseconds_are_read_from_what_is_not_a_time(text: str) -> None:
    assert parse_nanoseconds(text) is None


def test_nanoseconds_are_exact() -> None:
    assert parse_nanoseconds("2026-01-02T12:00:00.000000001Z") == to_nanoseconds(NOON) + 1


def test_a_time_without_a_zone_is_not_written() -> None:
    assert format_time(NOON) == "2026-01-02T12:00:00Z"
    with pytest.raises(ValueError, match="has no zone"):
        format_time(NOON.replace(tzinfo=None))
