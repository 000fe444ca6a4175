"""Checks of the cluster: version, namespace, permissions, and those of the schedulers. They create nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torchx_pulumi.kube import LiveCluster
from torchx_pulumi.kube.kinds import NAMESPACE
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.finding import DoctorScope, Finding, ok, problem, skipped
from torchx_pulumi.model.versions import read_version, version_text
from torchx_pulumi.schedulers import find_backend, scheduler_names
from torchx_pulumi.schedulers.permissions import Permission

OLDEST_KUBERNETES = (1, 25)


def check_version(cluster: LiveCluster) -> Finding:
    """Check that the API server answers, and check its version."""
    name = "cluster"
    try:
        printed = cluster.version()
    except ClusterError as error:
        return problem(
            name, str(error), "check that the cluster runs and that kubeconfig and context are the right ones"
        )
    version = read_version(printed)
    if version is not None and (1, 0) < version < OLDEST_KUBERNETES:
        wanted = version_text(OLDEST_KUBERNETES)
        return problem(name, f"{cluster.api_server} is Kubernetes {printed}", f"use a cluster of {wanted} or later")
    return ok(name, f"{cluster.api_server}, Kubernetes {printed}")


def check_namespace(cluster: LiveCluster, scope: DoctorScope) -> Finding:
    """Check that the namespace exists and is not being deleted."""
    check = "namespace"
    try:
        found = cluster.get(NAMESPACE, None, scope.namespace)
    except ClusterError as error:
        return skipped(check, f"namespace {scope.namespace} cannot be read: {error}")
    if found is None:
        return problem(
            check, f"there is no namespace {scope.namespace!r}", f"kubectl create namespace {scope.namespace}"
        )
    if (found.get("status") or {}).get("phase") == "Terminating":
        return problem(
            check, f"namespace {scope.namespace!r} is being deleted", "wait until it is gone, or name another"
        )
    return ok(check, scope.namespace)


def check_permissions(cluster: LiveCluster, scope: DoctorScope) -> Finding:
    """Check that these credentials have the permissions to launch, read and end an app."""
    check = "permissions"
    backends = [find_backend(name) for name in scheduler_names() if scope.scheduler in (None, name)]
    wanted = dict.fromkeys(permission for backend in backends for permission in backend.permissions(cluster))
    if not wanted:
        return skipped(check, "no scheduler to launch with")
    try:
        denied = [item for item in wanted if not _is_allowed(cluster, item, scope.namespace)]
    except ClusterError as error:
        return skipped(check, f"the cluster does not say: {error}")
    if needed := [item for item in denied if not item.without]:
        return problem(
            check,
            f"in namespace {scope.namespace!r} these credentials may not: {', '.join(map(str, needed))}",
            "ask for a Role with these verbs and resources, and a RoleBinding to it (docs/permissions.md)",
        )
    found = f"{len(wanted) - len(denied)} of {len(wanted)} in namespace {scope.namespace}"
    lost = "; ".join(f"no {item}: {item.without}" for item in denied)
    return ok(check, f"{found}; {lost}" if lost else found)


def _is_allowed(cluster: LiveCluster, item: Permission, namespace: str) -> bool:
    return cluster.allowed(item.verb, item.kind, None if item.everywhere else namespace, item.part)


def cluster_checks(scheduler: str | None) -> Sequence[tuple[str, Callable[[LiveCluster, DoctorScope], Finding]]]:
    """Return the checks of a cluster with their names, of one scheduler. None: of all schedulers."""
    backends = [find_backend(name) for name in scheduler_names() if scheduler in (None, name)]
    return (
        ("cluster", lambda cluster, _: check_version(cluster)),
        ("namespace", check_namespace),
        *((backend.name, backend.check_installed) for backend in backends),
        *(check for backend in backends for check in backend.doctor_checks),
        ("permissions", check_permissions),
    )
