"""Controller: wires clusters, stacks and the archive, and runs until it is stopped.

All state is in the stacks and the archive. A start compares everything, so that it does not matter when and
how the last controller ended.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from torchx_pulumi.apps.app import App, AppKey
from torchx_pulumi.kube import Cluster
from torchx_pulumi.logs.archive_marks import EVERY_S
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.text import one_line
from torchx_pulumi.stack_state.backend import without_credentials

from torchx_pulumi_fleet.tracker.live_fleet import LiveFleet
from torchx_pulumi_fleet.tracker.observing import ChangeListener, ClusterView
from torchx_pulumi_fleet.tracker.tracked import stack_words
from torchx_pulumi_fleet.tracker.work_queue import start_thread, wait_until
from torchx_pulumi_fleet.views.row import STALE_AFTER_S
from torchx_pulumi_fleet.writer.shared import ControllerParts
from torchx_pulumi_fleet.writer.writing import StackWriter

LOOK_SHARE = 10
"""Pause after a look at an app that keeps changing, in multiples of the CPU time that the look took."""

MOST_PAUSE_S = 1.0
"""Longest of these pauses: an end is written soon after it is seen."""

LISTING_PAUSES_S = ((10.0, 0.5), (30.0, 2.0), (50.0, 4.0), (58.0, 8.0), (74.0, 16.0))
"""Up to which age of a job object without a known stack backends are listed with a pause: its launch may be running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchState:
    """One watch of a cluster."""

    cluster: str
    """Name of the cluster, as in messages."""
    kind: str
    """Kind of the watched objects, as kubectl names it, for example `pods`."""
    namespace: str | None
    """Namespace of the watched objects. None: all namespaces, or objects without one."""
    lag_s: float
    """Seconds since the watch was last current. 0.0: it is connected."""


class Controller(ChangeListener):
    """Keeps the outputs of stacks current, and passes pods to the archive."""

    def __init__(self, parts: ControllerParts, clusters: Mapping[str, Cluster]) -> None:
        """Take the parts, and the clusters by their names in messages. `run` begins the work."""
        self._shared = parts
        self._settings, self._timing = parts.settings, parts.timing
        self._reporter, self._tracked = parts.reporter, parts.tracked
        parts.views = [
            ClusterView(name, cluster, parts.tracked, self, namespaces=self._settings.namespaces or None)
            for name, cluster in clusters.items()
        ]
        self._writer = StackWriter(parts)
        self._wake = threading.Condition()
        """Notified when a listing may be due."""
        self._listed: set[str] = set()
        """Backends whose first listing has ended, with or without success."""
        self._archiver = parts.archiver
        self._cleared: set[str] = set()
        """Backends that were searched for locks which an earlier process of this controller held when killed."""
        self._unknown: dict[str, float] = {}
        """Uid of a job object without a known stack, to when it was first seen."""
        self._begun = False
        self._unseen: set[AppKey] = set()
        """Apps that were not looked at since the start."""

    @property
    def is_leading(self) -> bool:
        """Return whether this process writes stacks and archives logs."""
        return self._shared.leading()

    def lead_changed(self) -> None:
        """Take up or leave the work of a leader; returns at once."""
        start_thread(self._lead if self.is_leading else self._writer.stand_by, "lead")

    def problems(self) -> tuple[str, ...]:
        """Return the problems that have begun and not ended, one text each, without credentials."""
        watches = (one_line(text) for view in self._shared.views for text in view.watched.problems())
        return tuple(dict.fromkeys((*self._reporter.problems(), *watches)))

    def not_ready(self) -> str:
        """Return why some apps are unknown yet. Empty: all are known, and later failures do not change that.

        A backend that was away at the start is a problem of its own (`problems`) if another one was read.
        """
        unread = self._tracked.unread
        if unread and (not self._begun or len(unread) == len(self._settings.backends)):
            return f"not read yet: {', '.join(map(without_credentials, unread))}"
        unsettled = [view.name for view in self._shared.views if not view.watched.is_settled]
        if unsettled:
            return f"not listed yet: {', '.join(unsettled)}"
        return "" if self._begun and not self._unseen else "not all apps were looked at yet"

    def watches(self) -> list[WatchState]:
        """Return the watches of all kinds that the clusters serve; of versions of one kind, the one behind most."""
        found: dict[tuple[str, str, str | None], WatchState] = {}
        for view in self._shared.views:
            for each in view.watched.watches:
                key = (view.name, each.kind.resource, each.namespace)
                if each.is_served and (key not in found or found[key].lag_s < each.lag_s):
                    found[key] = WatchState(cluster=key[0], kind=key[1], namespace=key[2], lag_s=each.lag_s)
        return [*found.values()]

    def view_of(self, app: App) -> ClusterView | None:
        """Return the watched cluster of an app's run; see `ControllerParts.view_of`."""
        return self._shared.view_of(app)

    @property
    def pending(self) -> Sequence[AppKey]:
        """Return the apps that wait to be looked at or written."""
        return [key for queue in self._shared.queues.values() for key in queue.pending()]

    @property
    def writes(self) -> Mapping[tuple[str, str], int]:
        """Return backend and outcome to the number of writes of stacks since the start.

        Outcomes are those of `Recorded` and `error`, a write that ended unexpectedly.
        """
        return dict(self._writer.outcomes)

    @property
    def read_at(self) -> datetime | None:
        """Return when the backends were last listed; see `TrackedStacks.read_at`."""
        return self._tracked.read_at

    @property
    def broken(self) -> int:
        """Return how many stacks cannot be read at present."""
        return len(self._tracked.broken)

    def dirty(self, key: AppKey, delay_s: float) -> None:
        """Look at an app later; less often at one whose looks take long, as it has many pods."""
        work = self._shared.work_of(key)
        pause_s = work.looked_at + min(LOOK_SHARE * work.took_s, MOST_PAUSE_S) - time.monotonic()
        self._shared.queue_of(key).add(key, max(delay_s, pause_s))

    def pod_changed(self, view: ClusterView, key: AppKey, pod: Manifest, *, deleted: bool) -> None:
        """Pass a pod to the archive."""
        app, archiver = self._tracked.app(key), self._archiver
        if archiver is not None and app is not None and self.is_leading:
            archiver.pod_changed(app, view.origin, pod, view.seen_job_object(app), deleted=deleted)

    def unknown(self, uid: str) -> None:
        """List the backends soon: a launch may be running."""
        with self._wake:
            if uid not in self._unknown:
                self._unknown[uid] = time.monotonic()
                self._wake.notify_all()

    def known(self, uid: str) -> None:
        """List the backends as usual again."""
        self._unknown.pop(uid, None)

    def run(self, stop: threading.Event) -> bool:
        """Run until `stop` is set, or with `once` until all stacks are current; return whether everything has ended.

        False: a thread waits for a backend or a cluster that does not answer. The caller should end the process.
        """
        shared = self._shared
        threads = [start_thread(partial(self._list_again, one), f"stacks of {one}") for one in self._settings.backends]
        wait_until(lambda: self._listed >= set(self._settings.backends), stop, self._first_s)
        if self._archiver is not None:
            self._archiver.start()
            threads.append(start_thread(self._keep_marked, "marks"))
        for view in shared.views:
            view.watched.start()
        synced = wait_until(lambda: all(view.watched.is_settled for view in shared.views), stop, self._timing.sync_s)
        self._report_start(stop, synced=synced)
        for queue in shared.queues.values():
            threads += [start_thread(partial(queue.serve, self._look), "writer") for _ in range(self._settings.workers)]
        keys = [app.key for app in self._tracked.apps()]
        self._unseen.update(keys)
        self._begun = True
        self._look_at(keys)
        if shared.fleet is not None:
            threads.append(start_thread(partial(self._note_outages, shared.fleet), "outages"))
        if self._settings.once:
            end = time.monotonic() + self._timing.once_s
            wait_until(lambda: not self.pending, stop, self._timing.once_s)
            if self._archiver is not None and not stop.is_set():
                self._archiver.wait_until_idle(max(end - time.monotonic(), 1.0))
        else:
            stop.wait()
        return self._stop(threads)

    @property
    def _first_s(self) -> float:
        """Return the longest wait for the first listing of a backend, and that after which others are called slow."""
        return self._timing.once_s if self._settings.once else self._timing.listing_s

    def _report_start(self, stop: threading.Event, *, synced: bool) -> None:
        names = ", ".join(view.name for view in self._shared.views)
        where = ", ".join(self._settings.namespaces) or "all namespaces"
        self._reporter.line(f"watching {names}: {where}")
        self._reporter.line(
            f"{stack_words(self._tracked.apps())} of {', '.join(self._settings.backends)}; stacks of programs are "
            f"{'written too' if self._settings.program_stacks else 'not written (--program-stacks)'}"
        )
        for backend in self._tracked.only_shown:
            words = "its stacks are read through the Pulumi CLI and not written; page, API and metrics have their apps"
            self._reporter.line(f"backend {backend}: {words}")
        if self._archiver is not None:
            self._reporter.line(self._archiver.summary())
        if not synced and not stop.is_set():
            self._reporter.line(f"not everything is listed after {self._timing.sync_s:g} s; what is listed is used")

    def _stop(self, threads: Sequence[threading.Thread]) -> bool:
        shared = self._shared
        for queue in shared.queues.values():
            queue.hurry()
        done = wait_until(lambda: not self.pending, shared.stopped, self._timing.flush_s)
        left = [app.app_id for key in self.pending if (app := self._tracked.app(key)) is not None]
        for queue in shared.queues.values():
            queue.close()
        with self._wake:
            shared.stopped.set()
            self._wake.notify_all()
        ending = [start_thread(view.watched.stop, f"stop {view.name}") for view in shared.views]
        if self._archiver is not None:
            ending.append(start_thread(partial(self._archiver.stop, self._timing.stop_s), "stop archive"))
        end = time.monotonic() + self._timing.stop_s
        threads = [*ending, *threads]
        for thread in threads:
            thread.join(max(end - time.monotonic(), 0.0))
        if not done and left:
            shown = ", ".join(left[:3]) + (", ..." if len(left) > 3 else "")
            words = f"{len(left)} app(s) are not current in their stacks ({shown}); the next start writes them"
            self._reporter.line(words)
        self._reporter.line("stopped")
        return not any(thread.is_alive() for thread in threads)

    def _look(self, key: AppKey) -> None:
        """Look at an app, and write its stack if it is due."""
        # Not its whole time: on a busy machine, requests and a write would delay what follows, which may be the end.
        begun_s = time.thread_time()
        try:
            self._writer.settle(key)
        except Exception as error:  # noqa: BLE001 - one app must not end the work on all others
            self._reporter.begin(f"error {key}", f"stack {key[1]}: {_unexpected(error)}")
            self._shared.queue_of(key).retry(key)
        else:
            self._reporter.end(f"error {key}", f"stack {key[1]}: the error has not come again")
        self._unseen.discard(key)
        if self._tracked.app(key) is not None:
            work = self._shared.work_of(key)
            work.looked_at, work.took_s = time.monotonic(), time.thread_time() - begun_s

    @property
    def views(self) -> Sequence[ClusterView]:
        """Return the watched clusters."""
        return self._shared.views

    def _note_outages(self, fleet: LiveFleet) -> None:
        """Note in the fleet which clusters do not answer, until the controller stops."""
        noted: dict[str, tuple[datetime | None, bool]] = {}
        while not self._shared.stopped.wait(self._timing.outage_s):
            for view in self._shared.views:
                before, now = noted.get(view.name, (None, False)), self._shared.now()
                since = (before[0] or now) if view.watched.is_away else None
                # Readers of changes learn when the rows become stale.
                noted[view.name] = since, since is not None and now - since > timedelta(seconds=STALE_AFTER_S)
                if noted[view.name] != before:
                    fleet.put_away(view.name, since)

    def _keep_marked(self) -> None:
        """Mark the archives again and again, until the controller stops."""
        self._mark_archives()
        while not self._shared.stopped.wait(EVERY_S):
            self._mark_archives()

    def _mark_archives(self) -> None:
        """Note in the archives that this process writes them, if it leads."""
        if self._archiver is not None and self.is_leading:
            self._archiver.mark(self._settings.namespaces, self._shared.now())

    def _list_again(self, backend: str) -> None:
        """List a backend again and again, until the controller stops."""
        stopped = self._shared.stopped
        while not stopped.is_set():
            self._list(backend)
            ended = time.monotonic()
            self._listed.add(backend)
            for uid in [uid for uid in [*self._unknown] if self._tracked.of_uid(uid)]:
                self.known(uid)
            with self._wake:
                while not stopped.is_set() and (left_s := ended + self._listing_pause_s() - time.monotonic()) > 0:
                    self._wake.wait(left_s)

    def _listing_pause_s(self) -> float:
        """Return the pause after a listing, at least `relist_s` however many new job objects there are."""
        age_s = time.monotonic() - max([*self._unknown.values()], default=-math.inf)
        pause_s = next((pause_s for until_s, pause_s in LISTING_PAUSES_S if age_s < until_s), math.inf)
        return max(min(pause_s, self._timing.refresh_s), self._timing.relist_s)

    def _list(self, backend: str) -> None:
        """Read the stacks of a backend that have changed; one that takes long holds up no other."""
        text = f"backend {backend} is still being read after {self._first_s:g} s; its changes follow when it answers"
        slow = threading.Timer(self._first_s, self._reporter.begin, (f"slow {backend}", text))
        slow.daemon = True
        slow.start()
        try:
            changed = self._tracked.refresh(backend)
            if backend not in self._cleared and backend not in self._tracked.unread:
                # A stack that has nothing to be written is not locked by this process, and a lock blocks its owner.
                self._cleared |= {backend} if self._shared.driver.clear_dead_locks(backend) else set()
        except Exception as error:  # noqa: BLE001 - the next listing may succeed
            self._reporter.begin(f"listing {backend}", f"backend {backend} is not listed: {_unexpected(error)}")
            return
        finally:
            slow.cancel()
        self._reporter.end(f"listing {backend}", f"backend {backend} is listed again")
        self._reporter.end(f"slow {backend}", f"backend {backend} was read")
        self._look_at(changed)

    def _lead(self) -> None:
        """Look at everything, as at a start, because the last leader may have left work undone."""
        for work in [*self._shared.work.values()]:
            work.passed = None
        self._look_at([app.key for app in self._tracked.apps()])
        for backend in self._settings.backends:
            start_thread(partial(self._list, backend), f"stacks of {backend}")
        self._mark_archives()

    def _look_at(self, keys: Iterable[AppKey]) -> None:
        """Look at apps that changed in their stacks, and pass on the pods of new ones."""
        for key in keys:
            self._shared.queue_of(key).add(key)
            app = self._tracked.app(key)
            if app is not None and self.is_leading and self._shared.work_of(key).passed != (app.uid, app.log_archive):
                self._shared.work_of(key).passed = app.uid, app.log_archive
                for view in self._shared.views:
                    for pod in view.pods_of(app):
                        self.pod_changed(view, key, pod, deleted=False)


def _unexpected(error: Exception) -> str:
    return f"{type(error).__name__}: {error}; it is tried again; please report this error"
