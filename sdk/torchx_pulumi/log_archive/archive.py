"""The logs of container runs in a folder or an object store, indexed by job, role, replica and attempt."""

from __future__ import annotations

import gzip
import io
import json
import logging
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import BinaryIO, cast

from torchx_pulumi.log_archive.keys import RECORD, RunKey, escape, is_file_of_run, read_key
from torchx_pulumi.log_archive.runs import ArchivedJob, ArchivedRun, read_run, write_run
from torchx_pulumi.model.errors import ClusterError, DeployError
from torchx_pulumi.storage.stores import Store

logger = logging.getLogger(__name__)

READ_AT_ONCE = 16
"""Records that are read at the same time."""

LONGEST_PART = 1 << 20
"""Characters of the longest line that is returned as a whole, as of `LogLines`."""

DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)
"""Errors of a log that is not whole."""


class Archive:
    """Archived logs. Opening one makes no request.

    Methods raise `PermissionError` if access is denied, and another `OSError` if the storage cannot be used, with errno
    ENOSPC if it is full.
    """

    def __init__(self, store: Store | Callable[[], Store], name: str) -> None:
        """Take a store.

        Args:
            store: Where the files are; or a function that returns that, which is called by the first access.
            name: What messages call the archive: its URL without credentials.
        """
        self._given = store
        self.name = name

    @property
    def _store(self) -> Store:
        # Two threads may both call the function; one of their stores is dropped.
        if not isinstance(self._given, Store):
            self._given = self._given()
        return self._given

    def check_writable(self) -> None:
        """Write a small file and remove it.

        Raises:
            OSError: The archive cannot be written.
        """
        path = f"{escape('check-' + uuid.uuid4().hex)}.tmp"
        self._store.upload(path, io.BytesIO(b"check"))
        self._store.remove(path)

    def index(self, job: ArchivedJob | None = None) -> list[RunKey]:
        """Return the keys of the archived runs of a job, or of all jobs, by one listing. No record is read."""
        return self._keys_in(job.folder if job is not None else "")

    def replica(self, job: ArchivedJob, role: str, replica: int) -> list[RunKey]:
        """Return the keys of the archived runs of a replica, by one listing of its folder. No record is read.

        Args:
            job: The job.
            role: Role name as the pod's label has it.
            replica: Replica in the role, from 0.
        """
        return self._keys_in(f"{job.folder}/{escape(role)}/{escape(str(replica))}")

    def _keys_in(self, folder: str) -> list[RunKey]:
        start = f"{folder}/" if folder else ""
        paths = (f"{start}{path}" for path in self._store.paths(folder) if path.endswith(RECORD))
        return [key for key in map(read_key, paths) if key is not None]

    def of_app(self, namespace: str, job_name: str) -> list[RunKey]:
        """Return the keys of the archived runs of all job objects of a name, by one listing. No record is read."""
        return self._keys_in(f"{escape(namespace)}/{escape(job_name)}")

    def uids(self, namespace: str, job_name: str) -> list[str]:
        """Return the uids of the job objects of a name whose logs are archived, by one listing, the newest last."""
        newest: dict[str, str] = {}
        for key in self.of_app(namespace, job_name):
            newest[key.uid] = max(newest.get(key.uid, ""), key.created)
        return sorted(newest, key=lambda uid: (newest[uid], uid))

    def find(self, key: RunKey) -> ArchivedRun | None:
        """Return the record of a run. None: it is not archived, or its record is damaged, which is logged."""
        data = self._store.read_bytes(key.record)
        if data is None:
            return None
        try:
            return read_run(json.loads(data), f"{self.name}: {key.record}")
        except (DeployError, ValueError, RecursionError) as error:
            logger.warning("%s: %s cannot be read and is left out: %s", self.name, key.record, error)
            return None

    def read(self, keys: Iterable[RunKey]) -> list[tuple[RunKey, ArchivedRun]]:
        """Return keys with their records, several at a time. Damaged records are left out."""
        asked = list(keys)
        if len(asked) < 2:
            found = [self.find(key) for key in asked]
        else:
            with ThreadPoolExecutor(READ_AT_ONCE, thread_name_prefix="archive") as pool:
                found = list(pool.map(self.find, asked))
        return [(key, run) for key, run in zip(asked, found, strict=True) if run is not None]

    def write(self, key: RunKey, run: ArchivedRun, log: BinaryIO) -> None:
        """Store a log, then its record. A complete copy replaces an incomplete one, never the other way.

        Args:
            key: The key of the run's complete copy.
            run: The record.
            log: The log, compressed by gzip, from its beginning.
        """
        partial = replace(key, partial=True)
        written = key if run.complete else partial
        if not run.complete and self._has_more(key, partial, run):
            return
        self._store.upload(written.log, log)
        text = json.dumps(write_run(run), separators=(",", ":"))
        self._store.upload(written.record, io.BytesIO(text.encode()))
        if run.complete and self._store.read_bytes(partial.record) is not None:
            # The record first: without one, a log does not count.
            self._store.remove(partial.record)
            self._store.remove(partial.log)

    def remove(self, job: ArchivedJob) -> int:
        """Remove the logs of all runs of a job, and return how many there were. Other files in its folder stay.

        A removal that is interrupted is completed by the next one: the records go first, and a log without its record
        does not count.
        """
        paths = [f"{job.folder}/{path}" for path in self._store.paths(job.folder)]
        found = sorted(filter(is_file_of_run, paths), key=lambda path: not path.endswith(RECORD))
        for path in found:
            self._store.remove(path)
        self._store.remove_empty_folders(job.folder)
        return len(newest_copies(key for key in map(read_key, found) if key is not None))

    def _has_more(self, key: RunKey, partial: RunKey, run: ArchivedRun) -> bool:
        """Return whether there is a complete copy of a run, or an incomplete one of at least as many bytes."""
        if self._store.read_bytes(key.record) is not None:
            return True
        known = self.find(partial)
        return known is not None and known.bytes >= run.bytes

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


def newest_copies(keys: Iterable[RunKey]) -> list[RunKey]:
    """Return the keys of complete copies, and of incomplete ones of runs without a complete copy, oldest run first."""
    chosen: dict[tuple[str, tuple[str, str, str, int, str]], RunKey] = {}
    for key in keys:
        known = chosen.get((key.job, key.run))
        if known is None or known.partial:
            chosen[key.job, key.run] = key
    return sorted(chosen.values(), key=lambda key: (key.job, key.role, key.replica, key.order, key.container))
