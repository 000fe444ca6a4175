"""Looking at the cluster from a component.

The only module here that opens a connection. Without one (see `connect`) everything is taken from the stack's state.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec

import pulumi
from pulumi.runtime.mocks import MockMonitor
from pulumi.runtime.settings import get_monitor
from torchx_pulumi.kube import Cluster, KubernetesCluster

from torchx_pulumi_components.input_resolution import is_placeholder

_given: ContextVar[Cluster | None] = ContextVar("cluster", default=None)


@contextmanager
def cluster_for_tests(cluster: Cluster) -> Iterator[None]:
    """Let the components that are made inside look at this cluster, for example `torchx_pulumi.testing.FakeCluster`."""
    token = _given.set(cluster)
    try:
        yield
    finally:
        _given.reset(token)


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
    if is_placeholder(kubeconfig) or is_placeholder(context):
        return None, "the cluster is not known before `up`: queue, namespace and the last run were not looked at"
    if kubeconfig is None and context is None and own_provider:
        return None, (
            "with a provider of your own, and neither kubeconfig nor kube_context set, nothing is read from the "
            "cluster: the last run is taken as of the last refresh"
        )
    if find_spec("urllib3") is None:
        return None, (
            "the package urllib3 is not installed (pip install 'torchx-pulumi[kubernetes]'), so nothing is read "
            "from the cluster: the last run is taken as of the last refresh"
        )
    config = pulumi.Config("kubernetes")
    return KubernetesCluster.connect(kubeconfig or config.get("kubeconfig"), context or config.get("context")), ""
