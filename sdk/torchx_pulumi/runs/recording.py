"""Record observations of an app: all in the index, and the end of its run in the outputs of its stack too."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from torchx_pulumi.model.app_entry import RunEntry, Stage
from torchx_pulumi.model.errors import DeployError, TorchxPulumiError
from torchx_pulumi.model.object_fields import time_at
from torchx_pulumi.model.status import JobState, JobStatus, Reason
from torchx_pulumi.model.timestamps import EPOCH, format_time
from torchx_pulumi.outputs.building import build_observed
from torchx_pulumi.runs.driver import Driver, Recorded
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.runs.observation import Observation, as_observed, from_stack, newer, observed
from torchx_pulumi.schedulers import find_backend

logger = logging.getLogger(__name__)

RETRY_AFTER_S = {Recorded.DEFERRED.value: 5.0, Recorded.LEFT.value: 3600.0}
"""Seconds until a write that was not possible is tried again. An outcome that is not in it is final."""

REQUEST_PAUSES_S = (0.2, 0.4, 0.8)
"""Pauses between attempts to write a request: others that write a state hold the stack's lock for at most 1 s."""

TIME_STEP = timedelta(seconds=1)
"""Times are written in whole seconds."""


def note(
    index: RunIndex, driver: Callable[[], Driver], entry: RunEntry, status: JobStatus, now: datetime
) -> Observation:
    """Write an observation to the index, the end of the run to the stack, and return the newest observation.

    A write that fails is logged. Of an app that was resumed, the cancellation is removed, and its state is written to
    the stack.

    Args:
        index: Where it is noted.
        driver: Returns the engine; called only where an end is to be written.
        entry: The app.
        status: What was seen of its live objects.
        now: When, aware.
    """
    seen, resumed = observed(status, format_time(now)), False
    try:
        resumed = _is_resumed(entry, index.observation(entry), status)
        if entry.cancelled_at is not None and resumed:
            index.change(entry, lambda now: dataclasses.replace(now, cancelled_at=None))
        noted = index.observe(entry, seen)
    except TorchxPulumiError as error:
        logger.warning("what was seen of %s is not kept: %s", entry.app_id, error)
        noted = seen
    record_end(index, driver, entry, noted, now, status, resumed=resumed)
    return noted


def last_seen(index: RunIndex, driver: Callable[[], Driver], entry: RunEntry, now: datetime) -> Observation | None:
    """Return the last observation of an app: that of the index, or that of its stack where that one is newer.

    The stack is read only where the index does not have the end of the run; of a cancelled run also, since somebody
    else may have resumed it. An observation in the stack that is of another run, that only says that the objects are
    gone, or that cannot be read, changes nothing.

    Args:
        index: The observations of this machine; what is newer in the stack is noted here.
        driver: Returns the engine; called only where the stack is read.
        entry: The app.
        now: The time, aware.

    Raises:
        DeployError: The index cannot be read.
    """
    last = index.observation(entry)
    is_over = last is not None and last.state.terminal and last.state is not JobState.CANCELLED
    if is_over or entry.uid is None or entry.stage is not Stage.LAUNCHED or not entry.has_stack:
        return last
    try:
        value = driver().observed(entry)
        seen = from_stack(value) if value else None
    except (TorchxPulumiError, ValueError) as error:
        logger.debug("what the stack of %s has is not known: %s", entry.app_id, error)
        return last
    if seen is None or seen.uid != entry.uid or seen.reason is Reason.NOT_FOUND:
        return last
    if seen.state.terminal:
        seen = dataclasses.replace(seen, recorded=Recorded.KNOWN.value, recorded_at=format_time(now))
    found = newer(last, seen)
    if seen.reason is Reason.CANCELLED and (last is None or not last.state.terminal):
        # What was seen since then does not take the request back.
        found = seen
    if found == last:
        return last
    try:
        index.observe(entry, found)
    except TorchxPulumiError as error:
        logger.warning("what was seen of %s is not kept: %s", entry.app_id, error)
    return found


def note_request(driver: Callable[[], Driver], entry: RunEntry, status: JobStatus, now: datetime) -> None:
    """Write to the stack of an app what was requested of it, as its newest observation.

    Its time is later than that of the observation in the stack, which another clock may have written. A write that is
    not possible is logged, and prevents nothing.

    Args:
        driver: Returns the engine.
        entry: The app.
        status: Its status, of which the message says what was requested.
        now: The time, aware.
    """
    if entry.stage is not Stage.LAUNCHED or not entry.has_stack:
        return
    try:
        before: Mapping[str, Any] | None = None
        for pause_s in (0.0, *REQUEST_PAUSES_S):
            time.sleep(pause_s)
            known = driver().observed(entry) or {}
            if known == before:
                # It has another run, or the end of this one.
                return
            at = max(now, (time_at(known, "observed_at") or EPOCH) + TIME_STEP)
            value = {**build_observed(status, observed_at=at), "uid": status.uid or entry.uid}
            outcome = driver().record(entry, value)
            if outcome in (Recorded.WRITTEN, Recorded.LEFT):
                return
            # KNOWN: a controller may have written something newer since it was read.
            before = known if outcome is Recorded.KNOWN else None
        raise DeployError("another process changes the stack")
    except TorchxPulumiError as error:
        logger.warning("%s: the stack does not say yet that it was %s: %s", entry.app_id, status.message, error)


def record_end(
    index: RunIndex,
    driver: Callable[[], Driver],
    entry: RunEntry,
    noted: Observation,
    now: datetime,
    status: JobStatus | None = None,
    *,
    resumed: bool = False,
) -> None:
    """Write the noted end of a run to its stack, unless that was done, or was tried a moment ago.

    Args:
        index: Where the outcome is noted.
        driver: Returns the engine.
        entry: The app.
        noted: What is noted of it.
        now: The time, aware.
        status: The same with all that was seen, where it was seen just now. None: only what is noted is known.
        resumed: The run is active again, and its stack may say that it was cancelled.
    """
    if not (noted.state.terminal or resumed) or entry.stage is not Stage.LAUNCHED or not entry.has_stack:
        return
    if not _is_due(noted, now):
        return
    whole = as_observed(noted)
    if status is not None and (status.state, status.attempt) == (noted.state, noted.attempt):
        whole = dict(build_observed(status, observed_at=time_at(whole, "observed_at") or now))
    try:
        outcome = driver().record(entry, {**whole, "uid": whole.get("uid") or entry.uid})
    except TorchxPulumiError as error:
        logger.warning("the end of %s is not in its stack yet: %s", entry.app_id, error)
        outcome = Recorded.DEFERRED
    try:
        index.note_recorded(entry, noted, outcome.value, format_time(now))
    except TorchxPulumiError as error:
        logger.debug("that the end of %s was written is not kept: %s", entry.app_id, error)


def with_cancel(entry: RunEntry, status: JobStatus, job_object: Mapping[str, Any] | None) -> JobStatus:
    """Return a status as CANCELLED where the app was cancelled and its object shows that.

    A job that failed by itself stays FAILED: the cancellation may not have reached it, or a colleague resumed it.

    Args:
        entry: The app.
        status: What was read of its objects.
        job_object: The object that stands for the job. None: it was not found.
    """
    if entry.cancelled_at is None or status.state not in (JobState.FAILED, JobState.UNKNOWN):
        return status
    variant = find_backend(entry.scheduler).variants.get(entry.choice)
    if variant is None or not variant.shows_cancel(status, job_object):
        return status
    return dataclasses.replace(
        status, state=JobState.CANCELLED, reason=Reason.CANCELLED, message=cancelled_words(entry)
    )


def cancelled_words(entry: RunEntry) -> str:
    """Return when it was asked to cancel an app."""
    return f"cancelled at {entry.cancelled_at}"


def _is_resumed(entry: RunEntry, last: Observation | None, status: JobStatus) -> bool:
    """Return whether a job that was observed as suspended is active again."""
    variant = find_backend(entry.scheduler).variants.get(entry.choice)
    control = None if variant is None else variant.control
    if control is None or last is None or last.state is not JobState.CANCELLED:
        return False
    active = status.state in (JobState.SUBMITTED, JobState.PENDING, JobState.RUNNING)
    return active and control.is_suspended(last.phase) and not control.is_suspended(status.phase)


def _is_due(noted: Observation, now: datetime) -> bool:
    if noted.recorded is None:
        return True
    tried = time_at({"at": noted.recorded_at}, "at") or EPOCH
    wait_s = RETRY_AFTER_S.get(noted.recorded)
    return wait_s is not None and (now - tried).total_seconds() >= wait_s
