"""Volcano's own way to tell its controller something: an object that it reads and deletes."""

from __future__ import annotations

from torchx_pulumi.kinds import VOLCANO_COMMAND, VOLCANO_JOB
from torchx_pulumi.options import Manifest


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
        # Each asking has a name of its own: one that is not read yet is in nobody's way.
        "metadata": {"generateName": f"{name}-{action.lower()}-", "namespace": namespace, "ownerReferences": [target]},
        "target": target,
        "action": action,
    }
