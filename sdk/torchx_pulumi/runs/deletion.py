"""What the deletion of a run waits for: pods and their grace period, or finalizers of its job object."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchx_pulumi.kube import PodReader
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import at, number_at, text_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.progress import ProgressCallback
from torchx_pulumi.model.text import listed
from torchx_pulumi.runs.waiting import Clock
from torchx_pulumi.schedulers.pods.observe import list_pods

FIRST_S = 0.8
"""Seconds after which a deletion says for the first time what it waits for: short ones say nothing."""

EVERY_S = 10.0
"""Seconds between two such lines."""

MOST_PODS = 5
"""Pods that a line names at most."""


@dataclass(eq=False)
class DeletionNotes:
    """Says what a deletion that begins now waits for, within two seconds and then every ten seconds."""

    cluster: PodReader
    namespace: str
    pod_selector: Mapping[str, str]
    """Labels of the pods that the deletion ends."""
    progress: ProgressCallback
    clock: Clock = time

    def __post_init__(self) -> None:
        """Note the begin."""
        self._begun = self.clock.monotonic()
        self._next = self._begun + FIRST_S

    def tell(self, kind: Kind, found: Manifest) -> None:
        """Say what the deletion of an object waits for, if a line is due; call it while the object exists."""
        now = self.clock.monotonic()
        if now < self._next:
            return
        self._next = now + EVERY_S
        try:
            pods = list_pods(self.cluster, self.namespace, self.pod_selector)
        except ClusterError:
            # The caller reads the cluster as well, and reports the problem.
            return
        name, so_far = text_at(found, "metadata", "name"), f"{now - self._begun:.0f} s so far"
        waits = deletion_waits(found, pods)
        self.progress(f"deleting {kind.kind} {self.namespace}/{name}, {so_far}: waiting for {waits}")


def deletion_waits(found: Manifest, pods: Sequence[Manifest] | None) -> str:
    """Name the reason for which the deletion of an object waits.

    Args:
        found: The object.
        pods: Pods of its run. None: they may not be listed.

    >>> deletion_waits({}, [{"metadata": {"name": "train-0", "deletionGracePeriodSeconds": 30}}])
    '1 pod to end (grace period 30 s): train-0'
    """
    if pods is None:
        return "its pods, which may not be listed"
    if pods:
        graces = [number_at(pod, "metadata", "deletionGracePeriodSeconds") for pod in pods]
        longest = max((grace for grace in graces if grace is not None), default=None)
        names = listed([text_at(pod, "metadata", "name") or "?" for pod in pods], MOST_PODS)
        grace = "" if longest is None else f" (grace period {longest} s)"
        return f"{len(pods)} pod{'s' if len(pods) > 1 else ''} to end{grace}: {names}"
    finalizers = at(found, "metadata", "finalizers")
    if isinstance(finalizers, list) and finalizers:
        return f"its finalizers to be removed: {', '.join(map(str, finalizers))}"
    return "the API server to remove it"
