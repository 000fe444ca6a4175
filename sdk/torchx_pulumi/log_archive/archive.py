"""The logs of container runs in a folder or an object store, indexed by job, role, replica and attempt."""

from __future__ import annotations

import gzip
import io
import json
import logging
import threading
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import BinaryIO, cast

from torchx_pulumi.log_archive.runs import (
    RECORD,
    ArchivedJob,
    ArchivedRun,
    RunKey,
    escape,
    newest_copies,
    read_key,
)
from torchx_pulumi.model.codec import check_version, from_json, to_json, without_none
from torchx_pulumi.model.errors import ClusterError, DeployError
from torchx_pulumi.storage.stores import FolderStore, ObjectStore, Store

logger = logging.getLogger(__name__)

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


class Archive:
    """Archived logs. Opening one makes no request. For use by several threads.

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
        self._guard = threading.Lock()
        self._complete: dict[RunKey, ArchivedRun] = {}
        """Records of complete copies, which do not change any more."""

    @property
    def _store(self) -> Store:
        # Two threads may both call the function; one of their stores is dropped.
        if not isinstance(self._given, (FolderStore, ObjectStore)):
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

    def index(self, folder: str = "") -> list[RunKey]:
        """Return the keys of archived runs, by one listing. No record is read.

        Args:
            folder: The folder of an app, a job or a replica, as of `ArchivedJob`. Empty: all runs.
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

    def remove(self, job: ArchivedJob) -> int:
        """Remove the logs of all runs of a job, and return how many there were. Other files in its folder stay.

        A removal that is interrupted is completed by the next one: the records go first, and a log without its record
        does not count.
        """
        found = {path: key for path in self._paths(job.folder) if (key := read_key(path)) is not None}
        for path in sorted(found, key=lambda path: not path.endswith(RECORD)):
            self._store.remove(path)
        self._store.remove_empty_folders(job.folder)
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
