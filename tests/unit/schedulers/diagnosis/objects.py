"""Observed objects for diagnoses, each as little as can be, and the reading of them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from torchx_pulumi.model.status import Diagnosis
from torchx_pulumi.schedulers import find_backend
from torchx_pulumi.schedulers.appwrapper.options import AppWrapperVersion
from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects
from torchx_pulumi.schedulers.volcano.options import GangMode

JOB = find_backend("volcano").variants[GangMode.JOB]
PODS = find_backend("volcano").variants[GangMode.PODS]
MCAD = find_backend("mcad").variants[AppWrapperVersion.V1BETA1]
OPERATOR = find_backend("mcad").variants[AppWrapperVersion.V1BETA2]

CREATED = "2026-03-01T10:00:00Z"
NOW = datetime(2026, 3, 1, 10, 0, 30, tzinfo=timezone.utc)
LATER = NOW + timedelta(minutes=2)
Manifest = dict[str, Any]


def spec(**more: Any) -> Manifest:
    container = {"name": "trainer", "image": "img:1", "resources": {"limits": {"cpu": "2", "memory": "16G"}}}
    return {"containers": [container], **more}


def job(phase: str | None = "Pending", replicas: int = 2, **more: Any) -> Manifest:
    tasks = [
        {"name": f"trainer-{index}", "replicas": 1, "template": {"spec": more.get("template", spec())}}
        for index in range(replicas)
    ]
    return {
        "kind": "Job",
        "metadata": {"name": "app", "namespace": "team", "uid": "u", "creationTimestamp": CREATED},
        "spec": {"queue": "q", "tasks": tasks, "minAvailable": replicas, **more.get("spec", {})},
        "status": {"state": {"phase": phase}, **more.get("status", {})} if phase else {},
    }


def pod(index: int = 0, phase: str = "Pending", *, node: str | None = None, **more: Any) -> Manifest:
    status = {key: value for key, value in more.items() if key != "spec"}
    return {
        "kind": "Pod",
        "metadata": {"name": f"app-trainer-{index}-0", "namespace": "team", "creationTimestamp": CREATED},
        "spec": {**spec(), **more.get("spec", {}), **({"nodeName": node} if node else {})},
        "status": {"phase": phase, **status},
    }


def waits(reason: str, message: str = "") -> list[Manifest]:
    return [{"name": "trainer", "image": "img:1", "state": {"waiting": {"reason": reason, "message": message}}}]


def ended(code: int, reason: str = "Error", message: str | None = None, at: str = "10:00:20") -> list[Manifest]:
    end: Manifest = {"exitCode": code, "reason": reason, "finishedAt": f"2026-03-01T{at}Z"}
    return [{"name": "trainer", "state": {"terminated": end | ({"message": message} if message else {})}}]


def unplaced(message: str) -> list[Manifest]:
    return [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]


def group(phase: str = "Pending", **more: Any) -> Manifest:
    meta = {"name": "app-u", "namespace": "team", "creationTimestamp": CREATED}
    return {
        "kind": "PodGroup",
        "metadata": meta,
        "spec": {"queue": "q", "minMember": 2},
        "status": {"phase": phase, **more},
    }


def node(name: str = "n1", cpu: str = "8", **more: Any) -> Manifest:
    allocatable = {"cpu": cpu, "memory": "64Gi", "pods": "110", **more.get("has", {})}
    return {
        "metadata": {"name": name, "labels": more.get("labels", {})},
        "spec": more.get("spec", {}),
        "status": {"allocatable": allocatable},
    }


def queue(**status: Any) -> Manifest:
    return {"kind": "Queue", "metadata": {"name": "q"}, "spec": {"capability": {"cpu": "4"}}, "status": status}


def found(form: Any = JOB, now: datetime = NOW, *, head: Manifest | None = None, **seen: Any) -> tuple[Diagnosis, ...]:
    return form.read_status(ObservedObjects(job_object=head, **seen), now).diagnoses


def first(form: Any = JOB, now: datetime = NOW, *, head: Manifest | None = None, **seen: Any) -> Diagnosis:
    status = form.read_status(ObservedObjects(job_object=head, **seen), now)
    assert status.reason is status.diagnoses[0].reason
    assert status.message.startswith(status.diagnoses[0].summary)
    return status.diagnoses[0]


SHORT = "0/1 nodes are unavailable: 1 Insufficient cpu."


def other(name: str, phase: str = "Running") -> Manifest:
    meta = {
        "name": f"{name}-pg",
        "namespace": "b",
        "creationTimestamp": CREATED,
        "ownerReferences": [{"kind": "Job", "name": name}],
    }
    return {"kind": "PodGroup", "metadata": meta, "spec": {"queue": "q"}, "status": {"phase": phase}}


def wrapper(state: str | None = "Pending", name: str = "app", **more: Any) -> Manifest:
    template = {"kind": "Pod", "metadata": {"name": f"{name}-trainer-0"}, "spec": spec()}
    key = (
        {"components": [{"template": template}]}
        if more.get("version")
        else {"resources": {"GenericItems": [{"generictemplate": template}]}}
    )
    status = {"state": state, **more.get("status", {})} if state else {}
    meta = {"name": name, "namespace": "team", "creationTimestamp": more.get("made", CREATED)}
    return {
        "apiVersion": f"workload.codeflare.dev/{more.get('version', 'v1beta1')}",
        "kind": "AppWrapper",
        "metadata": meta,
        "spec": {"priority": more.get("priority", 0), **key, **more.get("spec", {})},
        "status": status,
    }


BACKOFF = {
    "queuejobstate": "Backoff",
    "conditions": [
        {
            "type": "Backoff",
            "reason": "AppWrapperNotRunnable.",
            "message": "Insufficient resources to dispatch AppWrapper.",
        }
    ],
}
