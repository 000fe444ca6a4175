"""A driver without an engine, for tests: stacks in memory, objects in a cluster. Passes the drivers' contract suite."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torchx_pulumi.apps.answer import Answer, StackChange
from torchx_pulumi.apps.variants import find_variant
from torchx_pulumi.kube import Cluster
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.model import labels
from torchx_pulumi.model.app_entry import RunEntry, StackRef, Stage
from torchx_pulumi.model.errors import ClusterError, DeployError, TakenOverError
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.progress import ProgressCallback
from torchx_pulumi.model.requested import write_requested
from torchx_pulumi.runs.driver import Recorded, Still, Written
from torchx_pulumi.runs.registration import Registration
from torchx_pulumi.runs.whereabouts import check_before_change
from torchx_pulumi.schedulers.manifest_objects import objects_of
from torchx_pulumi.storage.owners import CheckOwner, is_working, unowned


@dataclass(slots=True)
class FakeStack:
    """What a stack holds."""

    entry: RunEntry
    objects: list[tuple[Kind, Manifest]]
    """What was to be created, the job object first."""
    outputs: dict[str, Any] = field(default_factory=dict)
    finished: bool = False
    """Its launch came to its end."""


class FakeDriver:
    """Keeps stacks in memory, and makes their objects in a cluster.

    Args:
        cluster: Where the objects go.
        error: Raised by every launch, after the objects were made and removed again. None: launches succeed.
    """

    def __init__(self, cluster: Cluster, *, error: DeployError | None = None) -> None:
        self._cluster = cluster
        self._guard = threading.RLock()
        self.error = error
        self.stacks: dict[StackRef, FakeStack] = {}
        self.locked: dict[StackRef, list[str]] = {}
        """Who holds locks on stacks."""
        self.begun: set[StackRef] = set()
        """Launches that were begun, and neither launched nor abandoned."""
        self.closed = 0

    def check_process(self) -> None:
        """Any process can launch."""

    def begin(self, app: Registration, progress: ProgressCallback, *, check: CheckOwner = unowned) -> None:
        entry = app.app_entry
        check()
        with self._guard:
            if entry.place in self.stacks or entry.place in self.begun:
                raise DeployError(f"stack {entry.place.stack} is there already; delete the app first")
            self.begun.add(entry.place)

    def abandon(self, app: Registration) -> None:
        self.begun.remove(app.app_entry.place)

    def launch(self, app: Registration, progress: ProgressCallback, *, check: CheckOwner = unowned) -> str | None:
        entry = app.app_entry
        objects = objects_of({"kind": "List", "items": copy.deepcopy(app.objects())})
        check()
        if entry.place not in self.begun:
            self.begin(app, progress, check=check)
        self.begun.remove(entry.place)
        self.stacks[entry.place] = FakeStack(replace(entry), objects)
        made: list[tuple[Kind, Manifest]] = []
        try:
            for kind, manifest in objects:
                progress(f"creating {kind.kind} {manifest['metadata']['name']}")
                made.append((kind, self._cluster.create(kind, _namespace(entry, manifest), manifest)))
            check()
            if self.error is not None:
                raise self.error
        except TakenOverError:
            raise
        except (ClusterError, DeployError) as error:
            for kind, manifest in reversed(made):
                meta = manifest["metadata"]
                self._cluster.delete(kind, _namespace(entry, manifest), meta["name"], uid=meta.get("uid"))
            self.stacks.pop(entry.place, None)
            if isinstance(error, ClusterError) and not error.retryable:
                raise DeployError(str(error)) from error
            raise
        uid = made[0][1]["metadata"].get("uid")
        stack = self.stacks[entry.place]
        stack.entry = replace(entry, stage=Stage.LAUNCHED, owner=None, uid=uid)
        stack.outputs = {"torchx": {"declared": dict(entry.declared), "observed": {}}, "app_id": entry.app_id}
        stack.finished = True
        return str(uid) if uid else None

    def recover(
        self, entry: RunEntry, progress: ProgressCallback, *, check: CheckOwner = unowned, take_over: bool = False
    ) -> RunEntry | None:
        if entry.owner is not None and is_working(entry.owner) and not take_over:
            raise DeployError(f"app {entry.app_id} is worked on by process {entry.owner.pid}; wait for it")
        check()
        self._clear_locks(entry, take_over=take_over)
        stack = self.stacks.get(entry.place)
        if stack is None:
            return None
        if entry.stage is not Stage.DELETING:
            kind, first = stack.objects[0]
            job_object = self._cluster.get(kind, _namespace(entry, first), first["metadata"]["name"])
            if stack.finished or (job_object is not None and _is_ours(entry, job_object)):
                uid = entry.uid if job_object is None else job_object["metadata"].get("uid")
                stack.entry = replace(entry, stage=Stage.LAUNCHED, owner=None, uid=uid)
                stack.finished = True
                return stack.entry
        self.destroy(entry, progress, check=check)
        return None

    def destroy(
        self,
        entry: RunEntry,
        progress: ProgressCallback,
        *,
        forget_unreachable: bool = False,
        check: CheckOwner = unowned,
        take_over: bool = False,
    ) -> None:
        """Delete the objects of a stack, and the stack. If its state is lost, delete the object that is ours."""
        check()
        self._clear_locks(entry, take_over=take_over)
        stack = self.stacks.get(entry.place)
        try:
            check_before_change(entry, self._cluster)
            first, *rest = [_lost(entry)] if stack is None else stack.objects
            for kind, manifest in [*reversed(rest), first]:
                name = manifest["metadata"]["name"]
                found = self._cluster.get(kind, _namespace(entry, manifest), name)
                if found is not None and (manifest is not first[1] or _is_ours(entry, found)):
                    progress(f"deleting {kind.kind} {name}")
                    self._cluster.delete(kind, _namespace(entry, manifest), name, uid=found["metadata"].get("uid"))
        except ClusterError:
            if not forget_unreachable:
                raise
            progress(f"the cluster of {entry.app_id} cannot be reached; what is there stays")
        self.stacks.pop(entry.place, None)

    def record(self, entry: RunEntry, change: StackChange) -> Written:
        return self.record_at(entry.place, change)

    def record_at(
        self,
        place: StackRef,
        change: StackChange,
        *,
        also: Callable[[], Sequence[StackChange]] = tuple,
        program_stacks: bool = False,
    ) -> Written:
        stack = next((stack for known, stack in self.stacks.items() if _same(known, place)), None)
        if stack is None or not stack.finished:
            return Written(outcome=Recorded.LEFT if stack is None else Recorded.DEFERRED)
        if change.uid != stack.entry.uid:
            return Written(outcome=Recorded.KNOWN)
        before = Answer.of(stack.outputs["torchx"])
        after = change.apply(before)
        if after is before:
            return Written(outcome=Recorded.KNOWN, answer=after)
        stack.outputs["torchx"]["observed"] = {key: value for key, value in after.observed.items() if value is not None}
        if after.requested is not None:
            stack.outputs["torchx"]["requested"] = write_requested(after.requested)
        stack.outputs |= {key: after.observed.get(key) for key in ("state", "reason")}
        return Written(outcome=Recorded.WRITTEN, answer=after)

    def clear_dead_locks(self, backend: str, place: StackRef | None = None) -> bool:
        # No process of this driver leaves a lock.
        del backend, place
        return True

    def answer(self, entry: RunEntry) -> Answer | None:
        stack = next((stack for known, stack in self.stacks.items() if _same(known, entry.place)), None)
        return Answer.of(copy.deepcopy(stack.outputs["torchx"])) if stack is not None and stack.finished else None

    def locks(self, entry: RunEntry) -> Sequence[str]:
        return self.locked.get(entry.place, [])

    def find(
        self,
        place: StackRef,
        still: Still | None = None,
        *,
        known: RunEntry | None = None,
    ) -> RunEntry | None:
        for there, stack in self.stacks.items():
            if _same(there, place):
                return stack.entry
        for there, stack in self.stacks.items():
            if known is not None and (stack.entry.app_id, stack.entry.launch) == (known.app_id, known.launch):
                return replace(stack.entry, place=there)
        return None

    def places(self, backend: str, project: str) -> Iterable[StackRef]:
        return [place for place in [*self.stacks] if (place.backend, place.project) == (backend, project)]

    def _clear_locks(self, entry: RunEntry, *, take_over: bool) -> None:
        if take_over:
            self.locked.pop(entry.place, None)
        if held := self.locked.get(entry.place):
            raise DeployError(f"the stack of {entry.app_id} is locked by {held[0]}; wait, or --take-over")

    def close(self) -> None:
        """Count that it was closed."""
        self.closed += 1


def _lost(entry: RunEntry) -> tuple[Kind, Manifest]:
    """Return as much of the job object of an app whose state is lost as names it."""
    kind = find_variant(entry.scheduler, entry.choice).job_object
    meta = {"name": entry.job_name, "namespace": entry.namespace}
    return kind, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta}


def _is_ours(entry: RunEntry, found: Manifest) -> bool:
    return bool((found["metadata"].get("labels") or {}).get(labels.LAUNCH) == entry.launch)


def _namespace(entry: RunEntry, manifest: Manifest) -> str:
    return str(manifest["metadata"].get("namespace") or entry.namespace)


def _same(one: StackRef, other: StackRef) -> bool:
    return replace(one, secrets_provider=None) == replace(other, secrets_provider=None)
