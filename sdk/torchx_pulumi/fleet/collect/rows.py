"""Build a row from an app's stack and a newer observation. Pure; values of an unexpected shape never raise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from torchx_pulumi.fleet.collect.row import STALE_AFTER_S, FleetRow
from torchx_pulumi.model.status import JobState, Reason
from torchx_pulumi.model.timestamps import parse_time
from torchx_pulumi.outputs.newer import read_state
from torchx_pulumi.stack_state.checkpoint import StackApp
from torchx_pulumi.stack_state.stacks import StackName

CLAIM_S = 60.0
"""Maximum age of an observation that may report a missing controller or scheduler."""

ABSENCES = (Reason.CONTROLLER_ABSENT.value, Reason.SCHEDULER_ABSENT.value)
"""Reasons of a missing controller or scheduler."""

READY_STATES = (JobState.RUNNING.value, JobState.SUCCEEDED.value)


def build_row(
    stack: StackName,
    app: StackApp,
    now: datetime,
    *,
    seen: Mapping[str, Any] | None = None,
    checked_at: datetime | None = None,
    source: str = "state",
    updating: bool = False,
    note: str = "",
) -> FleetRow:
    """Build the row of an app.

    Args:
        stack: Its stack.
        app: Its output in the stack.
        now: Time of reading, aware.
        seen: An observation newer than the stack's. None: the stack's own.
        checked_at: Time of `seen`. None: not known.
        source: Source of `seen`: `local` or `live`; `state` for the stack's own.
        updating: The stack is locked by a running update.
        note: See `FleetRow.note`.
    """
    output = app.output
    identity, declared = _mapping(output.get("app")), _mapping(output.get("declared"))
    links = _mapping(output.get("links"))
    observed = _mapping(output.get("observed")) if seen is None else seen
    state = read_state(observed.get("state"))
    roles = join_roles(declared.get("roles"), observed.get("roles"))
    times = {name: parse_time(observed.get(name)) for name in ("queued_at", "started_at", "finished_at", "observed_at")}
    checked = max((time for time in (times["observed_at"], checked_at) if time is not None), default=None)
    launched = times["queued_at"] or app.launched_at or times["started_at"] or times["finished_at"]
    freshness_s = _seconds(checked, now)
    if source != "live":
        observed = without_stale_claims(observed, state, freshness_s)
    app_id = _text(identity.get("id"))
    return FleetRow(
        app_id=app_id,
        handle=_text(identity.get("handle")),
        scheduler=_text(identity.get("scheduler")),
        name=_text(identity.get("name")) or app_id.partition(":")[2],
        namespace=_text(identity.get("namespace")) or app_id.partition(":")[0],
        queue=_text(identity.get("queue")) or None,
        state=state,
        reason=_text(observed.get("reason")) or ("NotObserved" if not observed else ""),
        message=_text(observed.get("message")),
        phase=_text(observed.get("phase")) or None,
        roles=roles,
        replicas_ready=sum(role["ready"] for role in roles),
        replicas_wanted=sum(role["wanted"] for role in roles),
        resources_total=_mapping(declared.get("resources_total")),
        user=_text(declared.get("created_by")) or None,
        attempt=max(_count(observed.get("attempt")), 1),
        age_s=_seconds(launched, now),
        queued_at=times["queued_at"],
        started_at=times["started_at"],
        finished_at=times["finished_at"],
        observed_at=times["observed_at"],
        checked_at=checked,
        freshness_s=freshness_s,
        stale=not state.terminal and (freshness_s is None or freshness_s > STALE_AFTER_S),
        source=source,
        diagnoses=[item for item in _items(observed.get("diagnoses")) if item],
        stack=stack,
        updating=updating,
        log_command=_text(links.get("log_command")) or None,
        ui_url=_web_address(links.get("ui_url")),
        note=note,
    )


def without_stale_claims(observed: Mapping[str, Any], state: JobState, freshness_s: float | None) -> Mapping[str, Any]:
    """Return an observation without an outdated report of a missing controller or scheduler.

    Args:
        observed: The observation.
        state: Its state.
        freshness_s: Its age in seconds. None: not known.
    """
    claims = [item for item in _items(observed.get("diagnoses")) if item.get("reason") in ABSENCES]
    waits = state is JobState.SUBMITTED or observed.get("reason") in ABSENCES
    if not waits and not claims:
        return observed
    if freshness_s is not None and freshness_s <= CLAIM_S:
        return {**observed, "message": f"{_text(observed.get('message'))} ({freshness_s:.0f} s ago)"}
    return {
        **observed,
        "reason": Reason.SUBMITTED.value if waits else observed.get("reason"),
        "message": "submitted; what became of it since then was not looked at" if waits else observed.get("message"),
        "diagnoses": [item for item in _items(observed.get("diagnoses")) if item not in claims],
    }


def join_roles(declared: object, observed: object) -> list[dict[str, Any]]:
    """Put what was asked for of each role beside what was seen of it."""
    seen = {_text(role.get("name")): role for role in _items(observed)}
    asked = {_text(role.get("name")): role for role in _items(declared)}
    joined = []
    for name in [*asked, *(name for name in seen if name not in asked)]:
        want, have = asked.get(name, {}), seen.get(name, {})
        counts = {
            state: _count(number)
            for state, number in _mapping(have.get("counts")).items()
            if state in JobState.__members__
        }
        joined.append(
            {
                "name": name,
                "image": _text(want.get("image")),
                "digest": _text(want.get("digest")) or None,
                "wanted": _count(want.get("replicas")) if want else sum(counts.values()),
                "ready": sum(counts.get(state, 0) for state in READY_STATES),
                "min_replicas": _count(want.get("min_replicas")) or None,
                "resource": _mapping(want.get("resource")),
                "counts": counts,
                "omitted": _count(have.get("omitted")),
                "replicas": _items(have.get("replicas")),
            }
        )
    return joined


def complete(seen: Mapping[str, Any], recorded: object) -> Mapping[str, Any]:
    """Add to a short observation the lasting fields of an earlier, complete one of the same run."""
    if not isinstance(recorded, Mapping) or _count(seen.get("attempt")) != _count(recorded.get("attempt")):
        return seen
    same = (seen.get("state"), seen.get("reason")) == (recorded.get("state"), recorded.get("reason"))
    lasting = ("queued_at", "started_at", *(("diagnoses", "conditions", "finished_at") if same else ()))
    return {**seen, **{key: recorded[key] for key in lasting if recorded.get(key) and not seen.get(key)}}


def sort_rows(rows: Sequence[FleetRow]) -> list[FleetRow]:
    """Return rows with unfinished apps first, then by age, the youngest first."""

    def place(row: FleetRow) -> tuple[bool, float, str]:
        return row.state.terminal, row.age_s if row.age_s is not None else float("inf"), row.app_id

    return sorted(rows, key=place)


def _seconds(time: datetime | None, now: datetime) -> float | None:
    # A clock elsewhere may run ahead; an age is never negative.
    return None if time is None else max((now - time).total_seconds(), 0.0)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _items(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, (list, tuple)) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int:
    # Pulumi's state keeps every number as a float.
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e12 else 0


def _web_address(value: object) -> str | None:
    text = _text(value)
    return text if text.startswith(("https://", "http://")) else None
