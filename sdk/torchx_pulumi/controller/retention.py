"""Retention: forgets apps of `torchx run` that ended long ago, with objects, archived logs, index entry and stack.

The stack goes last, so that a removal that was interrupted anywhere is completed by the next pass. What may go is
decided by `DueApps`, before each step. docs/controller.md has the rules.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime

from torchx_pulumi.controller.archiver import Archiver
from torchx_pulumi.controller.due_apps import Due, DueApps, LiveObject, observed_of
from torchx_pulumi.controller.forgettable import StaysError
from torchx_pulumi.controller.observing import ClusterView
from torchx_pulumi.controller.reporting import Reporter
from torchx_pulumi.controller.settings import RetentionSettings
from torchx_pulumi.controller.stack_apps import AppKey, TrackedApp
from torchx_pulumi.controller.tracked import TrackedStacks
from torchx_pulumi.log_archive import Archive, ArchivedJob, open_archive
from torchx_pulumi.model.errors import ClusterError, TorchxPulumiError
from torchx_pulumi.model.text import one_line
from torchx_pulumi.model.timestamps import format_time
from torchx_pulumi.runs.driver import Driver, Forgotten
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.stack_state.checkpoint import DAMAGED
from torchx_pulumi.stack_state.stacks import Stacks, open_stacks

HINDRANCES_SHOWN = 5
"""Tries in a row that something passing prevented, after which a line says what."""


class Retention:
    """Forgets apps. Used by one thread at a time."""

    def __init__(
        self,
        settings: RetentionSettings,
        tracked: TrackedStacks,
        views: Sequence[ClusterView],
        driver: Driver,
        reporter: Reporter,
        *,
        archiver: Archiver | None = None,
        leading: Callable[[], bool] = lambda: True,
        opened: Callable[[str], Stacks] = open_stacks,
        opened_archive: Callable[[str], Archive] = open_archive,
        index: RunIndex | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime],
    ) -> None:
        """Take the dependencies.

        Args:
            settings: What is forgotten, and when.
            tracked: The apps.
            views: The watched clusters.
            driver: Removes stacks.
            reporter: Takes lines.
            archiver: What copies logs. None: this process does not copy logs.
            leading: Returns whether this process changes anything.
            opened: Returns the stacks of a backend.
            opened_archive: Opens an archive by its URL.
            index: The apps that this user launched from here. None: the index in this user's state folder.
            clock: Monotonic time in seconds.
            now: The time by which apps are old, aware.
        """
        self._settings = settings
        self._tracked = tracked
        self._driver = driver
        self._reporter = reporter
        self._archiver = archiver
        self._leading = leading
        self._opened_archive = opened_archive
        self._index = index or RunIndex()
        self._clock = clock
        self._now = now
        self._due = DueApps(settings, tracked, views, opened=opened, index=self._index, now=now)
        self._not_before: dict[AppKey, float] = {}
        self._waiting: dict[AppKey, str] = {}
        """Apps whose next step has to wait for a moment, and why it failed. Empty: it did not."""
        self._hindered: dict[AppKey, int] = {}

    @property
    def dry_run(self) -> bool:
        """Return whether it is only shown what would be forgotten."""
        return self._settings.dry_run

    def run(self, stopped: threading.Event) -> None:
        """Forget what is due, again and again, until `stopped` is set."""
        while not stopped.is_set():
            self.run_pass(stopped)
            stopped.wait(self._settings.again_s if self._waiting else self._settings.pass_s)

    def run_once(self, stopped: threading.Event, timeout_s: float) -> None:
        """Forget what is due now; return when that is done, after the timeout, or when `stopped` is set."""
        end = self._clock() + timeout_s
        untried = self.run_pass(stopped, end)
        while self._waiting and self._clock() < end and not stopped.is_set():
            stopped.wait(self._settings.again_s)
            untried = self.run_pass(stopped, end)
        for key, why in self._waiting.items():
            app = self._tracked.app(key)
            if app is not None:
                because = f": {why}" if why else ""
                self._reporter.line(f"{app.app_id}: it is not forgotten to its end{because}; the next start goes on")
        if untried and not stopped.is_set():
            self._reporter.line(
                f"the time of this run is over, {_count(untried, 'old app')} not tried; the next start goes on"
            )

    def run_pass(self, stopped: threading.Event, end: float = math.inf) -> int:
        """Try each app that is due, the one that ended first first; one that cannot be forgotten prevents no other.

        Args:
            stopped: Ends the pass when it is set.
            end: Ends the pass too, by the clock.

        Returns:
            How many were not tried because the pass ended before.
        """
        known = {app.key: app for app in self._tracked.apps()}
        for table in (self._not_before, self._hindered, self._waiting):
            for key in table.keys() - known.keys():
                table.pop(key)
        found = {key: self._due.due_at(app, observed_of(app)) for key, app in known.items()}
        due = {key: at for key, at in found.items() if at is not None and at <= self._now()}
        now = self._clock()
        # Those that wait come first: another one is not begun where there is no time to complete it.
        ready = [key for key in due if now >= self._not_before.get(key, 0.0)]
        ready.sort(key=lambda one: (one not in self._waiting, due[one]))
        for number, key in enumerate(ready):
            if stopped.is_set() or not self._leading() or self._clock() >= end:
                return len(ready) - number
            if self._try(known[key]):
                # Not thousands of removals at once, when an age is set for the first time.
                stopped.wait(self._settings.pause_s)
        return 0

    def preview(self) -> tuple[list[tuple[Due, str]], list[tuple[TrackedApp, str]]]:
        """Return what would be forgotten, each with what goes with it, and what stays although it is old enough.

        Nothing is changed.
        """
        goes, stays = [], []
        for app in sorted(self._tracked.apps(), key=lambda one: (str(one.stack), one.urn)):
            try:
                due = self._due_now(app)
                if due is not None:
                    goes.append((due, self._extent(due)))
            except (StaysError, TorchxPulumiError, OSError, *DAMAGED) as error:
                stays.append((app, str(error)))
        return goes, stays

    def show(self) -> None:
        """Write on stdout what would be forgotten now, and what stays although it is old enough."""
        goes, stays = self.preview()
        lines = [f"{_count(len(goes), 'app')} would be forgotten:"]
        for due, extent in goes:
            app = due.stack.app
            ended = f"{due.state}, ended {format_time(due.ended_at)}"
            lines.append(f"  {app.app_id}: stack {app.stack} ({ended}), {extent}")
        lines.append(f"{_count(len(stays), 'app')} would stay, although old enough:")
        lines += [f"  {app.app_id}: stack {app.stack}, {why}" for app, why in stays]
        sys.stdout.write("\n".join([*map(_printable, lines), ""]))
        sys.stdout.flush()

    def _due_now(self, app: TrackedApp) -> Due | None:
        """Return an app that would be forgotten now. None: it is not old enough, or its stack is gone.

        Raises:
            StaysError: It stays although it is old enough.
            TorchxPulumiError: As `DueApps.find`.
        """
        seen = self._due.seen(app)
        at = self._due.due_at(app, seen)
        if at is None or at > self._now():
            return None
        if app.stack in self._due.stacks(app.backend).updating():
            raise StaysError("its stack is locked: an update runs, or was killed (`pulumi cancel`)")
        text = self._due.text(app)
        return None if text is None else self._due.find(app, text, seen)

    def _try(self, app: TrackedApp) -> bool:
        """Take the next step with an app, and note when it is tried again; return whether something was removed."""
        self._waiting.pop(app.key, None)
        problem, again_s = f"forget {app.key}", self._settings.retry_s
        try:
            removed = self._step(app)
        except StaysError as error:
            if not error.passing:
                self._put_off(app, self._settings.stays_s)
                return False
            why = str(error)
        except ClusterError as error:
            # The watch reports a cluster that is away.
            if error.retryable or error.reason == "Conflict":
                why = str(error)
            else:
                why, problem = f"{error}; docs/permissions.md has what it takes", f"forget in {error.reason}"
                self._hindered[app.key] = HINDRANCES_SHOWN
        except (TorchxPulumiError, OSError, *DAMAGED) as error:
            why = str(error)
        except Exception as error:  # noqa: BLE001 - one app must not end the work on all others
            why, again_s = f"{type(error).__name__}: {error}; please report this error", self._settings.stays_s
            self._hindered[app.key] = HINDRANCES_SHOWN
        else:
            self._hindered.pop(app.key, None)
            self._reporter.forget(problem)
            return removed
        if app.key in self._waiting:
            self._waiting[app.key] = why
        self._hindered[app.key] = self._hindered.get(app.key, 0) + 1
        if self._hindered[app.key] > HINDRANCES_SHOWN:
            self._reporter.begin(problem, f"{app.app_id}: stack {app.stack} is not forgotten yet: {why}")
        self._put_off(app, again_s)
        return False

    def _put_off(self, app: TrackedApp, delay_s: float) -> None:
        self._not_before[app.key] = self._clock() + delay_s

    def _step(self, app: TrackedApp) -> bool:
        """Take the next step with an app; return whether something was removed.

        Raises:
            StaysError: It stays.
            TorchxPulumiError: The backend or the cluster cannot be used.
            OSError: The archive cannot be used.
        """
        text = self._due.text(app)
        if text is None:
            return False
        due = self._due.find(app, text)
        if due.objects:
            self._waiting[app.key] = ""
            return self._delete_objects(app)
        if self._archiver is not None and self._archiver.is_copying(due.job.uid):
            self._waiting[app.key] = ""
            return False
        return self._remove(app, sum(archive.remove(job) for archive, job in self._archives(due)))

    def _delete_objects(self, app: TrackedApp) -> bool:
        """Delete the objects of an app, each only as it was when the app was found to have ended."""
        deleted: list[LiveObject] = []

        def delete(text: str) -> bool:
            due = self._due.find(app, text)
            for one in due.objects if self._leading() else ():
                if not one.going:
                    ref = one.ref
                    due.view.origin.delete(ref.kind, ref.namespace, ref.name, uid=ref.uid, version=one.version)
                    deleted.append(one)
            return False

        try:
            self._locked(app, delete)
        finally:
            if deleted:
                names = ", ".join(str(one.ref) for one in deleted)
                self._reporter.line(f"{app.app_id}: deleted {names}, before stack {app.stack} is forgotten")
        return bool(deleted)

    def _remove(self, app: TrackedApp, logs: int) -> bool:
        """Remove index entry and stack of an app without objects."""
        decided: list[Due] = []

        def go(text: str) -> bool:
            due = self._due.find(app, text)
            if due.objects or not self._leading():
                return False
            # Before the stack: no pass would find an entry that is left over.
            self._index.forget(due.stack.entry)
            decided.append(due)
            return True

        if self._locked(app, go) is not Forgotten.REMOVED:
            return False
        # The next listing of the backend drops the app.
        self._put_off(app, self._settings.stays_s)
        with_logs = f" and {_count(logs, 'archived log')}" if logs else ""
        ended = f"{decided[0].state}, ended {format_time(decided[0].ended_at)}"
        self._reporter.line(f"{app.app_id}: forgotten, with stack {app.stack}{with_logs} ({ended})")
        return True

    def _locked(self, app: TrackedApp, decide: Callable[[str], bool]) -> Forgotten:
        """Let a function decide under the lock of a stack, by its checkpoint as it is then.

        Raises:
            StaysError: It stays, or its lock is not free.
            TorchxPulumiError: The decision failed.
        """
        failures: list[Exception] = []

        def guarded(text: str) -> bool:
            try:
                return decide(text)
            except Exception as error:  # noqa: BLE001 - it is raised again as soon as the lock is released
                failures.append(error)
                return False

        outcome = self._driver.forget_at(app.place, guarded)
        if failures:
            raise failures[0]
        if outcome is Forgotten.DEFERRED:
            raise StaysError("an update holds the lock of its stack, or the backend cannot be reached", passing=True)
        if outcome is Forgotten.LEFT:
            raise StaysError(
                "there is no permission to remove its stack, or it has a form that only the Pulumi CLI writes",
                passing=True,
            )
        return outcome

    def _archives(self, due: Due) -> list[tuple[Archive, ArchivedJob]]:
        """Return the archives that may have logs of an app, of those that this controller uses."""
        return [(self._opened_archive(url), due.job) for url in self._settings.archives.having(due.stack.app)]

    def _extent(self, due: Due) -> str:
        """Return what goes with an app, in words."""
        names = ", ".join(str(one.ref) for one in due.objects) or "no objects"
        runs = [run for archive, job in self._archives(due) for _, run in archive.read(archive.index(job))]
        return f"{names}; {_count(len(runs), 'archived log')} of {_count(sum(run.bytes for run in runs), 'byte')}"


def _printable(line: str) -> str:
    return f"  {one_line(line)}" if line.startswith(" ") else one_line(line)


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
