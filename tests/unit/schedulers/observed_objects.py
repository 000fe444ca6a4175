"""Builders of observed Volcano objects, shaped as a real cluster answered them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.status import JobStatus
from torchx_pulumi.schedulers import find_backend
from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects

Manifest = dict[str, Any]

CREATED = "2026-03-01T10:00:00Z"
STARTED = "2026-03-01T10:00:05Z"
ENDED = "2026-03-01T10:00:40Z"


def vcjob(phase: str | None = "Running", *, tasks: list[str] | None = None, status: Manifest | None = None) -> Manifest:
    names = ["trainer-0", "trainer-1"] if tasks is None else tasks
    state = {"state": {"phase": phase, "lastTransitionTime": ENDED}} if phase else {}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "app", "namespace": "default", "uid": "u-1", "creationTimestamp": CREATED},
        "spec": {
            "queue": "default",
            "tasks": [
                {"name": name, "replicas": 1, "minAvailable": 1, "template": {"metadata": {"labels": labels(name)}}}
                for name in names
            ],
        },
        "status": {**state, **(status or {})},
    }


def labels(task: str) -> dict[str, str]:
    role, index = task.rsplit("-", 1)
    return {
        "torchx.pytorch.org/role-name": role,
        "torchx.pytorch.org/role-index": "0",
        "torchx.pytorch.org/replica-id": index,
    }


def pod(task: str = "trainer-0", phase: str = "Running", *, node: str | None = "n0", **status: Any) -> Manifest:
    return {
        "kind": "Pod",
        "metadata": {
            "name": f"app-{task}-0",
            "labels": {**labels(task), "volcano.sh/task-spec": task},
            "creationTimestamp": CREATED,
        },
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase, **status},
    }


def terminated(code: int, reason: str = "Error", message: str | None = None) -> list[Manifest]:
    end = {"exitCode": code, "reason": reason, "startedAt": STARTED, "finishedAt": ENDED}
    return [{"name": "c", "restartCount": 0, "state": {"terminated": end | ({"message": message} if message else {})}}]


def waiting(reason: str, message: str) -> list[Manifest]:
    return [
        {"name": "c", "image": "img:1", "restartCount": 2, "state": {"waiting": {"reason": reason, "message": message}}}
    ]


def pod_group(phase: str | None = "Running", *conditions: Manifest) -> Manifest:
    status = {"phase": phase} if phase else {}
    return {
        "kind": "PodGroup",
        "metadata": {"name": "app-u-1"},
        "spec": {"queue": "q1"},
        "status": {**status, "conditions": list(conditions)},
    }


def condition(kind: str, at: str, message: str = "") -> Manifest:
    return {
        "type": kind,
        "status": "True",
        "lastTransitionTime": at,
        "reason": "NotEnoughResources",
        "message": message,
    }


def read_volcano(job: Any, pods: Sequence[Any] | None = (), group: Any = None) -> JobStatus:
    groups = () if group is None else (group,)
    return (
        find_backend("volcano")
        .variants["job"]
        .read_status(ObservedObjects(job_object=job, pods=pods, pod_groups=groups))
    )


def read_gang_pods(
    group: Any, pods: Sequence[Any] | None, expected: Mapping[str, Sequence[str]] | None = None
) -> JobStatus:
    return (
        find_backend("volcano")
        .variants["pods"]
        .read_status(ObservedObjects(job_object=group, pods=pods, expected=expected))
    )


def read_mcad(
    wrapper: Any, pods: Sequence[Any] | None = (), groups: Sequence[Any] = (), events: Sequence[Any] = ()
) -> JobStatus:
    seen = ObservedObjects(job_object=wrapper, pods=pods, pod_groups=groups, events=events)
    version = (text_at(wrapper, "apiVersion") or "").rpartition("/")[2]
    return find_backend("mcad").variants["v1beta2" if version == "v1beta2" else "v1beta1"].read_status(seen)
