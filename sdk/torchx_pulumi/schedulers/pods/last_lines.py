"""The last lines of the container that failed first, where nobody kept them with its pod.

Not read of a pod that is given secrets: what its program printed of them would end in the stack's state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, Final

from torchx_pulumi.kube import Cluster
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import at, items_at, mapping_at, text_at, time_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.status import STOP_CODES
from torchx_pulumi.schedulers.pods.status import exit_code

MAX_LINES: Final = 12
MAX_BYTES: Final = 16_000
SILENCE_S: Final = 3.0
"""Longest wait for a node that has the log."""

LATE: Final = datetime.max.replace(tzinfo=timezone.utc)


def read_last_lines(cluster: Cluster, namespace: str, pods: Sequence[Manifest]) -> Mapping[str, str]:
    """Read the end of one log: pod to its lines. Empty: nothing failed, or it cannot be read."""
    failed = sorted(_failed(pods), key=lambda found: found[0])
    if not failed:
        return {}
    _, pod, container, previous, told = failed[0]
    name = text_at(pod, "metadata", "name")
    if told or name is None or _has_secrets(pod):
        return {}
    try:
        log = cluster.logs(
            namespace,
            name,
            container,
            previous=previous,
            tail_lines=MAX_LINES,
            limit_bytes=MAX_BYTES,
            silence_s=SILENCE_S,
        )
        try:
            text = "\n".join(log)
        finally:
            log.close()
    except ClusterError:
        # It only explains: the exit code is known.
        return {}
    return {name: text} if text.strip() else {}


def _failed(pods: Sequence[Manifest]) -> Iterator[tuple[tuple[bool, datetime, str], Manifest, str | None, bool, bool]]:
    """Yield containers that failed: what orders them, pod, container, whether it was started anew, whether it spoke."""
    for pod in pods:
        for key in ("initContainerStatuses", "containerStatuses"):
            for status in items_at(pod, "status", key):
                looping = text_at(status, "state", "waiting", "reason") == "CrashLoopBackOff"
                ended = mapping_at(status, *(("lastState",) if looping else ("state",)), "terminated")
                code = exit_code(status, before=looping)
                if not code or text_at(ended, "reason") in ("StartError", "ContainerCannotRun"):
                    continue
                ended_at, name = time_at(ended, "finishedAt") or LATE, text_at(pod, "metadata", "name") or ""
                order = (code in STOP_CODES, ended_at, name)
                yield order, pod, text_at(status, "name"), looping, text_at(ended, "message") is not None


def _has_secrets(pod: Manifest) -> bool:
    containers: list[Mapping[str, Any]] = [
        *items_at(pod, "spec", "containers"),
        *items_at(pod, "spec", "initContainers"),
    ]
    variables = (one for container in containers for one in items_at(container, "env"))
    sources = (one for container in containers for one in items_at(container, "envFrom"))
    volumes = items_at(pod, "spec", "volumes")
    return (
        any(at(one, "valueFrom", "secretKeyRef") is not None for one in variables)
        or any(at(one, "secretRef") is not None for one in sources)
        or any(at(one, "secret") is not None for one in volumes)
    )
