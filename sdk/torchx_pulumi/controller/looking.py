"""How an app stands by what is watched, and by the cluster itself where that is not enough. `apps.judge` decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from torchx_pulumi.apps.answer import Answer
from torchx_pulumi.apps.judge import Weight, judge, latest, weight
from torchx_pulumi.apps.look import Look
from torchx_pulumi.controller.live_fleet import live_id
from torchx_pulumi.controller.observing import ClusterView
from torchx_pulumi.controller.shared import ControllerParts
from torchx_pulumi.controller.stack_apps import TrackedApp, kept_of_observed
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import number_at, text_at

BEHIND_S = 1.0
"""Time until an app is looked at again of which the watch is behind the cluster."""


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
    elif app.uid is None or is_told(sighting(view.if_gone(app, now)).observed, previous) or not view.is_cluster_of(app):
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
    return look.status.attempt < _attempt(previous)


def is_told(found: Mapping[str, Any] | None, previous: Mapping[str, Any] | None) -> bool:
    """Return whether an observation says no more than what was known before."""
    if found is None or previous is None:
        return found is None
    same = all(found.get(name) == previous.get(name) for name in ("state", "reason", "uid"))
    return same and _attempt(found) == _attempt(previous)


def _attempt(observed: Mapping[str, Any]) -> int:
    return number_at(observed, "attempt") or 1


def look_for(shared: ControllerParts, app: TrackedApp, *, to_write: bool) -> Sighting | None:
    """Look at an app in its cluster, and queue it again if the watch may not tell its next change.

    Args:
        shared: What the parts of the controller share.
        app: The app.
        to_write: It is written to the stack. False: it is only shown, and what the fleet shows counts as known.

    Returns:
        How it stands. None: as its stack or the fleet says, or that is not known.

    Raises:
        ClusterError: A cluster does not answer.
    """
    previous: Mapping[str, Any] | None = app.observed or None
    live = None if to_write or shared.fleet is None else shared.fleet.find(live_id(app.key))
    if live is not None and live.seen is not None and live.seen.get("uid") == app.uid:
        shown = kept_of_observed(live.seen)
        previous = shown if previous is None else latest(previous, shown, app.requested)
    before = Answer(observed=previous or {}, requested=app.requested)
    failure: ClusterError | None = None
    for view in [view for view in shared.views if view.job_object(app) is not None] or shared.views:
        try:
            found = look_at(view, app, shared.now(), before, shared.tracked.is_changing)
        except ClusterError as error:
            failure = error
            continue
        _look_later(shared, app, view, found)
        if found is not None:
            return found
    if failure is not None:
        raise failure
    return None


def _look_later(shared: ControllerParts, app: TrackedApp, view: ClusterView, found: Sighting | None) -> None:
    watched, unwatched_s = view.job_object(app) is not None, shared.timing.unwatched_s
    if found is None:
        if watched:
            shared.queue_of(app.key).add(app.key, BEHIND_S)
    elif found.look.changing:
        shared.queue_of(app.key).add(app.key, unwatched_s, pending=False)
    elif not found.look.gone and not watched:
        shared.queue_of(app.key).add(app.key, BEHIND_S if view.is_synced(app) else unwatched_s, pending=False)
