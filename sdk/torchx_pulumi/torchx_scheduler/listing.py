"""`list`: what was launched, with its state; one call to the cluster for each kind, however many apps there are."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchx_pulumi import labels
from torchx_pulumi.cluster import LiveCluster
from torchx_pulumi.errors import ClusterError, TorchxPulumiError
from torchx_pulumi.forms import Seen
from torchx_pulumi.forms.form import Form
from torchx_pulumi.forms.table import FORMS
from torchx_pulumi.kinds import APP_WRAPPER, APP_WRAPPER_V1BETA2, POD, VOLCANO_POD_GROUP, Kind
from torchx_pulumi.options import Manifest
from torchx_pulumi.runs.entry import RunEntry
from torchx_pulumi.schedulers import SCHEDULERS
from torchx_pulumi.status.model import JobState
from torchx_pulumi.torchx_scheduler.answers import app_state
from torchx_pulumi.torchx_scheduler.compat import listed
from torchx_pulumi.torchx_scheduler.doors import Doors
from torchx_pulumi.torchx_scheduler.looking import form_named, gone, is_ours, with_cancel

logger = logging.getLogger(__name__)

_BY_PODS = (VOLCANO_POD_GROUP, APP_WRAPPER, APP_WRAPPER_V1BETA2)
"""Heads that do not say how a run went; its pods do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which apps are listed."""

    namespace: str | None = None
    """None: of every namespace."""
    session: str | None = None
    """None: of every session."""
    states: frozenset[str] = frozenset()
    """TorchX states. Empty: any."""


def list_apps(doors: Doors, scheduler: str, ambient: Mapping[str, Any], choice: Choice) -> list[Any]:
    """Return the apps of a scheduler: of the index, and those that colleagues launched in the cluster in force.

    Args:
        doors: The ways out.
        scheduler: `volcano` or `mcad`.
        ambient: Run options in force.
        choice: Which of them.
    """
    entries = [
        entry
        for entry in doors.index.all(scheduler)
        if choice.namespace in (None, entry.namespace) and choice.session in (None, entry.session)
    ]
    rows: dict[tuple[str, str], tuple[str, JobState]] = {}
    for connect, group in _by_cluster(doors, entries, ambient):
        for app_id, name, cluster, state in _list_cluster(doors, scheduler, connect, group, choice):
            rows[app_id, cluster] = (name, state)
    found = sorted((app_id, name, state) for (app_id, _), (name, state) in rows.items())
    return [
        listed(app_id=app_id, state=app_state(state), name=name)
        for app_id, name, state in found
        if not choice.states or state.value in choice.states
    ]


def _by_cluster(
    doors: Doors, entries: Iterable[RunEntry], ambient: Mapping[str, Any]
) -> list[tuple[Callable[[], LiveCluster], list[RunEntry]]]:
    """Group apps by the cluster they are in; the one in force is there also without any."""

    def in_force() -> LiveCluster:
        return doors.cluster(ambient.get("kubeconfig"), ambient.get("kube_context"))

    groups: dict[str, list[RunEntry]] = {}
    for entry in entries:
        groups.setdefault(entry.cluster, []).append(entry)
    try:
        here = in_force().identity
    except ClusterError:
        here = ""
    found: list[tuple[Callable[[], LiveCluster], list[RunEntry]]] = []
    for cluster, group in groups.items():
        first = group[0]
        found.append((in_force if cluster == here else functools.partial(doors.cluster_of, first), group))
    if here and here not in groups:
        found.append((in_force, []))
    return found


def _list_cluster(
    doors: Doors, scheduler: str, connect: Callable[[], LiveCluster], entries: Sequence[RunEntry], choice: Choice
) -> list[tuple[str, str, str, JobState]]:
    known = {(form_named(scheduler, entry.choice).head, entry.namespace, entry.job_name): entry for entry in entries}
    rows = []
    try:
        cluster = connect()
        heads = _heads(
            cluster, scheduler, {kind for kind, _, _ in known}, {entry.namespace for entry in entries}, choice
        )
        identity = cluster.identity
    except ClusterError as error:
        logger.warning("states are as last seen: %s", error)
        return [(entry.app_id, entry.name, entry.cluster, _last_state(doors, entry)) for entry in entries]
    for kind, seen in heads:
        metadata = (seen.head or {})["metadata"]
        app_id = f"{metadata.get('namespace')}:{metadata['name']}"
        entry = known.get((kind, str(metadata.get("namespace")), metadata["name"]))
        form = _form_of_head(scheduler, kind)
        status = form.read_status(seen)
        if entry is not None and is_ours(entry, seen.head or {}):
            del known[kind, entry.namespace, entry.job_name]
            rows.append((app_id, entry.name, identity, with_cancel(entry, status).state))
        elif entry is None and choice.session in (None, (metadata.get("labels") or {}).get(labels.SESSION)):
            name = (metadata.get("labels") or {}).get(labels.KUBE_APP_NAME) or metadata["name"]
            rows.append((app_id, name, identity, status.state))
    rows += [(entry.app_id, entry.name, entry.cluster, _gone_state(doors, entry)) for entry in known.values()]
    return rows


def _heads(
    cluster: LiveCluster, scheduler: str, used: set[Kind], namespaces: set[str], choice: Choice
) -> list[tuple[Kind, Seen]]:
    """Read the objects that stand for jobs, and the pods of those that do not say how a job went."""
    _, forms = FORMS[scheduler]
    default = next(iter(forms.values())).head
    mine = {labels.LAUNCHER: labels.LAUNCHER_VALUE}
    found: list[tuple[Kind, Seen]] = []
    for kind in dict.fromkeys((default, *used)):
        try:
            heads = _everywhere(cluster, kind, mine, namespaces, choice)
        except ClusterError as error:
            # What a cluster does not serve, nothing in it is of; a used kind that is gone has its apps gone too.
            if error.retryable or kind in used:
                raise
            logger.warning("apps of colleagues are not listed: %s", error)
            continue
        # Volcano's controller copies a job's labels to the PodGroup that it makes.
        heads = [head for head in heads if not head["metadata"].get("ownerReferences")]
        pods: dict[tuple[str, str], list[Manifest]] = {}
        if heads and kind in _BY_PODS:
            label = SCHEDULERS[scheduler].pod_label
            for pod in _everywhere(cluster, POD, {labels.ORGANIZATION: labels.ORGANIZATION_VALUE}, namespaces, choice):
                job = (pod["metadata"].get("labels") or {}).get(label)
                pods.setdefault((pod["metadata"].get("namespace", ""), str(job)), []).append(pod)
        for head in heads:
            key = (head["metadata"].get("namespace", ""), head["metadata"]["name"])
            found.append((kind, Seen(head=head, pods=tuple(pods.get(key, ())) if kind in _BY_PODS else None)))
    return found


def _everywhere(
    cluster: LiveCluster, kind: Kind, selector: Mapping[str, str], namespaces: set[str], choice: Choice
) -> list[Manifest]:
    """List a kind in all namespaces, or where that is not allowed, in those that we launched in."""
    try:
        return cluster.list(kind, choice.namespace, selector)
    except ClusterError as error:
        if error.retryable or choice.namespace is not None or not namespaces or error.reason != "Forbidden":
            raise
    return [item for namespace in sorted(namespaces) for item in cluster.list(kind, namespace, selector)]


def _form_of_head(scheduler: str, kind: Kind) -> Form:
    return next(form for form in FORMS[scheduler][1].values() if form.head == kind)


def _gone_state(doors: Doors, entry: RunEntry) -> JobState:
    try:
        return gone(entry, doors.index.observation(entry)).state
    except TorchxPulumiError as error:
        logger.warning("%s", error)
        return JobState.UNKNOWN


def _last_state(doors: Doors, entry: RunEntry) -> JobState:
    last = doors.index.observation(entry)
    return last.state if last is not None else JobState.UNKNOWN
