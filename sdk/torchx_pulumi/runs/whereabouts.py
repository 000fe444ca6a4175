"""Access to the cluster of an app, and the check that it is the cluster of its launch (docs/decisions/0011).

The absence of an object in another cluster proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from torchx_pulumi.kube import Cluster
from torchx_pulumi.kube.kubeconfig import find_access, is_contents, locations, read_files
from torchx_pulumi.model.app_entry import RunEntry
from torchx_pulumi.model.cluster_identity import Match, mismatch_words
from torchx_pulumi.model.errors import DIFFERENT_CLUSTER, ClusterError
from torchx_pulumi.model.options import Manifest

UNDECIDED_CLUSTER = "UndecidedCluster"
"""`reason` of the error about a cluster that may not be that of the launch. Reading is allowed there."""

Connect = Callable[[str | None, str | None], Cluster]
"""Kubeconfig and context (None: the ambient ones) to a cluster, without a request."""


def check_cluster(entry: RunEntry, cluster: Cluster, job_object: Manifest | None) -> None:
    """Refuse a cluster that may not be that of the launch.

    Args:
        entry: The app.
        cluster: The cluster that was reached.
        job_object: What was found there under the name of the app's object. The object itself proves the cluster,
            without a request.

    Raises:
        ClusterError: It is another one, that is not known, or it does not answer.
    """
    # A launch, which has no object yet, does without it.
    from torchx_pulumi.apps.app import App

    if App.of(entry).owns(job_object):
        return
    recorded, present = entry.cluster_identity, cluster.identify()
    match = entry.match(present)
    if match is Match.SAME:
        return
    launched_in = recorded if recorded is not None and recorded.name else f"the cluster of {describe_access(entry)}"
    raise ClusterError(
        f"{mismatch_words(f'app {entry.app_id}', launched_in, present, match)}. Nothing was changed. Let KUBECONFIG, "
        "or the options kubeconfig and kube_context, name the cluster of the launch; if that one is gone, give the "
        "app's objects up with `torchx-pulumi delete --forget-unreachable`",
        reason=DIFFERENT_CLUSTER if match is Match.DIFFERENT else UNDECIDED_CLUSTER,
    )


def read_job_object(entry: RunEntry, cluster: Cluster) -> Manifest | None:
    """Return the object under the name of an app's, possibly another app's. None: it does not exist.

    Raises:
        ClusterError: The cluster does not answer, or the user may not read it.
        DeployError: This release does not have the scheduler or the variant of the app.
    """
    from torchx_pulumi.apps.app import App

    return cluster.get(App.of(entry).run.variant.job_object, entry.namespace, entry.job_name)


def check_before_change(entry: RunEntry, cluster: Cluster) -> None:
    """Read an app's object, and refuse a cluster that may not be that of the launch.

    Raises:
        ClusterError: As `check_cluster`.
        DeployError: This release does not have the scheduler or the variant of the app.
    """
    check_cluster(entry, cluster, read_job_object(entry, cluster))


def describe_access(entry: RunEntry) -> str:
    """Return the recorded context and kubeconfig of an app, for messages."""
    named, context = entry.access
    config = "the kubeconfig in force at the launch" if named is None or is_contents(named) else f"kubeconfig {named}"
    return f"context {context!r} of {config}" if context else config


def ambient(kubeconfig: str | None, context: str | None) -> tuple[str | None, str | None]:
    """Return the path of the kubeconfig and the context in force, each only if its option is None.

    The path is None too if several kubeconfigs are merged, or a pod's service account is used.

    Raises:
        ClusterError: The kubeconfig cannot be read.
    """
    paths = [] if kubeconfig is not None and is_contents(kubeconfig) else locations(kubeconfig)
    one = str(paths[0].absolute()) if len(paths) == 1 and read_files(kubeconfig) else None
    current = None if context is not None or one is None else find_access(kubeconfig).context
    return None if kubeconfig is not None else one, current


def reachable(entry: RunEntry, connect: Connect, own: Callable[[], Mapping[str, Any]] = dict) -> RunEntry:
    """Return an app with an access that works here: the recorded one if it does, else the user's own.

    A colleague's entry names a kubeconfig in the colleague's home. Of several accesses that can be used, the one with
    the recorded address is taken. The caller still has to check the cluster.

    Args:
        entry: The app.
        connect: Opens a cluster.
        own: Returns the options `kubeconfig` and `kube_context` in force; called only if the recorded access fails.
    """
    recorded = entry.access
    address = entry.cluster if entry.cluster_identity is None else entry.cluster_identity.address
    found: tuple[str | None, str | None] | None = None
    for way in _ways(recorded, own):
        try:
            is_recorded = connect(*way).identity == address
        except ClusterError:
            continue
        if is_recorded or found is None:
            found = way
        if is_recorded:
            break
    return entry if found in (None, recorded) else _with_access(entry, *found)


def _ways(
    recorded: tuple[str | None, str | None], own: Callable[[], Mapping[str, Any]]
) -> Iterator[tuple[str | None, str | None]]:
    """Yield kubeconfig and context of the accesses that may be used, the preferred one first."""
    yield recorded
    options = own()
    kubeconfig, context = options.get("kubeconfig"), options.get("kube_context")
    yield from dict.fromkeys(((kubeconfig, recorded[1]), (kubeconfig, context)))


def _with_access(entry: RunEntry, kubeconfig: str | None, context: str | None) -> RunEntry:
    """Put an access into an entry; what was named by an option stays named, since the engine's providers are by it."""
    path, current = ambient(kubeconfig, context)
    path, current = kubeconfig or path, context or current
    return replace(
        entry,
        kubeconfig=path if entry.kubeconfig is not None else None,
        ambient_kubeconfig=None if entry.kubeconfig is not None else path,
        kube_context=current if entry.kube_context is not None else None,
        ambient_context=None if entry.kube_context is not None else current,
    )
