"""The logs of container runs in a folder or an object store, indexed by job, role, replica and attempt.

`<namespace>/<job name>/<uid>/<role>/<replica>/<pod created>-<pod uid>-<restarts>-<container>.log.gz`, and the record of
the run in `.json` next to it. A copy of a container that still ran ends in `.partial.log.gz` and `.partial.json`. Every
name from a cluster is escaped, so that no path leaves the archive.
"""

from __future__ import annotations

import gzip
import io
import json
import logging
import re
import threading
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from importlib.util import find_spec
from typing import Any, BinaryIO, cast
from urllib.parse import unquote

from torchx_pulumi.logs.archive_marks import mark_path, mark_text
from torchx_pulumi.logs.archives import archive_url, check_archive_url, escape, shown_url
from torchx_pulumi.logs.query import ContainerRun
from torchx_pulumi.model.codec import check_version, from_json, to_json, without_none
from torchx_pulumi.model.errors import ClusterError, DeployError, Problem, invalid_arguments
from torchx_pulumi.model.redaction import without_password
from torchx_pulumi.model.timestamps import EPOCH
from torchx_pulumi.stack_state.backend import backend_folder, open_store
from torchx_pulumi.storage.files import is_folder
from torchx_pulumi.storage.stores import Store, object_scheme

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 30.0
"""Timeout of one request to an object store."""

RECORD_VERSION = 1
"""Version of the written form of records. A reader refuses a newer one."""

READ_AT_ONCE = 16
"""Records that are read at the same time."""

MOST_KEPT = 5000
"""Records that are kept in memory."""

LONGEST_PART = 1 << 20
"""Characters of the longest line that is returned as a whole, as of `LogLines`."""

DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)
"""Errors of a log that is not whole."""

LOG, RECORD, PARTIAL = ".log.gz", ".json", ".partial"

SMALLEST_ROTATED = 64 << 10
"""Bytes of a log below which its late beginning is not a sign of removed lines."""

LATE = timedelta(seconds=2)
"""Time between the start of a container and its first line that is such a sign; both are in whole seconds."""

UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
"""Pattern of a uid of Kubernetes."""

_PATH = re.compile(
    r"(?P<job>[^/]+/[^/]+/[^/]+)/(?P<role>[^/]+)/(?P<replica>\d+)/(?P<created>\d{8}T\d{6}Z)-"
    rf"(?P<pod_uid>{UUID}|[^-/]+)-(?P<restarts>\d+)-(?P<container>[^./]+)(?P<partial>\.partial)?(?:\.json|\.log\.gz)"
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
    """Return the uids of job objects, the one with the newest pod first."""
    newest = sorted(keys, key=lambda key: (key.created, key.uid), reverse=True)
    return [*dict.fromkeys(key.uid for key in newest)]


def app_folder(app_id: str) -> str:
    """Return the folder of all job objects of an app's name."""
    namespace, _, job_name = app_id.partition(":")
    return f"{escape(namespace)}/{escape(job_name)}"


def job_folder(app_id: str, uid: str) -> str:
    """Return the folder of a job object."""
    return f"{app_folder(app_id)}/{_escape_uid(uid)}"


def _escape_uid(uid: str) -> str:
    """Return an escaped uid without hyphens, which separate parts of a file's name, unless it is a UUID."""
    return uid if re.fullmatch(UUID, uid) else escape(uid, "-")


def key_of_run(job: str, run: ContainerRun) -> RunKey:
    """Return the path of the complete copy of a container run; `job` is the folder of its job object."""
    at = (run.pod_created_at or EPOCH).astimezone(EPOCH.tzinfo)
    return RunKey(
        job=job,
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
    """Time of the first line. None: the log is empty."""

    @property
    def key(self) -> RunKey:
        """Return the path of the copy."""
        return replace(key_of_run(job_folder(self.app_id, self.uid), self), partial=not self.complete)

    @property
    def may_lack_beginning(self) -> bool:
        """Return whether the node may have removed the first lines before the log was copied.

        A node keeps several files of a log, by default of 10 MiB, and gives the newest one only. A container that wrote
        nothing for a while after its start cannot be told from that.
        """
        if self.started_at is None or self.first_line_at is None or self.bytes < SMALLEST_ROTATED:
            return False
        return self.first_line_at - self.started_at >= LATE


class Archive:
    """Archived logs. Opening one makes no request. For use by several threads.

    Methods raise `PermissionError` if access is denied, and another `OSError` if the storage cannot be used, with errno
    ENOSPC if it is full.
    """

    def __init__(self, open_store: Callable[[], Store], name: str) -> None:
        """Name a store.

        Args:
            open_store: Returns where the files are. Called by the first access.
            name: What messages call the archive: its URL without credentials.
        """
        self._open_store = open_store
        self.name = name
        self._guard = threading.Lock()
        self._complete: dict[RunKey, ArchivedRun] = {}
        """Records of complete copies, which do not change any more."""

    @cached_property
    def _store(self) -> Store:
        return self._open_store()

    def check_writable(self) -> None:
        """Write a small file and remove it.

        Raises:
            OSError: The archive cannot be written.
        """
        path = f"{escape('check-' + uuid.uuid4().hex)}.tmp"
        self._store.upload(path, io.BytesIO(b"check"))
        self._store.remove(path)

    def mark(self, namespaces: Sequence[str], now: datetime, urls: Sequence[str] = ()) -> None:
        """Note that a controller copies logs here now, for launches that name the archive.

        Args:
            namespaces: Those whose logs it copies. Empty: all.
            now: The time, aware.
            urls: URLs of this archive. Only logs of launches that name one of them are copied. Empty: of all launches.
        """
        for namespace in namespaces or (None,):
            # Who launches is often another user, and marks have nothing secret.
            self._store.upload(mark_path(namespace), io.BytesIO(mark_text(now, urls).encode()), private=False)

    def index(self, folder: str = "") -> list[RunKey]:
        """Return the keys of archived runs, by one listing. No record is read.

        Args:
            folder: The folder of an app, a job object or a replica. Empty: all runs.
        """
        return [key for path in self._paths(folder) if path.endswith(RECORD) and (key := read_key(path)) is not None]

    def _paths(self, folder: str) -> list[str]:
        return [f"{folder}/{path}".lstrip("/") for path in self._store.paths(folder)]

    def find(self, key: RunKey) -> ArchivedRun | None:
        """Return the record of a run. None: it is not archived, or its record is damaged, which is logged."""
        data = self._store.read_bytes(key.record)
        if data is None:
            return None
        try:
            record = json.loads(data)
            check_version(record, key.record, "the record of an archived log", RECORD_VERSION)
            return from_json(ArchivedRun, record)
        except (DeployError, ValueError, RecursionError) as error:
            logger.warning("%s: %s cannot be read and is left out: %s", self.name, key.record, error)
            return None

    def read(self, keys: Iterable[RunKey]) -> list[ArchivedRun]:
        """Return the records of keys, several at a time, those of complete copies once. Damaged ones are left out."""
        with ThreadPoolExecutor(READ_AT_ONCE, thread_name_prefix="archive") as pool:
            return [run for run in pool.map(self._read, keys) if run is not None]

    def _read(self, key: RunKey) -> ArchivedRun | None:
        with self._guard:
            run = self._complete.get(key)
        run = run or self.find(key)
        if run is not None and run.complete:
            with self._guard:
                self._complete[key] = run
                if len(self._complete) > MOST_KEPT:
                    del self._complete[next(iter(self._complete))]
        return run

    def write(self, run: ArchivedRun, log: BinaryIO) -> None:
        """Store a log, then its record. A complete copy replaces an incomplete one, never the other way.

        Args:
            run: The record.
            log: The log, compressed by gzip, from its beginning.
        """
        whole, partial = run.key.whole, replace(run.key, partial=True)
        if not run.complete:
            known = self.find(partial)
            if self._store.read_bytes(whole.record) is not None or (known is not None and known.bytes >= run.bytes):
                return
        self._store.upload(run.key.log, log)
        record = {"version": RECORD_VERSION, **without_none(to_json(run))}
        self._store.upload(run.key.record, io.BytesIO(json.dumps(record, separators=(",", ":")).encode()))
        if run.complete and self._store.read_bytes(partial.record) is not None:
            # The record first: without one, a log does not count.
            self._store.remove(partial.record)
            self._store.remove(partial.log)

    def remove(self, job: str) -> int:
        """Remove the logs in the folder of a job object, and return how many there were. Other files in it stay.

        A removal that is interrupted is completed by the next one: the records go first, and a log without its record
        does not count.
        """
        found = {path: key for path in self._paths(job) if (key := read_key(path)) is not None}
        for path in sorted(found, key=lambda path: not path.endswith(RECORD)):
            self._store.remove(path)
        self._store.remove_empty_folders(job)
        return len(newest_copies(found.values()))

    def lines(self, key: RunKey) -> Iterator[str]:
        """Yield the lines of a log with their times and newlines, long lines in parts.

        Raises:
            ClusterError: The log is absent or damaged, or the archive cannot be read.
        """
        where = f"{self.name}: {key.log}"
        try:
            file = self._store.open(key.log)
            if file is None:
                raise ClusterError(f"{where} does not exist, although its record does", reason="NotFound")
            with file, gzip.open(file, "rb") as unpacked:
                text = io.TextIOWrapper(cast("BinaryIO", unpacked), encoding="utf-8", errors="replace", newline="\n")
                while part := text.readline(LONGEST_PART):
                    yield part
        except DAMAGED as error:
            raise ClusterError(f"{where} is damaged: {error}; the lines before this are whole") from error
        except OSError as error:
            raise _unreadable(where, error) from error

    @contextmanager
    def readable(self) -> Iterator[None]:
        """Raise errors of the storage within the block as errors of the archive.

        Raises:
            ClusterError: The storage cannot be read.
        """
        try:
            yield
        except OSError as error:
            raise _unreadable(f"the archive {self.name}", error) from error


def _unreadable(what: str, error: OSError) -> ClusterError:
    return ClusterError(f"{what} cannot be read: {error}", retryable=not isinstance(error, PermissionError))


def open_archive(url: str) -> Archive:
    """Return the archive of a URL, without a request.

    Args:
        url: The URL or the path, as `check_archive_url` allows it.

    Raises:
        InvalidJobError: The URL is not allowed, or the package that its kind needs is not installed.
    """
    problems = check_archive_url(url, "log_archive")
    place = archive_url(url)
    scheme = None if problems else object_scheme(place)
    if scheme is not None and find_spec(scheme.package) is None:
        problems = [
            Problem(
                "log_archive",
                f"found {shown_url(url)}, which needs the package {scheme.package}; install `{scheme.install}`",
            )
        ]
    if problems:
        raise invalid_arguments(*problems)

    def open_files() -> Store:
        store = open_store(place, REQUEST_TIMEOUT_S)
        if store is None:
            raise OSError(f"objects at {place.partition('?')[0]} cannot be accessed: no client is installed")
        return store

    return Archive(open_files, without_password(url))


def check_there(url: str) -> None:
    """Check that this machine has the folder of an archive: one that is only elsewhere is not an empty archive.

    Raises:
        ClusterError: It is not there, or cannot be inspected.
    """
    folder, name = backend_folder(archive_url(url)), without_password(url)
    try:
        if folder is None or is_folder(folder):
            return
    except OSError as error:
        raise _unreadable(f"the archive {name}", error) from error
    raise ClusterError(
        f"the archive {name} is not read: there is no folder {folder} on this machine; mount that of the controller"
    )
