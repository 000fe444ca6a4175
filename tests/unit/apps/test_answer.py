"""What a stack says after a change of it, whoever makes the change and in whatever order."""

from __future__ import annotations

from typing import Any

import pytest
from torchx_pulumi.apps.answer import Answer, StackChange
from torchx_pulumi.apps.judge import latest
from torchx_pulumi.model.requested import Requested, RequestedAction, follows, read_requested

from tests.unit.apps.simulated_cluster import UID
from tests.unit.apps.test_judge import look_of, observation


def request(action: str, counter: int, **more: Any) -> Requested:
    return Requested(action=RequestedAction(action), at="2026-03-01T10:00:45Z", counter=counter, **{"uid": UID, **more})


LATEST = [
    ("RUNNING Running", "RUNNING Running", "one"),
    ("RUNNING Running v=80", "PENDING Starting v=90", "other"),
    ("RUNNING Running v=90", "PENDING Starting v=80", "one"),
    ("RUNNING Running attempt=2 v=80", "RUNNING Running v=90", "one"),
    ("RUNNING Running v=90", "RUNNING Running attempt=2 v=80", "other"),
    ("RUNNING Running v=90", "SUCCEEDED Completed phase=Completed v=80", "other"),
    ("SUCCEEDED Completed phase=Completed v=80", "RUNNING Running v=90", "one"),
    ("SUCCEEDED Completed phase=Completed", "FAILED ExitCode phase=Failed", "one"),
    ("FAILED ExitCode phase=Failed", "SUCCEEDED Completed phase=Completed", "one"),
    ("FAILED ExitCode phase=Failed", "RUNNING Running attempt=2", "other"),
    ("RUNNING Running v=90", "UNKNOWN NotFound", "other"),
    ("UNKNOWN NotFound", "RUNNING Running v=90", "one"),
    ("UNKNOWN NotFound", "CANCELLED Cancelled", "other"),
    ("CANCELLED Cancelled", "UNKNOWN NotFound", "one"),
    ("CANCELLED Cancelled", "SUCCEEDED Completed phase=Completed", "other"),
    ("FAILED PodGone", "SUCCEEDED Completed", "other"),
    ("SUCCEEDED Completed", "FAILED PodGone", "one"),
    ("FAILED PodGone", "CANCELLED Cancelled", "other"),
    ("FAILED PodGone", "UNKNOWN NotFound", "one"),
    ("CANCELLED Cancelled phase=Aborted v=90", "RUNNING Restarting v=95", "other"),
    ("RUNNING Restarting v=95", "CANCELLED Cancelled phase=Aborted v=90", "other"),
]


@pytest.mark.parametrize(("one", "other", "wins"), LATEST)
def test_the_latest_of_two_observations(one: str, other: str, wins: str) -> None:
    first, second = observation(one), observation(other)
    assert first is not None
    assert second is not None
    assert ("one" if latest(first, second) is first else "other") == wins


def test_of_two_runs_the_one_that_was_made_later_counts() -> None:
    old = {"state": "SUCCEEDED", "uid": "u-0", "queued_at": "2026-03-01T10:00:00Z"}
    new = {"state": "RUNNING", "uid": "u-1", "queued_at": "2026-03-01T11:00:00Z"}
    assert latest(old, new) is new
    assert latest(new, old) is new


@pytest.mark.parametrize(
    ("written", "present", "taken"),
    [
        (request("cancel", 1), None, True),
        (request("cancel", 2), None, False),
        (request("resume", 2), request("cancel", 1), True),
        (request("cancel", 1), request("cancel", 1), False),
        (request("cancel", 1), request("resume", 2), False),
        (request("cancel", 4), request("resume", 2), False),
        (request("cancel", 1), request("resume", 2, uid="u-0"), True),
        (request("resume", 2), request("cancel", 1, uid=None), True),
    ],
)
def test_a_request_counts_if_its_user_knew_the_one_before(
    written: Requested, present: Requested | None, taken: bool
) -> None:
    assert follows(written, present) is taken


CANCEL, RESUME = request("cancel", 1), request("resume", 2, resource_version="100")
CHANGES: list[tuple[str, Requested | None, dict[str, Any], str, Requested | None]] = [
    ("", None, {"look": ("volcano", "Running", "run run", "")}, "RUNNING Running", None),
    ("", CANCEL, {"look": ("volcano", "gone", "", "")}, "CANCELLED Cancelled", CANCEL),
    ("RUNNING Running", CANCEL, {"look": ("pods", "gone", "", "")}, "CANCELLED Cancelled", CANCEL),
    ("RUNNING Running", None, {"look": ("pods", "gone", "", "")}, "UNKNOWN NotFound", None),
    ("RUNNING Running", CANCEL, {"look": ("volcano", "Completed", "", "")}, "SUCCEEDED Completed", CANCEL),
    ("RUNNING Running", None, {"request": CANCEL}, "RUNNING Running", CANCEL),
    ("RUNNING Running", CANCEL, {"request": CANCEL}, "same", CANCEL),
    ("CANCELLED Cancelled phase=Aborted", CANCEL, {"request": RESUME}, "CANCELLED Cancelled", RESUME),
    (
        "CANCELLED Cancelled phase=Aborted",
        CANCEL,
        {"request": RESUME, "look": ("volcano", "Aborted v=100", "", "")},
        "PENDING Restarting",
        RESUME,
    ),
    ("UNKNOWN NotFound", None, {"request": CANCEL}, "UNKNOWN NotFound", CANCEL),
    (
        "UNKNOWN NotFound",
        None,
        {"request": CANCEL, "look": ("v1beta1", "gone", "", "")},
        "CANCELLED Cancelled",
        CANCEL,
    ),
    ("", None, {"observed": "RUNNING Running"}, "RUNNING Running", None),
    ("SUCCEEDED Completed", None, {"observed": "RUNNING Running v=99"}, "same", None),
    ("RUNNING Running v=90", CANCEL, {"observed": "FAILED ExitCode phase=Failed"}, "FAILED ExitCode", CANCEL),
    ("PENDING Restarting", RESUME, {"observed": "CANCELLED Cancelled phase=Aborted v=100"}, "same", RESUME),
    (
        "PENDING Restarting",
        RESUME,
        {"observed": "CANCELLED Cancelled phase=Aborted v=130"},
        "CANCELLED Cancelled",
        RESUME,
    ),
    ("SUCCEEDED Completed", None, {"look": ("volcano", "unread", "", "")}, "same", None),
    ("SUCCEEDED Completed", None, {"look": ("volcano", "gone", "", "")}, "same", None),
    (
        "",
        None,
        {"observed": "SUCCEEDED Completed phase=Completed", "look": ("volcano", "gone", "", "")},
        "SUCCEEDED Completed",
        None,
    ),
]


@pytest.mark.parametrize(("observed", "present", "change", "answer", "requested"), CHANGES)
def test_a_change_is_judged_with_what_the_stack_has(
    observed: str, present: Requested | None, change: dict[str, Any], answer: str, requested: Requested | None
) -> None:
    before = Answer(observed=observation(observed) or {}, requested=present)
    known = {**change}
    if "look" in known:
        known["look"] = look_of(*known["look"])
    if "observed" in known:
        known["observed"] = observation(known["observed"])
    after = StackChange(uid=UID, **known).apply(before)
    told = "same" if after is before else f"{after.observed.get('state')} {after.observed.get('reason')}"
    assert (told, after.requested) == (answer, requested)


def test_a_version_that_no_cluster_has_orders_nothing() -> None:
    # Any writer of a backend may write such a text, and Python refuses to read so many digits.
    before = Answer(observed={**(observation("RUNNING Running") or {}), "resource_version": "9" * 5000})
    after = StackChange(uid=UID, look=look_of("volcano", "Pending", "wait wait", "")).apply(before)
    assert after.observed["state"] == "PENDING"
    asked = request("resume", 2, resource_version="9" * 5000)
    after = StackChange(uid=UID, look=look_of("volcano", "Aborted", "", ""), request=asked).apply(
        Answer(requested=CANCEL)
    )
    assert after.observed["state"] == "CANCELLED"


@pytest.mark.parametrize(
    "value",
    [
        None,
        "cancel",
        {"action": "pause", "at": "2026-01-02T03:04:05Z"},
        {"action": "cancel"},
        {"action": "cancel", "at": "\x1b[2J"},
        {"action": "cancel", "at": "2026-01-02T03:04:05Z", "counter": 1.5},
    ],
)
def test_a_request_that_cannot_be_read_is_none(value: object) -> None:
    assert read_requested(value) is None
