"""One watched cluster: which apps a change is about, and what was seen of the objects of an app."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from torchx_pulumi.apps.app import App, AppKey
from torchx_pulumi.apps.judge import Weight, weight
from torchx_pulumi.apps.look import Look, Remembered, look_at, read_objects
from torchx_pulumi.apps.ownership import is_job_object
from torchx_pulumi.kube import Cluster, PodReader
from torchx_pulumi.kube.kinds import EVENT, POD
from torchx_pulumi.model import labels
from torchx_pulumi.model.cluster_identity import ClusterIdentity, Match, compare
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import items_at, mapping_at, text_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.status import JobState
from torchx_pulumi.schedulers import find_backend, scheduler_names
from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects
from torchx_pulumi.schedulers.pods.observe import list_pods

from torchx_pulumi_fleet.tracker.tracked import TrackedStacks
from torchx_pulumi_fleet.watch.object_watch import Change
from torchx_pulumi_fleet.watch.watched_cluster import WatchedCluster
from torchx_pulumi_fleet.watch.watching import watch_list

DEBOUNCE_S = 0.05
"""Time in which several changes of one app become one look."""

EVENT_DEBOUNCE_S = 1.0
"""The same for events and queues, which only explain why an app waits."""

MOST_GONE = 2000
"""Runs with a deleted job object whose objects are remembered until their end is in the stack."""

WAITS = (JobState.SUBMITTED, JobState.PENDING, JobState.UNKNOWN)
"""States whose reason depends on events and queues."""

Job = tuple[str, str]
"""Namespace and name of a job object."""


class ChangeListener:
    """Is told what has changed in a watched cluster, in threads of its watches. It does nothing with it."""

    def dirty(self, key: AppKey, delay_s: float) -> None:
        """Take an app that may have changed, and the delay until it is looked at."""

    def pod_changed(self, view: ClusterView, key: AppKey, pod: Manifest, *, deleted: bool) -> None:
        """Take a pod of an app as it is now, or as it was last if it is deleted."""

    def unknown(self, uid: str) -> None:
        """Take the uid of a job object that no stack names."""

    def known(self, uid: str) -> None:
        """Take the uid of a job object that is gone, or that a stack names now."""


@dataclass(eq=False)
class ClusterView:
    """A cluster with a watch of all kinds that matter for apps."""

    name: str
    """What messages call the cluster."""
    origin: Cluster
    """The real cluster."""
    tracked: TrackedStacks
    """The apps."""
    listener: ChangeListener
    """Is told of changes."""
    namespaces: Collection[str] | None
    """Namespaces to watch. None: all."""

    def __post_init__(self) -> None:
        """Prepare the watch; `watched.start()` starts it."""
        self._identity: ClusterIdentity | None = None
        self._guard = threading.Lock()
        self._jobs: dict[tuple[str, str, str], Job] = {}
        self._remembered: dict[str, Remembered] = {}
        """Uid of a job object to what is remembered of its run."""
        self._gone: OrderedDict[str, None] = OrderedDict()
        """Those with a deleted job object, the oldest first."""
        backends = [find_backend(each) for each in scheduler_names()]
        self._name_labels = (*dict.fromkeys(each.pod_label for each in backends), labels.UNIQUE_NAME)
        self._job_kinds = frozenset(variant.job_object for each in backends for variant in each.variants.values())
        watched = None if self.namespaces is None else [*self.namespaces]
        self.watched = WatchedCluster(self.origin, watch_list(), namespaces=watched, changed=self._changed)

    def is_cluster_of(self, app: App) -> bool:
        """Return whether this is known to be the cluster of an app's launch, and its namespace is watched.

        Raises:
            ClusterError: No answer.
        """
        if self.namespaces is not None and app.run.namespace not in self.namespaces:
            return False
        self.check_there()
        present = self.origin.identify()
        if self._identity is None:
            self._identity = present
        match = app.match(present)
        if match is Match.UNDECIDED and self.remembered_of(app).last is not None:
            # Its job object was here: this is the cluster, unless the address leads to another one now.
            match = compare(self._identity, present)
        return match is Match.SAME

    def is_synced(self, app: App) -> bool:
        """Return whether the job objects of an app's kind and namespace are known completely."""
        return self.watched.is_synced(app.run.variant.job_object, app.run.namespace)

    def job_object(self, app: App) -> Manifest | None:
        """Return the job object of an app's run as last watched. None: it is not in this cluster."""
        if not self.is_synced(app):
            return None
        found = self.watched.get(app.run.variant.job_object, app.run.namespace, app.run.job_name)
        return found if app.owns(found) else None

    def seen_job_object(self, app: App) -> Manifest | None:
        """Return the job object of an app's run as last seen, also after it is gone. None: it was not seen."""
        found = self.watched.last(app.run.variant.job_object, app.run.namespace, app.run.job_name)
        return found if app.owns(found) else self.remembered_of(app).last

    def remembered_of(self, app: App) -> Remembered:
        """Return the memory of an app's run."""
        with self._guard:
            return self._known(app)

    def forget(self, uid: str | None) -> None:
        """Drop what is remembered of a run whose end is in its stack, or in all of them if several name it."""
        apps = [self.tracked.app(key) for key in self.tracked.of_uid(uid)]
        if not all(app is None or _has_end(app) for app in apps):
            return
        with self._guard:
            self._remembered.pop(uid or "", None)
            self._gone.pop(uid or "", None)

    def look(self, app: App, now: datetime) -> Look | None:
        """Look at an app as last watched. None: its job object is not known to be in this cluster."""
        return None if self.job_object(app) is None else self._look(app, now, self.watched, confirmed=False)

    def look_again(self, app: App, now: datetime) -> Look | None:
        """Read the job object and the pods of an app. None: it is not there, and this may not be its cluster.

        Raises:
            ClusterError: No answer, or no permission.
        """
        self.check_there()
        found = self._look(app, now, self.watched.with_fresh(app.run.variant.job_object, POD), confirmed=True)
        if found is not None or app.uid is None or not self.is_cluster_of(app):
            return found
        gone = self.if_gone(app, now)
        may_read = not app.run.variant.ends_by_pods or gone.remembered.last is None or self._may_read_pods(app)
        return replace(gone, confirmed=True, remembered=gone.remembered if may_read else Remembered())

    def if_gone(self, app: App, now: datetime) -> Look:
        """Return a look at an app whose job object is taken to be gone."""
        remembered = self.remembered_of(app)
        return look_at(app.run, ObservedObjects(at=now), now, confirmed=False, remembered=remembered)

    def _look(self, app: App, now: datetime, cluster: PodReader, *, confirmed: bool) -> Look | None:
        seen = read_objects(app.run, cluster)
        with self._guard:
            look = look_at(app.run, seen, now, remembered=self._known(app), confirmed=confirmed)
            if not look.gone:
                self._keep(app, look.remembered)
        return None if look.gone else look

    def _remember(self, app: App, change: Callable[[Remembered], Remembered]) -> None:
        """Note what was seen of an app's run, unless its stack has its end."""
        with self._guard:
            self._keep(app, change(self._known(app)))

    def _known(self, app: App) -> Remembered:
        """Return the memory of an app's run, under the guard: with pods only if it ends by them."""
        pods: dict[str, Manifest] | None = {} if app.run.variant.ends_by_pods else None
        return self._remembered.get(app.uid or "") or Remembered(pods=pods)

    def _keep(self, app: App, remembered: Remembered) -> None:
        """Keep what is remembered of an app's run, under the guard."""
        if app.uid is not None and not _has_end(app):
            self._remembered[app.uid] = remembered

    def _may_read_pods(self, app: App) -> bool:
        """Return whether pods may be read: without them, the job object alone does not say how the run ended."""
        if self.watched.is_synced(POD, app.run.namespace) or self.remembered_of(app).pods:
            return True
        return list_pods(self.origin, app.run.namespace, app.run.pod_selector) is not None

    def pods_of(self, app: App) -> list[Manifest]:
        """Return the pods of an app as last watched."""
        if not self.watched.is_synced(POD, app.run.namespace):
            return []
        return self.watched.list(POD, app.run.namespace, app.run.pod_selector)

    def events_of(self, app: App) -> list[Manifest]:
        """Return the events of an app's job object, of its pods and of what belongs to the job, the newest last.

        They are as last watched: at most 10 of each object, and trimmed.

        Raises:
            ClusterError: Events are not watched, and the cluster does not answer.
        """
        job = (app.run.namespace, app.run.job_name)
        with self._guard:
            # Also of pods that are gone: their names are those of the launch.
            names = {name for (_, _, name), found in self._jobs.items() if found == job}
        names |= {app.run.job_name, *(name for pods in (app.run.expected or {}).values() for name in pods)}
        return sorted(self.watched.events(app.run.namespace, names), key=_time_of_event)

    def check_there(self) -> None:
        """Refuse a request to a cluster that is known to be away: its timeout would hold up other clusters' apps.

        Raises:
            ClusterError: It is away.
        """
        if self.watched.is_away:
            raise ClusterError(f"{self.name} does not answer", retryable=True, reason="Unreachable")

    def _changed(self, change: Change) -> None:
        found = change.object
        namespace = text_at(found, "metadata", "namespace")
        if change.kind == EVENT:
            about = mapping_at(found, "involvedObject")
            place = (str(about.get("kind")), str(about.get("namespace")), str(about.get("name")))
            with self._guard:
                explained = self._jobs.get(place)
            if explained is not None:
                self._explains(self.tracked.of_job(*explained))
        elif namespace is None:
            if change.previous is None or _words(change.previous) != _words(found):
                self._explains(app.key for app in self.tracked.apps())
        else:
            self._of_job_changed(change, namespace)

    def _explains(self, keys: Iterable[AppKey]) -> None:
        """Pass on those of some apps that wait: what changed may say why."""
        for key in keys:
            app = self.tracked.app(key)
            if app is not None and app.state in WAITS:
                self.listener.dirty(key, EVENT_DEBOUNCE_S)

    def _of_job_changed(self, change: Change, namespace: str) -> None:
        """Take a change of a job object, of a pod, or of another object of a job."""
        found, gone = change.object, change.type == "DELETED"
        is_job = change.kind in self._job_kinds and is_job_object(found)
        name = str(text_at(found, "metadata", "name"))
        job_name = name if is_job else next(self._job_names(found), None)
        with self._guard:
            if job_name is None or gone:
                self._jobs.pop((change.kind.kind, namespace, name), None)
            else:
                self._jobs[change.kind.kind, namespace, name] = namespace, job_name
        keys = set() if job_name is None else {*self.tracked.of_job(namespace, job_name)}
        if is_job:
            keys |= self._job_object_changed(found, gone=gone)
        for key in keys:
            app = self.tracked.app(key)
            if change.kind == POD and app is not None and app.run.variant.ends_by_pods and app.owns(found):
                self._remember(app, lambda known: known.with_pod(found))
            self.listener.dirty(key, DEBOUNCE_S)
            if change.kind == POD:
                self.listener.pod_changed(self, key, found, deleted=gone)
            elif is_job and change.previous is None and not gone and app is not None and app.log_archive is not None:
                # Where the logs of its pods go depends on its job object.
                for pod in self.pods_of(app):
                    self.listener.pod_changed(self, key, pod, deleted=False)

    def _job_object_changed(self, found: Manifest, *, gone: bool) -> set[AppKey]:
        """Remember a job object; return the apps that name it."""
        uid, label = text_at(found, "metadata", "uid"), text_at(found, "metadata", "labels", labels.LAUNCH)
        keys = self.tracked.of_uid(uid)
        if uid is not None and (keys or gone):
            self.listener.known(uid)
        elif uid is not None:
            self.listener.unknown(uid)
        for key in keys:
            app = self.tracked.app(key)
            if app is not None:
                self._remember(app, lambda known: known.with_job_object(found))
        with self._guard:
            if gone and uid in self._remembered:
                self._gone[uid] = None
            while len(self._gone) > MOST_GONE:
                oldest, _ = self._gone.popitem(last=False)
                self._remembered.pop(oldest, None)
        return {*self.tracked.of_launch(label), *keys}

    def _job_names(self, found: Manifest) -> Iterator[str]:
        """Yield the names of the job that the labels or the owners of an object name."""
        given = mapping_at(found, "metadata", "labels")
        yield from (given[label] for label in self._name_labels if isinstance(given.get(label), str))
        for owner in items_at(found, "metadata", "ownerReferences"):
            yield str(owner.get("name"))


def _has_end(app: App) -> bool:
    """Return whether the stack of an app has the end of its run, as its objects showed it."""
    return text_at(app.answer.observed, "uid") in (None, app.uid) and weight(app.answer.observed) is Weight.SEEN


def _words(found: Manifest) -> tuple[Any, Any]:
    """Return the part of an object of the whole cluster that explains a wait: amounts in use change all the time."""
    status = mapping_at(found, "status")
    return found.get("spec"), {name: value for name, value in status.items() if isinstance(value, str)}


def _time_of_event(event: Manifest) -> str:
    last = text_at(event, "lastTimestamp") or text_at(event, "eventTime")
    return last or text_at(event, "metadata", "creationTimestamp") or ""
