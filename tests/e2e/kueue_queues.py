"""Quotas of Kueue on fake GPUs, and what Kueue says of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import Kind

from tests.e2e.project import eventually
from tools.local_cluster import Cluster
from tools.local_cluster.fake_nodes import NODE_LABEL

GROUP = "kueue.x-k8s.io"
WORKLOAD = Kind(group=GROUP, version="v1beta2", kind="Workload", plural="workloads")
LOCAL_QUEUE = Kind(group=GROUP, version="v1beta2", kind="LocalQueue", plural="localqueues")
CLUSTER_QUEUE = Kind(group=GROUP, version="v1beta2", kind="ClusterQueue", plural="clusterqueues", namespaced=False)
FLAVOR = Kind(group=GROUP, version="v1beta2", kind="ResourceFlavor", plural="resourceflavors", namespaced=False)
FAKE_GPU = {
    "nodeLabels": {NODE_LABEL: "fake"},
    "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists", "effect": "NoSchedule"}],
}
"""A flavor whose pods go to fake nodes, which have 8 GPUs each."""

Json = dict[str, Any]


class KueueQueues:
    """Queues of one namespace, with a ClusterQueue for each, and the Workloads in them."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.namespace = namespace
        self._api = cluster.api
        self._look = KubernetesCluster.connect(str(cluster.kubeconfig))

    def make(self, name: str, quota: Mapping[str, str], **spec: Any) -> str:
        """Make a LocalQueue and its ClusterQueue with a quota for each resource; return the name of both."""
        flavor, whole = f"fake-{self.namespace}", f"{name}-{self.namespace}"
        self.create(FLAVOR, flavor, FAKE_GPU)
        resources = [{"name": resource, "nominalQuota": most} for resource, most in quota.items()]
        group = {"coveredResources": [*quota], "flavors": [{"name": flavor, "resources": resources}]}
        self.create(CLUSTER_QUEUE, whole, {"namespaceSelector": {}, "resourceGroups": [group], **spec})
        self.create(LOCAL_QUEUE, whole, {"clusterQueue": whole})
        eventually(lambda: self.condition(self.object(LOCAL_QUEUE, whole), "Active").get("status") == "True")
        return whole

    def create(self, kind: Kind, name: str, spec: Mapping[str, Any]) -> None:
        """Create an object; one that is there is left as it is."""
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, "spec": dict(spec)}
        within = f"/namespaces/{self.namespace}" if kind.namespaced else ""
        self._api.create(f"/apis/{kind.api_version}{within}/{kind.plural}", body)

    def object(self, kind: Kind, name: str) -> Json:
        """Return an object; empty if there is none."""
        return self._look.get(kind, None if not kind.namespaced else self.namespace, name) or {}

    def workload(self, owner: str) -> Json:
        """Return the Workload that Kueue made for an object; empty before that."""
        found = self._look.list(WORKLOAD, self.namespace)
        return next((one for one in found if one["metadata"]["ownerReferences"][0]["name"] == owner), {})

    @staticmethod
    def condition(found: Json, kind: str) -> Json:
        """Return a condition; empty if the object has none of the kind."""
        conditions = (found.get("status") or {}).get("conditions") or ()
        return next((one for one in conditions if one["type"] == kind), {})
