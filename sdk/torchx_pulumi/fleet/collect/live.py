"""Asking the clusters about apps that have not ended, as far as they can be reached."""

from __future__ import annotations

import contextlib
import importlib
import shlex
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, partial
from typing import Any

from torchx_pulumi.fleet.collect.row import FleetRow
from torchx_pulumi.fleet.collect.rows import build_row
from torchx_pulumi.kube import KubernetesCluster, LiveCluster
from torchx_pulumi.model.app_entry import RunEntry
from torchx_pulumi.model.cluster_identity import ClusterIdentity, Match, compare
from torchx_pulumi.model.errors import ClusterError, DeployError
from torchx_pulumi.model.run_record import RunRecord
from torchx_pulumi.model.status import JobStatus, Reason
from torchx_pulumi.outputs.building import build_observed
from torchx_pulumi.outputs.newer import is_newer
from torchx_pulumi.runs.identity import recorded_variant
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.runs.recording import with_cancel
from torchx_pulumi.runs.whereabouts import Connect, match_identity, reachable
from torchx_pulumi.schedulers import Variant, find_backend, scheduler_names
from torchx_pulumi.stack_state.checkpoint import DAMAGED, StackApp, UnreadableStateError, read_notes
from torchx_pulumi.stack_state.stacks import StackName, Stacks

LOOKS_AT_ONCE = 16

PATIENCE_S = 2.0
"""Longest wait for the first answer of a cluster that nobody asked to be looked at."""

NoteEnd = Callable[[StackName, RunEntry, JobStatus, datetime], None]
"""Keeps the end of an app that was just seen: its stack, its entry, what was seen and when."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where an app's objects are to be looked for, and what is known of them."""

    variant: Variant
    kubeconfig: str | None
    context: str | None
    uid: str | None
    """Uid of the job object. None: not known."""
    match: Callable[[ClusterIdentity], Match] | None
    """Compares a cluster with the one of the launch. None: nothing is known of that one."""
    expected: Mapping[str, Sequence[str]] | None = None
    """Role name to its pods, all of which were made. None: not known."""
    entry: RunEntry | None = None
    """What the stack notes of an app of `torchx run`. None: a program's own stack."""

    @property
    def way(self) -> tuple[str | None, str | None]:
        """Return what is equal for targets that are reached by one access."""
        return self.kubeconfig, self.context


Group = Sequence[tuple[FleetRow, StackApp, Target]]
"""Apps that are reached by one access."""


@dataclass(slots=True)
class _Answer:
    """What a cluster answered, as far as it did."""

    begun: threading.Event = field(default_factory=threading.Event)
    """The cluster has answered once."""
    done: threading.Event = field(default_factory=threading.Event)
    rows: dict[StackName, FleetRow] = field(default_factory=dict)
    error: Exception | None = None


class LiveReader:
    """Brings rows up to date. A cluster that gives no answer is asked once."""

    def __init__(
        self,
        stacks: Stacks,
        connect: Connect | None,
        now: Callable[[], datetime],
        *,
        patience_s: float | None = None,
        note: NoteEnd | None = None,
    ) -> None:
        """Name the seams.

        Args:
            stacks: Where the checkpoints come from.
            connect: How to reach a cluster. None: by kubeconfig.
            now: The clock.
            patience_s: Longest wait for the first answer of a cluster. A cluster to which there is no access is then
                passed over in silence. None: as long as an answer may take, and every problem is said.
            note: Keeps ends that are seen. None: nobody does.
        """
        self._patience_s = patience_s
        self._note = note
        self._stacks = stacks
        # Each access is read once, however many apps are reached by it.
        self._connect: Connect = cache(connect or KubernetesCluster.connect)
        self._now = now
        self._unreachable: dict[str, str] = {}

    def refresh(self, wanted: Sequence[tuple[FleetRow, StackApp]]) -> tuple[dict[StackName, FleetRow], dict[str, str]]:
        """Look at apps.

        Args:
            wanted: Rows, each with what its stack says.

        Returns:
            Stack to its row as it is now, and the clusters that gave no answer, each with why.
        """
        fresh: dict[StackName, FleetRow] = {}
        groups: dict[Any, list[tuple[FleetRow, StackApp, Target]]] = {}
        for row, app in wanted:
            try:
                target = find_target(app, *read_notes(self._stacks.read(row.stack)), self._connect)
            except (UnreadableStateError, DeployError) as error:
                fresh[row.stack] = replace(row, note=f"not looked at: {error}")
                continue
            except DAMAGED as error:
                fresh[row.stack] = replace(row, note=f"not looked at: its checkpoint is damaged: {error}")
                continue
            groups.setdefault(target.way, []).append((row, app, target))
        if groups:
            # urllib3 1.26 imports while it holds Python's one import lock, which threads must not find it at.
            with contextlib.suppress(ImportError):
                importlib.import_module("urllib3")
            fresh.update(self._look_everywhere(list(groups.values())))
        return fresh, dict(self._unreachable)

    def _look_everywhere(self, groups: Sequence[Group]) -> dict[StackName, FleetRow]:
        """Look into each cluster in a thread of its own, and go on without those that give no answer in time."""
        answers: list[_Answer] = [_Answer() for _ in groups]
        for group, answer in zip(groups, answers, strict=True):
            # A daemon: one that waits for a cluster must not keep the process from ending.
            threading.Thread(target=self._look_in, args=(group, answer), daemon=True).start()
        end = None if self._patience_s is None else time.monotonic() + self._patience_s
        fresh: dict[StackName, FleetRow] = {}
        for group, answer in zip(groups, answers, strict=True):
            if answer.begun.wait(None if end is None else max(end - time.monotonic(), 0.0)):
                answer.done.wait()
                if answer.error is not None:
                    raise answer.error
                fresh.update(answer.rows)
            else:
                self._unreachable[_called(group[0][2])] = (
                    f"no answer within {self._patience_s:g} s; --live waits longer"
                )
        return fresh

    def _look_in(self, group: Group, answer: _Answer) -> None:
        try:
            answer.rows = self._look_at_group(group, answer.begun)
        except Exception as error:  # noqa: BLE001 - raised again by who waits
            answer.error = error
        finally:
            answer.begun.set()
            answer.done.set()

    def _look_at_group(self, group: Group, begun: threading.Event) -> dict[StackName, FleetRow]:
        """Look at the apps of one cluster: one first, and the others where that one was answered."""
        target = group[0][2]
        called = _called(target)
        try:
            cluster = self._connect(target.kubeconfig, target.context)
        except ClusterError as error:
            if self._patience_s is not None:
                return {}
            self._unreachable[called] = str(error)
            return {row.stack: replace(row, note=f"cluster not reached: {called}") for row, app, _ in group}
        try:
            looks = [self._look(cluster, *group[0])]
        except ClusterError as error:
            self._unreachable[called] = str(error)
            return {row.stack: replace(row, note=f"cluster not reached: {called}") for row, app, _ in group}
        begun.set()

        def look(item: tuple[FleetRow, StackApp, Target]) -> FleetRow:
            try:
                return self._look(cluster, *item)
            except ClusterError as error:
                self._unreachable.setdefault(called, str(error))
                return replace(item[0], note=f"cluster not reached: {called}")

        if group[1:]:
            with ThreadPoolExecutor(min(len(group) - 1, LOOKS_AT_ONCE)) as pool:
                looks += pool.map(look, group[1:])
        return {row.stack: row for row in looks}

    def _look(self, cluster: LiveCluster, row: FleetRow, app: StackApp, target: Target) -> FleetRow:
        """Look at one app.

        Raises:
            ClusterError: The cluster gives no answer.
        """
        try:
            seen = target.variant.observe(cluster, row.namespace, row.app_id.partition(":")[2], target.expected)
        except ClusterError as error:
            if error.retryable:
                raise
            return replace(row, note=f"not looked at: {error}")
        uid = (seen.job_object or {}).get("metadata", {}).get("uid")
        # The object itself proves the cluster; without it nothing is concluded from a cluster that may be another one.
        if target.match is not None and (seen.job_object is None or uid != target.uid):
            present = cluster.identify()
            match = target.match(present)
            if match is not Match.SAME:
                called = target.context or "the current context"
                self._unreachable.setdefault(
                    called,
                    f"{present} {'is not' if match is Match.DIFFERENT else 'is not known to be'} the cluster that the "
                    "apps were launched in; name the right kubeconfig with KUBECONFIG",
                )
                return replace(row, note=f"not in the cluster of its launch: {called}")
        if seen.job_object is not None and target.uid is not None and uid != target.uid:
            return replace(row, note="the cluster has another job of this name; this one is gone")
        if seen.job_object is None and target.match is None and target.uid is None:
            return replace(row, note="not found in the cluster of the current context")
        now, known = self._now(), app.output.get("observed")
        status = target.variant.read_status(seen, now)
        if target.entry is not None:
            status = with_cancel(target.entry, status, seen.job_object)
            if self._note is not None and status.state.terminal:
                self._note(row.stack, target.entry, status, now)
        observed: Mapping[str, Any] = build_observed(
            status, observed_at=now, previous=known if isinstance(known, Mapping) else None
        )
        if status.reason is Reason.POD_GONE and isinstance(known, Mapping) and is_newer(known, observed):
            # The stack has the end that was seen before the pods were deleted.
            observed = known
        return build_row(row.stack, app, now, seen=observed, checked_at=now, source="live", updating=row.updating)


def _called(target: Target) -> str:
    return target.context or "the current context"


def find_target(app: StackApp, entry: RunEntry | None, record: RunRecord | None, connect: Connect) -> Target:
    """Find out where an app's objects are to be looked for: by the access of the launch, else by one's own.

    Raises:
        UnreadableStateError: Its scheduler or the way it was made is not known here.
    """
    if entry is not None:
        here = reachable(entry, connect)
        return Target(
            variant=find_variant(entry.scheduler, entry.choice, record),
            kubeconfig=here.kubeconfig or here.ambient_kubeconfig,
            context=here.kube_context or here.ambient_context,
            uid=entry.uid or (record.uid if record else None),
            match=partial(match_identity, entry),
            expected=entry.made_pods,
            entry=_noted(entry),
        )
    identity = app.output.get("app")
    scheduler = identity.get("scheduler") if isinstance(identity, Mapping) else None
    variant = find_variant(str(scheduler), None, record)
    return Target(
        variant=variant,
        kubeconfig=None,
        context=_context_of(app.output),
        uid=record.uid if record else None,
        expected=variant.recorded_pods(record) if record else None,
        match=partial(compare, record.cluster) if record is not None and record.cluster is not None else None,
    )


def _noted(entry: RunEntry) -> RunEntry:
    """Return an entry as the index of this machine has it: it knows of a cancellation."""
    try:
        return RunIndex().get(entry) or entry
    except DeployError:
        return entry


def find_variant(scheduler: str, name: str | None, record: RunRecord | None) -> Variant:
    """Return the variant of a run: by its name, or by its record.

    Raises:
        UnreadableStateError: This release does not have it.
    """
    if scheduler not in scheduler_names():
        raise UnreadableStateError(f"its scheduler is {scheduler!r}, this release knows {', '.join(scheduler_names())}")
    backend = find_backend(scheduler)
    if name is None:
        return recorded_variant(record, backend)
    if name not in backend.variants:
        allowed = ", ".join(backend.variants)
        raise UnreadableStateError(f"its {backend.variant_option} is {name!r}, this release knows {allowed}")
    return backend.variants[name]


def _context_of(output: Mapping[str, Any]) -> str | None:
    """Return the context that the app's log command names. None: it names none."""
    links = output.get("links")
    command = links.get("log_command") if isinstance(links, Mapping) else None
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:
        return None
    return words[words.index("--context") + 1] if "--context" in words[:-1] else None
