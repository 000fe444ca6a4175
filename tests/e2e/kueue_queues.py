"""Quotas of Kueue on fake GPUs, and what Kueue says of a job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.model.status import JobStatus
from torchx_pulumi.schedulers import find_backend
from torchx_pulumi.schedulers.appwrapper.objects import CLUSTER_QUEUE, LOCAL_QUEUE, WORKLOAD
from torchx_pulumi.schedulers.appwrapper.objects import RESOURCE_FLAVOR as FLAVOR

from tests.e2e.project import eventually
from tools.local_cluster import Cluster
from tools.local_cluster.fake_nodes import NODE_LABEL

GROUP = "kueue.x-k8s.io"
PRIORITY = Kind(
    group=GROUP,
    version="v1beta2",
    kind="WorkloadPriorityClass",
    plural="workloadpriorityclasses",
    namespaced=False,
)
CHECK = Kind(group=GROUP, version="v1beta2", kind="AdmissionCheck", plural="admissionchecks", namespaced=False)
V1BETA2 = find_backend("mcad").variants["v1beta2"]
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

    def make(self, name: str, quota: Mapping[str, str], nodes: str = "fake", **spec: Any) -> str:
        """Make a LocalQueue and its ClusterQueue with a quota for each resource; return the name of both.

        `nodes` is `fake`, or `real` for pods that go to the real node.
        """
        flavor, whole = f"{nodes}-{self.namespace}", f"{name}-{self.namespace}"
        self.create(FLAVOR, flavor, FAKE_GPU if nodes == "fake" else {})
        resources = [{"name": resource, "nominalQuota": most} for resource, most in quota.items()]
        group = {"coveredResources": [*quota], "flavors": [{"name": flavor, "resources": resources}]}
        self.create(CLUSTER_QUEUE, whole, {"namespaceSelector": {}, "resourceGroups": [group], **spec})
        self.create(LOCAL_QUEUE, whole, {"clusterQueue": whole})
        self.wait_until_active(whole)
        return whole

    def wait_until_active(self, name: str, is_active: str = "True", *kinds: Kind) -> None:
        """Wait until Kueue says of the LocalQueue and the ClusterQueue of a name, or of one, whether it admits jobs."""
        for kind in kinds or (CLUSTER_QUEUE, LOCAL_QUEUE):
            eventually(lambda kind=kind: self.condition(self.object(kind, name), "Active").get("status") == is_active)

    def create(self, kind: Kind, name: str, spec: Mapping[str, Any], **fields: Any) -> None:
        """Create an object, with fields next to its spec; one that is there is left as it is."""
        head = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}}
        body = {**head, **({"spec": dict(spec)} if spec else {}), **fields}
        self._api.create(f"/apis/{kind.api_version}{self._within(kind)}/{kind.plural}", body)

    def _within(self, kind: Kind) -> str:
        return f"/namespaces/{self.namespace}" if kind.namespaced else ""

    def patch(self, kind: Kind, name: str, change: Mapping[str, Any], part: str = "") -> None:
        """Change fields of an object, or of its status (`part="/status"`)."""
        path = f"/apis/{kind.api_version}{self._within(kind)}/{kind.plural}/{name}{part}"
        self._api.request("PATCH", path, json.dumps(dict(change)).encode(), kind="merge-patch+json")

    def status(self, name: str) -> JobStatus:
        """Read the status of an AppWrapper as every command does."""
        return V1BETA2.read_status(V1BETA2.observe(self._look, self.namespace, name), datetime.now(timezone.utc))

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
