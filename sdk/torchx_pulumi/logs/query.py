"""A query of a pod's logs, the pod's containers with their runs, and the errors of absent logs."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from torchx_pulumi.kube import PodReader
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.model.errors import ClusterError, Problem, invalid_job
from torchx_pulumi.model.object_fields import at, items_at, mapping_at, text_at, time_at
from torchx_pulumi.model.text import listed
from torchx_pulumi.model.timestamps import EPOCH
from torchx_pulumi.schedulers.pods.containers import Container, Termination, read_containers
from torchx_pulumi.schedulers.replicas import replica_of

logger = logging.getLogger("torchx_pulumi.logs")

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
SHOWN = 10
"""Pods in a message."""

Attempt = tuple[datetime, str, int]
"""Creation of the pod, uid of the pod, and restarts of its main container."""

_said: set[str] = set()
"""Fields about which this process has shown a warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """The lines of a pod's log to read."""

    namespace: str
    pod: str
    containers: tuple[str, ...] | str | None = None
    """Names of containers, `main` (all but the init containers) or `all`. None: the container that the annotation
    `kubectl.kubernetes.io/default-container` names, else the first one."""
    regex: str | None = None
    """Regular expression that a line must contain. `^` matches before the time and before the text. None: all lines."""
    since: datetime | None = None
    """Time of the first line to return. Without a zone: local time. None: the first line that is kept."""
    until: datetime | None = None
    """Time of the last line to return, at which following ends. Without a zone: local time. None: no limit."""
    follow: bool = False
    """Continue until the app has ended, across restarts, retries and interrupted connections."""
    previous: bool = False
    """Read the run before the container's last restart. It is never followed."""
    timestamps: bool = True
    """Each line begins with its time, as the API server sends it."""
    tail_lines: int | None = None
    """Number of lines at the end of the log to begin with. None: all lines."""
    app_labels: Mapping[str, str] | None = None
    """Labels of the app's pods. An error names the pods that have them. None: it names pods of the namespace."""


def checked(query: LogQuery) -> LogQuery:
    """Validate a query, and return it with a zone in each of its times; a previous run is not followed.

    Raises:
        InvalidJobError: The regular expression is not valid, `since` is after `until`, or a count is negative.
    """
    problems: list[Problem] = []
    try:
        re.compile(query.regex or "")
    except re.error as error:
        text = f"found {query.regex!r}, which is not a regular expression: {error}; correct it"
        problems.append(Problem("regex", text))
    since, until = _with_zone("since", query.since), _with_zone("until", query.until)
    if since and until and since > until:
        text = f"found {until.isoformat()}, which is before since, {since.isoformat()}; swap them"
        problems.append(Problem("until", text))
    if query.tail_lines is not None and query.tail_lines < 0:
        problems.append(Problem("tail_lines", f"found {query.tail_lines}, allowed is 0 or more; leave it out for all"))
    if query.containers == () or (isinstance(query.containers, str) and query.containers not in ("all", "main")):
        text = f"found {query.containers!r}, allowed are a tuple of names, 'main', 'all' and None"
        problems.append(Problem("containers", text))
    if problems:
        raise invalid_job(f"{query.namespace}:{query.pod}", problems)
    return replace(query, since=since, until=until, follow=query.follow and not query.previous)


def _with_zone(name: str, value: datetime | None) -> datetime | None:
    """Return a time with its zone. A warning says once in a process that a time without one is local."""
    if value is None or value.tzinfo is not None:
        return value
    aware = value.astimezone()
    if name not in _said:
        _said.add(name)
        text = "%s=%s has no time zone and is taken as local time, %s"
        logger.warning(text, name, value.isoformat(), aware.isoformat())
    return aware


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRun:
    """One run of a container of a replica's pod."""

    role: str
    """Role name as the pod's label has it."""
    replica: int
    pod: str
    pod_uid: str
    pod_created_at: datetime | None = None
    """None: the pod has no creation time."""
    container: str
    init: bool = False
    """It is one of the pod's init containers."""
    position: int = 0
    """Position in the pod's list of init containers or of containers, from 0."""
    default: bool = True
    """It is the container that is read by default."""
    restarts: int
    """Restarts of the container before this run."""
    container_id: str | None = None
    """None: the status has no id."""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    """None: it had not ended when it was observed last, or that is not reported."""
    exit_code: int | None = None
    """None: it has not ended, or that is not reported."""

    @property
    def attempt(self) -> Attempt:
        """Return the attempt of the replica that a run of its main container is; attempts are sorted by it."""
        return (self.pod_created_at or EPOCH, self.pod_uid, self.restarts)

    @property
    def identity(self) -> str:
        """Return the identity of a container's run: without ids, the number of restarts."""
        return self.container_id or f"run {self.restarts}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRun(ContainerRun):
    """One run of a container, as its pod's status reports it."""

    previous: bool = False
    """It is the run before the last restart."""
    running: bool = False
    """It has not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedContainer:
    """A container of a pod, and its runs that may have a log."""

    name: str
    init: bool
    """It is one of the pod's init containers."""
    default: bool
    """It is the container that is read by default."""
    current: str | None
    """Identity of the run that the log belongs to; between two runs that is the last one. None: it never ran."""
    previous: str | None = None
    """Identity of the previous run. None: the status has none."""
    restarts: int = 0
    """Number of restarts."""
    may_restart: bool = False
    """It is started again in its pod."""
    running: bool = False
    waits_for: str = ""
    """Why the container does not run. Empty: it runs, or the status has no reason."""
    runs: Sequence[PodRun] = ()
    """The runs in the pod's status, the previous one first."""


def containers_of(pod: Mapping[str, Any]) -> list[LoggedContainer]:
    """Return the containers of a pod, init containers first."""
    specs = [
        (str(item.get("name")), init, position)
        for part, init in (("initContainers", True), ("containers", False))
        for position, item in enumerate(items_at(pod, "spec", part))
    ]
    default = next((name for name, init, _ in specs if not init), None)
    annotated = at(pod, "metadata", "annotations", DEFAULT_CONTAINER)
    if annotated in [name for name, _, _ in specs]:
        default = annotated
    parts = ("initContainerStatuses", "containerStatuses")
    statuses = {item.get("name"): item for part in parts for item in items_at(pod, "status", part)}
    observed = {item.name: item for item in read_containers(pod)}
    phase, (role, replica) = text_at(pod, "status", "phase") or "", replica_of(pod)
    found = []
    for name, init, position in specs:
        status, container = statuses.get(name, {}), observed.get(name)
        run = PodRun(
            role=role,
            replica=replica,
            pod=text_at(pod, "metadata", "name") or "",
            pod_uid=text_at(pod, "metadata", "uid") or "",
            pod_created_at=time_at(pod, "metadata", "creationTimestamp"),
            container=name,
            init=init,
            position=position,
            default=name == default,
            restarts=container.restarts if container is not None else 0,
        )
        runs = [] if container is None else [*_runs_in(status, container, run)]
        running, waiting = bool(runs) and runs[-1].running, mapping_at(status, "state", "waiting")
        waits_for = ": ".join(str(waiting[part]) for part in ("reason", "message") if waiting.get(part))
        item = LoggedContainer(
            name=name,
            init=init,
            default=run.default,
            current=runs[-1].identity if runs else None,
            previous=next((run.identity for run in runs if run.previous), None),
            restarts=run.restarts,
            may_restart=text_at(pod, "spec", "restartPolicy") in ("Always", "OnFailure"),
            running=running,
            waits_for=waits_for or ("" if running else phase),
            runs=runs,
        )
        found.append(item)
    return found


def _runs_in(status: Mapping[str, Any], container: Container, current: PodRun) -> Iterator[PodRun]:
    """Yield the runs in the status of a container, the previous run first; `current` has the fields of all."""

    def run(state: Mapping[str, Any], end: Termination | None, **of_run: Any) -> PodRun:
        return replace(
            current,
            container_id=text_at(state, "containerID"),
            started_at=time_at(state, "startedAt"),
            finished_at=None if end is None else end.finished_at,
            exit_code=None if end is None else end.exit_code,
            running=end is None,
            **of_run,
        )

    last, ended = mapping_at(status, "lastState", "terminated"), mapping_at(status, "state", "terminated")
    if text_at(last, "containerID"):
        yield run(last, container.previous, restarts=max(container.restarts - 1, 0), previous=True)
    if ended and (text_at(ended, "containerID") or not last):
        yield run(ended, container.ended)
    elif at(status, "state", "running") is not None:
        running = mapping_at(status, "state", "running")
        yield run({**running, "containerID": status.get("containerID")}, None)


def runs_of_pod(pod: Mapping[str, Any]) -> list[PodRun]:
    """Return the runs of a pod's containers whose logs may exist, init containers first, earlier runs first."""
    return [run for container in containers_of(pod) for run in container.runs if run.pod_uid]


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
        if there:
            found += f"; pods there: {listed(there, SHOWN)}"
        elif query.app_labels:
            # The same for all replicas, so that a command that reads all of them says it once.
            found = f"the app has no pods in namespace {query.namespace!r}"
    return ClusterError(
        f"{found}. Logs go with their pod, when a "
        "retry replaces it and when its job is deleted or expires: follow them while it runs, or set `log_archive` and "
        "run a controller, which keeps them there; `previous` reads an earlier run of a container only while its pod "
        "is there",
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
