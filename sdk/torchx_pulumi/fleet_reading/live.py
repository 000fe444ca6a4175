"""Asking the clusters about apps that have not ended, as far as they can be reached."""

from __future__ import annotations

import contextlib
import importlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from typing import Any, Protocol

from torchx_pulumi.cluster import KubernetesCluster, LiveCluster
from torchx_pulumi.cluster_identity import ClusterIdentity, Match, compare
from torchx_pulumi.errors import ClusterError, DeployError
from torchx_pulumi.fleet_reading.checkpoint import StackApp, StackMemory, UnreadableStateError, read_memory
from torchx_pulumi.fleet_reading.row import FleetRow, StackName
from torchx_pulumi.fleet_reading.rows import build_row
from torchx_pulumi.forms import FORMS, Form, Seen
from torchx_pulumi.outputs.building import build_observed
from torchx_pulumi.relaunch.identity import digest
from torchx_pulumi.relaunch.record import RunRecord
from torchx_pulumi.runs.whereabouts import Connect, match_identity, reachable

LOOKS_AT_ONCE = 16


class Readable(Protocol):
    """Where the checkpoints come from."""

    def read(self, name: StackName) -> str:
        """Return the checkpoint of a stack, or its export, as text."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where an app's objects are to be looked for, and what is known of them."""

    form: Form
    kubeconfig: str | None
    context: str | None
    uid: str | None
    """Uid of the job object. None: not known."""
    match: Callable[[ClusterIdentity], Match] | None
    """Compares a cluster with the one of the launch. None: nothing is known of that one."""

    @property
    def way(self) -> tuple[str | None, str | None]:
        """Return what is equal for targets that are reached by one access."""
        return self.kubeconfig, self.context


class LiveReader:
    """Brings rows up to date. A cluster that gives no answer is asked once."""

    def __init__(self, stacks: Readable, connect: Connect | None, now: Callable[[], datetime]) -> None:
        """Name the seams.

        Args:
            stacks: Where the checkpoints come from.
            connect: How to reach a cluster. None: by kubeconfig.
            now: The clock.
        """
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
                target = find_target(app, read_memory(self._stacks.read(row.stack)), self._connect)
            except (UnreadableStateError, DeployError) as error:
                fresh[row.stack] = replace(row, note=f"not looked at: {error}")
                continue
            groups.setdefault(target.way, []).append((row, app, target))
        if groups:
            # urllib3 1.26 imports while it holds Python's one import lock, which threads must not find it at.
            with contextlib.suppress(ImportError):
                importlib.import_module("urllib3")
            with ThreadPoolExecutor(min(len(groups), LOOKS_AT_ONCE)) as pool:
                for found in pool.map(self._look_in, groups.values()):
                    fresh.update(found)
        return fresh, dict(self._unreachable)

    def _look_in(self, group: Sequence[tuple[FleetRow, StackApp, Target]]) -> dict[StackName, FleetRow]:
        """Look at the apps of one cluster: one first, and the others where that one was answered."""
        target = group[0][2]
        called = target.context or "the current context"
        try:
            cluster = self._connect(target.kubeconfig, target.context)
            looks = [self._look(cluster, *group[0])]
        except ClusterError as error:
            self._unreachable[called] = str(error)
            return {row.stack: replace(row, note=f"cluster not reached: {called}") for row, app, _ in group}

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
            seen = target.form.look(cluster, row.namespace, row.app_id.partition(":")[2])
        except ClusterError as error:
            if error.retryable:
                raise
            return replace(row, note=f"not looked at: {error}")
        uid = (seen.head or {}).get("metadata", {}).get("uid")
        # The object itself proves the cluster; without it nothing is concluded from a cluster that may be another one.
        if target.match is not None and (seen.head is None or uid != target.uid):
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
        if seen.head is not None and target.uid is not None and uid != target.uid:
            return replace(row, note="the cluster has another job of this name; this one is gone")
        if seen.head is None and target.match is None and target.uid is None:
            return replace(row, note="not found in the cluster of the current context")
        observed = observe(target.form, seen, self._now(), app.output.get("observed"))
        return build_row(
            row.stack, app, self._now(), seen=observed, checked_at=self._now(), source="live", updating=row.updating
        )


def observe(form: Form, seen: Seen, now: datetime, previous: Any) -> Mapping[str, Any]:
    """Build `observed` from objects that were looked at."""
    known = previous if isinstance(previous, Mapping) else None
    return build_observed(form.read_status(seen, now), observed_at=now, previous=known)


def find_target(app: StackApp, memory: StackMemory, connect: Connect) -> Target:
    """Find out where an app's objects are to be looked for: by the access of the launch, else by one's own.

    Raises:
        UnreadableStateError: Its scheduler or the way it was made is not known here.
    """
    entry, record = memory.entry, memory.record
    if entry is not None:
        here = reachable(entry, connect)
        return Target(
            form=find_form(entry.scheduler, entry.choice, record),
            kubeconfig=here.kubeconfig or here.ambient_kubeconfig,
            context=here.kube_context or here.ambient_context,
            uid=entry.uid or (record.uid if record else None),
            match=partial(match_identity, entry),
        )
    identity = app.output.get("app")
    scheduler = identity.get("scheduler") if isinstance(identity, Mapping) else None
    return Target(
        form=find_form(str(scheduler), None, record),
        kubeconfig=None,
        context=_context_of(app.output),
        uid=record.uid if record else None,
        match=partial(compare, record.cluster) if record is not None and record.cluster is not None else None,
    )


def find_form(scheduler: str, choice: str | None, record: RunRecord | None) -> Form:
    """Return the way a run was made: by the name of the choice, else by what the record has of it.

    Raises:
        UnreadableStateError: It is not known here.
    """
    if scheduler not in FORMS:
        raise UnreadableStateError(f"its scheduler is {scheduler!r}, this release knows {', '.join(FORMS)}")
    option, forms = FORMS[scheduler]
    recorded = record.digests.get(option) if record else None
    for known, form in forms.items():
        if choice == known.value or (choice is None and recorded == digest(known)):
            return form
    if choice is not None:
        allowed = ", ".join(str(known.value) for known in forms)
        raise UnreadableStateError(f"its {option} is {choice!r}, this release knows {allowed}")
    # A field at its default is in no record.
    return next(iter(forms.values()))


def _context_of(output: Mapping[str, Any]) -> str | None:
    """Return the context that the app's log command names. None: it names none."""
    links = output.get("links")
    command = links.get("log_command") if isinstance(links, Mapping) else None
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:
        return None
    return words[words.index("--context") + 1] if "--context" in words[:-1] else None
