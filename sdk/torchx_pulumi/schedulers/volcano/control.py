"""Abort and resume a Volcano Job: by a Command, or by its status if Commands may not be created."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from torchx_pulumi.kube import Cluster
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.options import Manifest, Observed
from torchx_pulumi.schedulers.volcano.objects import (
    VOLCANO_COMMAND,
    VOLCANO_JOB,
)

MAX_CONFLICTS = 8
"""Attempts to change the status of a job that its controller changes at the same time."""

PHASES: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    "AbortJob": ("Aborting", frozenset({"", "Pending", "Running", "Restarting"})),
    "ResumeJob": ("Restarting", frozenset({"Aborting", "Aborted"})),
}
"""Action to the phase that the controller gives a job for it, and the phases in which it has that effect."""


def command(action: str, namespace: str, name: str, uid: str) -> Manifest:
    """Return the Command that requests an action, `AbortJob` or `ResumeJob`, on one job; it is deleted with the job."""
    target = {
        "apiVersion": VOLCANO_JOB.api_version,
        "kind": VOLCANO_JOB.kind,
        "name": name,
        "uid": uid,
        "controller": True,
    }
    return {
        "apiVersion": VOLCANO_COMMAND.api_version,
        "kind": VOLCANO_COMMAND.kind,
        # A generated name: a Command that the controller has not read yet may exist.
        "metadata": {"generateName": f"{name}-{action.lower()}-", "namespace": namespace, "ownerReferences": [target]},
        "target": target,
        "action": action,
    }


def status_after(action: str, job: Manifest, uid: str) -> dict[str, Any] | None:
    """Return the status that Volcano's controller writes for an action, or None if the action changes nothing.

    The action is `AbortJob` or `ResumeJob`. It changes nothing of a job with another uid.
    """
    phase, before = PHASES[action]
    status = dict(job.get("status") or {})
    state = dict(status.get("state") or {})
    if job["metadata"].get("uid") != uid or (state.get("phase") or "") not in before:
        return None
    retries = {"retryCount": (status.get("retryCount") or 0) + 1} if action == "ResumeJob" else {}
    return {**status, **retries, "state": {**state, "phase": phase}}


class VolcanoControl:
    """Suspends and resumes Volcano Jobs; see `protocol.Control`."""

    def suspend(self, cluster: Cluster, namespace: str, name: str, uid: str) -> None:
        """Abort a job: its pods end, the object stays."""
        _request(cluster, "AbortJob", namespace, name, uid)

    def resume(self, cluster: Cluster, namespace: str, name: str, uid: str) -> None:
        """Run an aborted job again."""
        _request(cluster, "ResumeJob", namespace, name, uid)

    def is_suspended(self, phase: str | None) -> bool:
        """Return whether a job of this phase is aborted or being aborted."""
        return phase in ("Aborted", "Aborting")

    def restarts_left(self, job_object: Observed) -> int:
        """Return how often a job may be started again; Volcano counts a resume as it counts a retry."""
        from torchx_pulumi.schedulers.volcano.tasks import restarts_left

        return restarts_left(job_object)


CONTROL: Final = VolcanoControl()


def _request(cluster: Cluster, action: str, namespace: str, name: str, uid: str) -> None:
    """Create a Command, or change the job's status if that is not allowed: the controller acts on both."""
    try:
        cluster.create(VOLCANO_COMMAND, namespace, command(action, namespace, name, uid))
    except ClusterError as error:
        if error.reason not in ("Forbidden", "NotServed"):
            raise
        _change_phase(cluster, action, namespace, name, uid, error)


def _change_phase(cluster: Cluster, action: str, namespace: str, name: str, uid: str, refused: ClusterError) -> None:
    """Write the phase that a Command would give a job, unless it is another job or has ended.

    Raises:
        ClusterError: Neither `patch` nor `update` of the status is allowed, the job changes all the time, or there is
            no answer.
    """
    whole = False
    for _ in range(MAX_CONFLICTS):
        job = cluster.get(VOLCANO_JOB, namespace, name)
        status = None if job is None else status_after(action, job, uid)
        if job is None or status is None:
            return
        try:
            cluster.write_status(VOLCANO_JOB, namespace, {**job, "status": status}, whole=whole)
        except ClusterError as error:
            if error.reason == "Forbidden" and whole:
                raise ClusterError(
                    f"{refused}. {action} needs one of these permissions: create commands.bus.volcano.sh, patch "
                    "jobs/status.batch.volcano.sh, or update jobs/status.batch.volcano.sh. `torchx-pulumi delete` "
                    "needs none of them",
                    reason="Forbidden",
                ) from error
            if error.reason == "Forbidden":
                whole = True
            elif error.reason != "Conflict":
                raise
            continue
        return
    raise ClusterError(f"job {namespace}/{name} changed during each attempt of {action}", retryable=True)
