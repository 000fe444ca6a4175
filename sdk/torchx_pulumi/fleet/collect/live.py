"""Live observation of unfinished apps in the clusters that can be reached."""

from __future__ import annotations

import contextlib
import importlib
import shlex
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from typing import Any

from torchx_pulumi.apps.answer import Answer, StackChange
from torchx_pulumi.apps.look import Look
from torchx_pulumi.fleet.collect.row import FleetRow, build_row
from torchx_pulumi.kube import Cluster, KubernetesCluster
from torchx_pulumi.model.app_entry import RunEntry
from torchx_pulumi.model.cluster_identity import ClusterIdentity, Match, compare
from torchx_pulumi.model.errors import ClusterError, DeployError
from torchx_pulumi.model.object_fields import at, text_at
from torchx_pulumi.model.run_record import RunRecord
from torchx_pulumi.model.status import read_state
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.runs.variants import find_variant
from torchx_pulumi.runs.whereabouts import Connect, match_identity, reachable
from torchx_pulumi.schedulers import ObservedObjects, Variant
from torchx_pulumi.stack_state.checkpoint import (
    DAMAGED,
    StackApp,
    UnreadableStateError,
    parse_checkpoint,
    read_notes,
)
from torchx_pulumi.stack_state.stacks import StackName, Stacks

OBSERVED_AT_ONCE = 16

PATIENCE_S = 2.0
"""Longest wait for the first response of a cluster if `live` was not requested."""

WriteEnd = Callable[[StackName, StackChange], Answer | None]
"""Writes an end to a stack, and returns what the stack says then. None: it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Location and expected identity of an app's objects."""

    variant: Variant
    kubeconfig: str | None
    context: str | None
    uid: str | None
    """Uid of the job object. None: not known."""
    match: Callable[[ClusterIdentity], Match] | None
    """Compares a cluster with the one of the launch. None: that cluster is not known."""
    expected: Mapping[str, Sequence[str]] | None = None
    """Role name to its pods, all of which were created. None: not known."""
    entry: RunEntry | None = None
    """Entry of an app of `torchx run`. None: the stack of a user's own program."""
    changing: bool = False
    """A deployment of its stack was interrupted: objects may be missing because of it."""

    @property
    def access(self) -> tuple[str | None, str | None]:
        """Return kubeconfig and context, by which targets are grouped."""
        return self.kubeconfig, self.context

    @property
    def cluster_name(self) -> str:
        """Return the name of the cluster in messages."""
        return self.context or "the current context"


Group = Sequence[tuple[FleetRow, StackApp, Target]]
"""Apps that are reached with the same kubeconfig and context."""


class LiveReader:
    """Updates rows from the clusters. A cluster that does not respond is queried once."""

    def __init__(
        self,
        stacks: Stacks,
        connect: Connect | None,
        now: Callable[[], datetime],
        *,
        patience_s: float | None = None,
        write: WriteEnd | None = None,
    ) -> None:
        """Take the dependencies.

        Args:
            stacks: Source of the checkpoints.
            connect: Connects to a cluster. None: by kubeconfig.
            now: The clock.
            patience_s: Longest wait for the first response of a cluster; clusters without access are then skipped
                silently. None: no limit, and every problem is reported.
            write: Writes the observed ends of apps of `torchx run`. None: they are not written.
        """
        self._patience_s = patience_s
        self._write = write
        self._stacks = stacks
        # Each kubeconfig and context is read once, for all of its apps.
        self._connect: Connect = cache(connect or KubernetesCluster.connect)
        self._now = now
        self._unreachable: dict[str, str] = {}

    def refresh(self, wanted: Sequence[tuple[FleetRow, StackApp]]) -> tuple[dict[StackName, FleetRow], dict[str, str]]:
        """Observe apps.

        Args:
            wanted: Rows, each with the app in its stack.

        Returns:
            Stack to its updated row, and name of each cluster that did not respond to the reason.
        """
        fresh: dict[StackName, FleetRow] = {}
        groups: dict[Any, list[tuple[FleetRow, StackApp, Target]]] = {}
        for row, app in wanted:
            try:
                text = self._stacks.read(row.stack)
                if text is None:
                    # It was removed after it was listed.
                    continue
                target = find_target(app, *read_notes(text), self._connect)
                if target.variant.makes_pods:
                    target = replace(target, changing=bool(parse_checkpoint(text).pending))
            except (UnreadableStateError, DeployError) as error:
                fresh[row.stack] = replace(row, note=f"not observed: {error}")
                continue
            except DAMAGED as error:
                fresh[row.stack] = replace(row, note=f"not observed: its checkpoint is damaged: {error}")
                continue
            groups.setdefault(target.access, []).append((row, app, target))
        if groups:
            # urllib3 1.26 imports modules lazily under the import lock, which can deadlock threads.
            with contextlib.suppress(ImportError):
                importlib.import_module("urllib3")
            fresh.update(self._observe_clusters(list(groups.values())))
        return fresh, dict(self._unreachable)

    def _observe_clusters(self, groups: Sequence[Group]) -> dict[StackName, FleetRow]:
        """Observe each cluster in its own thread; clusters that do not respond in time are left out."""
        pending: list[tuple[Group, threading.Event, Future[dict[StackName, FleetRow]]]] = []
        for group in groups:
            pending.append((group, threading.Event(), Future()))
            # A daemon thread, so that a cluster that does not respond cannot keep the process running.
            threading.Thread(target=self._observe_cluster, args=pending[-1], daemon=True).start()
        end = None if self._patience_s is None else time.monotonic() + self._patience_s
        rows: dict[StackName, FleetRow] = {}
        for group, responded, result in pending:
            if responded.wait(None if end is None else max(end - time.monotonic(), 0.0)):
                rows.update(result.result())
            else:
                self._unreachable[group[0][2].cluster_name] = (
                    f"no answer within {self._patience_s:g} s; --live waits longer"
                )
        return rows

    def _observe_cluster(
        self, group: Group, responded: threading.Event, result: Future[dict[StackName, FleetRow]]
    ) -> None:
        try:
            result.set_result(self._observe_group(group, responded))
        except Exception as error:  # noqa: BLE001 - the waiting thread raises it
            result.set_exception(error)
        finally:
            responded.set()

    def _observe_group(self, group: Group, responded: threading.Event) -> dict[StackName, FleetRow]:
        """Observe the apps of one cluster: the first one, and if the cluster responds, all others at the same time."""
        first, *others = group
        try:
            cluster = self._connect(first[2].kubeconfig, first[2].context)
        except ClusterError as error:
            return {} if self._patience_s is not None else self._not_reached(group, error)
        try:
            rows = [self._observe(cluster, *first)]
        except ClusterError as error:
            return self._not_reached(group, error)
        responded.set()

        def observe(item: tuple[FleetRow, StackApp, Target]) -> FleetRow:
            try:
                return self._observe(cluster, *item)
            except ClusterError as error:
                return self._not_reached([item], error)[item[0].stack]

        if others:
            with ThreadPoolExecutor(min(len(others), OBSERVED_AT_ONCE)) as pool:
                rows += pool.map(observe, others)
        return {row.stack: row for row in rows}

    def _not_reached(self, group: Group, error: ClusterError) -> dict[StackName, FleetRow]:
        """Return the rows of apps whose cluster cannot be reached, and keep the first reason."""
        name = group[0][2].cluster_name
        self._unreachable.setdefault(name, str(error))
        return {row.stack: replace(row, note=f"cluster not reached: {name}") for row, _, _ in group}

    def _observe(self, cluster: Cluster, row: FleetRow, app: StackApp, target: Target) -> FleetRow:
        """Observe one app.

        Raises:
            ClusterError: The cluster does not respond.
        """
        try:
            snapshot = target.variant.observe(cluster, row.namespace, row.app_id.partition(":")[2], target.expected)
        except ClusterError as error:
            if error.retryable:
                raise
            return replace(row, note=f"not observed: {error}")
        uid = snapshot.uid
        # The job object proves the cluster. Without it, the identity of the cluster is compared first.
        if target.match is not None and (snapshot.job_object is None or uid != target.uid):
            present = cluster.identify()
            match = target.match(present)
            if match is not Match.SAME:
                self._unreachable.setdefault(
                    target.cluster_name,
                    f"{present} {'is not' if match is Match.DIFFERENT else 'is not known to be'} the cluster that the "
                    "apps were launched in; name the right kubeconfig with KUBECONFIG",
                )
                return replace(row, note=f"not in the cluster of its launch: {target.cluster_name}")
        if snapshot.job_object is not None and target.uid is not None and uid != target.uid:
            snapshot = ObservedObjects(pods=())
        if snapshot.job_object is None and target.match is None:
            return replace(row, note="not found in the cluster of the current context, which may be another one")
        now, before = self._now(), Answer.of(app.output)
        look = Look(
            variant=target.variant,
            at=now,
            uid=target.uid or uid,
            objects=snapshot,
            changing=target.changing or row.updating,
        )
        if look.lacks_pods and before.observed:
            return replace(row, note="not observed: its pods may not be read")
        change = StackChange(
            uid=look.uid or "", look=look, request=None if target.entry is None else target.entry.requested
        )
        answer = change.apply(before)
        has_ended = answer.observed is not before.observed and read_state(answer.observed.get("state")).terminal
        if has_ended and look.uid is not None and target.entry is not None and self._write is not None:
            answer = self._write(row.stack, change) or answer
        return build_row(
            row.stack, app, now, seen=answer.observed, checked_at=now, source="live", updating=row.updating
        )


def find_target(app: StackApp, entry: RunEntry | None, record: RunRecord | None, connect: Connect) -> Target:
    """Return where an app's objects are: in the cluster of the launch, else in that of the current context.

    Raises:
        DeployError: This release does not have its scheduler or variant.
    """
    if entry is not None:
        here = reachable(entry, connect)
        try:
            # The index of this machine has the requests of this user.
            indexed = RunIndex().get(entry) or entry
        except DeployError:
            indexed = entry
        return Target(
            variant=find_variant(entry.scheduler, entry.choice, record),
            kubeconfig=here.kubeconfig or here.ambient_kubeconfig,
            context=here.kube_context or here.ambient_context,
            uid=entry.uid or (record.uid if record else None),
            match=partial(match_identity, entry),
            expected=entry.made_pods,
            entry=indexed,
        )
    variant = find_variant(str(at(app.output, "app", "scheduler")), None, record)
    try:
        # The log command of a program's app names the context.
        words = shlex.split(text_at(app.output, "links", "log_command") or "")
    except ValueError:
        words = []
    return Target(
        variant=variant,
        kubeconfig=None,
        context=words[words.index("--context") + 1] if "--context" in words[:-1] else None,
        uid=record.uid if record else None,
        expected=variant.recorded_pods(record) if record else None,
        match=partial(compare, record.cluster) if record is not None and record.cluster is not None else None,
    )
