"""Rows of a fleet, built from stacks and newer observations. Pure; values of an unexpected shape never raise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, TypedDict, TypeGuard

from torchx_pulumi.apps.app import App
from torchx_pulumi.model.object_fields import is_finite, items_at, mapping_at, text_at
from torchx_pulumi.model.status import JobState, Reason, read_state
from torchx_pulumi.model.text import one_line
from torchx_pulumi.model.timestamps import parse_time
from torchx_pulumi.stack_state.stacks import StackName

STALE_AFTER_S = 900.0
"""Age from which an observation of an unfinished app is stale."""


Count = Annotated[int, {"minimum": 0}]
"""A number of things; the words of a JSON schema are those of an answer of the API."""


class ShownRole(TypedDict):
    """A role as it was requested and observed."""

    name: Annotated[str, "Name of the role."]
    image: Annotated[str, "Image. Empty: not known."]
    digest: Annotated[str | None, "Digest of the image. Null: not known."]
    wanted: Annotated[Count, "Replicas that were requested."]
    ready: Annotated[Count, "Replicas that run or have succeeded."]
    min_replicas: Annotated[int | None, "Replicas that start together. Null: all."]
    resource: Annotated[dict[str, Any], "Resources of a replica: cpu, gpu, memory_mb, devices."]
    counts: Annotated[dict[str, int], "State to replicas in it."]
    omitted: Annotated[Count, "Replicas that are counted and not listed."]
    replicas: Annotated[list[Mapping[str, Any]], "Replicas, as in the stack output `torchx.observed`."]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRow:
    """One app, from its stack and the observations of this machine."""

    app_id: str
    """`namespace:job_name`."""
    handle: str
    """Handle by which TorchX finds the app."""
    scheduler: str
    """`volcano` or `mcad`."""
    name: str
    """App name as the user wrote it."""
    namespace: str
    queue: str | None
    """None: the scheduler has no queues, or the app names none."""
    cluster: str | None
    """Name of the cluster that it was last seen in, else the context of the launch. None: not known."""
    state: JobState
    reason: str
    """Reason of the state: a CamelCase word."""
    message: str
    """Explanation of the reason. Empty: there is none."""
    phase: str | None
    """The scheduler's phase. None: not known."""
    roles: Sequence[ShownRole]
    replicas_ready: int
    """Replicas that run or have succeeded."""
    replicas_wanted: int
    resources_total: Mapping[str, Any]
    """Resources of all replicas: cpu, gpu, memory_mb, devices. Values that are not amounts are left out."""
    user: str | None
    """User who launched the app. None: not known."""
    attempt: int
    """1 for the first launch."""
    age_s: float | None
    """Seconds since it was launched. None: not known."""
    launched_at: datetime | None
    """When it was launched: the creation of its job object, else the launch, else the first known time of the run."""
    queued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    observed_at: datetime | None
    """Time of the last change of the observation. None: never observed."""
    checked_at: datetime | None
    """Time of the last observation: `observed_at`, or now if the cluster was queried."""
    freshness_s: float | None
    """Seconds since `checked_at`. None: never observed."""
    stale: bool
    """The app had not ended at its last observation, which is older than `STALE_AFTER_S`.

    A stack records changes only; `live` queries the cluster."""
    source: str
    """Source of the observation: `state` (the stack), `live` (the cluster, now) or `local` (this machine earlier: newer
    than the stack, or while the cluster answered)."""
    diagnoses: Sequence[Mapping[str, Any]]
    """Diagnoses, the most likely first: reason, summary, detail, resolution, objects."""
    stack: StackName
    updating: bool
    """The stack is locked by a running update."""
    log_command: str | None
    ui_url: str | None
    note: str = ""
    """Why the cluster says nothing although it was asked. Empty: no problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenStack:
    """A stack that cannot be read."""

    stack: StackName
    why: str
    """The problem, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """All apps of a backend."""

    backend: str
    """URL of the Pulumi backend."""
    read_at: datetime
    """UTC."""
    rows: Sequence[FleetRow]
    """Unfinished ones first, the youngest first among them."""
    broken: Sequence[BrokenStack] = ()
    others: int = 0
    """Number of stacks without an app."""
    excluded: int = 0
    """Number of apps that the filter excludes."""
    unreachable: Mapping[str, str] = field(default_factory=dict)
    """Name of each cluster that did not respond, to the reason."""
    warnings: Sequence[str] = ()
    """Other problems while reading; the rows then show the observation in the stack."""

    def without_rows(self) -> str:
        """Return the line that stands in place of rows."""
        if self.excluded:
            return f"no apps in {self.backend} match: the filter excludes all {self.excluded}"
        return f"no apps in {self.backend}"

    def remarks(self) -> list[str]:
        """Return notes about the rows, for example about unreachable clusters and unreadable stacks."""
        notes = [f"cluster {one_line(name)} not reached: {one_line(why)}" for name, why in self.unreachable.items()]
        notes += [f"stack {one_line(str(item.stack))} cannot be read: {one_line(item.why)}" for item in self.broken]
        # Notes about one app. Clusters are listed above.
        notes += [
            f"{one_line(row.app_id)}: {one_line(row.note)}"
            for row in self.rows
            if row.note and not row.note.startswith("cluster not reached")
        ]
        stale = sum(row.stale for row in self.rows)
        if stale:
            notes.append(f"{stale} unfinished, last seen long ago: --live asks the clusters")
        return notes


CLAIM_S = 60.0
"""Maximum age of an observation that may report a missing controller or scheduler."""

ABSENCES = (Reason.CONTROLLER_ABSENT.value, Reason.SCHEDULER_ABSENT.value)
"""Reasons of a missing controller or scheduler."""

MOST = 1e12
"""Numbers from here on are not amounts: they are left out, so that sums over apps stay numbers."""

READY_STATES = (JobState.RUNNING.value, JobState.SUCCEEDED.value)


def build_row(
    app: App,
    now: datetime,
    *,
    seen: Mapping[str, Any] | None = None,
    checked_at: datetime | None = None,
    source: str = "state",
    cluster: str | None = None,
    updating: bool = False,
    note: str = "",
) -> FleetRow:
    """Build the row of an app.

    Args:
        app: The app.
        now: Time of reading, aware.
        seen: An observation newer than the stack's. None: the stack's own.
        checked_at: Time of `seen`. None: not known.
        source: Source of `seen`: `local` or `live`; `state` for the stack's own.
        cluster: See `FleetRow.cluster`.
        updating: The stack is locked by a running update.
        note: See `FleetRow.note`.
    """
    identity, links, declared = mapping_at(app.output, "app"), mapping_at(app.output, "links"), app.declared
    observed = mapping_at(app.output, "observed") if seen is None else seen
    state = read_state(observed.get("state"))
    roles = join_roles(declared.get("roles"), observed.get("roles"))
    times = {name: parse_time(observed.get(name)) for name in ("queued_at", "started_at", "finished_at", "observed_at")}
    checked = max((time for time in (times["observed_at"], checked_at) if time is not None), default=None)
    launched = times["queued_at"] or parse_time(app.launched_at) or times["started_at"] or times["finished_at"]
    freshness_s, ui_url = _seconds(checked, now), text_at(links, "ui_url")
    if source != "live":
        observed = without_stale_claims(observed, state, freshness_s)
    app_id = text_at(identity, "id") or ""
    return FleetRow(
        app_id=app_id,
        handle=text_at(identity, "handle") or "",
        scheduler=text_at(identity, "scheduler") or "",
        name=text_at(identity, "name") or app_id.partition(":")[2],
        namespace=text_at(identity, "namespace") or app_id.partition(":")[0],
        queue=text_at(identity, "queue"),
        cluster=cluster,
        state=state,
        reason=text_at(observed, "reason") or ("" if observed else Reason.NOT_OBSERVED.value),
        message=text_at(observed, "message") or "",
        phase=text_at(observed, "phase"),
        roles=roles,
        replicas_ready=sum(role["ready"] for role in roles),
        replicas_wanted=sum(role["wanted"] for role in roles),
        resources_total=_resources(declared.get("resources_total")),
        user=text_at(declared, "created_by"),
        attempt=max(_count(observed.get("attempt")), 1),
        age_s=_seconds(launched, now),
        launched_at=launched,
        queued_at=times["queued_at"],
        started_at=times["started_at"],
        finished_at=times["finished_at"],
        observed_at=times["observed_at"],
        checked_at=checked,
        freshness_s=freshness_s,
        stale=not state.terminal and (freshness_s is None or freshness_s > STALE_AFTER_S),
        source=source,
        diagnoses=[item for item in items_at(observed, "diagnoses") if item],
        stack=app.stack,
        updating=updating,
        log_command=text_at(links, "log_command"),
        ui_url=ui_url if ui_url is not None and ui_url.startswith(("https://", "http://")) else None,
        note=note,
    )


def without_stale_claims(observed: Mapping[str, Any], state: JobState, freshness_s: float | None) -> Mapping[str, Any]:
    """Return an observation without an outdated report of a missing controller or scheduler.

    Args:
        observed: The observation.
        state: Its state.
        freshness_s: Its age in seconds. None: not known.
    """
    claims = [item for item in items_at(observed, "diagnoses") if item.get("reason") in ABSENCES]
    reason = observed.get("reason")
    waits = (state is JobState.SUBMITTED and reason != Reason.CANCELLED.value) or reason in ABSENCES
    if not waits and not claims:
        return observed
    if freshness_s is not None and freshness_s <= CLAIM_S:
        return {**observed, "message": f"{text_at(observed, 'message') or ''} ({freshness_s:.0f} s ago)"}
    return {
        **observed,
        "reason": Reason.SUBMITTED.value if waits else reason,
        "message": "submitted; what became of it since then was not looked at" if waits else observed.get("message"),
        "diagnoses": [item for item in items_at(observed, "diagnoses") if item not in claims],
    }


def join_roles(declared: object, observed: object) -> list[ShownRole]:
    """Join what was declared and what was observed of each role."""
    seen = {text_at(role, "name") or "": role for role in items_at(observed)}
    asked = {text_at(role, "name") or "": role for role in items_at(declared)}
    joined: list[ShownRole] = []
    for name in [*asked, *(name for name in seen if name not in asked)]:
        want, have = asked.get(name, {}), seen.get(name, {})
        counts = {
            state: _count(number)
            for state, number in mapping_at(have, "counts").items()
            if state in JobState.__members__
        }
        joined.append(
            {
                "name": name,
                "image": text_at(want, "image") or "",
                "digest": text_at(want, "digest"),
                "wanted": _count(want.get("replicas")) if want else sum(counts.values()),
                "ready": sum(counts.get(state, 0) for state in READY_STATES),
                "min_replicas": _count(want.get("min_replicas")) or None,
                "resource": _resources(want.get("resource")),
                "counts": counts,
                "omitted": _count(have.get("omitted")),
                "replicas": items_at(have, "replicas"),
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


def _is_amount(value: object) -> TypeGuard[float]:
    return is_finite(value) and 0 <= value < MOST


def _count(value: object) -> int:
    # Pulumi's state keeps every number as a float.
    return int(value) if _is_amount(value) else 0


def _resources(value: object) -> dict[str, Any]:
    """Return the amounts of a resource by name, and under `devices` those of devices."""
    found = mapping_at(value)
    amounts: dict[str, Any] = {name: item for name, item in found.items() if _is_amount(item)}
    if "devices" in found:
        amounts["devices"] = {name: item for name, item in mapping_at(found, "devices").items() if _is_amount(item)}
    return amounts
