"""Looker: the status of an app by what is watched, and by the cluster itself where that is not enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from torchx_pulumi.controller.observing import ClusterView, Sighting
from torchx_pulumi.controller.settings import ControllerTiming
from torchx_pulumi.controller.stack_apps import AppKey, TrackedApp
from torchx_pulumi.controller.tracked import TrackedStacks
from torchx_pulumi.controller.work_queue import WorkQueue
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import is_being_deleted, number_at, time_at
from torchx_pulumi.model.status import JobState, JobStatus, Reason

BEHIND_S = 1.0
"""Time until an app is looked at again of which the watch is behind the cluster."""

Told = tuple[Any, ...]
"""State, reason, uid and attempt of a status."""


class Looker:
    """Looks at apps. For use by several threads; one call per app at a time."""

    def __init__(
        self,
        tracked: TrackedStacks,
        queue: WorkQueue[AppKey],
        views: Sequence[ClusterView],
        *,
        timing: ControllerTiming,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        """Take the dependencies.

        Args:
            tracked: The apps.
            queue: Takes apps that have to be looked at again.
            views: The clusters.
            timing: Times between steps.
            now: The time, aware.
        """
        self._tracked = tracked
        self._queue = queue
        self._views = views
        self._timing = timing
        self._now = now
        self._ends: dict[AppKey, Sighting] = {}
        self._shown: dict[AppKey, Told] = {}

    def look(self, app: TrackedApp, *, to_write: bool) -> Sighting | None:
        """Return what is seen of an app. None: nothing that its stack or the last look does not say.

        Args:
            app: The app.
            to_write: It is written to the stack, so that it has to be certain. False: it is only shown.

        Raises:
            ClusterError: A cluster does not answer.
        """
        found = self._look(app, to_write=to_write)
        if found is None or is_known(app, found.status):
            return found
        ended = app.state.terminal and run_of(app.observed) == _run_of(found.status)
        if (ended and is_being_deleted(found.job_object)) or _is_of_deletion(found):
            return None
        if found.status.state.terminal:
            # It counts also if the objects go before the stack can be written.
            self._ends[app.key] = replace(found, job_object=None)
        elif not to_write:
            # A cancelled run was resumed.
            self._ends.pop(app.key, None)
        self._shown[app.key] = told(found.status)
        return found

    def forget_end(self, key: AppKey) -> None:
        """Drop an end that is in the stack."""
        self._ends.pop(key, None)

    def forget(self, key: AppKey) -> None:
        """Drop what is kept of an app that is gone."""
        self._ends.pop(key, None)
        self._shown.pop(key, None)

    def _look(self, app: TrackedApp, *, to_write: bool) -> Sighting | None:
        for view in self._views:
            if view.job_object(app) is not None:
                sighting = view.look(app, self._now())
                if sighting is not None:
                    return self._checked(app, view, as_cancelled(app, sighting), to_write=to_write)
        ended = self._ends.get(app.key)
        if ended is not None and ended.status.uid == app.uid:
            return ended
        if app.uid is None or (app.state.terminal and app.observed.get("uid") == app.uid):
            return None
        if not to_write and self._shown.get(app.key) == told(_gone(app)):
            return None
        return self._look_for_gone(app)

    def _checked(self, app: TrackedApp, view: ClusterView, sighting: Sighting, *, to_write: bool) -> Sighting | None:
        """Return what is seen, from the cluster itself where the watched objects are not enough."""
        if is_known(app, sighting.status):
            return sighting
        ended = sighting.status.state.terminal
        if not ended and (not to_write or self._tracked.is_older(app)):
            return sighting
        if not to_write and self._shown.get(app.key) == told(sighting.status):
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
                sighting = as_cancelled(
                    app, Sighting(status=last, job_object=job_object, confirmed=True, cluster=view.name)
                )
                if not _is_of_deletion(sighting):
                    return replace(sighting, job_object=None)
        here = self._clusters_of(app)
        for view in here:
            found = view.origin.get(app.variant.job_object, app.namespace, app.job_name)
            if found is None or not app.owns(found):
                continue
            # The watch is behind, or does not work for this kind.
            self._queue.add(app.key, BEHIND_S if view.is_synced(app) else self._timing.unwatched_s, pending=False)
            fresh = view.look(app, self._now(), fresh=True)
            return None if fresh is None else as_cancelled(app, fresh)
        if not here:
            return None
        if any(view.job_object(app) is not None for view in here):
            # The watch will say how it was last.
            self._queue.add(app.key, BEHIND_S)
            return None
        # `torchx cancel` notes a cancellation in the stack and then deletes the job object.
        now = self._tracked.reread(app)
        if now is not None and (now.uid, now.observed) == (app.uid, app.observed):
            return Sighting(status=_gone(app), job_object=None, confirmed=True, cluster=here[0].name)
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


def run_of(observed: Mapping[str, Any]) -> tuple[Any, int]:
    """Return uid and attempt of an observation."""
    return observed.get("uid"), number_at(observed, "attempt") or 1


def _run_of(status: JobStatus) -> tuple[Any, int]:
    return status.uid, status.attempt


def told(status: JobStatus) -> Told:
    """Return what counts of a status."""
    return (status.state.value, status.reason.value, *_run_of(status))


def is_known(app: TrackedApp, status: JobStatus) -> bool:
    """Return whether the stack says the same."""
    return told(status) == (app.observed.get("state"), app.observed.get("reason"), *run_of(app.observed))


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
        attempt=run_of(app.observed)[1],
        queued_at=time_at(app.observed, "queued_at"),
        uid=app.uid,
    )
    if not app.is_cancelled:
        return status
    words = app.observed.get("message") or "cancelled"
    return replace(status, state=JobState.CANCELLED, reason=Reason.CANCELLED, message=words)
