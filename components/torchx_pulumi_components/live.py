"""Looking at the cluster from a component: may a job be launched there, and what became of the last one.

The only module here that opens a connection. Without one (see `connect`) everything is taken from the stack's state.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import pulumi
from pulumi.runtime.mocks import MockMonitor
from pulumi.runtime.settings import get_monitor
from torchx_pulumi import labels
from torchx_pulumi.cluster import Cluster, KubernetesCluster
from torchx_pulumi.errors import ClusterError, Problem
from torchx_pulumi.kinds import (
    NAMESPACE,
    POD,
    PRIORITY_CLASS,
    SERVICE_ACCOUNT,
    VOLCANO_JOB,
    VOLCANO_POD_GROUP,
    VOLCANO_QUEUE,
    Kind,
)
from torchx_pulumi.options import Gang, Manifest, VolcanoOptions
from torchx_pulumi.status.model import JobStatus
from torchx_pulumi.status.volcano import read_gang_pods, read_volcano

from torchx_pulumi_components.leaves import is_stand_in

_given: ContextVar[Cluster | None] = ContextVar("cluster", default=None)


@contextmanager
def cluster_for_tests(cluster: Cluster) -> Iterator[None]:
    """Let the components that are made inside look at this cluster, for example `torchx_pulumi.testing.FakeCluster`."""
    token = _given.set(cluster)
    try:
        yield
    finally:
        _given.reset(token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The objects of one run. Empty: there are none."""

    head: Manifest | None = None
    """The Volcano Job, or the PodGroup of gang `pods`."""
    pods: Sequence[Manifest] | None = None
    """None: not looked at."""
    pod_group: Manifest | None = None


def connect(kubeconfig: str | None, context: str | None, *, own_provider: bool) -> tuple[Cluster | None, str]:
    """Connect to the cluster that the job's objects go to.

    Args:
        kubeconfig: Contents or path. None: Pulumi's configuration, then the ambient one.
        context: None: Pulumi's configuration, then the current one.
        own_provider: The program brings a provider of its own, whose cluster is not known here.

    Returns:
        The cluster, or None and why nothing can be looked at.

    Raises:
        ClusterError: There is no such cluster, or it does not answer.
    """
    if (given := _given.get()) is not None:
        return given, ""
    if isinstance(get_monitor(), MockMonitor):
        return None, ""
    if is_stand_in(kubeconfig) or is_stand_in(context):
        return None, "the cluster is not known before `up`: queue, namespace and the last run were not looked at"
    if kubeconfig is None and context is None and own_provider:
        return None, (
            "with a provider of your own, and neither kubeconfig nor kube_context set, nothing is read from the "
            "cluster: the last run is taken as of the last refresh"
        )
    if find_spec("kubernetes") is None:
        return None, (
            "the package kubernetes is not installed (pip install 'torchx-pulumi[kubernetes]'), so nothing is read "
            "from the cluster: the last run is taken as of the last refresh"
        )
    config = pulumi.Config("kubernetes")
    return KubernetesCluster.connect(kubeconfig or config.get("kubeconfig"), context or config.get("context")), ""


def look_at(cluster: Cluster, gang: Gang, namespace: str, name: str) -> Seen:
    """Read the objects of a run, without pods where its head is gone."""
    if gang is Gang.PODS:
        head = cluster.get(VOLCANO_POD_GROUP, namespace, name)
        pods = cluster.list(POD, namespace, {labels.VOLCANO_JOB_NAME: name}) if head is not None else ()
        return Seen(head=head, pods=tuple(pods), pod_group=head)
    head = cluster.get(VOLCANO_JOB, namespace, name)
    if head is None:
        return Seen()
    pods = cluster.list(POD, namespace, {labels.VOLCANO_JOB_NAME: name})
    group = cluster.get(VOLCANO_POD_GROUP, namespace, f"{name}-{head['metadata'].get('uid')}")
    return Seen(head=head, pods=tuple(pods), pod_group=group)


def read_status(seen: Seen, gang: Gang) -> JobStatus:
    """Read the status of a run from its objects."""
    if gang is Gang.PODS:
        return read_gang_pods(seen.pod_group or seen.head, seen.pods or ())
    return read_volcano(seen.head, seen.pods or (), seen.pod_group)


def preflight(cluster: Cluster, options: VolcanoOptions, *, may_come: set[str]) -> tuple[list[Problem], list[str]]:
    """Check that a job can be launched, before anything is registered.

    Args:
        cluster: Where it would go.
        options: Of the job.
        may_come: Names of options whose object this very deployment may create; they are not looked for.

    Returns:
        Problems that forbid the launch, and warnings.

    Raises:
        ClusterError: The cluster does not answer.
    """
    kind = VOLCANO_POD_GROUP if options.gang is Gang.PODS else VOLCANO_JOB
    if not cluster.serves(kind):
        text = f"serves no {kind.kind} of {kind.group}: Volcano is not installed; install it, or choose another cluster"
        return [Problem("cluster", text)], []
    problems: list[Problem] = []
    warnings: list[str] = []
    wanted: list[tuple[str, Kind, str | None]] = [
        ("namespace", NAMESPACE, options.namespace),
        ("queue", VOLCANO_QUEUE, options.queue),
        ("priority_class", PRIORITY_CLASS, options.priority_class),
        ("service_account", SERVICE_ACCOUNT, options.service_account),
    ]
    for option, sought, name in wanted:
        if name is None or option in may_come or is_stand_in(name):
            continue
        namespace = options.namespace if sought.namespaced else None
        try:
            found = cluster.get(sought, namespace, name)
            others = [] if found else [item["metadata"]["name"] for item in cluster.list(sought, namespace)]
        except ClusterError as error:
            if error.retryable:
                raise
            warnings.append(f"{option} {name!r} could not be checked: {error}")
            continue
        if found is None:
            message = f"{name!r} is not in the cluster; {_there_are(others, name)}"
            if sought is SERVICE_ACCOUNT:
                warnings.append(f"{option} {message}; pods cannot be made before it is")
            else:
                problems.append(Problem(option, message))
        elif sought is VOLCANO_QUEUE and _state(found) != "Open":
            problems.append(
                Problem("queue", f"{name!r} is {_state(found)}; a job can only be submitted to an open queue")
            )
    return problems, warnings


def _state(queue: Manifest) -> str:
    status: dict[str, Any] = queue.get("status") or {}
    return str(status.get("state") or "Open")


def _there_are(names: Sequence[str], name: str) -> str:
    if not names:
        return "there are none"
    near = difflib.get_close_matches(name, names, 1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(names)[:10])}"
