"""StackWriter: brings the outputs of one app's stack in line with the cluster. Nothing is stored besides the stack.

docs/decisions/0017 has the rules.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from torchx_pulumi.controller.observing import WAITS, ClusterView, Sighting
from torchx_pulumi.controller.reporting import Reporter
from torchx_pulumi.controller.settings import ControllerTiming
from torchx_pulumi.controller.stack_apps import AppKey, TrackedApp
from torchx_pulumi.controller.tracked import TrackedStacks
from torchx_pulumi.controller.work_queue import WorkQueue
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import is_being_deleted, number_at, time_at
from torchx_pulumi.model.status import JobState, JobStatus, Reason
from torchx_pulumi.outputs.building import build_observed
from torchx_pulumi.runs.driver import Driver, Recorded

BEHIND_S = 1.0
"""Time until an app is looked at again of which the watch is behind the cluster."""

FAILURES_SHOWN = 6
"""Failures in a row, about 15 s, after which a line says that a stack is not written."""


class StackWriter:
    """Looks at apps and writes their stacks; one call per app at a time."""

    def __init__(
        self,
        tracked: TrackedStacks,
        queue: WorkQueue[AppKey],
        views: Sequence[ClusterView],
        driver: Driver,
        reporter: Reporter,
        *,
        program_stacks: bool = False,
        timing: ControllerTiming | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        """Take the dependencies.

        Args:
            tracked: The apps.
            queue: Takes apps that have to be looked at again.
            views: The clusters.
            driver: Writes stacks.
            reporter: Takes lines.
            program_stacks: Write also the stacks of users' own programs.
            timing: Times between steps. None: the defaults.
            clock: Monotonic time in seconds.
            now: The time of the observations, aware.
        """
        self._tracked = tracked
        self._queue = queue
        self._views = views
        self._driver = driver
        self._reporter = reporter
        self._program_stacks = program_stacks
        self._timing = timing or ControllerTiming()
        self._clock = clock
        self._now = now
        self._written_at: dict[AppKey, float] = {}
        self._ends: dict[AppKey, JobStatus] = {}
        self._refused: dict[AppKey, tuple[Any, Any]] = {}
        self._failing_since: dict[AppKey, float] = {}
        self._success_at: dict[str, float] = {}

    def settle(self, key: AppKey) -> None:
        """Write what is seen of an app, if its stack says something else, or add the app to the queue again."""
        app = self._tracked.app(key)
        if app is None:
            self._forget(key)
            return
        if app.uid is None or not (app.by_torchx or self._program_stacks):
            # A launch that is running writes the uid at its end, and the stack is read again then.
            return
        if app.unwritable:
            words = f"{app.app_id}: stack {app.stack} is not written: {app.unwritable}"
            self._reporter.begin(f"unwritable {key}", words)
            return
        try:
            sighting = self._look(app)
            if sighting is not None:
                self._compare(app, sighting)
        except ClusterError:
            # The watch reports a cluster that is away.
            self._queue.retry(key)

    def _forget(self, key: AppKey) -> None:
        for table in (self._written_at, self._ends, self._refused, self._failing_since):
            table.pop(key, None)
        self._reporter.forget(f"unwritable {key}")
        self._reporter.forget(f"write {key}")
        self._queue.succeeded(key)

    def _look(self, app: TrackedApp) -> Sighting | None:
        """Return what is seen of an app. None: nothing that can be written."""
        for view in self._views:
            if view.job_object(app) is not None:
                sighting = view.look(app, self._now())
                if sighting is not None:
                    return self._checked(app, view, as_cancelled(app, sighting))
        ended = self._ends.get(app.key)
        if ended is not None and ended.uid == app.uid:
            return Sighting(status=ended, job_object=None, confirmed=True)
        if app.state.terminal and app.observed.get("uid") == app.uid:
            return None
        return self._look_for_gone(app)

    def _checked(self, app: TrackedApp, view: ClusterView, sighting: Sighting) -> Sighting | None:
        """Return what is seen, from the cluster itself where the watched objects are not enough to write it."""
        if _is_known(app, sighting.status):
            return sighting
        ended = sighting.status.state.terminal
        if self._tracked.is_older(app) and not ended:
            return sighting
        # Pods that are deleted with their job end too, with any exit code.
        by_itself = ended and not any(is_being_deleted(pod) for pod in view.pods_of(app))
        if by_itself and sighting.status.state is JobState.SUCCEEDED:
            return sighting
        # Another process wrote what the stack has, and may have seen more; or it is an end that is never left again,
        # and the watched job object and pods may be of different times.
        try:
            fresh = view.look(app, self._now(), fresh=True)
        except ClusterError as error:
            if error.retryable and by_itself:
                return sighting
            raise
        if fresh is None:
            # It has gone since; that is the next change.
            return sighting if by_itself else self._look_for_gone(app)
        return as_cancelled(app, fresh)

    def _look_for_gone(self, app: TrackedApp) -> Sighting | None:
        """Return the status of a run whose job object is gone for certain. None: that is not known."""
        if app.observed.get("reason") == Reason.NOT_FOUND.value and app.observed.get("uid") == app.uid:
            return None
        for view in self._views:
            last = view.look_at_last(app, self._now())
            job_object = view.last_of(app)
            if last is not None and last.state.terminal and last.reason is not Reason.POD_GONE:
                sighting = as_cancelled(app, Sighting(status=last, job_object=job_object, confirmed=True))
                if not _is_of_deletion(sighting):
                    return replace(sighting, job_object=None)
        here = self._clusters_of(app)
        for view in here:
            found = view.origin.get(app.variant.job_object, app.namespace, app.job_name)
            if found is None or not app.owns(found):
                continue
            # The watch is behind, or does not work for this kind.
            self._queue.add(app.key, BEHIND_S if view.is_synced(app) else self._timing.unwatched_s, pending=False)
            seen = view.look(app, self._now(), fresh=True)
            return None if seen is None else as_cancelled(app, seen)
        if not here:
            return None
        if any(view.job_object(app) is not None for view in here):
            # The watch will say how it was last.
            self._queue.add(app.key, BEHIND_S)
            return None
        # `torchx cancel` notes a cancellation in the stack and then deletes the job object.
        now = self._tracked.reread(app)
        if now is not None and (now.uid, now.observed) == (app.uid, app.observed):
            return Sighting(status=_gone(app), job_object=None, confirmed=True)
        self._queue.add(app.key)
        return None

    def _clusters_of(self, app: TrackedApp) -> list[ClusterView]:
        """Return the views of the cluster of an app's launch. Empty: it is not watched.

        Raises:
            ClusterError: Not found, and a cluster does not answer.
        """
        found: list[ClusterView] = []
        failure: ClusterError | None = None
        for view in self._views:
            try:
                if view.is_cluster_of(app):
                    found.append(view)
            except ClusterError as error:
                failure = error
        if failure is not None and not found:
            raise failure
        return found

    def _compare(self, app: TrackedApp, sighting: Sighting) -> None:
        """Write what is seen of an app if its stack says something else, now or when it is due."""
        key, status = app.key, sighting.status
        if status.state in WAITS:
            self._queue.add(key, self._timing.recheck_s, pending=False)
        if _is_known(app, status):
            self._settled(app)
            return
        ended = app.state.terminal and _run(app.observed) == _run_of(status)
        if (ended and is_being_deleted(sighting.job_object)) or _is_of_deletion(sighting):
            return
        if self._refused.get(key) == (app.observed, _told(status)):
            return
        if status.state.terminal:
            # It is written also if the objects go before the stack can be.
            self._ends[key] = status
        elif status.reason is not Reason.NOT_FOUND:
            wait_s = self._written_at.get(key, -self._timing.write_every_s) + self._timing.write_every_s - self._clock()
            if wait_s > 0:
                self._queue.add(key, wait_s)
                return
        self._write(app, status)

    def _write(self, app: TrackedApp, status: JobStatus) -> None:
        key, moment = app.key, self._now()
        last = time_at(app.observed, "observed_at")
        if last is not None and last >= moment:
            # This clock or that of the last writer was set.
            moment = last + timedelta(milliseconds=1)
        observed = dict(build_observed(status, observed_at=moment))
        observed["observed_at"] = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        outcome = self._driver.record_at(
            app.place, observed, program_stacks=self._program_stacks, replaces=app.observed
        )
        if outcome is Recorded.WRITTEN:
            self._written_at[key], self._success_at[app.backend] = self._clock(), self._clock()
            self._tracked.note_written(key, observed)
            self._reporter.end(f"writes {app.backend}", f"backend {app.backend}: stacks can be written again")
            self._reporter.line(f"{app.app_id}: {status.state.value} ({status.reason.value}) is in stack {app.stack}")
            self._settled(app)
            for view in self._views if status.state.terminal else ():
                view.forget(app.uid)
        elif outcome is Recorded.KNOWN:
            self._read_again(app, status)
        elif outcome is Recorded.LEFT:
            self._left(app)
        else:
            self._deferred(app)

    def _read_again(self, app: TrackedApp, status: JobStatus) -> None:
        """Continue with what the stack has now; a stack that has the same as before refuses the observation."""
        now = self._tracked.reread(app)
        if now is not None and now.observed == app.observed and now.uid == app.uid:
            self._refused[app.key] = (app.observed, _told(status))
            self._settled(app)
        elif now is not None:
            self._queue.retry(app.key)

    def _left(self, app: TrackedApp) -> None:
        if self._tracked.reread(app) is None:
            return
        self._reporter.begin(
            f"writes {app.backend}",
            f"backend {app.backend}: stack {app.stack} cannot be written: there is no permission to write it, or the "
            "checkpoint has a format that only the Pulumi CLI writes; it is tried again every "
            f"{self._timing.left_again_s:g} s",
        )
        self._queue.add(app.key, self._timing.left_again_s, pending=False)

    def _deferred(self, app: TrackedApp) -> None:
        since = self._failing_since.setdefault(app.key, self._clock())
        if self._queue.retry(app.key) < FAILURES_SHOWN:
            return
        why = (
            "an update holds its lock, an operation is pending, or the backend cannot be reached or has no space; "
            "it is tried again"
        )
        if self._success_at.get(app.backend, since - 1) >= since:
            self._reporter.begin(f"write {app.key}", f"{app.app_id}: stack {app.stack} is not written yet: {why}")
        else:
            self._reporter.begin(
                f"writes {app.backend}", f"backend {app.backend}: stack {app.stack} is not written yet: {why}"
            )

    def _settled(self, app: TrackedApp) -> None:
        self._ends.pop(app.key, None)
        self._queue.succeeded(app.key)
        if self._failing_since.pop(app.key, None) is not None:
            self._reporter.end(f"write {app.key}", f"{app.app_id}: stack {app.stack} is written again")


def _run(observed: Mapping[str, Any]) -> tuple[Any, int]:
    return observed.get("uid"), number_at(observed, "attempt") or 1


def _run_of(status: JobStatus) -> tuple[Any, int]:
    return status.uid, status.attempt


def _told(status: JobStatus) -> tuple[Any, ...]:
    return (status.state.value, status.reason.value, *_run_of(status))


def _is_known(app: TrackedApp, status: JobStatus) -> bool:
    """Return whether the stack says the same."""
    return _told(status) == (app.observed.get("state"), app.observed.get("reason"), *_run(app.observed))


def as_cancelled(app: TrackedApp, sighting: Sighting) -> Sighting:
    """Return what is seen of a run whose cancellation the stack notes: CANCELLED where its objects show that."""
    status = sighting.status
    if not app.is_cancelled or status.state in (JobState.SUCCEEDED, JobState.CANCELLED):
        return sighting
    words = app.observed.get("message") or "cancelled"
    noted = replace(status, reason=Reason.CANCELLED, message=words)
    if status.state not in (JobState.FAILED, JobState.UNKNOWN):
        # An active run that had ended as cancelled was resumed.
        return sighting if app.state.terminal else replace(sighting, status=noted)
    if not app.variant.shows_cancel(status, sighting.job_object):
        return sighting
    return replace(sighting, status=replace(noted, state=JobState.CANCELLED))


def _is_of_deletion(sighting: Sighting) -> bool:
    """Return whether an end may be a consequence of the deletion of the job object, and not how the run ended."""
    status, deleted_at = sighting.status, time_at(sighting.job_object, "metadata", "deletionTimestamp")
    if deleted_at is None or status.state not in (JobState.FAILED, JobState.UNKNOWN, JobState.SUCCEEDED):
        return False
    return status.finished_at is None or status.finished_at >= deleted_at


def _gone(app: TrackedApp) -> JobStatus:
    """Return the status of a run whose objects are gone, and whose end was not seen."""
    state, seen_at = app.state, app.observed.get("observed_at")
    seen = f"last seen {state.value} at {seen_at}" if seen_at else "its state was never seen"
    status = JobStatus(
        state=JobState.UNKNOWN,
        reason=Reason.NOT_FOUND,
        message=f"its objects are gone from the cluster; {seen}",
        attempt=_run(app.observed)[1],
        queued_at=time_at(app.observed, "queued_at"),
        uid=app.uid,
    )
    if not app.is_cancelled:
        return status
    words = app.observed.get("message") or "cancelled"
    return replace(status, state=JobState.CANCELLED, reason=Reason.CANCELLED, message=words)
