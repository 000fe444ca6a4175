"""The containers of a pod whose logs a query selects, and errors about pods and containers without a log."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchx_pulumi.kube import PodReader
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.logs.query import LogQuery
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import at, items_at
from torchx_pulumi.model.text import listed

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
PARTS = ("initContainers", "containers")
SHOWN = 10
"""Pods in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedContainer:
    """A container of a pod, and its runs that may have a log."""

    name: str
    init: bool
    """It is one of the pod's init containers."""
    default: bool
    """It is the container that is read by default."""
    current: str | None
    """Id of the run that the log belongs to. None: the container never ran."""
    previous: str | None = None
    """Id of the previous run. None: there is none in the status."""
    restarts: int = 0
    """Number of restarts."""
    running: bool = False
    waits_for: str = ""
    """Why the container does not run. Empty: it runs, or the status has no reason."""


def containers_of(pod: Mapping[str, Any]) -> list[LoggedContainer]:
    """Return the containers of a pod, init containers first."""
    inits, main = ([str(item.get("name")) for item in items_at(pod, "spec", part)] for part in PARTS)
    named = at(pod, "metadata", "annotations", DEFAULT_CONTAINER)
    default = named if named in (*inits, *main) else next(iter(main), None)
    statuses = {item.get("name"): item for part in PARTS for item in items_at(pod, "status", f"{part[:-1]}Statuses")}
    phase = str(at(pod, "status", "phase") or "")
    return [
        _container(statuses.get(name) or {}, phase, name=name, init=init, default=name == default)
        for names, init in ((inits, True), (main, False))
        for name in names
    ]


def _container(status: Mapping[str, Any], phase: str, *, name: str, init: bool, default: bool) -> LoggedContainer:
    state, last = status.get("state") or {}, at(status, "lastState", "terminated") or {}
    running, terminated, waiting = state.get("running"), state.get("terminated") or {}, state.get("waiting") or {}
    current = status.get("containerID") if running is not None else terminated.get("containerID")
    if not current and (running is not None or terminated) and not last:
        # Without container ids, the number of restarts identifies the run.
        current = f"run {status.get('restartCount') or 0}"
    waits_for = ": ".join(str(waiting[part]) for part in ("reason", "message") if waiting.get(part))
    return LoggedContainer(
        name=name,
        init=init,
        default=default,
        # Between two runs, the log belongs to the last one.
        current=current or last.get("containerID") or None,
        previous=last.get("containerID") or None,
        restarts=int(status.get("restartCount") or 0),
        running=running is not None,
        waits_for=waits_for or ("" if running is not None else phase),
    )


def chosen_containers(containers: Sequence[LoggedContainer], query: LogQuery) -> list[LoggedContainer]:
    """Return the containers that a query selects.

    Raises:
        ClusterError: The pod has no container of a name.
    """
    if query.containers == "all":
        return [*containers]
    if query.containers == "main":
        return [item for item in containers if not item.init]
    if query.containers is None:
        return [item for item in containers if item.default]
    named = {item.name: item for item in containers}
    unknown = [name for name in query.containers if name not in named]
    if unknown:
        raise ClusterError(
            f"pod {query.pod!r} in namespace {query.namespace!r} has no container "
            f"{', '.join(map(repr, unknown))}; it has {', '.join(map(repr, named))}: name one of these",
            reason="NoContainer",
        )
    return [named[name] for name in query.containers]


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


def not_started(query: LogQuery, container: LoggedContainer) -> ClusterError:
    """Return the error of a container that has not started."""
    why = f" ({container.waits_for})" if container.waits_for else ""
    return ClusterError(
        f"container {container.name!r} of pod {query.pod!r} in namespace {query.namespace!r} has not started{why}, "
        "so there is no log yet; follow it to wait for its start",
        retryable=True,
        reason="NotStarted",
    )


def no_previous(query: LogQuery, container: LoggedContainer) -> ClusterError:
    """Return the error of a previous run that does not exist, or whose log was removed."""
    runs = (
        f"was restarted {container.restarts} times, and the node keeps no log of an earlier run any more"
        if container.restarts
        else "has had one run only; a retry of the whole job makes new pods, and the logs of the old ones go with them"
    )
    return ClusterError(
        f"container {container.name!r} of pod {query.pod!r} in namespace {query.namespace!r} has no previous log: it "
        f"{runs}; leave `previous` out to read the last run",
        reason="NoPrevious",
    )
