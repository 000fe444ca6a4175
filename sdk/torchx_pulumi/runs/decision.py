"""Decide what to do about a job: launch, keep, relaunch or refuse. Pure; also has the messages of each decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum

from torchx_pulumi.model.launch_options import OnRunningChange
from torchx_pulumi.model.run_record import RunRecord
from torchx_pulumi.model.status import JobState, JobStatus
from torchx_pulumi.runs.identity import changed_fields, is_in_place

RUN_AGAIN = "To run it again, set `rerun` to a new value"
"""What a program does about a run that is over, and that no `up` starts again."""


class Action(Enum):
    """What a deployment does with a job."""

    LAUNCH = "launch"
    KEEP = "keep"
    RELAUNCH = "relaunch"
    REFUSE = "refuse"
    DONE_AND_GONE = "done and gone"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do about a job, and the message for the user."""

    action: Action
    fields: Sequence[str] = ()
    """Paths that changed."""
    message: str = ""
    """One or more sentences for the user. Empty: none is needed."""
    as_launched: bool = False
    """The run stays as it was launched, whatever the program asks for."""


def launched_replicas(record: RunRecord | None, replicas: Mapping[str, int]) -> dict[str, int]:
    """Return the replicas of a run's identity: those of the last launch while no role has more than that.

    A job with other roles, or with more replicas of one, is a new run with what is asked for now.
    """
    if record is None or record.launched.keys() != replicas.keys():
        return dict(replicas)
    if any(count > record.launched[role] for role, count in replicas.items()):
        return dict(replicas)
    return dict(record.launched)


def decide(
    record: RunRecord | None,
    desired: RunRecord,
    observed: JobStatus | None,
    policy: OnRunningChange,
    now: datetime,
    *,
    interrupted: bool = False,
    owned: bool = True,
    live: bool = True,
    renamed: bool = False,
    end: str | None = None,
    controllers: Set[str] = frozenset(),
) -> Decision:
    """Decide what to do about a job.

    Args:
        record: The last run. None: no run was recorded.
        desired: The run that the program asks for, with hash and digests of the version that `record` has. Its
            `launched` is empty where that is unknown: only equal hashes are then the same run.
        observed: Status of the last run's object or, without a record, of the object with the new run's name.
            None: it does not exist.
        policy: What to do about an unfinished run that a change would end.
        now: The current time, aware.
        interrupted: A launch was begun after `record` and left no object.
        owned: The observed object was created by this stack.
        live: The object was read from the cluster now. False: it is as of the last refresh.
        renamed: The program asks for a fixed name which the last run does not have.
        end: State in which the last run ended, if its object is gone. None: its end was not seen.
        controllers: Options that are no reason to run a job again that is over, since another controller shall run it.
            Empty: the same one shall.
    """
    if observed is not None and not owned:
        return Decision(action=Action.REFUSE, message="")
    if record is None:
        return Decision(action=Action.LAUNCH if observed is None else Action.KEEP)
    fields = changed_fields(record.digests, desired.digests)
    # A later release may render the same job in another way: then only fields that change in place differ.
    is_same = desired.launched == record.launched and all(is_in_place(path) for path in fields)
    if (desired.hash == record.hash or is_same) and not renamed:
        return _same_run(record, [path for path in fields if is_in_place(path)], observed, interrupted, end)
    is_taken_over = controllers and all(is_in_place(path) or path in controllers for path in fields)
    if is_taken_over and not renamed and desired.launched == record.launched:
        if observed is None:
            return replace(_same_run(record, fields, None, interrupted, end), as_launched=not interrupted)
        if observed.state.terminal:
            message = (
                f"{_words(fields)} changed; finished run {record.job_name} ({observed.state.value}) is kept as it is. "
            )
            return Decision(action=Action.IGNORE, fields=fields, message=message + RUN_AGAIN, as_launched=True)
    immutable = [path for path in fields if not is_in_place(path)] + (["job_name"] if renamed else [])
    fields = immutable or [path for path in fields if path.endswith(".num_replicas")] or list(fields)
    what = _words(fields)
    if observed is None:
        why = "its launch was refused or interrupted" if interrupted else "it is over and its object is gone"
        message = f"RELAUNCH: {what} changed since run {record.job_name}; {why}, a new run is launched"
        return Decision(action=Action.RELAUNCH, fields=fields, message=message)
    if observed.state.terminal:
        message = (
            f"RELAUNCH: {what} changed; finished run {record.job_name} ({observed.state.value}) is deleted, a new one "
            "launched"
        )
        return Decision(action=Action.RELAUNCH, fields=fields, message=message)
    return _unfinished_run(record.job_name, fields, _since(observed, now, live=live), policy)


def _same_run(
    record: RunRecord, fields: Sequence[str], observed: JobStatus | None, interrupted: bool, end: str | None
) -> Decision:
    if observed is not None:
        message = f"in place: {_words(fields)} of run {record.job_name}" if fields else ""
        return Decision(action=Action.KEEP, fields=fields, message=message)
    if interrupted:
        message = f"the launch of {record.job_name} was refused or interrupted before; launching it again"
        return Decision(action=Action.LAUNCH, message=message)
    ended = "" if end is None else f" ({end})"
    message = f"run {record.job_name}{ended} is over and its object is gone; it is not started again. "
    if fields:
        message += f"The change of {_words(fields)} has nothing to act on. "
    message += RUN_AGAIN
    return Decision(action=Action.DONE_AND_GONE, fields=fields, message=message)


def _unfinished_run(run: str, fields: Sequence[str], since: str, policy: OnRunningChange) -> Decision:
    what = _words(fields)
    if policy is OnRunningChange.REPLACE:
        message = f"RELAUNCH: {what} changed; run {run}, {since}, is deleted first, then the new run is launched"
        return Decision(action=Action.RELAUNCH, fields=fields, message=message)
    if policy is OnRunningChange.IGNORE:
        message = f"{what} changed; run {run}, {since}, is kept as it is (on_running_change: ignore)"
        return Decision(action=Action.IGNORE, fields=fields, message=message, as_launched=True)
    message = (
        f"changing {what} would relaunch run {run}, {since}. Nothing was changed. To end that run and launch the new "
        "one, set on_running_change to `replace`; to keep it until it has finished, set it to `ignore`; or wait, or "
        "undo the change"
    )
    return Decision(action=Action.REFUSE, fields=fields, message=message)


def beside_retained(decision: Decision, run: RunRecord, job_name: str) -> Decision:
    """Return the decision to launch again of a component whose last job object stays (`retain_on_delete`).

    Args:
        decision: The decision without regard to that.
        run: The last run, whose object is in the cluster.
        job_name: Name of the new job.
    """
    kept = f"{_words(decision.fields)} changed; run {run.job_name} stays in the cluster (retain_on_delete)"
    if run.job_name == job_name:
        message = (
            f"{kept}, and the new run has its name. Nothing was changed. Set retain_on_delete to False, choose another "
            "job_name, or undo the change"
        )
        return Decision(action=Action.REFUSE, fields=decision.fields, message=message)
    message = f"RELAUNCH: {kept}, in no stack, and runs on if it has not finished; the new run is launched next to it"
    return Decision(action=Action.RELAUNCH, fields=decision.fields, message=message)


def foreign_object(kind: str, namespace: str, name: str) -> str:
    """Return the message that an object of this name was not created by this stack."""
    return (
        f"{kind} {name!r} in namespace {namespace!r} exists and was not created by this stack, so it is left alone. "
        f"Choose another name, delete it, or take it over on purpose with job_name: {name} and the "
        f"resource option import: {namespace}/{name}"
    )


def values_of_the_machine(run: str, paths: Set[str]) -> str:
    """Return the message that a kept run has other values than this machine gives its fields at these paths."""
    return (
        f"{', '.join(sorted(paths))}: run {run} has another value than TorchX takes from this machine (its version, "
        "LOGLEVEL), and keeps it, as the job does not choose one. To launch it with this machine's value, set `rerun` "
        "to a new value"
    )


def _since(observed: JobStatus, now: datetime, *, live: bool) -> str:
    source, started_at = "" if live else " (as of the last refresh)", observed.started_at or observed.queued_at
    is_running = observed.state is JobState.RUNNING
    state = "which has been running" if is_running else f"which is {observed.state.value}"
    if started_at is None:
        return f"{state}{source}"
    span = duration(now - started_at)
    return f"{state} for {span}{source}" if is_running else f"{state}, launched {span} ago{source}"


def duration(span: timedelta) -> str:
    """Return a time span in its two largest units.

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


def _words(fields: Sequence[str]) -> str:
    shown = list(fields[:8]) + ([f"{len(fields) - 8} more"] if len(fields) > 8 else [])
    return ", ".join(shown) or "the job"
