"""Runs of containers: those that a pod's status reports, and those that an archive has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from torchx_pulumi.log_archive.keys import RunKey, compact_time, escape, escape_container, escape_uid
from torchx_pulumi.logs.containers import containers_of
from torchx_pulumi.model.codec import check_version, from_json, to_json, without_none
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.object_fields import items_at, mapping_at, text_at, time_at
from torchx_pulumi.schedulers.pods.containers import Termination, read_containers
from torchx_pulumi.schedulers.replicas import replica_of

SMALLEST_ROTATED = 64 << 10
"""Bytes of a log below which its late beginning is not a sign of removed lines."""

LATE = timedelta(seconds=2)
"""Time between the start of a container and its first line that is such a sign; both are in whole seconds."""

RECORD_VERSION = 1
"""Version of the written form. A reader refuses a newer one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedJob:
    """The job whose logs are archived."""

    app_id: str
    """`namespace:job_name`."""
    scheduler: str
    """`volcano` or `mcad`."""
    uid: str
    """Uid of the job object."""

    @property
    def namespace(self) -> str:
        """Return the namespace of the job object."""
        return self.app_id.partition(":")[0]

    @property
    def job_name(self) -> str:
        """Return the name of the job object."""
        return self.app_id.partition(":")[2]

    @property
    def folder(self) -> str:
        """Return the job's folder in an archive."""
        return f"{escape(self.namespace)}/{escape(self.job_name)}/{escape_uid(self.uid)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRunRef:
    """One run of a container, as its pod's status reports it."""

    namespace: str
    pod: str
    pod_uid: str
    pod_created_at: datetime | None
    """None: the pod has no creation time."""
    role: str
    """Role name as the pod's label has it."""
    replica: int
    container: str
    init: bool
    """It is one of the pod's init containers."""
    position: int
    """Position in the pod's list of init containers or of containers, from 0."""
    default: bool
    """It is the container that is read by default."""
    restarts: int
    """Restarts of the container before this run."""
    container_id: str | None
    """None: the status has no id."""
    previous: bool
    """It is the run before the last restart."""
    running: bool
    """It has not ended."""
    started_at: datetime | None
    finished_at: datetime | None
    exit_code: int | None
    """None: it has not ended, or that is not reported."""

    def key(self, job: ArchivedJob) -> RunKey:
        """Return the path of the run's complete copy in an archive."""
        return RunKey(
            job=job.folder,
            role=escape(self.role),
            replica=escape(str(self.replica)),
            created=compact_time(self.pod_created_at),
            pod_uid=escape_uid(self.pod_uid),
            restarts=self.restarts,
            container=escape_container(self.container),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedRun:
    """One archived run of a container: the content of the `.json` next to its log."""

    app_id: str
    scheduler: str
    uid: str
    """Uid of the job object."""
    role: str
    replica: int
    pod: str
    pod_uid: str
    pod_created_at: datetime | None = None
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
    started_at: datetime | None = None
    finished_at: datetime | None = None
    """None: it had not ended when it was copied last."""
    exit_code: int | None = None
    lines: int
    """Lines of the log."""
    bytes: int
    """Bytes of the log, with the times of its lines."""
    left_out_bytes: int = 0
    """Bytes of the log that the archive does not have. The log has a line in their place."""
    complete: bool
    """The log was copied to its end. False: it was copied while the container ran."""
    copied_at: datetime
    first_line_at: datetime | None = None
    """Time of the first line. None: there is no line."""

    @property
    def may_lack_beginning(self) -> bool:
        """Return whether the node may have removed the first lines before the log was copied.

        A node keeps several files of a log, by default of 10 MiB, and gives the newest one only. A container that wrote
        nothing for a while after its start cannot be told from that.
        """
        if self.started_at is None or self.first_line_at is None or self.bytes < SMALLEST_ROTATED:
            return False
        return self.first_line_at - self.started_at >= LATE


def runs_of_pod(pod: Mapping[str, Any]) -> list[ContainerRunRef]:
    """Return the runs of a pod's containers whose logs may exist, init containers first, earlier runs first."""
    found: list[ContainerRunRef] = []
    name, uid = text_at(pod, "metadata", "name"), text_at(pod, "metadata", "uid")
    if name is None or uid is None:
        return found
    role, replica = replica_of(pod)
    logged = containers_of(pod)
    statuses = {
        text_at(item, "name"): item
        for part in ("initContainerStatuses", "containerStatuses")
        for item in items_at(pod, "status", part)
    }
    for container in read_containers(pod):
        if container.name is None:
            continue
        names = [item.name for item in logged if item.init == container.init]
        status = statuses[container.name]
        last, ended = mapping_at(status, "lastState", "terminated"), mapping_at(status, "state", "terminated")
        runs: list[tuple[Mapping[str, Any], int, Termination | None, bool]] = []
        if last and text_at(last, "containerID"):
            runs.append((last, max(container.restarts - 1, 0), container.previous, True))
        if ended and (text_at(ended, "containerID") or not last):
            runs.append((ended, container.restarts, container.ended, False))
        elif mapping_at(status, "state").get("running") is not None:
            running = {**mapping_at(status, "state", "running"), "containerID": status.get("containerID")}
            runs.append((running, container.restarts, None, False))
        found += [
            ContainerRunRef(
                namespace=text_at(pod, "metadata", "namespace") or "default",
                pod=name,
                pod_uid=uid,
                pod_created_at=time_at(pod, "metadata", "creationTimestamp"),
                role=role,
                replica=replica,
                container=container.name,
                init=container.init,
                position=names.index(container.name) if container.name in names else len(names),
                default=any(item.default and item.name == container.name for item in logged),
                restarts=restarts,
                container_id=text_at(state, "containerID"),
                previous=previous,
                running=end is None,
                started_at=time_at(state, "startedAt"),
                finished_at=end.finished_at if end else None,
                exit_code=end.exit_code if end else None,
            )
            for state, restarts, end, previous in runs
        ]
    return found


def archived_run(job: ArchivedJob, ref: ContainerRunRef, *, size: int, **copied: Any) -> ArchivedRun:
    """Return the record of a copied run.

    Args:
        job: Its job.
        ref: The run.
        size: Bytes of the log.
        copied: The fields of `ArchivedRun` that a pod's status does not have.
    """
    taken = {one.name: getattr(ref, one.name) for one in fields(ArchivedRun) if hasattr(ref, one.name)}
    return ArchivedRun(app_id=job.app_id, scheduler=job.scheduler, uid=job.uid, bytes=size, **taken, **copied)


def write_run(run: ArchivedRun) -> dict[str, Any]:
    """Return a record as plain JSON values."""
    return {"version": RECORD_VERSION, **without_none(to_json(run))}


def read_run(value: Any, where: str) -> ArchivedRun:
    """Return what `write_run` wrote.

    Args:
        value: The JSON value.
        where: Place that it was read from, for messages.

    Raises:
        DeployError: It was written by a newer release, or is not a record.
    """
    what = "the record of an archived log"
    check_version(value, where, what, RECORD_VERSION)
    try:
        return from_json(ArchivedRun, value)
    except ValueError as error:
        raise DeployError(f"{where} is not {what}: {error}; it was changed by hand or damaged") from error
