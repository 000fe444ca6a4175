"""Builders of observed compact runs: Volcano Jobs whose tasks have several replicas, with their pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchx_pulumi.model import labels

from tests.unit.schedulers.observed_objects import CREATED, ENDED

Manifest = dict[str, Any]


def compact_job(
    tasks: Mapping[str, int], phase: str | None = "Running", counts: Mapping[str, Mapping[str, int]] | None = None
) -> Manifest:
    """Return a Job whose tasks have so many replicas, and count so many pods in each phase."""
    state = {"state": {"phase": phase, "lastTransitionTime": ENDED}} if phase else {}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {
            "name": "app",
            "namespace": "default",
            "uid": "u-1",
            "creationTimestamp": CREATED,
            "labels": {labels.LAUNCH: "l-1"},
        },
        "spec": {
            "queue": "default",
            "minAvailable": sum(tasks.values()),
            "tasks": [
                {
                    "name": name,
                    "replicas": count,
                    "minAvailable": count,
                    "template": {
                        "metadata": {"labels": role_labels(name)},
                        "spec": {"containers": [{"name": name, "image": "img:1"}]},
                    },
                }
                for name, count in tasks.items()
            ],
        },
        "status": {
            **state,
            "taskStatusCount": {task: {"phase": dict(found)} for task, found in (counts or {}).items()},
        },
    }


def role_labels(task: str) -> dict[str, str]:
    """Return the labels that all pods of a task have: not the replica's id."""
    return {labels.ROLE_NAME: task.rsplit("-", 1)[0], labels.ROLE_INDEX: "0"}


def pod_of(task: str, position: int, phase: str = "Running", *, node: str | None = "n0", **status: Any) -> Manifest:
    """Return a pod of a task, as Volcano's job controller creates it. Its first container is the task's."""
    placed = {"nodeName": node} if node else {}
    if status.get("containerStatuses"):
        first, *others = status["containerStatuses"]
        status["containerStatuses"] = [{**first, "name": task}, *others]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"app-{task}-{position}",
            "namespace": "default",
            "uid": f"p-{task}-{position}",
            "creationTimestamp": CREATED,
            "labels": {
                **role_labels(task),
                "volcano.sh/job-name": "app",
                "volcano.sh/task-spec": task,
                "volcano.sh/task-index": str(position),
            },
        },
        "spec": {"containers": [{"name": task, "image": "img:1"}], **placed},
        "status": {"phase": phase, **status},
    }
