"""How an app stands by what is watched and by its cluster; `apps.judge` decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from torchx_pulumi.apps.answer import Answer
from torchx_pulumi.apps.app import App
from torchx_pulumi.apps.judge import Weight, judge, latest, weight
from torchx_pulumi.apps.look import Look
from torchx_pulumi.model.object_fields import number_at, text_at
from torchx_pulumi.model.requested import Requested

from torchx_pulumi_fleet.tracker.live_fleet import LiveApp
from torchx_pulumi_fleet.tracker.observing import ClusterView

KEPT = ("state", "reason", "phase", "message", "uid", "resource_version", "queued_at", "started_at", "observed_at")
"""Texts of an observation that count before a look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One look at a run, and how the run stands by it."""

    look: Look
    observed: Mapping[str, Any] | None
    """In the shape of `observed`. None: as it was known before."""
    cluster: str
    """Name of the watched cluster."""


Looking = Callable[[ClusterView, App, datetime, Answer, Callable[[App], bool]], Sighting | None]
"""`sighting_of`, or `read_now`."""


def known_of(app: App, shown: LiveApp | None, requested: Requested | None) -> Answer:
    """Return the observation of an app before a look, and the last request about it.

    Args:
        app: The app.
        shown: As it is shown; what was seen of this run counts if it says more than the stack. None: it is not shown.
        requested: The last request about it.
    """
    known: Mapping[str, Any] = _kept(app.answer.observed)
    if shown is not None and shown.seen is not None and shown.seen.get("uid") == app.uid:
        seen = _kept(shown.seen)
        known = latest(known, seen, requested) if known else seen
    return Answer(observed=known, requested=requested)


def _kept(observed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of an observation that says how the run stood. Empty: it has no such part."""
    kept: dict[str, Any] = {name: text for name in KEPT if (text := text_at(observed, name)) is not None}
    return {**kept, "attempt": number_at(observed, "attempt") or 1} if kept else {}


def sighting_of(
    view: ClusterView,
    app: App,
    now: datetime,
    before: Answer,
    is_changing: Callable[[App], bool],
) -> Sighting | None:
    """Look at an app in a watched cluster, with requests only if the watched objects are not enough.

    Args:
        view: The cluster.
        app: The app.
        now: The time, aware.
        before: How it stood before, and the last request about it.
        is_changing: Returns whether a deployment changes its stack. Called only if that matters.

    Returns:
        None: nothing new, or this may not be the cluster of its launch.

    Raises:
        ClusterError: The cluster does not answer.
    """
    previous, watched = before.observed or None, view.look(app, now)
    if watched is not None:
        seen = _judged(view, watched, before)
        if not _has_to_be_confirmed(watched, seen.observed, previous):
            return seen
    elif app.uid is None:
        return None
    else:
        gone = _judged(view, view.if_gone(app, now), before)
        if is_told(gone.observed, previous) or not view.is_cluster_of(app):
            return None
    found = read_now(view, app, now, before, is_changing)
    # Otherwise the watch will say how it was last.
    return None if found is not None and found.look.gone and view.job_object(app) is not None else found


def read_now(
    view: ClusterView, app: App, now: datetime, before: Answer, is_changing: Callable[[App], bool]
) -> Sighting | None:
    """Read the objects of an app in a cluster; arguments and errors as of `sighting_of`.

    Returns:
        None: its job object is not there, and this may not be the cluster of its launch.
    """
    look = view.look_again(app, now)
    if look is None:
        return None
    return _judged(view, look.asking_if_changing(lambda: is_changing(app)), before)


def _judged(view: ClusterView, look: Look, before: Answer) -> Sighting:
    previous = before.observed or None
    found = judge(look, before.requested, previous)
    return Sighting(look=look, observed=None if found is previous else found, cluster=view.name)


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
