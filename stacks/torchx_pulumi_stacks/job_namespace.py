"""The namespace of the program's job: marked by the stack that owns it, so that it is found again.

A deployment that is killed between the creation of the namespace and the write of the state leaves a namespace that the
provider refuses to create a second time. The next deployment imports it, if it has the stack's mark.
"""

from __future__ import annotations

import pulumi
import pulumi_kubernetes as kubernetes
from torchx_pulumi.kube.kinds import NAMESPACE
from torchx_pulumi.model import labels
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.planning.names import owner_digest
from torchx_pulumi_components.cluster_access import connect
from torchx_pulumi_components.stack_state import read_outputs

RESOURCE = "namespace"
"""Name of the resource."""


def create_namespace(
    name: str, provider: kubernetes.Provider | None, kubeconfig: str | None, context: str | None
) -> pulumi.Resource:
    """Register the namespace, and import it if a killed deployment of this stack has created it.

    Args:
        name: Its name.
        provider: Provider of the cluster. None: the ambient one.
        kubeconfig: Contents or path of the provider's kubeconfig. None: the ambient one.
        context: Context of the provider. None: the current one.
    """
    project, stack = pulumi.get_project(), pulumi.get_stack()
    urn = f"urn:pulumi:{stack}::{project}::kubernetes:core/v1:Namespace::{RESOURCE}"
    mark = owner_digest(pulumi.get_organization() or "organization", project, stack, urn)
    recorded = read_outputs()
    # An engine that was killed has recorded the stack at least.
    unrecorded = bool(recorded) and urn not in recorded
    imported = name if unrecorded and _has_mark(name, mark, kubeconfig, context) else None
    namespace: pulumi.Resource = kubernetes.core.v1.Namespace(
        RESOURCE,
        metadata={"name": name, "labels": {labels.OWNER: mark}},
        opts=pulumi.ResourceOptions(provider=provider, import_=imported),
    )
    return namespace


def _has_mark(name: str, mark: str, kubeconfig: str | None, context: str | None) -> bool:
    """Return whether the namespace exists with a mark. False also if it may not be read."""
    cluster, _ = connect(kubeconfig, context, {}, own_provider=False)
    try:
        found = None if cluster is None else cluster.get(NAMESPACE, None, name)
    except ClusterError as error:
        if error.reason != "Forbidden":
            raise
        return False
    return found is not None and text_at(found, "metadata", "labels", labels.OWNER) == mark
