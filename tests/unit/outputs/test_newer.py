"""Which observation is newer, whatever the clocks of two machines say."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from torchx_pulumi.outputs.newer import is_newer

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def seen(state: str, at: str = EARLY, **more: Any) -> dict[str, Any]:
    return {"state": state, "observed_at": at, "attempt": 1, "uid": "u", **more}


CASES = [
    ("a higher attempt", seen("RUNNING", attempt=2.0), seen("FAILED", LATE)),
    ("a later object", seen("RUNNING", uid="v", queued_at=LATE), seen("SUCCEEDED", LATE, queued_at=EARLY)),
    ("another object seen later", seen("RUNNING", LATE, uid="v"), seen("SUCCEEDED")),
    ("an end, whatever the clocks say", seen("SUCCEEDED"), seen("RUNNING", LATE)),
    ("an end, where the object is gone", seen("SUCCEEDED"), seen("UNKNOWN", LATE)),
    ("a run that was resumed", seen("RUNNING", LATE), seen("CANCELLED")),
    ("a cancellation, where the run was seen before it", seen("CANCELLED", LATE), seen("RUNNING")),
    ("a cancellation, where the object is gone", seen("CANCELLED"), seen("UNKNOWN", LATE)),
    ("the later one of two that are alike", seen("PENDING", LATE), seen("RUNNING")),
    ("the later one of two ends", seen("CANCELLED", LATE), seen("FAILED")),
    ("one with a time", seen("RUNNING"), seen("RUNNING", at="")),
    ("an end that knows no uid", seen("FAILED", uid=None), seen("RUNNING", LATE)),
]


@pytest.mark.parametrize(("newer", "older"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_newer_one_is(newer: dict[str, Any], older: dict[str, Any]) -> None:
    assert is_newer(newer, older)
    assert not is_newer(older, newer)


def test_no_two_observations_are_newer_than_each_other() -> None:
    states = ("SUBMITTED", "RUNNING", "SUCCEEDED", "CANCELLED", "UNKNOWN", "nonsense")
    every = [
        seen(state, at, attempt=attempt, uid=uid)
        for state in states
        for at in (EARLY, LATE, "")
        for attempt in (1, 2)
        for uid in ("u", "v", None)
    ]
    for one, other in itertools.product(every, every):
        assert not (is_newer(one, other) and is_newer(other, one))
