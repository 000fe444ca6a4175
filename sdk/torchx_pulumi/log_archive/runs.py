"""Archived runs of containers: their records, and their paths. Every name from a cluster is escaped.

`<namespace>/<job name>/<uid>/<role>/<replica>/<pod created>-<pod uid>-<restarts>-<container>.log.gz`, and `.json` next
to it. A copy of a container that still ran ends in `.partial.log.gz` and `.partial.json`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote, unquote

from torchx_pulumi.logs.containers import ContainerRun
from torchx_pulumi.model.timestamps import EPOCH

LOG, RECORD, PARTIAL = ".log.gz", ".json", ".partial"

SMALLEST_ROTATED = 64 << 10
"""Bytes of a log below which its late beginning is not a sign of removed lines."""

LATE = timedelta(seconds=2)
"""Time between the start of a container and its first line that is such a sign; both are in whole seconds."""

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_PATH = re.compile(
    r"(?P<job>[^/]+/[^/]+/[^/]+)/(?P<role>[^/]+)/(?P<replica>\d+)/(?P<created>\d{8}T\d{6}Z)-"
    rf"(?P<pod_uid>{_UUID}|[^-/]+)-(?P<restarts>\d+)-(?P<container>[^./]+)(?P<partial>\.partial)?(?:\.json|\.log\.gz)"
)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class RunKey:
    """The path of an archived container run in escaped parts. The oldest run of a replica sorts first."""

    job: str
    """Folder of the job: `<namespace>/<job name>/<uid>`."""
    role: str
    replica: int
    created: str
    """When the pod was created, as `20261122T174400Z`."""
    pod_uid: str
    restarts: int
    container: str
    partial: bool = False
    """The copy is incomplete."""

    @property
    def uid(self) -> str:
        """Return the uid of the job object."""
        return unquote(self.job.rpartition("/")[2])

    @property
    def attempt(self) -> tuple[str, str, int]:
        """Return `ContainerRun.attempt` in escaped parts."""
        return (self.created, self.pod_uid, self.restarts)

    @property
    def whole(self) -> RunKey:
        """Return the key of the run's complete copy."""
        return replace(self, partial=False)

    @property
    def log(self) -> str:
        """Return the path of the log."""
        return f"{self._stem}{LOG}"

    @property
    def record(self) -> str:
        """Return the path of the record, which is written after the log."""
        return f"{self._stem}{RECORD}"

    @property
    def _stem(self) -> str:
        name = f"{self.created}-{self.pod_uid}-{self.restarts}-{self.container}{PARTIAL if self.partial else ''}"
        return f"{self.job}/{self.role}/{self.replica}/{name}"


def read_key(path: str) -> RunKey | None:
    """Return the key of a log or a record by its path in the archive. None: it is the path of another file."""
    found = _PATH.fullmatch(path)
    if found is None:
        return None
    parts: dict[str, Any] = found.groupdict()
    parts |= {"replica": int(parts["replica"]), "restarts": int(parts["restarts"]), "partial": bool(parts["partial"])}
    return RunKey(**parts)


def newest_copies(keys: Iterable[RunKey]) -> list[RunKey]:
    """Return the keys of complete copies, and of incomplete ones of runs without a complete copy, in their order."""
    every = {*keys}
    return sorted(key for key in every if not key.partial or key.whole not in every)


def uids_of(keys: Iterable[RunKey]) -> list[str]:
    """Return the uids of job objects, the one with the newest pod last."""
    newest: dict[str, str] = {}
    for key in keys:
        newest[key.uid] = max(newest.get(key.uid, ""), key.created)
    return sorted(newest, key=lambda uid: (newest[uid], uid))


def escape(name: str, also: str = "") -> str:
    """Return a name as one part of a path: no separator, no leading dot, never empty.

    Args:
        name: The name.
        also: A character that is escaped as well.

    >>> escape("trainer-0"), escape("../a b"), escape(".."), escape("")
    ('trainer-0', '%2E.%2Fa%20b', '%2E.', '%')
    """
    text = quote(name, safe="", errors="surrogatepass")
    if also:
        text = text.replace(also, f"%{ord(also):02X}")
    return f"%2E{text[1:]}" if text.startswith(".") else text or "%"


def _escape_uid(uid: str) -> str:
    """Return an escaped uid without hyphens, which separate parts of a file's name, unless it is a UUID."""
    return uid if re.fullmatch(_UUID, uid) else escape(uid, "-")


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
    def app_folder(self) -> str:
        """Return the folder of all job objects of the name in an archive."""
        return f"{escape(self.namespace)}/{escape(self.job_name)}"

    @property
    def folder(self) -> str:
        """Return the job's folder in an archive."""
        return f"{self.app_folder}/{_escape_uid(self.uid)}"

    def replica_folder(self, role: str, replica: int) -> str:
        """Return the folder of a replica; `role` is the name as the pod's label has it."""
        return f"{self.folder}/{escape(role)}/{replica}"

    def key(self, run: ContainerRun) -> RunKey:
        """Return the path of the complete copy of a run of the job."""
        at = (run.pod_created_at or EPOCH).astimezone(EPOCH.tzinfo)
        return RunKey(
            job=self.folder,
            role=escape(run.role),
            replica=run.replica,
            created=f"{at.year:04}{at:%m%dT%H%M%SZ}",
            pod_uid=_escape_uid(run.pod_uid),
            restarts=run.restarts,
            # A dot separates the name from the suffix.
            container=escape(run.container, "."),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedRun(ContainerRun):
    """One archived run of a container: the content of the `.json` next to its log."""

    app_id: str
    scheduler: str
    uid: str
    """Uid of the job object."""
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
    def key(self) -> RunKey:
        """Return the path of the copy."""
        job = ArchivedJob(app_id=self.app_id, scheduler=self.scheduler, uid=self.uid)
        return replace(job.key(self), partial=not self.complete)

    @property
    def may_lack_beginning(self) -> bool:
        """Return whether the node may have removed the first lines before the log was copied.

        A node keeps several files of a log, by default of 10 MiB, and gives the newest one only. A container that wrote
        nothing for a while after its start cannot be told from that.
        """
        if self.started_at is None or self.first_line_at is None or self.bytes < SMALLEST_ROTATED:
            return False
        return self.first_line_at - self.started_at >= LATE


def archived_run(job: ArchivedJob, run: ContainerRun, **copied: Any) -> ArchivedRun:
    """Return the record of a copied run.

    Args:
        job: Its job.
        run: The run.
        copied: The fields of `ArchivedRun` that neither has.
    """
    of_run = {field.name: getattr(run, field.name) for field in fields(ContainerRun)}
    return ArchivedRun(app_id=job.app_id, scheduler=job.scheduler, uid=job.uid, **of_run, **copied)
