"""Read the last lines of the container that failed first, where it has no termination message.

The log of a pod that uses secrets is not read: what its program prints of them would be stored in the stack's state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, Final

from torchx_pulumi.kube import Cluster
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import at, items_at, text_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.status import STOP_CODES
from torchx_pulumi.schedulers.pods.containers import CRASH_LOOP, START_ERRORS, read_containers

MAX_LINES: Final = 12
MAX_BYTES: Final = 16_000
SILENCE_S: Final = 3.0
"""Longest wait for the node that has the log, in seconds."""

LATE: Final = datetime.max.replace(tzinfo=timezone.utc)


def read_last_lines(cluster: Cluster, namespace: str, pods: Sequence[Manifest]) -> Mapping[str, str]:
    """Return the last lines of one log by the name of its pod. Empty: no pod failed, or the log cannot be read."""
    failed = sorted(_failed(pods), key=lambda found: found[0])
    if not failed:
        return {}
    _, pod, container, previous, has_message = failed[0]
    name = text_at(pod, "metadata", "name")
    if has_message or name is None or _has_secrets(pod):
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
        # The log only explains a failure that is known from the exit code.
        return {}
    return {name: text} if text.strip() else {}


def _failed(pods: Sequence[Manifest]) -> Iterator[tuple[tuple[bool, datetime, str], Manifest, str | None, bool, bool]]:
    """Yield containers that failed: sort key, pod, container, whether it was restarted, whether it left a message."""
    for pod in pods:
        for container in read_containers(pod):
            looping = container.waiting == CRASH_LOOP
            end = container.previous if looping else container.ended
            if end is None or not end.exit_code or end.reason in START_ERRORS:
                continue
            order = (end.exit_code in STOP_CODES, end.finished_at or LATE, text_at(pod, "metadata", "name") or "")
            yield order, pod, container.name, looping, end.message is not None


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
