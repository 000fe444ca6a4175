"""Builders of Kueue's objects, shaped as Kueue 0.19 answered them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.unit.schedulers.app_wrappers import condition, operators

GROUP = "kueue.x-k8s.io/v1beta2"
Manifest = dict[str, Any]
GPU = "nvidia.com/gpu"


def made(kind: str, name: str, spec: Mapping[str, Any], status: Mapping[str, Any] | None = None) -> Manifest:
    """Return an object of Kueue; a Workload and a LocalQueue are in the namespace `default`."""
    within = {"namespace": "default"} if kind in ("Workload", "LocalQueue") else {}
    metadata = {"name": name, "uid": f"uid-of-{name}", **within}
    return {"apiVersion": GROUP, "kind": kind, "metadata": metadata, "spec": dict(spec), "status": dict(status or {})}


def pod_spec(gpus: int = 1, **more: Any) -> Manifest:
    resources = {"requests": {"cpu": "1", GPU: str(gpus)}}
    return {"containers": [{"name": "main", "resources": resources}], **more}


def workload(
    *conditions: Manifest, owner: str = "app", uid: str = "u-1", gpus: int = 4, active: bool = True, **status: Any
) -> Manifest:
    """Return the Workload of an AppWrapper with one pod set of 2 pods."""
    sets = [{"name": "main", "count": 2, "template": {"spec": pod_spec(gpus // 2)}}]
    spec = {"active": active, "podSets": sets, "queueName": "team"}
    found = made("Workload", f"appwrapper-{owner}", spec, {"conditions": list(conditions), **status})
    owners = [{"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "name": owner, "uid": uid}]
    found["metadata"] |= {"labels": {"kueue.x-k8s.io/job-uid": uid}, "ownerReferences": owners}
    return found


def not_reserved(message: str, reason: str = "Pending") -> Manifest:
    return condition("QuotaReserved", "False", reason, message)


def local_queue(*conditions: Manifest) -> Manifest:
    found = list(conditions) or [condition("Active", "True", "Ready")]
    return made("LocalQueue", "team", {"clusterQueue": "research"}, {"conditions": found})


def quota(name: str, nominal: str, **limits: str) -> Manifest:
    return {"name": name, "nominalQuota": nominal, **limits}


def cluster_queue(
    name: str = "research",
    gpus: str = "16",
    used: str = "0",
    *conditions: Manifest,
    cohort: str | None = None,
    **limits: str,
) -> Manifest:
    """Return a ClusterQueue with quota for GPUs and 100 CPUs in the flavor `a100`."""
    resources = [quota(GPU, gpus, **limits), quota("cpu", "100")]
    group = {"coveredResources": [GPU, "cpu"], "flavors": [{"name": "a100", "resources": resources}]}
    taken = [{"name": GPU, "total": used}, {"name": "cpu", "total": "0"}]
    status = {
        "conditions": list(conditions) or [condition("Active", "True", "Ready")],
        "flavorsReservation": [{"name": "a100", "resources": taken}],
        "pendingWorkloads": 3,
    }
    spec: Manifest = {"resourceGroups": [group], **({"cohortName": cohort} if cohort else {})}
    return made("ClusterQueue", name, spec, status)


def cohort(name: str, parent: str | None = None) -> Manifest:
    return made("Cohort", name, {"parentName": parent} if parent else {})


def held(phase: str = "Suspended", **more: Any) -> Manifest:
    """Return an AppWrapper of the LocalQueue `team`."""
    return operators(phase, queue="team", suspend=True, **more)
