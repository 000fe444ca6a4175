"""Pruning: deletes apps of `torchx run` that ended long ago, one after the other, as `torchx-pulumi delete` does.

The table says which apps are old. Whether one may go is decided anew under its lease: only if its stack holds this app
and nothing else, and if stack, history, index and cluster agree that its run has ended. docs/prune.md has the rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from enum import Enum
from typing import Any

from torchx_pulumi.apps.app import App, read_apps
from torchx_pulumi.apps.judge import judge
from torchx_pulumi.apps.look import look_at, read_objects
from torchx_pulumi.kube import Cluster
from torchx_pulumi.kube.kinds import POD, Kind
from torchx_pulumi.model.app_entry import RunEntry, Stage, read_entry
from torchx_pulumi.model.errors import DIFFERENT_CLUSTER, ClusterError, DeployError, TorchxPulumiError
from torchx_pulumi.model.object_fields import is_being_deleted, items_at, mapping_at, text_at, time_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.progress import ProgressCallback
from torchx_pulumi.model.registration_plan import APP_SUFFIX, RECORD
from torchx_pulumi.model.run_record import read_record
from torchx_pulumi.model.status import JobState, Reason, read_state
from torchx_pulumi.model.text import listed, one_line
from torchx_pulumi.model.timestamps import format_time
from torchx_pulumi.runs.driver import Driver
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.runs.lease import Lease, claim
from torchx_pulumi.runs.whereabouts import UNDECIDED_CLUSTER, Connect, check_before_change, reachable
from torchx_pulumi.stack_state.backend import backend_url, open_store
from torchx_pulumi.stack_state.checkpoint import (
    DAMAGED,
    STACK,
    Checkpoint,
    is_object,
    parse_checkpoint,
    parse_components,
    titled,
)
from torchx_pulumi.stack_state.stacks import HISTORY, ListedStacks, StackName, read_updates
from torchx_pulumi.storage.owners import is_working
from torchx_pulumi.storage.stores import READ_TIMEOUT_S

from torchx_pulumi_fleet.archive import Archive, open_archive
from torchx_pulumi_fleet.archive.archive import check_there, job_folder, newest_copies
from torchx_pulumi_fleet.views.row import FleetRow

OUTPUTS = frozenset({"torchx", "app_id", "app_handle", "state", "reason", "log_command"})
"""Outputs of a stack of `torchx run`. Another one is of a program that took the app over."""

NOT_OURS = {
    "protect": "is protected (`pulumi state unprotect`)",
    "delete": "is deleted by the next update",
    "pendingReplacement": "is deleted by the next update",
    "retainOnDelete": "stays when its stack is deleted",
    "external": "is not managed by its stack",
}
"""Mark of a resource to why its stack stays."""

NOTE = re.compile(r"\.history\.(json|yaml|yml)(\.gz|\.zst)?$")
"""End of the names of Pulumi's notes of updates."""

OWN_UPDATE = "auto.inline"
"""How `torchx run` starts an update, in Pulumi's note of it."""


class StaysError(TorchxPulumiError):
    """An app is left alone. The message says why."""


class Fate(str, Enum):
    """What became of an app."""

    PRUNED = "pruned"
    DUE = "would be pruned"
    LEFT = "left alone"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one app."""

    app_id: str
    fate: Fate
    why: str
    """How it ended and what went with it, why it stays, or what failed."""

    def __str__(self) -> str:
        """Return one line."""
        return one_line(f"{self.fate.value}: {self.app_id}: {self.why}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """An app in its stack, which holds nothing else."""

    app: App
    entry: RunEntry
    """The note of its launch."""
    objects: Mapping[tuple[Kind, str], str]
    """Kind and name of each object in the stack, all in the app's namespace, to its uid."""


@dataclass(frozen=True, kw_only=True)
class Pruning:
    """Deletes the old apps of one backend."""

    backend: str
    """URL of the backend, without credentials."""
    stacks: ListedStacks
    """Its stacks."""
    before: datetime
    """Apps that ended before are pruned; aware."""
    driver: Driver
    connect: Connect
    say: ProgressCallback
    """Takes lines of progress."""
    dry_run: bool = False
    """Only decide."""
    archives: Sequence[str] | None = None
    """URLs of archives that have logs of the apps, besides the one that a launch named. None: logs stay."""
    index: RunIndex = field(default_factory=RunIndex)
    now: datetime = field(default_factory=lambda: datetime.now(timezone.utc))

    def run(self, rows: Sequence[FleetRow], states: Sequence[JobState] = ()) -> Iterator[Outcome]:
        """Yield what becomes of each app that was launched before the limit. A failure does not stop the others.

        Args:
            rows: The table.
            states: States of the apps to prune. Empty: all that have ended.
        """
        for row in rows:
            if (row.launched_at is None or row.launched_at < self.before) and (not states or row.state in states):
                others = [other.stack for other in rows if other.app_id == row.app_id and other.stack != row.stack]
                yield self._try(row, others)

    def _try(self, row: FleetRow, others: Sequence[StackName]) -> Outcome:
        try:
            fate, why = Fate.DUE if self.dry_run else Fate.PRUNED, self._prune(row, others)
        except StaysError as error:
            fate, why = Fate.LEFT, str(error)
        except (TorchxPulumiError, OSError) as error:
            fate, why = Fate.FAILED, str(error)
        except DAMAGED as error:
            fate, why = Fate.FAILED, f"stack {row.stack} cannot be read: {type(error).__name__}: {error}"
        return Outcome(app_id=row.app_id, fate=fate, why=why)

    def _prune(self, row: FleetRow, others: Sequence[StackName]) -> str:
        """Prune an app; return how it ended, and what goes with it.

        Raises:
            StaysError: It stays.
            TorchxPulumiError: Its stack cannot be read, its cluster does not answer, or the engine refused.
            OSError: Its history or its archived logs cannot be read.
        """
        if not (row.state.terminal or (row.state is JobState.UNKNOWN and row.reason == Reason.NOT_FOUND.value)):
            raise StaysError(f"it is {row.state.value}{f' ({row.note})' if row.note else ''}")
        found = self._read(row.stack)
        self._check_others(found, others)
        entry = reachable(found.entry, self.connect)
        job = job_folder(entry.app_id, found.app.uid or "")
        urls = [] if self.archives is None else [url for url in (entry.log_archive, *self.archives) if url]
        archives = [open_archive(url) for url in dict.fromkeys(urls)]
        for url in urls:
            check_there(url)
        if self.dry_run:
            count = sum(len(newest_copies(archive.index(job))) for archive in archives)
            return self._check_ended(found, entry) + _logs(archives, count)
        known = self.index.get(entry)
        with self._claim(entry) as lease:
            try:
                # Somebody may have changed it before it was claimed.
                ended = self._check_ended(self._read(row.stack, entry), entry)
            except BaseException:
                lease.end(lambda _: known)
                raise
            with lease.deleting():
                self.driver.destroy(entry, self.say, check=lease.check)
        # Last: an app that stays keeps its logs.
        return ended + _logs(archives, sum(_remove_logs(archive, job) for archive in archives))

    def _claim(self, entry: RunEntry) -> Lease:
        """Become the owner of an app in the index of this user, which may not have it.

        Raises:
            StaysError: Another process works on it, or the index has another launch of its name.
        """
        known = self.index.update(entry, lambda now: now or entry) or entry
        if not _is_same_launch(known, entry):
            raise StaysError("it was launched again: this user's index of apps has a later launch of its name")
        if known.stage is Stage.LAUNCHING or is_working(known.owner):
            raise StaysError("a process launches, changes or deletes it, or was killed (`torchx status` puts it right)")
        lease = claim(self.index, known, Stage.DELETING)
        if lease is None:
            raise StaysError("another process has begun to work on it")
        return lease

    def _read(self, stack: StackName, before: RunEntry | None = None) -> _Found:
        """Read an app from its stack.

        Args:
            stack: The stack.
            before: The note of its launch as it was read earlier. None: it was not.

        Raises:
            StaysError: The stack is not only that of one app of `torchx run`, or the app was launched again.
            DeployError: It cannot be read.
            OSError: Its history cannot be read.
        """
        text = self.stacks.read(stack)
        if text is None:
            raise StaysError("its stack was removed")
        place, checkpoint = stack.at(self.backend), parse_checkpoint(text)
        note, last = checkpoint.stash(APP_SUFFIX), checkpoint.stash(RECORD)
        if note is None:
            raise StaysError(f"stack {stack} is that of a Pulumi program; `pulumi destroy` in its folder removes it")
        entry, record = read_entry(note, f"stack {stack}"), None if last is None else read_record(last)
        if before is not None and not _is_same_launch(entry, before):
            raise StaysError("it was launched again")
        apps = read_apps(checkpoint, place)
        if len(apps) != 1 or apps[0].entry is None:
            raise StaysError(f"stack {stack} does not have exactly the one app that `torchx run` launched")
        foreign = next(_foreign(checkpoint), None)
        if foreign is not None:
            raise StaysError(foreign)
        app = apps[0]
        for stays, why in (
            (app.uid is None, "its job object is not known: its launch was interrupted"),
            (app.left_alone != "", app.left_alone),
            (record is not None and record.imported, "its job object was created by another program"),
            (record is not None and record.attempt > 1, "a Pulumi program has launched it again"),
            (app.app_id != entry.app_id, "its notes are of another app; they were changed by hand"),
        ):
            if stays:
                raise StaysError(why)
        self._check_history(stack)
        return _Found(app=app, entry=replace(entry, place=place), objects=_objects(checkpoint, app))

    def _check_history(self, stack: StackName) -> None:
        """Check that no program was run on a stack. Opens the backend each time, with the present credentials."""
        store = open_store(backend_url(self.backend), READ_TIMEOUT_S)
        if store is None:
            raise DeployError(f"the history of stack {stack} cannot be read without the Pulumi CLI")
        names = [name for name in store.paths(f"{HISTORY}/{stack}") if NOTE.search(name)]
        updates = read_updates(store, stack, len(names))
        if len(updates) < len(names):
            raise StaysError("an update in its history cannot be read, so what was run on its stack is not known")
        if any(update.kind == "update" and update.started_by != OWN_UPDATE for update in updates):
            raise StaysError("a Pulumi program took its stack over")

    def _check_others(self, found: _Found, others: Sequence[StackName]) -> None:
        """Check that no other stack has the run of an app."""
        for stack in others:
            text = self.stacks.read(stack)
            apps = () if text is None else read_apps(parse_components(text), stack.at(self.backend))
            if any(app.uid == found.app.uid for app in apps):
                raise StaysError(f"stack {stack} names the same job object")

    def _check_ended(self, found: _Found, entry: RunEntry) -> str:
        """Ask the cluster of an app; return how it ended, and which of its objects are left.

        Raises:
            StaysError: It is active or ended too late, or an object of its name is not of its launch.
            ClusterError: The cluster does not answer, or refuses to show the objects.
        """
        app = found.app
        locks = self.driver.locks(entry)
        if locks:
            raise StaysError(f"its stack is locked by {locks[0]}: an update runs, or was killed (`pulumi cancel`)")
        cluster = self.connect(*entry.access)
        try:
            check_before_change(entry, cluster)
        except ClusterError as error:
            if error.reason in (DIFFERENT_CLUSTER, UNDECIDED_CLUSTER):
                raise StaysError(f"it may have been launched in another cluster than {cluster.api_server}") from error
            raise
        live = _live(cluster, found)
        job_object = next((manifest for kind, manifest in live if kind == app.run.variant.job_object), None)
        observed = mapping_at(app.output, "observed")
        if text_at(observed, "uid") not in (None, app.uid):
            raise StaysError("it was launched again")
        state, ended_at = read_state(observed.get("state")), _ended_at(observed)
        if job_object is not None and not is_being_deleted(job_object):
            # Objects that do not show when they ended do not make the run a younger one.
            now = {**self._judge(cluster, app), "observed_at": format_time(ended_at or self.now)}
            state, ended_at = read_state(now.get("state")), max(filter(None, (_ended_at(now), ended_at)))
            if not state.terminal:
                raise StaysError(f"its cluster says that it is {state.value}")
        if ended_at is None:
            raise StaysError("its end time is not known")
        if ended_at >= self.before:
            raise StaysError(f"it is {state.value} since {format_time(ended_at)}, which is later than the limit")
        for pod in cluster.list(POD, app.run.namespace, app.run.pod_selector):
            has_ended = text_at(pod, "status", "phase") in ("Succeeded", "Failed") or is_being_deleted(pod)
            # A pod that outlived its job object may have lost its owner reference (`kubectl delete --cascade=orphan`).
            if not has_ended and (app.owns(pod) or not items_at(pod, "metadata", "ownerReferences")):
                raise StaysError(f"its pod {text_at(pod, 'metadata', 'name')} has not ended")
        names = ", ".join(_named(kind, manifest) for kind, manifest in live)
        return f"{state.value} since {format_time(ended_at)}, {names or 'no object is left'}"

    def _judge(self, cluster: Cluster, app: App) -> Mapping[str, Any]:
        """Return how an app stands by its cluster alone: an end in the stack does not allow to delete what runs."""
        look = look_at(app.run, read_objects(app.run, cluster), self.now)
        if look.gone:
            raise StaysError("its objects change at this moment")
        now = None if look.lacks_pods else judge(look, app.answer.requested, None)
        if now is None:
            raise StaysError("its cluster does not show how it stands")
        return now


def _is_same_launch(one: RunEntry, other: RunEntry) -> bool:
    return (one.launch, one.launched_at) == (other.launch, other.launched_at)


def _ended_at(seen: Mapping[str, Any]) -> datetime | None:
    """Return when a run ended, or when its end was first seen if that time is unknown or implausible."""
    finished_at, queued_at = time_at(seen, "finished_at"), time_at(seen, "queued_at")
    if finished_at is None or (queued_at is not None and finished_at < queued_at):
        return time_at(seen, "observed_at")
    return finished_at


def _foreign(checkpoint: Checkpoint) -> Iterator[str]:
    """Yield why a stack stays: it has something that `torchx run` did not put there."""
    if checkpoint.pending:
        yield "an operation on its stack was interrupted (`pulumi refresh`, `torchx-pulumi delete`)"
    if others := [titled(item) for item in checkpoint.others()]:
        yield f"its stack also holds {listed(others, 3)}"
    for mark, why in NOT_OURS.items():
        if found := [titled(item) for item in checkpoint.resources if item.get(mark)]:
            yield f"{listed(found, 3)} {why}"
    for item in checkpoint.resources:
        more = sorted(mapping_at(item, "outputs").keys() - OUTPUTS) if item.get("type") == STACK else []
        if more:
            yield f"a Pulumi program took its stack over: it exports {listed(more, 3)}"


def _objects(checkpoint: Checkpoint, app: App) -> Mapping[tuple[Kind, str], str]:
    """Return kind and name of each object of a run, all in the app's namespace, to its uid.

    Raises:
        StaysError: The state has an object that no launch creates, or that it does not identify.
    """
    job = app.run.variant.job_object
    found = {(job, app.run.job_name): app.uid or ""}
    allowed = {(kind.api_version, kind.kind): kind for kind in (job, *app.run.variant.companions)}
    for item in filter(is_object, checkpoint.resources):
        whole = {**mapping_at(item, "inputs"), **mapping_at(item, "outputs")}
        kind = allowed.get((str(whole.get("apiVersion")), str(whole.get("kind"))))
        name, uid = text_at(whole, "metadata", "name"), text_at(whole, "metadata", "uid")
        if kind is None or name is None or uid is None:
            raise StaysError(f"its stack has {titled(item)}, which no launch of this kind creates, or without a uid")
        namespace = text_at(whole, "metadata", "namespace") or app.run.namespace
        if namespace != app.run.namespace or (kind == job and found.get((kind, name)) != uid):
            one = f"{kind.kind} {namespace}/{name}"
            raise StaysError(f"its stack names {one} with another uid, name or namespace than its outputs")
        found[kind, name] = uid
    return found


def _live(cluster: Cluster, found: _Found) -> list[tuple[Kind, Manifest]]:
    """Return the objects that still exist, as they are now.

    Raises:
        StaysError: An object of their names is not of the launch.
    """
    live: list[tuple[Kind, Manifest]] = []
    for (kind, name), uid in found.objects.items():
        there = cluster.get(kind, found.app.run.namespace, name)
        if there is None:
            continue
        is_own, is_same = found.app.launched(there), text_at(there, "metadata", "uid") == uid
        if is_own and not is_same and kind == found.app.run.variant.job_object:
            raise StaysError("it was launched again: its cluster has a later run of it")
        if not (is_own and is_same):
            raise StaysError(f"its cluster has {_named(kind, there)}, which its launch did not create")
        live.append((kind, there))
    return live


def _named(kind: Kind, found: Mapping[str, Any]) -> str:
    """Name an object of a cluster for messages."""
    return f"{kind.kind} {text_at(found, 'metadata', 'namespace')}/{text_at(found, 'metadata', 'name')}"


def _remove_logs(archive: Archive, job: str) -> int:
    try:
        return archive.remove(job)
    except OSError as error:
        raise DeployError(
            f"it is pruned, but its logs are left in archive {archive.name}: {error}; remove folder {job} there"
        ) from error


def _logs(archives: Sequence[Archive], count: int) -> str:
    """Return the part of a line about archived logs."""
    return f", {count} archived log{'' if count == 1 else 's'}" if archives else ""
