"""`list`: launched apps and their states, with one call to the cluster per kind for any number of apps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from torchx.schedulers.api import ListAppResponse

from torchx_pulumi.apps.app import App
from torchx_pulumi.apps.judge import Weight, judge, may_depend_on_request, weight
from torchx_pulumi.apps.look import look_at
from torchx_pulumi.apps.ownership import Run, is_job_object, owns, run_of_object
from torchx_pulumi.kube import Cluster
from torchx_pulumi.kube.kinds import POD, Kind
from torchx_pulumi.model import labels
from torchx_pulumi.model.app_entry import RunEntry
from torchx_pulumi.model.cluster_identity import Match
from torchx_pulumi.model.errors import ClusterError, TorchxPulumiError
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.status import JobState, read_state
from torchx_pulumi.schedulers import Variant, find_backend
from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects
from torchx_pulumi.schedulers.permissions import LIST_PODS, if_permitted
from torchx_pulumi.torchx_adapter import compat
from torchx_pulumi.torchx_adapter.context import AdapterContext
from torchx_pulumi.torchx_adapter.lookup import AppLookup, is_shared
from torchx_pulumi.torchx_adapter.observe import look_at_app, observe_app
from torchx_pulumi.torchx_adapter.responses import app_state

logger = logging.getLogger(__name__)

OBSERVED_AT_ONCE = 8
"""Apps that are observed at the same time because a list of objects is not enough."""

_Row = tuple[str, str, str, Callable[[], JobState]]
"""Id, name and uid of an app, and what returns its state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFilter:
    """Which apps are listed."""

    namespace: str | None = None
    """None: of every namespace."""
    session: str | None = None
    """None: of every session."""
    states: frozenset[str] = frozenset()
    """TorchX states. Empty: any."""
    everything: bool = False
    """Also jobs that others than torchx-pulumi made."""


@dataclass(slots=True, kw_only=True)
class ClusterListing:
    """The questions to one cluster, and those of them that it refused."""

    cluster: Cluster
    namespace: str | None
    """The only one that is wanted. None: all."""
    others: frozenset[str]
    """Namespaces that are listed one by one if all at once is forbidden."""
    refused: dict[str, ClusterError] = field(default_factory=dict)
    """Namespace to why it could not be listed."""

    def list(self, kind: Kind, selector: Mapping[str, str]) -> list[Manifest]:
        """List a kind in all namespaces, or in each known one if that is forbidden.

        Raises:
            ClusterError: Nothing could be listed.
        """
        try:
            return self.cluster.list(kind, self.namespace, selector)
        except ClusterError as error:
            if self.namespace is not None or error.reason != "Forbidden":
                raise
        found: list[Manifest] = []
        answered = False
        for namespace in sorted(self.others):
            try:
                found += self.cluster.list(kind, namespace, selector)
                answered = True
            except ClusterError as error:
                if error.reason != "Forbidden":
                    raise
                self.refused.setdefault(namespace, error)
        if not answered:
            raise next(iter(self.refused.values()))
        return found


def list_apps(lookup: AppLookup, ambient: Mapping[str, Any], list_filter: ListFilter) -> list[Any]:
    """Return the apps of a scheduler: of the index, and those that colleagues launched in the cluster in force.

    Args:
        lookup: Finds the stacks of colleagues' apps, and has the index and the clusters.
        ambient: Run options in force.
        list_filter: Which of them.

    Raises:
        ClusterError: No cluster could be asked, and no app is known here whose last state could be shown instead.
    """
    context = lookup.context
    entries = [
        entry
        for entry in context.index.all(lookup.scheduler)
        if list_filter.namespace in (None, entry.namespace) and list_filter.session in (None, entry.session)
    ]
    rows: dict[tuple[str, str], tuple[str, JobState]] = {}
    failed: list[ClusterError] = []
    groups = _by_cluster(context, entries, ambient)
    for cluster, group in groups:
        try:
            found = _list_cluster(lookup, cluster, group, list_filter)
        except ClusterError as error:
            failed.append(error)
            logger.warning("%s: %s", "states are as last seen" if group else "apps of colleagues are not listed", error)
            found = _with_states(
                [(one.app_id, one.name, one.uid or "", partial(_last_state, context, one)) for one in group]
            )
        for app_id, name, uid, state in found:
            # A cluster with two addresses is asked twice: the app's own row comes first, a colleague's view of it last.
            rows.setdefault((app_id, uid), (name, state))
    if failed and len(failed) == len(groups) and not rows:
        raise failed[0]
    found_rows = sorted((app_id, name, state) for (app_id, _), (name, state) in rows.items())
    return [
        compat.make(ListAppResponse, {"app_id": app_id, "state": app_state(state), "name": name})
        for app_id, name, state in found_rows
        if not list_filter.states or state.value in list_filter.states
    ]


def _by_cluster(
    context: AdapterContext, entries: Iterable[RunEntry], ambient: Mapping[str, Any]
) -> list[tuple[Cluster | ClusterError, list[RunEntry]]]:
    """Group apps by the address of their cluster. The cluster in force comes last, even without apps."""
    alike: dict[Any, list[RunEntry]] = {}
    for entry in entries:
        named, found = (entry.kubeconfig, entry.kube_context), (entry.ambient_kubeconfig, entry.ambient_context)
        alike.setdefault((named, found, entry.cluster), []).append(entry)
    groups: dict[str, tuple[Cluster | ClusterError, list[RunEntry]]] = {}
    for members in alike.values():
        try:
            cluster = context.cluster_of(members[0])
        except ClusterError as error:
            groups.setdefault(str(error), (error, []))[1].extend(members)
        else:
            groups.setdefault(cluster.identity, (cluster, []))[1].extend(members)
    try:
        in_force = context.chosen_cluster(ambient)
    except ClusterError as error:
        # The group without apps says why the cluster in force cannot be asked.
        return [*groups.values(), (error, [])]
    here = groups.pop(in_force.identity, (in_force, []))
    return [*groups.values(), (in_force, here[1])]


def _list_cluster(
    lookup: AppLookup,
    cluster: Cluster | ClusterError,
    entries: Sequence[RunEntry],
    list_filter: ListFilter,
) -> list[tuple[str, str, str, JobState]]:
    """Return id, name, uid and state of the apps in a cluster."""
    if isinstance(cluster, ClusterError):
        raise cluster
    context, scheduler = lookup.context, lookup.scheduler
    known = {(App.of(entry).run.variant.job_object, entry.namespace, entry.job_name): entry for entry in entries}
    others = frozenset({cluster.namespace, *(entry.namespace for entry in entries)})
    listing = ClusterListing(cluster=cluster, namespace=list_filter.namespace, others=others)
    job_objects = _job_objects(listing, scheduler, {kind for kind, _, _ in known}, list_filter)
    for namespace, error in listing.refused.items():
        logger.warning("namespace %s is not listed, states in it are as last seen: %s", namespace, error)
    rows: list[_Row] = []
    for kind, seen in job_objects:
        job_object = seen.job_object or {}
        metadata = job_object["metadata"]
        app_id, uid = f"{metadata.get('namespace')}:{metadata['name']}", str(metadata.get("uid") or "")
        entry = known.get((kind, str(metadata.get("namespace")), metadata["name"]))
        # An app that a colleague launched again has another uid than is known here, and is the same app.
        if entry is not None and App.of(entry).owns(job_object):
            del known[kind, entry.namespace, entry.job_name]
            rows.append((app_id, entry.name, uid, partial(_noted_state, context, entry, seen)))
        elif entry is not None and App.of(entry).launched(job_object) and entry.match(cluster.identify()) is Match.SAME:
            # It is of a later run of the app, in the cluster of the launch.
            del known[kind, entry.namespace, entry.job_name]
            find = partial(lookup.reread, entry)
            rows.append((app_id, entry.name, uid, partial(_others_state, lookup, kind, seen, find)))
        elif entry is None and list_filter.session in (None, (metadata.get("labels") or {}).get(labels.SESSION)):
            name = (metadata.get("labels") or {}).get(labels.KUBE_APP_NAME) or metadata["name"]
            find = partial(lookup.find_in_backend, app_id, partial(_is_of, job_object))
            rows.append((app_id, name, uid, partial(_others_state, lookup, kind, seen, find)))
    for entry in known.values():
        state = _last_state if entry.namespace in listing.refused else _unlisted_state
        rows.append((entry.app_id, entry.name, entry.uid or "", partial(state, context, entry)))
    return _with_states(rows)


def _is_of(job_object: Manifest, entry: RunEntry) -> bool:
    return App.of(entry).owns(job_object)


def _with_states(rows: Sequence[_Row]) -> list[tuple[str, str, str, JobState]]:
    """Ask for the states of some rows; several may take requests at once."""
    with ThreadPoolExecutor(OBSERVED_AT_ONCE) as pool:
        states = list(pool.map(lambda row: row[3](), rows))
    return [(*row[:3], state) for row, state in zip(rows, states, strict=True)]


def _job_objects(
    listing: ClusterListing, scheduler: str, used: set[Kind], list_filter: ListFilter
) -> list[tuple[Kind, ObservedObjects]]:
    """Read the objects that stand for jobs, and the pods of jobs that end by their pods."""
    backend = find_backend(scheduler)
    default = next(iter(backend.variants.values())).job_object
    wanted = {} if list_filter.everything else {labels.LAUNCHER: labels.LAUNCHER_VALUE}
    found: list[tuple[Kind, ObservedObjects]] = []
    for kind in dict.fromkeys((default, *used)):
        try:
            job_objects = listing.list(kind, wanted)
        except ClusterError as error:
            # In a cluster that does not serve a kind nothing of it runs; the apps of a used kind are gone with it.
            if error.reason != "NotServed" or kind in used:
                raise
            logger.warning("apps of colleagues are not listed: %s", error)
            continue
        # Volcano's controller copies a job's labels to the PodGroup that it makes.
        job_objects = [job_object for job_object in job_objects if is_job_object(job_object)]
        variant = _variant_of_kind(scheduler, kind)
        with_pods = job_objects and variant.listed_with_pods
        pods = _pods(listing, backend.pod_label) if with_pods else None
        for job_object in job_objects:
            own = None if pods is None else pods(run_of_object(job_object, variant))
            found.append((kind, ObservedObjects(job_object=job_object, pods=own)))
    return found


def _pods(listing: ClusterListing, label: str) -> Callable[[Run], tuple[Manifest, ...] | None] | None:
    """Return a function from a run to its pods. None, from either: they may not be listed."""
    of_pods = replace(listing, refused={})
    selector = {labels.ORGANIZATION: labels.ORGANIZATION_VALUE}
    listed = if_permitted(listing.cluster, LIST_PODS, listing.namespace, lambda: of_pods.list(POD, selector))
    if listed is None:
        return None
    known: dict[tuple[str, str], list[Manifest]] = {}
    for pod in listed:
        job = (pod["metadata"].get("labels") or {}).get(label)
        known.setdefault((pod["metadata"].get("namespace", ""), str(job)), []).append(pod)

    def owned(run: Run) -> tuple[Manifest, ...] | None:
        if run.namespace in of_pods.refused:
            return None
        return tuple(pod for pod in known.get((run.namespace, run.job_name), ()) if owns(run, pod))

    return owned


def _variant_of_kind(scheduler: str, kind: Kind) -> Variant:
    return next(variant for variant in find_backend(scheduler).variants.values() if variant.job_object == kind)


def _others_state(
    lookup: AppLookup, kind: Kind, seen: ObservedObjects, find: Callable[[], RunEntry | None]
) -> JobState:
    """Return the state of a listed run that is not in the index. Its stack is read if a request may change the state.

    Args:
        lookup: Has the index and the clusters.
        kind: Kind of the job object.
        seen: What was listed of the run.
        find: Finds the app's stack. None: the backend in force has none.
    """
    run = run_of_object(seen.job_object or {}, _variant_of_kind(lookup.scheduler, kind))
    look = look_at(run, seen, lookup.context.now())
    try:
        entry = find() if may_depend_on_request(look) else None
    except TorchxPulumiError as error:
        logger.warning("what was requested of %s is not known: %s", text_at(seen.job_object, "metadata", "name"), error)
        entry = None
    if entry is not None and App.of(entry).owns(seen.job_object):
        return _noted_state(lookup.context, entry, seen)
    return read_state((judge(look, None, None) or {}).get("state"))


def _noted_state(context: AdapterContext, entry: RunEntry, seen: ObservedObjects) -> JobState:
    """Note the listed objects of an app, and return its state. A new end makes it observe the whole app."""
    look = look_at_app(context, entry, replace(seen, expected=entry.made_pods))
    try:
        noted = context.index.noted(entry)
        found = judge(look, entry.requested, None if noted is None else noted.observed) or {}
        state = read_state(found.get("state"))
        waits = entry.requested is not None and not entry.request_written
        if waits or (state.terminal and not (noted is not None and noted.state.terminal)):
            # A list shows neither the replicas nor why.
            return observe_app(context, entry).status.state
        if noted is None or noted.state is not state or (is_shared(entry) and may_depend_on_request(look)):
            # Another user may have asked for something else since.
            return read_state((context.records.note(entry, look) or {}).get("state"))
    except TorchxPulumiError as error:
        logger.warning("%s", error)
        return JobState.UNKNOWN
    return state


def _unlisted_state(context: AdapterContext, entry: RunEntry) -> JobState:
    """Return the state of an app that the list of objects with our label does not have.

    It may be there all the same: the labels of the object are the caller's to change.
    """
    try:
        last = context.index.noted(entry)
        # Only a cancelled app may run again, and only an end that was seen is never replaced.
        if last is not None and last.state is not JobState.CANCELLED and weight(last.observed) is Weight.SEEN:
            return last.state
        if last is not None and weight(last.observed) is Weight.REQUEST:
            # Its objects were gone already: only its stack may say more.
            gone = look_at_app(context, entry, ObservedObjects(at=context.now()))
            return read_state((context.records.note(entry, gone) or {}).get("state"))
        return observe_app(context, entry).status.state
    except ClusterError as error:
        logger.warning("%s is listed as last seen: %s", entry.app_id, error)
        return _last_state(context, entry)
    except TorchxPulumiError as error:
        logger.warning("%s", error)
        return JobState.UNKNOWN


def _last_state(context: AdapterContext, entry: RunEntry) -> JobState:
    """Return the state in which an app was last seen, here or by others."""
    return read_state((context.records.note(entry, look_at_app(context, entry, None)) or {}).get("state"))
