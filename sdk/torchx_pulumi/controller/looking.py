"""How an app stands by what is watched, and by the cluster itself where that is not enough. `apps.judge` decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from torchx_pulumi.apps.answer import Answer
from torchx_pulumi.apps.judge import Weight, judge, latest, weight
from torchx_pulumi.apps.look import Look
from torchx_pulumi.controller.observing import ClusterView
from torchx_pulumi.controller.settings import ControllerTiming
from torchx_pulumi.controller.stack_apps import AppKey, TrackedApp, kept_of_observed
from torchx_pulumi.controller.tracked import TrackedStacks
from torchx_pulumi.controller.work_queue import WorkQueue
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import number_at, text_at

BEHIND_S = 1.0
"""Time until an app is looked at again of which the watch is behind the cluster."""

Told = tuple[Any, ...]
"""State, reason, uid and attempt of an observation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One look at a run, and how the run stands by it."""

    look: Look
    observed: Mapping[str, Any] | None
    """In the shape of `observed`. None: as it was known before."""
    cluster: str
    """Name of the watched cluster."""


def look_at(
    view: ClusterView,
    app: TrackedApp,
    now: datetime,
    before: Answer,
    is_changing: Callable[[TrackedApp], bool],
) -> Sighting | None:
    """Look at an app in one cluster, by requests only where the watched objects are not enough.

    Args:
        view: The cluster.
        app: The app.
        now: The time, aware.
        before: How it stood before, and the last request about it.
        is_changing: Returns whether a deployment changes its stack. Asked only where that matters.

    Returns:
        None: nothing new, or this is not known to be the cluster of its launch.

    Raises:
        ClusterError: The cluster does not answer.
    """
    previous = before.observed or None

    def sighting(look: Look) -> Sighting:
        found = judge(look, before.requested, previous)
        return Sighting(look=look, observed=None if found is previous else found, cluster=view.name)

    watched = view.look(app, now)
    if watched is not None:
        seen = sighting(watched)
        if not _has_to_be_confirmed(watched, seen.observed, previous):
            return seen
    else:
        if app.uid is None or is_told(sighting(view.if_gone(app, now)).observed, previous):
            return None
        if not view.is_cluster_of(app):
            return None
    look = view.look_again(app, now)
    if look is None or (look.gone and view.job_object(app) is not None):
        # The watch will say how it was last.
        return None
    if look.status is not None and look.by_absence(look.status) and not look.gone:
        look = replace(look, changing=is_changing(app))
    return sighting(look)


def _has_to_be_confirmed(look: Look, found: Mapping[str, Any] | None, previous: Mapping[str, Any] | None) -> bool:
    """Return whether the watched job object and pods, which may be of different times, are not enough."""
    if is_behind(look, previous):
        return True
    if found is None or is_told(found, previous):
        return False
    if weight(found) is not Weight.ACTIVE:
        return True
    # Only its pods changed, and somebody else may have seen later ones.
    known = None if previous is None else text_at(previous, "resource_version")
    return look.variant.ends_by_pods and known is not None and known == look.resource_version


def is_behind(look: Look, previous: Mapping[str, Any] | None) -> bool:
    """Return whether a run has fewer attempts than before: the watch is behind, or the cluster was restored."""
    if look.status is None or look.gone or previous is None or text_at(previous, "uid") != look.status.uid:
        return False
    return look.status.attempt < (number_at(previous, "attempt") or 1)


def told(observed: Mapping[str, Any]) -> Told:
    """Return what counts of an observation."""
    return (observed.get("state"), observed.get("reason"), observed.get("uid"), number_at(observed, "attempt") or 1)


def is_told(found: Mapping[str, Any] | None, previous: Mapping[str, Any] | None) -> bool:
    """Return whether an observation says no more than what was known before."""
    return found is None or (previous is not None and told(found) == told(previous))


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
        self._shown: dict[AppKey, Mapping[str, Any]] = {}
        """What was shown of apps whose stacks are not written."""

    def look(self, app: TrackedApp, *, to_write: bool) -> Sighting | None:
        """Return how an app stands. None: as its stack or the last look says, or that is not known.

        Args:
            app: The app.
            to_write: It is written to the stack. False: it is only shown.

        Raises:
            ClusterError: A cluster does not answer.
        """
        before = Answer(observed=self._previous(app, to_write=to_write), requested=app.requested)
        failure: ClusterError | None = None
        for view in [view for view in self._views if view.job_object(app) is not None] or self._views:
            try:
                found = look_at(view, app, self._now(), before, self._tracked.is_changing)
            except ClusterError as error:
                failure = error
                continue
            self._look_later(app, view, found)
            if found is not None:
                if not to_write and found.observed is not None:
                    self._shown[app.key] = kept_of_observed(found.observed)
                return found
        if failure is not None:
            raise failure
        return None

    def forget(self, key: AppKey) -> None:
        """Drop what is kept of an app that is gone."""
        self._shown.pop(key, None)

    def _previous(self, app: TrackedApp, *, to_write: bool) -> Mapping[str, Any]:
        shown = None if to_write else self._shown.get(app.key)
        if shown is None or shown.get("uid") != app.uid:
            return app.observed
        return latest(app.observed, shown) if app.observed else shown

    def _look_later(self, app: TrackedApp, view: ClusterView, found: Sighting | None) -> None:
        """Add an app to the queue whose next change the watch may not tell."""
        watched = view.job_object(app) is not None
        if found is None:
            if watched:
                self._queue.add(app.key, BEHIND_S)
        elif found.look.changing:
            self._queue.add(app.key, self._timing.unwatched_s, pending=False)
        elif not found.look.gone and not watched:
            self._queue.add(app.key, BEHIND_S if view.is_synced(app) else self._timing.unwatched_s, pending=False)
