"""Access of a component to the cluster: the connection, and whether it is the cluster of the last run.

The only module of the components that opens a connection. Without one (see `connect`) all facts are taken from the
stack's state. docs/decisions/0011 has the rules of `find_cluster`.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

import pulumi
from torchx_pulumi.kube import KubernetesCluster, PodReader
from torchx_pulumi.kube.given_cluster import GIVEN
from torchx_pulumi.model.cluster_identity import ClusterIdentity, Match, compare, mismatch_words
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.run_record import RunRecord

from torchx_pulumi_components import pulumi_runtime
from torchx_pulumi_components.resources import provider_inputs, type_token
from torchx_pulumi_components.stack_state import StackState


def connect(
    kubeconfig: str | None,
    context: str | None,
    connections: MutableMapping[tuple[str | None, str | None], PodReader],
    *,
    known: bool = True,
    own_provider: bool,
) -> tuple[PodReader | None, str]:
    """Connect to the cluster that the job's objects go to.

    Args:
        kubeconfig: Contents or path. None: the ambient one.
        context: None: the current one. Without both, Pulumi's configuration has them.
        connections: Those of the program, by kubeconfig and context. A new one is added.
        known: Kubeconfig and context are known. False: a preview, and only `up` knows them.
        own_provider: The program chose a Kubernetes provider, whose cluster is not known here.

    Returns:
        The cluster; or None, and a message that says why no cluster can be read.

    Raises:
        ClusterError: The cluster does not exist, or does not answer.
    """
    if (given := GIVEN.get()) is not None:
        return given, ""
    if pulumi_runtime.is_mocked():
        return None, ""
    if not known:
        return None, "the cluster is not known before `up`: queue, namespace and the last run were not looked at"
    if kubeconfig is None and context is None and own_provider:
        return None, (
            "with a provider of your own, and neither kubeconfig nor kube_context set, nothing is read from the "
            "cluster: the last run is taken as of the last refresh"
        )
    # The engine gives its configuration to the default provider only.
    chosen = provider_inputs(kubeconfig, context) or pulumi.Config("kubernetes")
    access = (chosen.get("kubeconfig"), chosen.get("context"))
    if access not in connections:
        connections[access] = KubernetesCluster.connect(*access)
    return connections[access], ""


def find_cluster(
    name: str,
    cluster: PodReader | None,
    run: RunRecord | None,
    state: StackState,
    job_object: Mapping[str, Any] | None,
) -> ClusterIdentity | None:
    """Return the cluster of the last run, and refuse any other one.

    Args:
        name: Name of the component.
        cluster: The cluster that is read. None: no cluster is.
        run: The last run, or the launch that was begun. None: neither exists.
        state: The component in the stack's state.
        job_object: The observed object with the name of the run's job object. Its uid proves the cluster without a
            request.

    Returns:
        None: it is not known.

    Raises:
        ClusterError: The cluster is another one, cannot be identified, or does not answer.
    """
    recorded = state.cluster if run is None or run.cluster is None else run.cluster
    if cluster is None or run is None:
        return recorded
    if run.uid is not None and ((job_object or {}).get("metadata") or {}).get("uid") == run.uid:
        return recorded or cluster.identify()
    if recorded is None:
        return None
    present = cluster.identify()
    match = compare(recorded, present)
    if match is Match.SAME:
        return recorded
    what = mismatch_words(f"run {run.namespace}/{run.job_name}", recorded, present, match)
    raise ClusterError(
        f"job {name!r}: {what}. Nothing was changed. Let the kubeconfig, its current context or kube_context name the "
        "cluster of the launch; to give that run up, remove it from the state (`pulumi state delete "
        f"--target-dependents '{state.urn}'`, or `pulumi destroy` if its cluster still answers), then run `pulumi up` "
        "again"
    )


def is_protected(opts: pulumi.ResourceOptions) -> bool:
    """Return whether the children of a component are protected, by its options or by those of its parents."""
    return pulumi_runtime.is_protected(opts.parent) if opts.protect is None else opts.protect


def has_provider(opts: pulumi.ResourceOptions) -> bool:
    """Return whether the program chose a Kubernetes provider for this component or one of its parents."""
    given: Any = opts.providers or []
    listed = list(given.values()) if isinstance(given, Mapping) else list(given)
    if opts.provider is not None:
        listed.append(opts.provider)
    inherited = None if opts.parent is None else opts.parent.get_provider(type_token("v1", "Pod"))
    return inherited is not None or any(provider.package == "kubernetes" for provider in listed)
