"""Retention: forgets apps of `torchx run` that ended long ago, with objects, archived logs, index entry and stack.

The stack goes last, so that a removal that was interrupted anywhere is completed by the next pass. What may go is
decided by `DueApps`, before each step. docs/controller.md has the rules.
"""

from __future__ import annotations

import math
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from torchx_pulumi.controller.due_apps import Due, DueApps, observed_of
from torchx_pulumi.controller.forgettable import AppObject, StaysError
from torchx_pulumi.controller.settings import RetentionSettings
from torchx_pulumi.controller.shared import ControllerParts
from torchx_pulumi.controller.stack_apps import AppKey, TrackedApp
from torchx_pulumi.log_archive import Archive, ArchivedJob, open_archive
from torchx_pulumi.model.errors import ClusterError, TorchxPulumiError
from torchx_pulumi.model.text import one_line
from torchx_pulumi.runs.driver import Forgotten
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.stack_state.checkpoint import DAMAGED

HINDRANCES_SHOWN = 5
"""Tries in a row that something passing prevented, after which a line says what."""


@dataclass(slots=True)
class _Tries:
    """What was tried with one app."""

    not_before: float = 0.0
    """When it is tried again, by the monotonic clock."""
    hindered: int = 0
    """Tries in a row that failed."""
    waits: bool = False
    """Its next step has to wait for a moment."""
    why: str = ""
    """Why the last try failed. Empty: it did not."""


class Retention:
    """Forgets apps. Used by one thread at a time."""

    def __init__(
        self,
        shared: ControllerParts,
        settings: RetentionSettings,
        *,
        opened_archive: Callable[[str], Archive] = open_archive,
        index: RunIndex | None = None,
    ) -> None:
        """Take the dependencies.

        Args:
            shared: What the parts of the controller share.
            settings: What is forgotten, and when.
            opened_archive: Opens an archive by its URL.
            index: The apps that this user launched from here. None: the index in this user's state folder.
        """
        self.settings = settings
        self._shared = shared
        self._reporter = shared.reporter
        self._opened_archive = opened_archive
        self._index = index or RunIndex()
        self._due = DueApps(shared, settings, self._index)
        self._tries: defaultdict[AppKey, _Tries] = defaultdict(_Tries)

    def run(self, stopped: threading.Event) -> None:
        """Forget what is due, again and again, until `stopped` is set."""
        while not stopped.is_set():
            self.run_pass(stopped)
            stopped.wait(self.settings.again_s if self._waiting() else self.settings.pass_s)

    def run_once(self, stopped: threading.Event, timeout_s: float) -> None:
        """Forget what is due now; return when that is done, after the timeout, or when `stopped` is set."""
        end = self._shared.clock() + timeout_s
        untried = self.run_pass(stopped, end)
        while self._waiting() and self._shared.clock() < end and not stopped.is_set():
            stopped.wait(self.settings.again_s)
            untried = self.run_pass(stopped, end)
        for key in self._waiting():
            app, why = self._shared.tracked.app(key), self._tries[key].why
            if app is not None:
                because = f": {why}" if why else ""
                self._reporter.line(f"{app.app_id}: it is not forgotten to its end{because}; the next start goes on")
        if untried and not stopped.is_set():
            words = f"the time of this run is over, {_count(untried, 'old app')} not tried; the next start goes on"
            self._reporter.line(words)

    def _waiting(self) -> list[AppKey]:
        return [key for key, tries in self._tries.items() if tries.waits]

    def run_pass(self, stopped: threading.Event, end: float = math.inf) -> int:
        """Try each app that is due, the one that ended first first; one that cannot be forgotten prevents no other.

        Args:
            stopped: Ends the pass when it is set.
            end: Ends the pass too, by the clock.

        Returns:
            How many were not tried because the pass ended before.
        """
        known = {app.key: app for app in self._shared.tracked.apps()}
        for key in self._tries.keys() - known.keys():
            del self._tries[key]
        found = {key: self._due.due_at(app, observed_of(app)) for key, app in known.items()}
        due = {key: at for key, at in found.items() if at is not None and at <= self._shared.now()}
        now = self._shared.clock()
        # Those that wait come first: another one is not begun where there is no time to complete it.
        ready = [key for key in due if now >= self._tries[key].not_before]
        ready.sort(key=lambda one: (not self._tries[one].waits, due[one]))
        for number, key in enumerate(ready):
            if stopped.is_set() or not self._shared.leading() or self._shared.clock() >= end:
                return len(ready) - number
            if self._try(known[key], self._tries[key]):
                # Not thousands of removals at once, when an age is set for the first time.
                stopped.wait(self.settings.pause_s)
        return 0

    def preview(self) -> tuple[list[tuple[Due, str]], list[tuple[TrackedApp, str]]]:
        """Return what would be forgotten, each with what goes with it, and what stays although it is old enough.

        Nothing is changed.
        """
        goes, stays = [], []
        for app in sorted(self._shared.tracked.apps(), key=lambda one: (str(one.stack), one.urn)):
            try:
                seen = self._due.seen(app)
                at = self._due.due_at(app, seen)
                if at is None or at > self._shared.now():
                    continue
                if self._shared.tracked.is_locked(app):
                    stays.append((app, "its stack is locked: an update runs, or was killed (`pulumi cancel`)"))
                    continue
                text = self._shared.tracked.text(app)
                if text is not None:
                    due = self._due.find(app, text, seen)
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
            lines.append(f"  {one_line(f'{app.app_id}: stack {app.stack} ({due.ended}), {extent}')}")
        lines.append(f"{_count(len(stays), 'app')} would stay, although old enough:")
        lines += [f"  {one_line(f'{app.app_id}: stack {app.stack}, {why}')}" for app, why in stays]
        sys.stdout.write("\n".join([*lines, ""]))
        sys.stdout.flush()

    def _extent(self, due: Due) -> str:
        """Return what goes with an app, in words."""
        names = ", ".join(map(str, due.objects)) or "no objects"
        runs = [run for archive, job in self._archives(due) for run in archive.read(archive.index(job.folder))]
        return f"{names}; {_count(len(runs), 'archived log')} of {_count(sum(run.bytes for run in runs), 'byte')}"

    def _try(self, app: TrackedApp, tries: _Tries) -> bool:
        """Take the next step with an app, and note when it is tried again; return whether something was removed."""
        tries.waits, tries.why = False, ""
        problem, again_s = f"forget {app.key}", self.settings.retry_s
        try:
            removed = self._step(app, tries)
        except StaysError as error:
            if not error.passing:
                tries.not_before = self._shared.clock() + self.settings.stays_s
                return False
            tries.why = str(error)
        except ClusterError as error:
            tries.why = str(error)
            # The watch reports a cluster that is away.
            if not error.retryable and error.reason != "Conflict":
                tries.why, problem = f"{error}; docs/permissions.md has what it takes", f"forget in {error.reason}"
                tries.hindered = HINDRANCES_SHOWN
        except (TorchxPulumiError, OSError, *DAMAGED) as error:
            tries.why = str(error)
        except Exception as error:  # noqa: BLE001 - one app must not end the work on all others
            tries.why, again_s = f"{type(error).__name__}: {error}; please report this error", self.settings.stays_s
            tries.hindered = HINDRANCES_SHOWN
        else:
            tries.hindered = 0
            self._reporter.forget(problem)
            return removed
        tries.hindered += 1
        if tries.hindered > HINDRANCES_SHOWN:
            self._reporter.begin(problem, f"{app.app_id}: stack {app.stack} is not forgotten yet: {tries.why}")
        tries.not_before = self._shared.clock() + again_s
        return False

    def _step(self, app: TrackedApp, tries: _Tries) -> bool:
        """Take the next step with an app; return whether something was removed.

        Raises:
            StaysError: It stays.
            TorchxPulumiError: The backend or the cluster cannot be used.
            OSError: The archive cannot be used.
        """
        text = self._shared.tracked.text(app)
        if text is None:
            return False
        due, archiver = self._due.find(app, text), self._shared.archiver
        is_copying = archiver is not None and archiver.is_copying(due.job.uid)
        tries.waits = is_copying or bool(due.objects)
        if due.objects:
            return self._delete_objects(app)
        return not is_copying and self._remove(app, tries, due)

    def _delete_objects(self, app: TrackedApp) -> bool:
        """Delete the objects of an app, each only as it was when the app was found to have ended."""
        deleted: list[AppObject] = []

        def delete(text: str) -> bool:
            due = self._due.find(app, text)
            for one in due.objects if self._shared.leading() else ():
                if not one.going:
                    due.view.origin.delete(one.kind, one.namespace, one.name, uid=one.uid, version=one.version)
                    deleted.append(one)
            return False

        try:
            self._locked(app, delete)
        finally:
            if deleted:
                names = ", ".join(map(str, deleted))
                self._reporter.line(f"{app.app_id}: deleted {names}, before stack {app.stack} is forgotten")
        return bool(deleted)

    def _remove(self, app: TrackedApp, tries: _Tries, due: Due) -> bool:
        """Remove archived logs, index entry and stack of an app without objects."""
        logs = sum(archive.remove(job) for archive, job in self._archives(due))

        def go(text: str) -> bool:
            now = self._due.find(app, text)
            if now.objects or not self._shared.leading():
                return False
            # Before the stack: no pass would find an entry that is left over.
            self._index.forget(now.stack.entry)
            return True

        if self._locked(app, go) is not Forgotten.REMOVED:
            return False
        # The next listing of the backend drops the app.
        tries.not_before = self._shared.clock() + self.settings.stays_s
        with_logs = f" and {_count(logs, 'archived log')}" if logs else ""
        self._reporter.line(f"{app.app_id}: forgotten, with stack {app.stack}{with_logs} ({due.ended})")
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

        outcome = self._shared.driver.forget_at(app.place, guarded)
        if failures:
            raise failures[0]
        if outcome is Forgotten.DEFERRED:
            raise StaysError("an update holds the lock of its stack, or the backend cannot be reached", passing=True)
        if outcome is Forgotten.LEFT:
            why = "there is no permission to remove its stack, or it has a form that only the Pulumi CLI writes"
            raise StaysError(why, passing=True)
        return outcome

    def _archives(self, due: Due) -> list[tuple[Archive, ArchivedJob]]:
        """Return the archives that may have logs of an app, of those that this controller uses."""
        return [(self._opened_archive(url), due.job) for url in self.settings.archives.having(due.stack.app)]


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
