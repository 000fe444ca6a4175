"""Pods with container statuses, and the job that they belong to."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import Any

from torchx_pulumi.apps.ownership import Run
from torchx_pulumi.apps.variants import find_variant
from torchx_pulumi.logs.query import ContainerRun
from torchx_pulumi.model import labels
from torchx_pulumi_fleet.archive import ArchivedRun
from torchx_pulumi_fleet.archive.archive import job_folder

UID = "9b2c1f0a-0000-4000-8000-000000000001"
JOB = Run(namespace="default", job_name="train", variant=find_variant("volcano", None), uid=UID)
FOLDER = job_folder(JOB.app_id, UID)
CREATED = "2026-01-01T00:00:00Z"


def pod(
    name: str = "train-trainer-0-0",
    *,
    uid: str = "9b2c1f0a-0000-4000-8000-00000000000a",
    role: str = "trainer",
    replica: int = 0,
    created: str = CREATED,
    statuses: list[dict[str, Any]] | None = None,
    inits: list[dict[str, Any]] | None = None,
    containers: tuple[str, ...] = ("main",),
    deleted: bool = False,
    owner: str = UID,
) -> dict[str, Any]:
    """Return a pod of the job object with the uid `owner`; without statuses its containers have ended well."""
    meta: dict[str, Any] = {
        "name": name,
        "namespace": "default",
        "uid": uid,
        "creationTimestamp": created,
        "labels": {
            labels.ROLE_NAME: role,
            labels.REPLICA_ID: str(replica),
            labels.ORGANIZATION: labels.ORGANIZATION_VALUE,
            "volcano.sh/job-name": JOB.job_name,
        },
        "ownerReferences": [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train", "uid": owner}],
    }
    if deleted:
        meta["deletionTimestamp"] = "2026-01-01T00:10:00Z"
    listed = [status(container) for container in containers] if statuses is None else statuses
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {
            "containers": [{"name": container} for container in containers],
            "initContainers": [{"name": one["name"]} for one in inits or []],
        },
        "status": {"containerStatuses": listed, "initContainerStatuses": inits or []},
    }


def ended(container_id: str = "c1", *, code: int = 0, started: str = CREATED, finished: str | None = None) -> Any:
    """Return the state of a container that ended."""
    finished = finished or "2026-01-01T00:05:00Z"
    return {
        "terminated": {
            "containerID": container_id,
            "exitCode": code,
            "startedAt": started,
            "finishedAt": finished,
        }
    }


def status(
    name: str = "main",
    state: dict[str, Any] | None = None,
    *,
    container_id: str = "c1",
    restarts: int = 0,
    last: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the status of a container; without a state it has ended well."""
    found = {"name": name, "restartCount": restarts, "containerID": container_id}
    return {**found, "state": state or ended(container_id), "lastState": last or {}}


def running(started: str = CREATED) -> dict[str, Any]:
    """Return the state of a container that runs."""
    return {"running": {"startedAt": started}}


def archived_run(
    run: ContainerRun,
    at: datetime,
    *,
    app_id: str = JOB.app_id,
    uid: str = UID,
    complete: bool = True,
    size: int = 3,
) -> ArchivedRun:
    """Return the record of a copy that was made at a time."""
    of_run = {item.name: getattr(run, item.name) for item in fields(ContainerRun)}
    of_job = {"app_id": app_id, "scheduler": "volcano", "uid": uid}
    return ArchivedRun(**of_job, **of_run, lines=1, bytes=size, complete=complete, copied_at=at)
