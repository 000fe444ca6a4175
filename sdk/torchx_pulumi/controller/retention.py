"""Retention: forgets apps of `torchx run` that ended long ago, with objects, archived logs, index entry and stack.

The stack goes last, so that a removal that was interrupted anywhere is completed by the next pass. Before each step it
is decided anew whether the app may go: only if everything in its stack is known, one app of `torchx run` and nothing
else, and if stack, history, index and cluster agree that its run has ended. docs/controller-operation.md has the rules.
"""

from __future__ import annotations

import math
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from torchx_pulumi.apps.judge import judge
from torchx_pulumi.apps.ownership import is_of_launch
from torchx_pulumi.controller.observing import ClusterView
from torchx_pulumi.controller.settings import RetentionSettings
from torchx_pulumi.controller.shared import AppWork, ControllerParts
from torchx_pulumi.controller.stack_apps import TrackedApp, read_stack_apps
from torchx_pulumi.kube.kinds import POD, Kind
from torchx_pulumi.log_archive import Archive, ArchivedJob, open_archive
from torchx_pulumi.model.app_entry import RunEntry, Stage
from torchx_pulumi.model.documentation import page
from torchx_pulumi.model.errors import ClusterError, TorchxPulumiError
from torchx_pulumi.model.object_fields import is_being_deleted, items_at, mapping_at, text_at, time_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.status import JobState, Reason, read_state
from torchx_pulumi.model.text import listed, one_line
from torchx_pulumi.model.timestamps import format_time
from torchx_pulumi.runs.driver import Forgotten
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.stack_state.backend import backend_url, open_store
from torchx_pulumi.stack_state.checkpoint import (
    DAMAGED,
    STACK,
    WRITABLE_VERSIONS,
    Checkpoint,
    is_object,
    parse_checkpoint,
    read_notes,
)
from torchx_pulumi.stack_state.stacks import HISTORY, read_updates
from torchx_pulumi.storage.owners import is_working
from torchx_pulumi.storage.stores import READ_TIMEOUT_S

OUTPUTS = frozenset({"torchx", "app_id", "app_handle", "state", "reason", "log_command"})
"""Outputs of a stack of `torchx run`. Another one is of a program that took the app over."""

NOT_OURS = {
    "protect": "is protected",
    "delete": "is deleted by the next update",
    "pendingReplacement": "is deleted by the next update",
    "retainOnDelete": "stays when its stack is deleted",
    "external": "is not managed by its stack",
}
"""Mark of a resource to why its stack stays. A default provider has no such mark."""

SOON = (JobState.SUCCEEDED, JobState.CANCELLED)
"""States of apps that are forgotten first. Failed ones, and those whose end was not seen, stay longer."""

NOTE = re.compile(r"\.history\.(json|yaml|yml)(\.gz|\.zst)?$")
"""End of the names of Pulumi's notes of updates."""

OWN_UPDATE = "auto.inline"
"""How `torchx run` starts an update, in Pulumi's note of it."""


HINDRANCES_SHOWN = 5
"""Failed tries in a row, for a passing reason, after which a line says why."""


class StaysError(Exception):
    """An app is not forgotten. The message says why."""

    def __init__(self, why: str, *, passing: bool = False) -> None:
        """Say why.

        Args:
            why: The reason, in words.
            passing: It may be gone in a moment, for example a lock. False: it stays until somebody changes something.
        """
        super().__init__(why)
        self.passing = passing


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """An app that may be forgotten now."""

    app: TrackedApp
    entry: RunEntry
    """The note of the launch."""
    view: ClusterView
    ended: str
    """How and when it ended, in words."""
    objects: Sequence[tuple[Kind, Manifest]]
    """Its objects that still exist, as the cluster has them."""

    @property
    def job(self) -> ArchivedJob:
        """Return the job whose archived logs are its own: that of the uid in its stack, and of no other."""
        return ArchivedJob(app_id=self.app.app_id, scheduler=self.app.scheduler, uid=self.app.uid or "")


@dataclass(eq=False)
class Retention:
    """Forgets apps. Used by one thread at a time."""

    shared: ControllerParts
    """What the parts of the controller share."""
    settings: RetentionSettings
    """What is forgotten, and when."""
    index: RunIndex
    """The apps that this user launched from here."""

    def run(self, stopped: threading.Event) -> None:
        """Forget what is due, again and again, until `stopped` is set."""
        while not stopped.is_set():
            self.run_pass(stopped)
            stopped.wait(self.settings.again_s if self._waiting() else self.settings.pass_s)

    def run_once(self, stopped: threading.Event, timeout_s: float) -> None:
        """Forget what is due now; return when that is done, after the timeout, or when `stopped` is set."""
        end = self.shared.clock() + timeout_s
        untried = self.run_pass(stopped, end)
        while self._waiting() and self.shared.clock() < end and not stopped.is_set():
            stopped.wait(self.settings.again_s)
            untried = self.run_pass(stopped, end)
        for app in self._waiting():
            why = self.shared.work_of(app.key).why
            because = f": {why}" if why else ""
            self.shared.reporter.line(f"{app.app_id}: it is not forgotten to its end{because}; the next start goes on")
        if untried and not stopped.is_set():
            words = f"the time of this run is over, {_count(untried, 'old app')} not tried; the next start goes on"
            self.shared.reporter.line(words)

    def _waiting(self) -> list[TrackedApp]:
        return [app for app in self.shared.tracked.apps() if self.shared.work_of(app.key).waits]

    def run_pass(self, stopped: threading.Event, end: float = math.inf) -> int:
        """Try each app that is due in the order of their ends. A failure does not stop the others.

        Args:
            stopped: Ends the pass when it is set.
            end: Ends the pass too, by the clock.

        Returns:
            How many were not tried because the pass ended before.
        """
        ready: list[tuple[bool, datetime, TrackedApp]] = []
        for app in self.shared.tracked.apps():
            at, work = self._due_at(app, _observed(app)), self.shared.work_of(app.key)
            if at is not None and at <= self.shared.now() and self.shared.clock() >= work.not_before:
                ready.append((not work.waits, at, app))
        # Those that wait come first: a new one is begun only if there is time to complete it.
        ready.sort(key=lambda one: one[:2])
        for number, (_, _, app) in enumerate(ready):
            if stopped.is_set() or not self.shared.leading() or self.shared.clock() >= end:
                return len(ready) - number
            if self._try(app, self.shared.work_of(app.key)):
                # Not thousands of removals at once, when an age is set for the first time.
                stopped.wait(self.settings.pause_s)
        return 0

    def preview(self) -> tuple[list[tuple[TrackedApp, str]], list[tuple[TrackedApp, str]]]:
        """Return what would be forgotten, with its end and extent, and what stays although old enough, with the reason.

        Read only.
        """
        goes, stays = [], []
        for app in sorted(self.shared.tracked.apps(), key=lambda one: (str(one.stack), one.urn)):
            try:
                seen = self._seen(app)
                at = self._due_at(app, seen)
                if at is None or at > self.shared.now():
                    continue
                if self.shared.tracked.is_locked(app):
                    stays.append((app, ", its stack is locked: an update runs, or was killed (`pulumi cancel`)"))
                    continue
                text = self.shared.tracked.text(app)
                if text is not None:
                    due = self._find(app, text, seen)
                    names = ", ".join(_named(kind, found) for kind, found in due.objects) or "no objects"
                    runs = [
                        run for archive in self._archives(due) for run in archive.read(archive.index(due.job.folder))
                    ]
                    logs = f"{_count(len(runs), 'archived log')} of {_count(sum(run.bytes for run in runs), 'byte')}"
                    goes.append((app, f" ({due.ended}), {names}; {logs}"))
            except (StaysError, TorchxPulumiError, OSError, *DAMAGED) as error:
                stays.append((app, f", {error}"))
        return goes, stays

    def show(self) -> None:
        """Write on stdout what would be forgotten now, and what stays although it is old enough."""
        goes, stays = self.preview()
        for apps, words in ((goes, "be forgotten"), (stays, "stay, although old enough")):
            sys.stdout.write(f"{_count(len(apps), 'app')} would {words}:\n")
            for app, why in apps:
                sys.stdout.write(f"  {one_line(f'{app.app_id}: stack {app.stack}{why}')}\n")
        sys.stdout.flush()

    def _try(self, app: TrackedApp, work: AppWork) -> bool:
        """Take the next step with an app, and note when it is tried again; return whether something was removed."""
        work.waits, work.why = False, ""
        problem, again_s = f"forget {app.key}", self.settings.retry_s
        try:
            removed = self._step(app, work)
        except StaysError as error:
            if not error.passing:
                work.not_before = self.shared.clock() + self.settings.stays_s
                return False
            work.why = str(error)
        except (TorchxPulumiError, OSError, *DAMAGED) as error:
            work.why = str(error)
            # The watch reports a cluster that is away.
            if isinstance(error, ClusterError) and not error.retryable and error.reason != "Conflict":
                work.why, problem = f"{error}; {page('permissions')} has what it takes", f"forget in {error.reason}"
                work.hindered = HINDRANCES_SHOWN
        except Exception as error:  # noqa: BLE001 - one app must not end the work on all others
            work.why, again_s = f"{type(error).__name__}: {error}; please report this error", self.settings.stays_s
            work.hindered = HINDRANCES_SHOWN
        else:
            work.hindered = 0
            self.shared.reporter.forget(problem)
            return removed
        work.hindered += 1
        if work.hindered > HINDRANCES_SHOWN:
            self.shared.reporter.begin(problem, f"{app.app_id}: stack {app.stack} is not forgotten yet: {work.why}")
        work.not_before = self.shared.clock() + again_s
        return False

    def _step(self, app: TrackedApp, work: AppWork) -> bool:
        """Delete the objects of an app, or everything else if it has none; return whether something was removed.

        Raises:
            StaysError: It stays.
            TorchxPulumiError: The backend or the cluster cannot be used.
            OSError: The archive cannot be used.
        """
        text = self.shared.tracked.text(app)
        if text is None:
            return False
        due, archiver = self._find(app, text), self.shared.archiver
        is_copying = archiver is not None and archiver.is_copying(due.job.uid)
        work.waits = is_copying or bool(due.objects)
        if is_copying and not due.objects:
            return False
        deleted: list[str] = []
        archives = [] if due.objects else self._archives(due)

        def check(text: str) -> bool:
            self._find(app, text)
            return False

        if archives:
            # An app whose stack is locked or cannot be written keeps its logs.
            _check_writable(self.shared.driver.forget_at(app.place, check))
        logs = sum(archive.remove(due.job) for archive in archives)

        def decide(text: str) -> bool:
            now = self._find(app, text)
            for kind, found in now.objects if due.objects and self.shared.leading() else ():
                if not is_being_deleted(found):
                    # Only as it was when the app was found to have ended.
                    name, uid, version = (text_at(found, "metadata", key) for key in ("name", "uid", "resourceVersion"))
                    now.view.origin.delete(kind, app.namespace, str(name), uid=uid, version=version)
                    deleted.append(_named(kind, found))
            if due.objects or now.objects or not self.shared.leading():
                return False
            # Before the stack: no pass would find an entry that is left over.
            self.index.forget(now.entry)
            return True

        try:
            outcome = self.shared.driver.forget_at(app.place, decide)
        finally:
            if deleted:
                self.shared.reporter.line(
                    f"{app.app_id}: deleted {', '.join(deleted)}, before stack {app.stack} is forgotten"
                )
        _check_writable(outcome)
        if outcome is not Forgotten.REMOVED:
            return bool(deleted)
        # The next listing of the backend drops the app.
        work.not_before = self.shared.clock() + self.settings.stays_s
        with_logs = f" and {_count(logs, 'archived log')}" if logs else ""
        self.shared.reporter.line(f"{app.app_id}: forgotten, with stack {app.stack}{with_logs} ({due.ended})")
        return True

    def _archives(self, due: Due) -> list[Archive]:
        """Return the archives of this controller that may have logs of an app."""
        return [open_archive(url) for url in self.settings.archives.having(due.app)]

    def _find(self, app: TrackedApp, text: str, seen: Mapping[str, Any] | None = None) -> Due:
        """Return an app that may be forgotten now.

        Args:
            app: The app as it was last read.
            text: The checkpoint of its stack as it is now.
            seen: The observation that its stack does not have yet. None: the stack's own counts.

        Raises:
            StaysError: It stays.
            TorchxPulumiError: The stack cannot be read, or the cluster does not answer.
            OSError: The history of the stack cannot be read.
        """
        checkpoint = parse_checkpoint(text)
        for why in _foreign(checkpoint):
            raise StaysError(why)
        now, entry = _own_app(text, app)
        objects = _objects(checkpoint, now)
        seen = seen or _observed(now)
        self._check_age(now, seen)
        self._check_others(now, entry)
        view = self.shared.cluster_of(now)
        if view is None:
            why = "its cluster or its namespace is not watched here, or may be another than that of its launch"
            raise StaysError(why)
        # Before the look: whatever is resumed after it is not deleted in this version.
        live = _live(view, objects, now)
        ended_at = self._check_ended(now, view, seen, live)
        ended = f"{seen.get('state')}, ended {format_time(ended_at)}"
        return Due(app=now, entry=entry, view=view, ended=ended, objects=live)

    def _due_at(self, app: TrackedApp, seen: Mapping[str, Any]) -> datetime | None:
        """Return when an app is old enough. None: it has not ended, or is not one of `torchx run`."""
        state, ended_at = read_state(seen.get("state")), _ended_at(seen)
        gone = state is JobState.UNKNOWN and seen.get("reason") == Reason.NOT_FOUND.value
        if not app.by_torchx or ended_at is None or not (state.terminal or gone):
            return None
        # A run that another one followed says nothing of it.
        if app.uid is None or seen.get("uid") not in (None, app.uid):
            return None
        try:
            return ended_at + (self.settings.after if state in SOON else self.settings.failed_after)
        except OverflowError:
            # A time that no clock shows, for example of a stack that was edited.
            return None

    def _seen(self, app: TrackedApp) -> Mapping[str, Any]:
        """Return the observation that the stack will have once the present state of the cluster is written."""
        for view in self.shared.views if not app.state.terminal and not app.has_secrets else ():
            look = view.look(app, self.shared.now())
            found = None if look is None else judge(look, app.requested, app.observed or None)
            if found is not None and read_state(found.get("state")).terminal:
                return found
        return _observed(app)

    def _check_age(self, app: TrackedApp, seen: Mapping[str, Any]) -> None:
        at = self._due_at(app, seen)
        if at is None:
            raise StaysError("it is still running, or its end time is unknown", passing=True)
        if at > self.shared.now():
            raise StaysError(f"it is not old enough before {format_time(at)}", passing=True)

    def _check_others(self, app: TrackedApp, entry: RunEntry) -> None:
        """Check that no program was run on a stack, no other stack has its run, and no process changes it."""
        # Opened each time, with the present credentials.
        store = open_store(backend_url(app.backend), READ_TIMEOUT_S)
        if store is None:
            raise StaysError("its backend is written by the Pulumi CLI only")
        names = [name for name in store.paths(f"{HISTORY}/{app.stack}") if NOTE.search(name)]
        updates = read_updates(store, app.stack, len(names))
        if len(updates) < len(names):
            raise StaysError("an update in its history cannot be read, so what was run is unknown")
        if any(update.kind == "update" and update.started_by != OWN_UPDATE for update in updates):
            raise StaysError("a Pulumi program took its stack over")
        for key in self.shared.tracked.of_uid(app.uid) - {app.key}:
            raise StaysError(f"stack {key[1]} of {key[0]} names the same job object")
        known = self.index.get(entry)
        if known is None:
            return
        if known.stage is not Stage.LAUNCHED or is_working(known.owner):
            raise StaysError("a process launches, changes or deletes it", passing=True)
        if (known.launch, known.launched_at) != (entry.launch, entry.launched_at):
            raise StaysError("this user's index of apps has another launch of its name", passing=True)

    def _check_ended(
        self, app: TrackedApp, view: ClusterView, seen: Mapping[str, Any], live: Iterable[tuple[Kind, Manifest]]
    ) -> datetime:
        """Return when an app ended by its stack and its cluster. None of its pods may run."""
        ended_at = _ended_at(seen)
        if any(kind == app.variant.job_object and not is_being_deleted(found) for kind, found in live):
            look = view.look_again(app, self.shared.now())
            # What the cluster says by itself: an end in the stack does not allow the deletion of what runs.
            now = None if look is None or look.gone else judge(look, app.requested, None)
            if now is None:
                raise StaysError("its objects change at this moment", passing=True)
            if not read_state(now.get("state")).terminal:
                raise StaysError(f"its cluster says that it is {now.get('state')}")
            now = {**now, "observed_at": format_time(ended_at or self.shared.now())}
            self._check_age(app, now)
            ended_at = max(filter(None, (ended_at, _ended_at(now))))
        if ended_at is None:
            raise StaysError("its end time is unknown")
        for pod in view.origin.list(POD, app.namespace, app.scheduler_backend.pod_selector(app.job_name)):
            has_ended = text_at(pod, "status", "phase") in ("Succeeded", "Failed") or is_being_deleted(pod)
            # A pod that outlived its job object may have lost its owner reference (`kubectl delete --cascade=orphan`).
            if not has_ended and (app.owns(pod) or not items_at(pod, "metadata", "ownerReferences")):
                raise StaysError(f"its pod {text_at(pod, 'metadata', 'name')} has not ended")
        return ended_at


def _check_writable(outcome: Forgotten) -> None:
    """Check that a stack was locked and could be removed.

    Raises:
        StaysError: It was not.
    """
    if outcome is Forgotten.DEFERRED:
        raise StaysError("an update holds the lock of its stack, or the backend cannot be reached", passing=True)
    if outcome is Forgotten.LEFT:
        why = "its stack may not be removed, or it has a form that only the Pulumi CLI writes"
        raise StaysError(why, passing=True)


def _observed(app: TrackedApp) -> Mapping[str, Any]:
    """Return what the stack of an app has observed."""
    return mapping_at(app.output.output, "observed")


def _ended_at(seen: Mapping[str, Any]) -> datetime | None:
    """Return when a run ended, or when its end was first seen if that time is unknown or implausible."""
    finished_at, queued_at = time_at(seen, "finished_at"), time_at(seen, "queued_at")
    if finished_at is None or (queued_at is not None and finished_at < queued_at):
        return time_at(seen, "observed_at")
    return finished_at


def _foreign(checkpoint: Checkpoint) -> Iterator[str]:
    """Yield why a stack stays: it has something that `torchx run` did not put there."""
    if checkpoint.version not in WRITABLE_VERSIONS:
        yield f"its checkpoint has version {checkpoint.version}, this release knows {WRITABLE_VERSIONS}"
    if checkpoint.pending:
        yield "an operation on its stack was interrupted (`pulumi refresh`, `torchx-pulumi delete`)"
    if others := [_titled(item) for item in checkpoint.others()]:
        yield f"its stack also holds {listed(others, 3)}"
    for mark, why in NOT_OURS.items():
        if found := [_titled(item) for item in checkpoint.resources if item.get(mark)]:
            yield f"{listed(found, 3)} {why}"
    for item in checkpoint.resources:
        more = sorted(mapping_at(item, "outputs").keys() - OUTPUTS) if item.get("type") == STACK else []
        if more:
            yield f"a Pulumi program took its stack over: it exports {listed(more, 3)}"


def _own_app(text: str, app: TrackedApp) -> tuple[TrackedApp, RunEntry]:
    """Return the only app of a stack as it is now, and the note of its launch.

    Raises:
        StaysError: The stack has another app, or one that is not only of `torchx run`.
        DeployError: A newer release wrote the notes.
    """
    apps, (entry, record) = read_stack_apps(text, app.place, app.stack), read_notes(text)
    if len(apps) != 1 or apps[0].urn != app.urn or entry is None or not apps[0].by_torchx:
        raise StaysError("its stack does not have exactly the one app that `torchx run` launched")
    now = apps[0]
    if now.uid is None or now.uid != app.uid:
        raise StaysError("it was launched again", passing=True)
    names = {(one.namespace, one.job_name) for one in (entry, now, app)}
    for stays, why in (
        (now.has_secrets, "values of its outputs are secret, so its stack is not kept current"),
        (now.of_later_release, "a later release wrote its outputs"),
        (record is not None and record.imported, "its job object was created by another program"),
        (record is not None and record.attempt > 1, "a program of the user's launched it again"),
        (len(names) > 1, "its notes are of another app; they were changed by hand"),
    ):
        if stays:
            raise StaysError(why)
    return now, entry


def _objects(checkpoint: Checkpoint, app: TrackedApp) -> Mapping[tuple[Kind, str], str]:
    """Return kind and name of each object of a run, all in the app's namespace, to its uid.

    Raises:
        StaysError: The state has an object that no launch creates, or that it does not identify.
    """
    job = app.variant.job_object
    found = {(job, app.job_name): app.uid or ""}
    allowed = {(kind.api_version, kind.kind): kind for kind in (job, *app.variant.companions)}
    for item in filter(is_object, checkpoint.resources):
        whole = {**mapping_at(item, "inputs"), **mapping_at(item, "outputs")}
        kind = allowed.get((str(whole.get("apiVersion")), str(whole.get("kind"))))
        name, uid = text_at(whole, "metadata", "name"), text_at(whole, "metadata", "uid")
        if kind is None or name is None or uid is None:
            raise StaysError(f"its stack has {_titled(item)}, which no launch of this kind creates, or without a uid")
        namespace = text_at(whole, "metadata", "namespace") or app.namespace
        one = f"{kind.kind} {namespace}/{name}"
        if kind == job and (namespace != app.namespace or found.get((kind, name)) != uid):
            raise StaysError(f"its stack names {one} with another uid, name or namespace than its outputs")
        if namespace != app.namespace:
            raise StaysError(f"its stack has {one}, which is in another namespace than the app")
        found[kind, name] = uid
    return found


def _live(view: ClusterView, objects: Mapping[tuple[Kind, str], str], app: TrackedApp) -> list[tuple[Kind, Manifest]]:
    """Return the objects that still exist, as they are now.

    Raises:
        StaysError: The cluster has another launch of the app, or an object that its launch did not create.
    """
    live: list[tuple[Kind, Manifest]] = []
    for (kind, name), uid in objects.items():
        found = view.origin.get(kind, app.namespace, name) or {}
        is_own, is_same = is_of_launch(app.launches, found), text_at(found, "metadata", "uid") == uid
        if is_own and not is_same and kind == app.variant.job_object:
            raise StaysError("its cluster has a later run of it")
        if is_same and not is_own:
            raise StaysError(f"its stack has {_named(kind, found)}, which its launch did not create")
        live += [(kind, found)] if is_same else []
    return live


def _named(kind: Kind, found: Mapping[str, Any]) -> str:
    """Return what messages call an object in a cluster."""
    return f"{kind.kind} {text_at(found, 'metadata', 'namespace')}/{text_at(found, 'metadata', 'name')}"


def _titled(item: Mapping[str, Any]) -> str:
    """Return what messages call a resource in a stack."""
    return f"{item.get('type')} {str(item.get('urn')).rpartition('::')[2]!r}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
