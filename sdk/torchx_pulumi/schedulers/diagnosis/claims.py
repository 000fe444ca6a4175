"""Why the PersistentVolumeClaims of pods have no volume, by the events of the claims."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from torchx_pulumi.model.object_fields import items_at, latest, text_at, time_at
from torchx_pulumi.model.options import Observed
from torchx_pulumi.schedulers.diagnosis.evidence import Evidence
from torchx_pulumi.schedulers.diagnosis.obstacles import Obstacle

CLAIM: Final = "PersistentVolumeClaim"

FRESH: Final = timedelta(minutes=10)
"""Age of an event about a claim that waits: kube-controller-manager repeats these at least every 5 minutes."""

EVENTS: Final[Sequence[tuple[str, str, Obstacle]]] = (
    (
        "ProvisioningFailed",
        r'storageclass\S* "([^"]+)" not found',
        Obstacle(
            words="StorageClass {1!r} of PersistentVolumeClaim {0!r} does not exist",
            advice="create the StorageClass, or create the claim again with one that exists",
            lasts=True,
        ),
    ),
    (
        "ProvisioningFailed",
        r"no volume plugin matched",
        Obstacle(
            words="no PersistentVolume fits PersistentVolumeClaim {0!r}, and its StorageClass has no provisioner",
            advice="create a PersistentVolume that fits, or create the claim again with another StorageClass",
            lasts=True,
        ),
    ),
    (
        "ProvisioningFailed",
        "",
        Obstacle(
            words="the provisioner of PersistentVolumeClaim {0!r} fails",
            advice="correct what the provisioner says: it tries again, and the job then starts",
        ),
    ),
    (
        "FailedBinding",
        r"no storage class is set",
        Obstacle(
            words="no PersistentVolume fits PersistentVolumeClaim {0!r}, and it has no StorageClass",
            advice="create a PersistentVolume that fits, or create the claim again with a StorageClass",
            lasts=True,
        ),
    ),
    (
        "FailedBinding|VolumeMismatch",
        "",
        Obstacle(
            words="PersistentVolumeClaim {0!r} cannot have the PersistentVolume that it asks for",
            advice="correct what its event says, or name another claim in the job's mounts",
            lasts=True,
        ),
    ),
    (
        "ExternalProvisioning",
        r"provisioner '([^']+)'",
        Obstacle(
            words="PersistentVolumeClaim {0!r} waits for its provisioner {1!r}",
            advice="wait until it has made the volume; if it lasts, check that the provisioner runs",
        ),
    ),
)
"""Reason of an event, pattern of its message -> why the claim has no volume; the first that matches counts.

`{0}` is the claim, `{1}` what the pattern's group matches. Source: kube-controller-manager's `pv_controller.go`.
"""


UNPLACED: Final = (
    "WaitForFirstConsumer|WaitForPodScheduled",
    "",
    Obstacle(
        words="PersistentVolumeClaim {0!r} gets its volume only on the node of its pod",
        advice="see whether a node has the provisioner of its StorageClass (`kubectl get csinodes`), or a "
        "PersistentVolume that fits",
    ),
)
"""The same for a claim that waits for a node, which it does for a moment in any case."""


def claims_of(pod: Observed) -> set[str]:
    """Return the names of the claims that a pod mounts, those of its ephemeral volumes included."""
    names = set()
    for volume in items_at(pod, "spec", "volumes"):
        name = text_at(volume, "persistentVolumeClaim", "claimName")
        if "ephemeral" in volume:
            name = f"{text_at(pod, 'metadata', 'name')}-{text_at(volume, 'name')}"
        if name:
            names.add(name)
    return names


def find_unbound(
    pods: Sequence[Observed], evidence: Evidence, *, unplaced: bool = False
) -> list[tuple[Obstacle, Observed]]:
    """Return why claims of these pods have no volume, each with the newest event of the claim that says so.

    With `unplaced`, claims that wait for the node of their pod are among them.
    """
    names = {name for pod in pods for name in claims_of(pod)}
    newest: dict[str, Observed] = {}
    for said in sorted(evidence.events, key=_time_of):
        about = text_at(said, "involvedObject", "name")
        if about in names and text_at(said, "involvedObject", "kind") == CLAIM and not _is_stale(said, evidence):
            newest[about] = said
    found: list[tuple[Obstacle, Observed]] = []
    for name, event in sorted(newest.items()):
        reason, message = text_at(event, "reason") or "", text_at(event, "message") or ""
        for reasons, pattern, obstacle in (*EVENTS, *([UNPLACED] if unplaced else [])):
            match = re.search(pattern, message)
            if re.fullmatch(reasons, reason) and match:
                found.append((replace(obstacle, words=obstacle.words.format(name, *match.groups())), event))
                break
    return found


def _time_of(event: Observed) -> str:
    time = latest(time_at(event, key) for key in ("lastTimestamp", "eventTime"))
    return "" if time is None else time.isoformat()


def _is_stale(event: Observed, evidence: Evidence) -> bool:
    time = latest(time_at(event, key) for key in ("lastTimestamp", "eventTime"))
    return evidence.at is not None and time is not None and evidence.at - time > FRESH
