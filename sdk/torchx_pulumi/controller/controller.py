"""Controller: wires clusters, stacks and the archive, and runs until it is stopped.

Nothing is stored but in the stacks and the archive. A start compares everything, so that it does not matter when and
how the last controller ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from functools import partial

from torchx_pulumi.controller.archiving import LogArchiver
from torchx_pulumi.controller.figures import ControllerFigures, WatchState
from torchx_pulumi.controller.live_fleet import LiveFleet
from torchx_pulumi.controller.observing import ChangeListener, ClusterView
from torchx_pulumi.controller.reporting import Reporter
from torchx_pulumi.controller.retention import Retention
from torchx_pulumi.controller.settings import ControllerSettings, ControllerTiming
from torchx_pulumi.controller.shared import ControllerParts
from torchx_pulumi.controller.stack_apps import AppKey, TrackedApp
from torchx_pulumi.controller.tracked import TrackedStacks, stack_words
from torchx_pulumi.controller.work_queue import WorkQueue
from torchx_pulumi.controller.writing import StackWriter
from torchx_pulumi.fleet.collect.row import STALE_AFTER_S
from torchx_pulumi.kube import Cluster
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.text import one_line
from torchx_pulumi.runs.driver import Driver
from torchx_pulumi.stack_state.backend import without_credentials

LOOK_SHARE = 10
"""Pause after a look at an app that keeps changing, in multiples of the time that the look took."""

MOST_PAUSE_S = 1.0
"""Longest of these pauses: an end is written soon after it is seen."""

REFRESH_PAUSES_S = (*[1.0] * 10, *[2.0] * 10, *[4.0] * 5, 8.0, 16.0)
"""Pauses between listings while there is a job object whose stack is not known: its launch may be running."""


class Controller:
    """Keeps the outputs of stacks current, and passes pods to the archive."""

    def __init__(
        self,
        settings: ControllerSettings,
        clusters: Mapping[str, Cluster],
        driver: Driver,
        reporter: Reporter,
        *,
        archiver: LogArchiver | None = None,
        fleet: LiveFleet | None = None,
        leading: Callable[[], bool] = lambda: True,
        timing: ControllerTiming | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        """Take the dependencies; nothing is started or asked yet.

        Args:
            settings: What to watch and write.
            clusters: Name for messages to cluster.
            driver: Writes stacks.
            reporter: Takes lines.
            archiver: Copies logs. None: logs are not archived.
            fleet: Takes all apps as they are seen. None: there are no pages.
            leading: Returns whether this process writes. `lead_changed` follows a change.
            timing: Times between steps. None: the defaults.
            now: The time of observations, aware.
        """
        self._settings = settings
        self._timing = timing or ControllerTiming()
        self._reporter = reporter
        only_shows = settings.retention is not None and settings.retention.dry_run
        self._tracked = TrackedStacks(settings.backends, reporter, fleet=fleet, now=now)
        self._shared = shared = ControllerParts(
            tracked=self._tracked,
            driver=driver,
            reporter=reporter,
            queue=WorkQueue(
                retry_s=self._timing.retry_s,
                longest_retry_s=self._timing.longest_retry_s,
                # A backend that does not answer occupies no worker that another backend needs.
                group=lambda key: key[0],
                most_of_group=settings.workers,
            ),
            fleet=fleet,
            archiver=None if only_shows else archiver,
            leading=leading,
            timing=self._timing,
            now=now,
        )
        self._changes = _Changes(shared)
        namespaces = settings.namespaces or None
        shared.views = [
            ClusterView(name, cluster, self._tracked, self._changes, namespaces=namespaces)
            for name, cluster in clusters.items()
        ]
        self._writer = StackWriter(shared, program_stacks=settings.program_stacks)
        self._retention = settings.retention and Retention(shared, settings.retention)
        self._refreshed_at = time.monotonic()
        self._passed: dict[AppKey, tuple[str | None, str | None]] = {}
        """Uid and archive of apps whose pods were passed to the archiver."""
        self._listings: dict[str, threading.Thread] = {}
        self._cleared = set(settings.backends if only_shows else ())
        """Backends that are not searched for locks which an earlier process of this controller held when killed."""
        self._begun = False
        self._unseen: set[AppKey] = set()
        """Apps that were not looked at since the start."""
        self._lead_changed = False

    @property
    def is_leading(self) -> bool:
        """Return whether this process writes stacks and archives logs."""
        return self._shared.leading()

    def lead_changed(self) -> None:
        """Take up or leave the work of a leader; returns at once."""
        self._lead_changed = True
        self._changes.wake.set()

    def problems(self) -> tuple[str, ...]:
        """Return the problems that have begun and not ended, one text each, without credentials."""
        watches = (one_line(text) for view in self._shared.views for text in view.watched.problems())
        return tuple(dict.fromkeys((*self._reporter.problems(), *watches)))

    def not_ready(self) -> str:
        """Return why not all apps are known yet. Empty: they are; what fails after that does not change it.

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

    def view_of(self, app: TrackedApp) -> ClusterView | None:
        """Return the watched cluster of an app's run; see `ControllerParts.view_of`."""
        return self._shared.view_of(app)

    def figures(self) -> ControllerFigures:
        """Return what was done since the start, and what is to do."""
        return ControllerFigures(
            pending=len(self._shared.queue.pending()),
            writes=self._writer.outcomes(),
            read_at=self._tracked.read_at,
            broken=self._tracked.broken,
        )

    def run(self, stop: threading.Event) -> bool:
        """Run until `stop` is set, or with `once` until all stacks are current; return whether everything has ended.

        False: a thread waits for a backend or a cluster that does not answer. The caller should end the process.
        """
        shared, stopped = self._shared, self._shared.stopped
        wait_s = self._timing.once_s if self._settings.once else self._timing.listing_s
        first = _start(partial(self._refresh_once, wait_s), "first listing")
        while first.is_alive() and not stop.is_set():
            first.join(0.05)
        if shared.archiver is not None:
            shared.archiver.start()
        for view in shared.views:
            view.watched.start()
        end = time.monotonic() + self._timing.sync_s
        while not (synced := all(view.watched.is_settled for view in shared.views)) and time.monotonic() < end:
            if stop.wait(0.05):
                break
        self._report_start(stop, synced=synced)
        if self._retention and self._retention.settings.dry_run:
            self._retention.show()
            return self._stop([], writes=False)
        workers = self._settings.workers * len(self._settings.backends)
        threads = [_start(self._work, f"writer {number}") for number in range(workers)]
        threads.append(_start(self._refresh, "stacks"))
        keys = [app.key for app in self._tracked.apps()]
        self._unseen.update(keys)
        self._begun = True
        self._look_at(keys)
        if shared.fleet is not None:
            threads.append(_start(partial(self._note_outages, shared.fleet), "outages"))
        if self._settings.once:
            self._converge(stop)
        else:
            if self._retention:
                threads.append(_start(partial(self._retention.run, stopped), "retention"))
            stop.wait()
        return self._stop(threads)

    def _report_start(self, stop: threading.Event, *, synced: bool) -> None:
        names = ", ".join(view.name for view in self._shared.views)
        where = ", ".join(self._settings.namespaces) or "all namespaces"
        self._reporter.line(f"watching {names}: {where}")
        self._reporter.line(
            f"{stack_words(self._tracked.apps())} of {', '.join(self._settings.backends)}; stacks of programs are "
            f"{'written too' if self._settings.program_stacks else 'not written (--program-stacks)'}"
        )
        if self._shared.archiver is not None:
            self._reporter.line(self._shared.archiver.summary())
        if not synced and not stop.is_set():
            self._reporter.line(f"not everything is listed after {self._timing.sync_s:g} s; what is listed is used")

    def _converge(self, stop: threading.Event) -> None:
        end = time.monotonic() + self._timing.once_s
        while not stop.is_set() and time.monotonic() < end:
            if self._shared.queue.wait_until_idle(1.0):
                break
        if self._shared.archiver is not None and not stop.is_set():
            self._shared.archiver.wait_until_idle(max(end - time.monotonic(), 1.0))
        if self._retention:
            self._retention.run_once(stop, end - time.monotonic())

    def _stop(self, threads: Sequence[threading.Thread], *, writes: bool = True) -> bool:
        shared = self._shared
        shared.queue.hurry()
        done = not writes or shared.queue.wait_until_idle(self._timing.flush_s)
        left = [app.app_id for key in shared.queue.pending() if (app := self._tracked.app(key)) is not None]
        shared.queue.close()
        shared.stopped.set()
        self._changes.wake.set()
        ending = [_start(view.watched.stop, f"stop {view.name}") for view in shared.views]
        if shared.archiver is not None:
            ending.append(_start(partial(shared.archiver.stop, self._timing.stop_s), "stop archive"))
        end = time.monotonic() + self._timing.stop_s
        threads = [*ending, *threads, *self._listings.values()]
        for thread in threads:
            thread.join(max(end - time.monotonic(), 0.0))
        if not done and left:
            shown = ", ".join(left[:3]) + (", ..." if len(left) > 3 else "")
            words = f"{len(left)} app(s) are not current in their stacks ({shown}); the next start writes them"
            self._reporter.line(words)
        self._reporter.line("stopped")
        return not any(thread.is_alive() for thread in threads)

    def _work(self) -> None:
        while (key := self._shared.queue.take()) is not None:
            begun = time.monotonic()
            try:
                self._writer.settle(key)
            except Exception as error:  # noqa: BLE001 - one app must not end the work on all others
                self._reporter.begin(f"error {key}", f"stack {key[1]}: {_unexpected(error)}")
                self._shared.queue.retry(key)
            else:
                self._reporter.end(f"error {key}", f"stack {key[1]}: the error has not come again")
            finally:
                self._unseen.discard(key)
                if self._tracked.app(key) is not None:
                    self._changes.looked_at[key] = (time.monotonic(), time.monotonic() - begun)
                self._shared.queue.done(key)

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

    def _refresh(self) -> None:
        """List the backends again and again, until the controller stops."""
        while not self._shared.stopped.is_set():
            self._changes.wake.wait(self._refresh_in_s())
            self._changes.wake.clear()
            if self._lead_changed and not self._shared.stopped.is_set():
                self._lead_changed = False
                if self._shared.leading():
                    # As at a start: the last leader may have left anything undone. A listing follows.
                    self._passed.clear()
                    self._look_at([app.key for app in self._tracked.apps()])
                else:
                    self._writer.stand_by()
            elif self._shared.stopped.is_set() or self._refresh_in_s() > 0:
                continue
            self._refresh_once(self._timing.listing_s)
            self._changes.note_listing()

    def _refresh_in_s(self) -> float:
        due = min(self._refreshed_at + self._timing.refresh_s, self._changes.listing_at())
        # However many new job objects there are, backends are listed once a second at most.
        return max(due, self._refreshed_at + 1.0) - time.monotonic()

    def _refresh_once(self, wait_s: float) -> None:
        """List all backends; one that takes longer is not waited for, and is not listed again until it has ended."""
        self._refreshed_at = time.monotonic()
        begun = [backend for backend in self._settings.backends if not self._is_being_listed(backend)]
        for backend in begun:
            self._listings[backend] = _start(partial(self._list, backend), f"listing {backend}")
        for backend in begun:
            self._listings[backend].join(max(self._refreshed_at + wait_s - time.monotonic(), 0.0))
            if self._is_being_listed(backend) and not self._shared.stopped.is_set():
                text = f"backend {backend} is still being read after {wait_s:g} s; its changes follow when it answers"
                self._reporter.begin(f"slow {backend}", text)

    def _is_being_listed(self, backend: str) -> bool:
        return backend in self._listings and self._listings[backend].is_alive()

    def _list(self, backend: str) -> None:
        try:
            changed = self._tracked.refresh(backend)
            if backend not in self._cleared and backend not in self._tracked.unread:
                # A stack that has nothing to be written is not locked by this process, and a lock blocks its owner.
                self._cleared |= {backend} if self._shared.driver.clear_dead_locks(backend) else set()
        except Exception as error:  # noqa: BLE001 - the next listing may succeed
            self._reporter.begin(f"listing {backend}", f"backend {backend} is not listed: {_unexpected(error)}")
            return
        self._reporter.end(f"listing {backend}", f"backend {backend} is listed again")
        self._reporter.end(f"slow {backend}", f"backend {backend} was read")
        self._look_at(changed)

    def _look_at(self, keys: Iterable[AppKey]) -> None:
        """Look at apps that changed in their stacks, and pass on the pods of those that are new."""
        for key in keys:
            self._shared.queue.add(key)
            app = self._tracked.app(key)
            if app is None:
                self._changes.looked_at.pop(key, None)
                self._passed.pop(key, None)
                self._reporter.forget(f"error {key}")
            elif self._shared.leading() and self._passed.get(key) != (app.uid, app.log_archive):
                self._passed[key] = (app.uid, app.log_archive)
                for view in self._shared.views:
                    for pod in view.pods_of(app):
                        self._changes.pod_changed(view, key, pod, deleted=False)


class _Changes(ChangeListener):
    """Queues apps that changed, and remembers job objects whose stacks are not known yet."""

    def __init__(self, shared: ControllerParts) -> None:
        self._shared = shared
        self._guard = threading.Lock()
        self._unknown: dict[str, tuple[int, float]] = {}
        """Uid of such a job object to the listings since it was seen, and when the next one is due."""
        self.wake = threading.Event()
        """Set when a listing may be due."""
        self.looked_at: dict[AppKey, tuple[float, float]] = {}
        """When an app was last looked at, and how long that took."""

    def dirty(self, key: AppKey, delay_s: float) -> None:
        # An app whose looks take long, as it has many pods, is looked at less often.
        at, took_s = self.looked_at.get(key, (0.0, 0.0))
        pause_s = at + min(LOOK_SHARE * took_s, MOST_PAUSE_S) - time.monotonic()
        self._shared.queue.add(key, max(delay_s, pause_s))

    def pod_changed(self, view: ClusterView, key: AppKey, pod: Manifest, *, deleted: bool) -> None:
        app, archiver = self._shared.tracked.app(key), self._shared.archiver
        if archiver is not None and app is not None and self._shared.leading():
            archiver.pod_changed(app, view.origin, pod, view.seen_job_object(app), deleted=deleted)

    def unknown(self, uid: str) -> None:
        with self._guard:
            if uid in self._unknown:
                return
            self._unknown[uid] = (0, time.monotonic())
        self.wake.set()

    def known(self, uid: str) -> None:
        with self._guard:
            self._unknown.pop(uid, None)

    def listing_at(self) -> float:
        """Return when the next listing is due, by the monotonic clock."""
        with self._guard:
            return min((at for _, at in self._unknown.values()), default=float("inf"))

    def note_listing(self) -> None:
        """Plan the next listing for job objects whose stacks are still not known."""
        now, pauses_s = time.monotonic(), REFRESH_PAUSES_S
        with self._guard:
            for uid, (count, due) in [*self._unknown.items()]:
                if self._shared.tracked.of_uid(uid):
                    del self._unknown[uid]
                elif due <= now:
                    pause_s = pauses_s[count] if count < len(pauses_s) else self._shared.timing.refresh_s
                    self._unknown[uid] = (count + 1, now + pause_s)


def _start(target: Callable[[], object], name: str) -> threading.Thread:
    # A daemon: a backend that does not answer cannot keep the process running.
    thread = threading.Thread(target=target, name=f"controller {name}", daemon=True)
    thread.start()
    return thread


def _unexpected(error: Exception) -> str:
    return f"{type(error).__name__}: {error}; it is tried again; please report this error"
