"""Builders of observed AppWrappers, shaped as real controllers answered them."""

from __future__ import annotations

from typing import Any

from tests.unit.schedulers.observed_objects import CREATED, ENDED, Manifest, labels

GROUP = "workload.codeflare.dev"


def pod_template(task: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"app-{task}", "labels": labels(task)}}


def metadata(**changes: Any) -> Manifest:
    return {"name": "app", "namespace": "default", "uid": "u-1", "creationTimestamp": CREATED, **changes}


def mcad(
    state: str | None = "Running",
    *conditions: Manifest,
    tasks: tuple[str, ...] = ("trainer-0", "trainer-1"),
    queuejobstate: str | None = None,
    retries: int = 0,
    deleted: bool = False,
    **status: Any,
) -> Manifest:
    """An AppWrapper v1beta1."""
    items = [{"replicas": 1, "generictemplate": pod_template(task)} for task in tasks]
    service = {"replicas": 1, "generictemplate": {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "app"}}}
    spec: Manifest = {"resources": {"GenericItems": [*items, service]}}
    if retries:
        spec["schedulingSpec"] = {"minAvailable": len(tasks), "requeuing": {"maxNumRequeuings": retries}}
    words = {"state": state, "queuejobstate": queuejobstate, "conditions": list(conditions)}
    return {
        "apiVersion": f"{GROUP}/v1beta1",
        "kind": "AppWrapper",
        "metadata": metadata(**({"deletionTimestamp": ENDED} if deleted else {})),
        "spec": spec,
        "status": {key: value for key, value in words.items() if value} | status,
    }


def mcad_condition(kind: str, reason: str, message: str = "", at: str = "2026-03-01T10:00:01.123456Z") -> Manifest:
    return {"type": kind, "status": "True", "lastUpdateMicroTime": at, "reason": reason, "message": message}


def operators(
    phase: str | None = "Running",
    *conditions: Manifest,
    tasks: tuple[str, ...] = ("trainer-0", "trainer-1"),
    retries: int = 0,
    queue: str | None = None,
    suspend: bool = False,
    **status: Any,
) -> Manifest:
    """An AppWrapper v1beta2."""
    annotations = {"workload.codeflare.dev.appwrapper/retryLimit": str(retries)}
    queue_label = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    return {
        "apiVersion": f"{GROUP}/v1beta2",
        "kind": "AppWrapper",
        "metadata": metadata(annotations=annotations, labels=queue_label),
        "spec": {"suspend": suspend, "components": [{"template": pod_template(task)} for task in tasks]},
        "status": ({"phase": phase} if phase else {}) | {"conditions": list(conditions)} | status,
    }


def condition(kind: str, status: str, reason: str, message: str = "") -> Manifest:
    return {
        "type": kind,
        "status": status,
        "lastTransitionTime": "2026-03-01T10:00:30Z",
        "reason": reason,
        "message": message,
    }


def pod(task: str = "trainer-0", phase: str = "Running", *, node: str | None = "n0", **status: Any) -> Manifest:
    return {
        "kind": "Pod",
        "metadata": {"name": f"app-{task}", "labels": labels(task), "creationTimestamp": CREATED},
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase, **status},
    }


def unschedulable(task: str, message: str) -> Manifest:
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return pod(task, "Pending", node=None, conditions=[said])


def warning(reason: str, message: str, at: str = ENDED) -> Manifest:
    return {"kind": "Event", "type": "Warning", "reason": reason, "message": message, "lastTimestamp": at}
