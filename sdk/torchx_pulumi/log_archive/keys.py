"""Paths of archived logs. Every name from a cluster is escaped, so that no path leaves the archive.

`<namespace>/<job name>/<uid>/<role>/<replica>/<pod created>-<pod uid>-<restarts>-<container>.log.gz`, and `.json` next
to it. A copy of a container that still ran ends in `.partial.log.gz` and `.partial.json`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote, unquote

from torchx_pulumi.model.timestamps import EPOCH

LONGEST_NAME = 100
"""Characters of an escaped name. A longer one is cut and ends in a digest. File names have two, and 255 at most."""

CUT = "~"
"""Separates a cut name from its digest. It occurs nowhere else in an escaped name."""

LOG, RECORD, PARTIAL = ".log.gz", ".json", ".partial"

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_STEM = re.compile(
    r"(?P<created>\d{8}T\d{6}Z)-(?P<pod_uid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[^-]+)-(?P<restarts>\d+)-"
    r"(?P<container>.+?)(?P<partial>\.partial)?\.json",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKey:
    """The path of one archived container run, with its escaped parts."""

    job: str
    """Folder of the job: `<namespace>/<job name>/<uid>`."""
    role: str
    replica: str
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
    def folder(self) -> str:
        """Return the folder of the replica."""
        return f"{self.job}/{self.role}/{self.replica}"

    @property
    def stem(self) -> str:
        """Return the path without suffix."""
        name = f"{self.created}-{self.pod_uid}-{self.restarts}-{self.container}"
        return f"{self.folder}/{name}{PARTIAL if self.partial else ''}"

    @property
    def log(self) -> str:
        """Return the path of the log."""
        return f"{self.stem}{LOG}"

    @property
    def record(self) -> str:
        """Return the path of the record, which is written after the log."""
        return f"{self.stem}{RECORD}"

    @property
    def order(self) -> tuple[str, str, int]:
        """Return the sort key of the runs of a replica: creation of the pod, then restarts."""
        return (self.created, self.pod_uid, self.restarts)

    @property
    def run(self) -> tuple[str, str, str, int, str]:
        """Return what identifies the container run within its job, whether its copy is complete or not."""
        return (self.role, self.replica, self.pod_uid, self.restarts, self.container)


def escape(name: str, also: str = "") -> str:
    """Return a name as one part of a path: no separator, no leading dot, never empty, of limited length.

    Args:
        name: The name.
        also: A character that is escaped as well.

    >>> escape("trainer-0"), escape("../a b"), escape(".."), escape("")
    ('trainer-0', '%2E.%2Fa%20b', '%2E.', '%')
    """
    text = quote(name, safe="", errors="surrogatepass").replace(CUT, "%7E")
    if also:
        text = text.replace(also, f"%{ord(also):02X}")
    if text.startswith("."):
        text = f"%2E{text[1:]}"
    if len(text) > LONGEST_NAME:
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        text = f"{text[: LONGEST_NAME - len(digest) - 1]}{CUT}{digest}"
    return text or "%"


def escape_uid(uid: str) -> str:
    """Return an escaped uid without hyphens, unless it is a UUID."""
    return uid if _UUID.fullmatch(uid) else escape(uid, "-")


def escape_container(name: str) -> str:
    """Return an escaped name of a container without dots, which separate it from the suffix."""
    return escape(name, ".")


def compact_time(time: datetime | None) -> str:
    """Return a time in UTC as it is part of a path.

    >>> compact_time(None)
    '19700101T000000Z'
    """
    at = (time or EPOCH).astimezone(EPOCH.tzinfo)
    return f"{at.year:04}{at:%m%dT%H%M%SZ}"


def is_file_of_run(path: str) -> bool:
    """Return whether a path in the archive is that of a log or of a record."""
    stem = path.removesuffix(LOG) if path.endswith(LOG) else path.removesuffix(RECORD)
    return stem != path and read_key(f"{stem}{RECORD}") is not None


def read_key(path: str) -> RunKey | None:
    """Return the key of a record by its path in the archive. None: the path is not that of a record."""
    parts = path.split("/")
    found = _STEM.fullmatch(parts[-1])
    if len(parts) != 6 or found is None:
        return None
    return RunKey(
        job="/".join(parts[:3]),
        role=parts[3],
        replica=parts[4],
        created=found["created"],
        pod_uid=found["pod_uid"],
        restarts=int(found["restarts"]),
        container=found["container"],
        partial=found["partial"] is not None,
    )
