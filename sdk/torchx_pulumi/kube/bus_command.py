"""Volcano's own way to tell its controller something: an object that it reads and deletes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from torchx_pulumi.kube.kinds import VOLCANO_COMMAND, VOLCANO_JOB
from torchx_pulumi.model.options import Manifest

PHASES: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    "AbortJob": ("Aborting", frozenset({"", "Pending", "Running", "Restarting"})),
    "ResumeJob": ("Restarting", frozenset({"Aborting", "Aborted"})),
}
"""Action to the phase that the controller gives a job for it, and the phases in which it has that effect."""


def command(action: str, namespace: str, name: str, uid: str) -> Manifest:
    """Make the command that asks for an action on one job.

    Args:
        action: Volcano's word: `AbortJob` or `ResumeJob`.
        namespace: Where the job is.
        name: Its name.
        uid: Its uid; the command goes with it.
    """
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
        # Each transport has a name of its own: one that is not read yet is in nobody's way.
        "metadata": {"generateName": f"{name}-{action.lower()}-", "namespace": namespace, "ownerReferences": [target]},
        "target": target,
        "action": action,
    }


def status_after(action: str, job: Manifest, uid: str) -> dict[str, Any] | None:
    """Return the status of a job after an action, as Volcano's controller writes it. None: the action changes nothing.

    Args:
        action: Volcano's word: `AbortJob` or `ResumeJob`.
        job: The job as it is.
        uid: The uid that it must have.
    """
    phase, before = PHASES[action]
    status = dict(job.get("status") or {})
    state = dict(status.get("state") or {})
    if job["metadata"].get("uid") != uid or (state.get("phase") or "") not in before:
        return None
    retries = {"retryCount": (status.get("retryCount") or 0) + 1} if action == "ResumeJob" else {}
    return {**status, **retries, "state": {**state, "phase": phase}}


def not_allowed(action: str) -> str:
    """Return what to do where neither a Command nor the status of the job may be written."""
    return (
        f"{action} needs one of these permissions: create commands.bus.volcano.sh, patch jobs/status.batch.volcano.sh, "
        "or update jobs/status.batch.volcano.sh. `torchx-pulumi delete` needs none of them"
    )
