"""DueApps: which apps of `torchx run` ended long enough ago, decided on what stack and cluster say at that moment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from torchx_pulumi.apps.judge import judge
from torchx_pulumi.apps.ownership import is_of_launch
from torchx_pulumi.controller.forgettable import AppObject, OwnStack, StaysError, read_own_stack
from torchx_pulumi.controller.observing import ClusterView
from torchx_pulumi.controller.settings import RetentionSettings
from torchx_pulumi.controller.shared import ControllerParts
from torchx_pulumi.controller.stack_apps import TrackedApp
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.log_archive import ArchivedJob
from torchx_pulumi.model.app_entry import Stage
from torchx_pulumi.model.object_fields import is_being_deleted, items_at, mapping_at, text_at, time_at
from torchx_pulumi.model.status import JobState, Reason, read_state
from torchx_pulumi.model.timestamps import format_time
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.stack_state.backend import backend_url, open_store
from torchx_pulumi.stack_state.stacks import HISTORY, read_updates
from torchx_pulumi.storage.owners import is_working
from torchx_pulumi.storage.stores import READ_TIMEOUT_S, Store

SOON = (JobState.SUCCEEDED, JobState.CANCELLED)
"""States of apps that are forgotten first. Failed ones, and those whose end was not seen, stay longer."""

NOTE = re.compile(r"\.history\.(json|yaml|yml)(\.gz|\.zst)?$")
"""End of the names of Pulumi's notes of updates."""

OWN_UPDATE = "auto.inline"
"""How `torchx run` starts an update, in Pulumi's note of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """An app that may be forgotten now."""

    stack: OwnStack
    view: ClusterView
    state: str
    ended_at: datetime
    objects: tuple[AppObject, ...]
    """Those that still exist."""

    @property
    def ended(self) -> str:
        """Return how and when it ended, in words."""
        return f"{self.state}, ended {format_time(self.ended_at)}"

    @property
    def job(self) -> ArchivedJob:
        """Return the job whose archived logs are its own: that of the uid in its stack, and of no other."""
        app, job_object = self.stack.app, self.stack.objects[0]
        return ArchivedJob(app_id=app.app_id, scheduler=app.scheduler, uid=job_object.uid)


class DueApps:
    """Judges apps. Nothing is changed."""

    def __init__(self, shared: ControllerParts, settings: RetentionSettings, index: RunIndex) -> None:
        """Take what the parts of the controller share, the ages, and the apps that this user launched from here."""
        self._shared = shared
        self._settings = settings
        self._index = index
        self._stores: dict[str, Store] = {}

    def find(self, app: TrackedApp, text: str, seen: Mapping[str, Any] | None = None) -> Due:
        """Return an app that may be forgotten now, by its stack and by its cluster as they are at this moment.

        Args:
            app: The app as it was last read.
            text: The checkpoint of its stack.
            seen: What is seen of it where its stack does not have that yet. None: what the stack has counts.

        Raises:
            StaysError: It stays.
            TorchxPulumiError: The stack cannot be read, or the cluster does not answer.
            OSError: The history of the stack cannot be read.
        """
        stack = read_own_stack(text, app)
        seen = seen or observed_of(stack.app)
        self._check_due(stack.app, seen)
        self._check_updates(stack.app)
        tracked = self._shared.tracked
        for key in tracked.of_job(app.namespace, app.job_name) - {app.key}:
            other = tracked.app(key)
            if other is not None and other.uid == app.uid:
                raise StaysError(f"stack {other.stack} of {other.backend} names the same job object")
        self._check_index(stack)
        view = self._shared.cluster_of(stack.app)
        if view is None:
            why = "its cluster or its namespace is not watched here, or is not known to be that of its launch"
            raise StaysError(why)
        # Before the look: whatever is resumed after it is not deleted in this version.
        live = [found for one in stack.objects if (found := _live(view, one, stack.app)) is not None]
        ended_at = self._check_ended(stack.app, view, seen)
        _check_pods(stack.app, view)
        return Due(stack=stack, view=view, state=str(seen.get("state")), ended_at=ended_at, objects=tuple(live))

    def due_at(self, app: TrackedApp, seen: Mapping[str, Any]) -> datetime | None:
        """Return when an app is old enough. None: it has not ended, or is not one of `torchx run`."""
        state, ended_at = read_state(seen.get("state")), _ended_at(seen)
        gone = state is JobState.UNKNOWN and seen.get("reason") == Reason.NOT_FOUND.value
        if not app.by_torchx or ended_at is None or not (state.terminal or gone):
            return None
        # A run that another one followed says nothing of it.
        if app.uid is None or seen.get("uid") not in (None, app.uid):
            return None
        try:
            return ended_at + (self._settings.after if state in SOON else self._settings.failed_after)
        except OverflowError:
            # A time that no clock shows, for example of a stack that was edited.
            return None

    def seen(self, app: TrackedApp) -> Mapping[str, Any]:
        """Return what the stack will have of an app once what is seen in its cluster is written."""
        for view in self._shared.views if not app.state.terminal and not app.has_secrets else ():
            look = view.look(app, self._shared.now())
            found = None if look is None else judge(look, app.requested, app.observed or None)
            if found is not None and read_state(found.get("state")).terminal:
                return found
        return observed_of(app)

    def _check_due(self, app: TrackedApp, seen: Mapping[str, Any]) -> None:
        at = self.due_at(app, seen)
        if at is None:
            raise StaysError("it has not ended, or when it ended is not known", passing=True)
        if at > self._shared.now():
            raise StaysError(f"it is not old enough before {format_time(at)}", passing=True)

    def _check_updates(self, app: TrackedApp) -> None:
        """Check that no program was run on a stack, by what Pulumi notes of each update."""
        # One that fails is opened again, with the credentials of that time.
        store = self._stores.pop(app.backend, None) or open_store(backend_url(app.backend), READ_TIMEOUT_S)
        if store is None:
            raise StaysError("its backend is written by the Pulumi CLI only")
        names = [name for name in store.paths(f"{HISTORY}/{app.stack}") if NOTE.search(name)]
        updates = read_updates(store, app.stack, len(names))
        self._stores[app.backend] = store
        if len(updates) < len(names):
            raise StaysError("an update in its history cannot be read, so that it is not known what was run")
        if any(update.kind == "update" and update.started_by != OWN_UPDATE for update in updates):
            raise StaysError("a Pulumi program took its stack over")

    def _check_index(self, stack: OwnStack) -> None:
        known = self._index.get(stack.entry)
        if known is None:
            return
        if known.stage is not Stage.LAUNCHED or is_working(known.owner):
            raise StaysError("a process launches, changes or deletes it", passing=True)
        if (known.launch, known.launched_at) != (stack.entry.launch, stack.entry.launched_at):
            raise StaysError("this user's index of apps has another launch of its name", passing=True)

    def _check_ended(self, app: TrackedApp, view: ClusterView, seen: Mapping[str, Any]) -> datetime:
        """Return when an app ended, by its stack and its cluster."""
        ended_at = _ended_at(seen)
        found = view.origin.get(app.variant.job_object, app.namespace, app.job_name)
        if found is not None and not app.owns(found):
            if is_of_launch(app.launches, found):
                raise StaysError("its cluster has a later run of it")
            found = None
        if found is not None and not is_being_deleted(found):
            look = view.look_again(app, self._shared.now())
            # What the cluster says by itself: an end in the stack is no reason to delete what runs.
            now = None if look is None or look.gone else judge(look, app.requested, None)
            if now is None:
                raise StaysError("its objects change at this moment", passing=True)
            if not read_state(now.get("state")).terminal:
                raise StaysError(f"its cluster says that it is {now.get('state')}")
            now = {**now, "observed_at": format_time(ended_at or self._shared.now())}
            self._check_due(app, now)
            ended_at = max(filter(None, (ended_at, _ended_at(now))))
        if ended_at is None:
            raise StaysError("when it ended is not known")
        return ended_at


def observed_of(app: TrackedApp) -> Mapping[str, Any]:
    """Return what the stack of an app has observed."""
    return mapping_at(app.output.output, "observed")


def _ended_at(seen: Mapping[str, Any]) -> datetime | None:
    """Return when a run ended; where that is not known, or a node's clock was wrong, when its end was first seen."""
    finished_at, queued_at = time_at(seen, "finished_at"), time_at(seen, "queued_at")
    if finished_at is None or (queued_at is not None and finished_at < queued_at):
        return time_at(seen, "observed_at")
    return finished_at


def _live(view: ClusterView, one: AppObject, app: TrackedApp) -> AppObject | None:
    """Return an object that still exists, as it is now. None: it is gone.

    Raises:
        StaysError: It is not of the launch, although the stack names it.
    """
    found = view.origin.get(one.kind, one.namespace, one.name)
    if found is None or text_at(found, "metadata", "uid") != one.uid:
        return None
    if not is_of_launch(app.launches, found):
        raise StaysError(f"its stack has {one}, which its launch did not create")
    return replace(one, version=text_at(found, "metadata", "resourceVersion"), going=is_being_deleted(found))


def _check_pods(app: TrackedApp, view: ClusterView) -> None:
    """Refuse an app with a running pod, for example one that outlived its job object."""
    for pod in view.origin.list(POD, app.namespace, app.scheduler_backend.pod_selector(app.job_name)):
        ended = text_at(pod, "status", "phase") in ("Succeeded", "Failed")
        # A pod that outlived its job object may have lost its owner reference (`kubectl delete --cascade=orphan`).
        may_be_own = app.owns(pod) or not items_at(pod, "metadata", "ownerReferences")
        if not ended and not is_being_deleted(pod) and may_be_own:
            raise StaysError(f"its pod {text_at(pod, 'metadata', 'name')} has not ended")
