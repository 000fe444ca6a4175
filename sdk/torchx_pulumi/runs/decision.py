"""What is to be done about a job: launch, keep, relaunch, refuse. Pure: a decision from a record, a wish and a look.

The words of every decision that a user reads are here; nothing here talks to an engine or a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from torchx_pulumi.model.run_record import RunRecord
from torchx_pulumi.runs.identity import changed_fields, is_in_place


class Policy(str, Enum):
    """What to do when a change would end a run that has not finished."""

    FAIL = "fail"
    """Stop in preview and say what would have been lost."""
    REPLACE = "replace"
    """Delete the run, wait until it is gone, and launch the new one."""
    IGNORE = "ignore"
    """Keep the run as it was launched; the change waits until it has finished."""


class Action(Enum):
    """What a decision comes to."""

    LAUNCH = "launch"
    KEEP = "keep"
    RELAUNCH = "relaunch"
    REFUSE = "refuse"
    DONE_AND_GONE = "done and gone"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredRun:
    """What the program asks for now."""

    digests: Mapping[str, str]
    """`identity.field_digests`."""
    hash: str
    """`run_hash.run_hash`, with the launched replicas of the last run where the job only shrank."""
    launched: Mapping[str, int] | None = None
    """Replicas that the hash was made with. None: not known, and only equal hashes are the same run."""
    job_name: str | None = None
    """Name that the job object must have. None: whatever name the run has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRun:
    """What was seen of the last run, or of an object that has the new run's name."""

    exists: bool
    owned: bool = True
    """False: the object was not created by this stack."""
    finished: bool = False
    """The run ended, in whatever way."""
    state: str = "UNKNOWN"
    """State in TorchX's words."""
    started_at: datetime | None = None
    """When it started to run, or was created. None: not known."""
    live: bool = True
    """False: not looked at now; as of the last deployment or refresh."""


GONE = ObservedRun(exists=False)
"""Nothing of that name is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do, and what to tell the user."""

    action: Action
    fields: Sequence[str] = ()
    """Paths that changed."""
    message: str = ""
    """One or more sentences for the user. Empty: nothing to say."""


def launched_replicas(record: RunRecord | None, replicas: Mapping[str, int]) -> dict[str, int]:
    """Return what a run of these replicas counts as launched with: the last run's, where nothing grew beyond it.

    A job with other roles, or with more replicas of one, is a new run with what is asked for now.
    """
    if record is None or record.launched.keys() != replicas.keys():
        return dict(replicas)
    if any(count > record.launched[role] for role, count in replicas.items()):
        return dict(replicas)
    return dict(record.launched)


def decide(
    record: RunRecord | None,
    wish: DesiredRun,
    look: ObservedRun,
    policy: Policy,
    now: datetime,
    *,
    interrupted: bool = False,
) -> Decision:
    """Decide what becomes of a job.

    Args:
        record: The last run. None: none is known.
        wish: What the program asks for.
        look: The last run's object, or, without a record, whatever has the new run's name.
        policy: What to do about an unfinished run that a change would end.
        now: For "running for".
        interrupted: A launch was begun after `record` and nothing of it is there.
    """
    if look.exists and not look.owned:
        return Decision(action=Action.REFUSE, message="")
    if record is None:
        return Decision(action=Action.KEEP if look.exists else Action.LAUNCH)
    fields = changed_fields(record.digests, wish.digests)
    renamed = wish.job_name is not None and wish.job_name != record.job_name
    if _is_same_run(record, wish, fields) and not renamed:
        return _same_run(record, [path for path in fields if is_in_place(path)], look, interrupted)
    immutable = [path for path in fields if not is_in_place(path)] + (["job_name"] if renamed else [])
    fields = immutable or _grown(fields)
    return _new_run(record, fields, look, policy, now, interrupted)


def _is_same_run(record: RunRecord, wish: DesiredRun, fields: Sequence[str]) -> bool:
    """Return whether the last run is what is asked for: the same is rendered of it, or it is written down the same.

    The second, because a later release may render the same job in another way.
    """
    if wish.hash == record.hash:
        return True
    return wish.launched == record.launched and all(is_in_place(path) for path in fields)


def _same_run(record: RunRecord, fields: Sequence[str], look: ObservedRun, interrupted: bool) -> Decision:
    if look.exists:
        message = f"in place: {_words(fields)} of run {record.job_name}" if fields else ""
        return Decision(action=Action.KEEP, fields=fields, message=message)
    if interrupted:
        message = f"the launch of {record.job_name} was refused or interrupted before; launching it again"
        return Decision(action=Action.LAUNCH, message=message)
    ended = f" ({record.observed['state']})" if record.observed and "state" in record.observed else ""
    message = f"run {record.job_name}{ended} is over and its object is gone; it is not started again. "
    if fields:
        message += f"The change of {_words(fields)} has nothing to act on. "
    message += "To run it again, set `rerun` to a new value"
    return Decision(action=Action.DONE_AND_GONE, fields=fields, message=message)


def _new_run(
    record: RunRecord, fields: Sequence[str], look: ObservedRun, policy: Policy, now: datetime, interrupted: bool
) -> Decision:
    what = _words(fields)
    if not look.exists:
        why = "its launch was refused or interrupted" if interrupted else "it is over and its object is gone"
        message = f"RELAUNCH: {what} changed since run {record.job_name}; {why}, a new run is launched"
        return Decision(action=Action.RELAUNCH, fields=fields, message=message)
    if look.finished:
        message = (
            f"RELAUNCH: {what} changed; finished run {record.job_name} ({look.state}) is deleted, a new one launched"
        )
        return Decision(action=Action.RELAUNCH, fields=fields, message=message)
    if policy is Policy.REPLACE:
        message = (
            f"RELAUNCH: {what} changed; run {record.job_name}, {_since(look, now)}, is deleted first, then the new run "
            f"is launched"
        )
        return Decision(action=Action.RELAUNCH, fields=fields, message=message)
    if policy is Policy.IGNORE:
        message = (
            f"{what} changed; run {record.job_name}, {_since(look, now)}, is kept as it is (on_running_change: ignore)"
        )
        return Decision(action=Action.IGNORE, fields=fields, message=message)
    message = (
        f"changing {what} would relaunch run {record.job_name}, {_since(look, now)}. Nothing was changed. To end that "
        f"run and launch the new one, set on_running_change to `replace`; to keep it until it has finished, set it to "
        f"`ignore`; or wait, or undo the change"
    )
    return Decision(action=Action.REFUSE, fields=fields, message=message)


def foreign_object(kind: str, namespace: str, name: str) -> str:
    """Say that an object of this name was created by somebody else."""
    return (
        f"{kind} {name!r} in namespace {namespace!r} exists and was not created by this stack, so it is left alone. "
        f"Choose another name, delete it, or take it over on purpose with job_name: {name} and the "
        f"resource option import: {namespace}/{name}"
    )


def _since(look: ObservedRun, now: datetime) -> str:
    state = "which has been running" if look.state == "RUNNING" else f"which is {look.state}"
    source = "" if look.live else " (as of the last refresh)"
    if look.started_at is None:
        return f"{state}{source}"
    joint = " for" if look.state == "RUNNING" else ", launched"
    after = "" if look.state == "RUNNING" else " ago"
    return f"{state}{joint} {duration(now - look.started_at)}{after}{source}"


def duration(span: timedelta) -> str:
    """Say how long, in the two largest units.

    >>> duration(timedelta(seconds=4)), duration(timedelta(hours=27, minutes=5))
    ('4 s', '1 d 3 h')
    """
    seconds = max(int(span.total_seconds()), 0)
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"


def _grown(fields: Sequence[str]) -> list[str]:
    return [path for path in fields if path.endswith(".num_replicas")] or list(fields)


def _words(fields: Sequence[str]) -> str:
    shown = list(fields[:8]) + ([f"{len(fields) - 8} more"] if len(fields) > 8 else [])
    return ", ".join(shown) or "the job"
