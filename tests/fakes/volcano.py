"""What Volcano's controller does with an object that is written to a fake cluster: at once."""

from __future__ import annotations

from typing import Any

from torchx_pulumi.kube.kinds import POD, Kind
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.options import Manifest, Observed
from torchx_pulumi.schedulers.volcano.control import status_after
from torchx_pulumi.schedulers.volcano.objects import (
    VOLCANO_COMMAND,
    VOLCANO_JOB,
    VOLCANO_JOB_NAME,
    VOLCANO_POD_GROUP,
    VOLCANO_QUEUE,
)
from torchx_pulumi.schedulers.volcano.tasks import completes, restarts_left, tasks_of


def simulate(cluster: Any, kind: Kind, written: Manifest) -> None:
    """Act on a Command, a job or a pod's status as the controller does."""
    namespace, name = written["metadata"].get("namespace"), written["metadata"]["name"]
    if kind == VOLCANO_JOB:
        _proceed(cluster, written)
    elif kind == POD:
        owner = text_at(written, "metadata", "labels", VOLCANO_JOB_NAME)
        job = cluster.find(VOLCANO_JOB, namespace, owner) if owner else None
        if job is not None:
            _proceed(cluster, job)
    elif kind == VOLCANO_COMMAND:
        target, action = written["target"], str(written["action"])
        cluster.remove(kind, namespace, name)
        job = cluster.find(VOLCANO_JOB, namespace, str(target["name"]))
        status = None if job is None else status_after(action, job, target["uid"])
        # A job that is being started again goes on with that.
        if status is not None and (action, _phase(job)) != ("AbortJob", "Restarting"):
            job = {**job, "status": status}
            cluster.put(job)
            _proceed(cluster, job)


def _proceed(cluster: Any, job: Manifest) -> None:
    """Give a job in a fake cluster the phase that follows; without its queue, only that of an abort."""
    namespace, name = job["metadata"].get("namespace"), job["metadata"]["name"]
    pods = {
        pod["metadata"]["name"]: text_at(pod, "status", "phase")
        for pod in cluster.find_all(POD, namespace, {VOLCANO_JOB_NAME: name})
    }
    phase, tasks = _phase(job), [*tasks_of(job)]
    has_queue = cluster.find(VOLCANO_QUEUE, None, text_at(job, "spec", "queue") or "default") is not None
    over = [pod for pod, word in pods.items() if word in ("Succeeded", "Failed")]
    if phase == "Aborting":
        phase = "Aborted"
        for pod in pods.keys() - over:
            cluster.remove(POD, namespace, pod)
    elif phase == "Restarting" and has_queue:
        phase = "Failed" if restarts_left(job) < 0 else "Pending"
    elif phase in ("Pending", "Running") and has_queue and over and len(over) == sum(task.count for task in tasks):
        good = [pod for pod in over if pods[pod] == "Succeeded"]
        phase = "Completed" if completes(job, good) else "Failed"
    if phase != _phase(job):
        cluster.put({**job, "status": {**job["status"], "state": {"phase": phase}}})
    if phase in ("Aborted", "Completed", "Failed"):
        cluster.remove(VOLCANO_POD_GROUP, namespace, f"{name}-{job['metadata'].get('uid')}")


def _phase(job: Observed | None) -> str | None:
    return text_at(job, "status", "state", "phase")
