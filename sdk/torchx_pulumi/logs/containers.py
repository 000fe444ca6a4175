"""The containers of a pod that a query selects, the run that a log belongs to, and errors about both."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchx_pulumi.kube import PodReader
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.logs.query import LogQuery
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.text import listed

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
SHOWN = 10
"""Pods in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRun:
    """The runs of a container in the status of its pod."""

    pod_uid: str
    current: str | None
    """Id of the run that the log belongs to. None: the container never ran."""
    previous: str | None
    """Id of the previous run. None: there is none in the status."""
    restarts: int
    """Number of restarts."""
    running: bool
    waits_for: str
    """Why the container does not run. Empty: it runs, or the status has no reason."""


def chosen_containers(pod: Mapping[str, Any], query: LogQuery) -> tuple[str, ...]:
    """Return the names of the containers that a query selects.

    Raises:
        ClusterError: The pod has no container of a name.
    """
    spec = pod.get("spec") or {}
    main = [str(item.get("name")) for item in spec.get("containers") or []]
    every = [str(item.get("name")) for item in spec.get("initContainers") or []] + main
    if query.containers == "all":
        return tuple(every)
    if query.containers == "main":
        return tuple(main)
    if query.containers is None:
        default = ((pod.get("metadata") or {}).get("annotations") or {}).get(DEFAULT_CONTAINER)
        return (default,) if default in every else tuple(main[:1])
    unknown = [name for name in query.containers if name not in every]
    if unknown:
        raise ClusterError(
            f"pod {query.pod!r} in namespace {query.namespace!r} has no container "
            f"{', '.join(map(repr, unknown))}; it has {', '.join(map(repr, every))}: name one of these",
            reason="NoContainer",
        )
    return tuple(query.containers)


def run_of(pod: Mapping[str, Any], container: str) -> ContainerRun:
    """Return the runs of a container."""
    status = pod.get("status") or {}
    listed = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    found: Mapping[str, Any] = next((item for item in listed if item.get("name") == container), {})
    state, last = found.get("state") or {}, (found.get("lastState") or {}).get("terminated") or {}
    running, terminated = state.get("running"), state.get("terminated") or {}
    waiting = state.get("waiting") or {}
    current = found.get("containerID") if running is not None else terminated.get("containerID")
    if not current and (running is not None or terminated) and not last:
        # Without container ids, the number of restarts identifies the run.
        current = f"run {found.get('restartCount') or 0}"
    waits_for = ": ".join(str(waiting[part]) for part in ("reason", "message") if waiting.get(part))
    return ContainerRun(
        pod_uid=str((pod.get("metadata") or {}).get("uid") or ""),
        # Between two runs, the log belongs to the last one.
        current=current or last.get("containerID") or None,
        previous=last.get("containerID") or None,
        restarts=int(found.get("restartCount") or 0),
        running=running is not None,
        waits_for=waits_for or ("" if running is not None else str(status.get("phase") or "")),
    )


def no_pod(cluster: PodReader, query: LogQuery) -> ClusterError:
    """Return the error of a pod that does not exist."""
    found = f"there is no pod {query.pod!r} in namespace {query.namespace!r}"
    # The list only completes the message.
    with contextlib.suppress(ClusterError):
        there = [str(pod["metadata"]["name"]) for pod in cluster.list(POD, query.namespace, query.app_labels)]
        stem = query.pod.split("-")[0]
        near = there if query.app_labels else [name for name in there if name.startswith(stem)]
        if near:
            found += f"; pods there: {listed(near, SHOWN)}"
        elif query.app_labels:
            # The same for all replicas, so that a command that reads all of them says it once.
            found = f"the app has no pods in namespace {query.namespace!r}"
    return ClusterError(
        f"{found}. Logs go with their pod, when a "
        "retry replaces it and when its job is deleted or expires: follow them while it runs, or set `log_archive`, "
        "which keeps them; `previous` reads an earlier run of a container only while its pod is there",
        reason="NotFound",
    )


def not_started(query: LogQuery, container: str, run: ContainerRun) -> ClusterError:
    """Return the error of a container that has not started."""
    why = f" ({run.waits_for})" if run.waits_for else ""
    return ClusterError(
        f"container {container!r} of pod {query.pod!r} in namespace {query.namespace!r} has not started{why}, so there "
        "is no log yet; follow it to wait for its start",
        retryable=True,
        reason="NotStarted",
    )


def no_previous(query: LogQuery, container: str, run: ContainerRun) -> ClusterError:
    """Return the error of a previous run that does not exist, or whose log was removed."""
    runs = (
        f"was restarted {run.restarts} times, and the node keeps no log of an earlier run any more"
        if run.restarts
        else "has had one run only; a retry of the whole job makes new pods, and the logs of the old ones go with them"
    )
    return ClusterError(
        f"container {container!r} of pod {query.pod!r} in namespace {query.namespace!r} has no previous log: it "
        f"{runs}; leave `previous` out to read the last run",
        reason="NoPrevious",
    )
