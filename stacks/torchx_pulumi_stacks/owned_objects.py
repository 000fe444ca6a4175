"""Objects that a program registers next to its jobs: marked by the stack that owns them, so that they are found again.

A deployment that is killed between the creation of an object and the write of the state leaves an object that the
provider refuses to create a second time. The next deployment imports it, if it has the stack's mark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi
from torchx_pulumi.kube import PodReader
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.model import labels
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.runs.identity import owner_digest
from torchx_pulumi.schedulers.installed import DEPLOYMENT
from torchx_pulumi.schedulers.manifest_objects import all_kinds
from torchx_pulumi_components.cluster_access import connect
from torchx_pulumi_components.stack_state import read_outputs

_RBAC = "rbac.authorization.k8s.io"
_KINDS = (
    DEPLOYMENT,
    Kind(group="policy", version="v1", kind="PodDisruptionBudget", plural="poddisruptionbudgets"),
    Kind(group=_RBAC, version="v1", kind="Role", plural="roles"),
    Kind(group=_RBAC, version="v1", kind="RoleBinding", plural="rolebindings"),
    Kind(group=_RBAC, version="v1", kind="ClusterRole", plural="clusterroles", namespaced=False),
    Kind(group=_RBAC, version="v1", kind="ClusterRoleBinding", plural="clusterrolebindings", namespaced=False),
)


def owned(kubeconfig: str | None = None, context: str | None = None) -> pulumi.ResourceOptions:
    """Return options that mark an object as this stack's, and import it if a killed deployment has created it.

    Args:
        kubeconfig: Contents or path. None: the ambient one.
        context: None: the current one. Without both, Pulumi's configuration has them.
    """
    connections: dict[tuple[str | None, str | None], PodReader] = {}

    def claim(given: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
        kind = _kind_of(given.type_)
        if kind is None:
            return None
        project, stack = pulumi.get_project(), pulumi.get_stack()
        urn = f"urn:pulumi:{stack}::{project}::{given.type_}::{given.name}"
        mark = owner_digest(pulumi.get_organization() or "organization", project, stack, urn)
        metadata: Any = given.props["metadata"]
        marked = {**metadata, "labels": {**(metadata.get("labels") or {}), labels.OWNER: mark}}
        opts, recorded = given.opts, read_outputs()
        # An engine that was killed has recorded the stack at least.
        if recorded and urn not in recorded:
            cluster, _ = connect(kubeconfig, context, connections, own_provider=False)
            found = None if cluster is None else _find(cluster, kind, metadata, mark)
            if found is not None:
                opts = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(import_=found))
        return pulumi.ResourceTransformationResult({**given.props, "metadata": marked}, opts)

    return pulumi.ResourceOptions(transformations=[claim])


def _kind_of(token: str) -> Kind | None:
    """Return the kind of a Pulumi type. None: it is another resource, for example a provider."""
    package, _, rest = token.partition(":")
    if package != "kubernetes":
        return None
    api_version, _, name = rest.removeprefix("core/").partition(":")
    return next(
        (kind for kind in (*_KINDS, *all_kinds()) if (kind.api_version, kind.kind) == (api_version, name)), None
    )


def _find(cluster: PodReader, kind: Kind, metadata: Mapping[str, Any], mark: str) -> str | None:
    """Return the import id of the object with a mark. None: it does not exist, or may not be read."""
    namespace, name = metadata.get("namespace") if kind.namespaced else None, metadata.get("name")
    try:
        if name is None:
            # Pulumi named it.
            items = cluster.list(kind, namespace, {labels.OWNER: mark})
        else:
            items = [item for item in (cluster.get(kind, namespace, name),) if item is not None]
    except ClusterError as error:
        if error.reason != "Forbidden":
            raise
        return None
    for item in items:
        if text_at(item, "metadata", "labels", labels.OWNER) == mark:
            found = str(item["metadata"]["name"])
            return found if namespace is None else f"{namespace}/{found}"
    return None
