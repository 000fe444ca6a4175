"""The archived log of a replica.

An attempt of a replica is one run of its main container: a pod, or one start of the container in it. Attempts are
numbered from 1 in the order of their pods' creation and of their restarts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from torchx_pulumi.logs.archives import escape
from torchx_pulumi.logs.query import Attempt, ContainerRun, LoggedContainer
from torchx_pulumi.logs.resuming import StreamOptions
from torchx_pulumi.logs.sources import ObservedPod
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.text import listed
from torchx_pulumi.model.timestamps import format_time
from torchx_pulumi.planning.names import label_value

from torchx_pulumi_fleet.archive.archive import (
    Archive,
    ArchivedRun,
    app_folder,
    check_there,
    job_folder,
    newest_copies,
    open_archive,
    uids_of,
)

SHOWN = 5
"""Runs in a message."""

Run = TypeVar("Run", bound=ContainerRun)


def attempts_of(runs: Iterable[ContainerRun]) -> list[Attempt]:
    """Return the attempts of a replica: runs of the main container; without one, of every container."""
    runs = [*runs]
    with_main = {run.pod_uid for run in runs if run.default}
    return sorted({run.attempt for run in runs if run.default or run.pod_uid not in with_main})


def runs_of_attempt(runs: Sequence[Run], attempts: Sequence[Attempt], number: int) -> list[Run]:
    """Return the run of each container in an attempt, init containers first.

    A container that is not the main one has its own number of restarts: in the last attempt of a pod its last run
    counts, in an earlier one the last of as many restarts.
    """
    attempt = attempts[number - 1]
    is_last = not any(one[:2] == attempt[:2] and one > attempt for one in attempts)
    there = [run for run in runs if run.attempt[:2] == attempt[:2]]
    chosen: dict[str, Run] = {}
    for run in sorted(there, key=lambda run: (not run.init, run.position, run.restarts)):
        counts = is_last and not run.default
        if run.attempt <= attempt or counts or run.container not in chosen:
            chosen[run.container] = run
    return [*chosen.values()]


class ArchivedLines:
    """`LogLines` of an archived log."""

    def __init__(self, lines: Iterator[str]) -> None:
        self.finished = False
        self._lines = lines
        self._closed = False

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = None if self._closed else next(self._lines, None)
        if line is None:
            self.finished = not self._closed
            raise StopIteration
        return line

    def close(self) -> None:
        """End the reading. The file is closed with the last reference to it."""
        self._closed = True


class ArchivedLog:
    """The `LogSource` of an archived attempt of a replica. `logs.reading.read_source` reads it."""

    def __init__(
        self, archive: Archive, app_id: str, uid: str, role: str, replica: int, *, attempt: int | None = None
    ) -> None:
        """Read the index of a replica.

        Args:
            archive: The archive.
            app_id: `namespace:job_name`.
            uid: Uid of the job object.
            role: Name of the role, as the user wrote it.
            replica: Replica in the role, from 0.
            attempt: Number of the attempt, from 1. None: the last one.

        Raises:
            ClusterError: The archive has no log of the replica, or no such attempt (`reason` is `NotFound`), or it
                cannot be read.
        """
        self._archive = archive
        name = f"{role}/{replica} of app {app_id}"
        job = job_folder(app_id, uid)
        folders = {f"{job}/{escape(text)}/{replica}" for text in (role, label_value(role))}
        with archive.readable():
            runs = archive.read(newest_copies(key for folder in folders for key in archive.index(folder)))
        if not runs:
            raise ClusterError(f"archive {archive.name} has no log of {name}", reason="NotFound")
        self.attempts = attempts_of(runs)
        """The attempts in the archive, the oldest first."""
        count = len(self.attempts)
        self.attempt = count if attempt is None else attempt
        """Number of the attempt."""
        if not 1 <= self.attempt <= count:
            text = f"archive {archive.name} has {count} attempts of {name}, found {self.attempt}"
            raise ClusterError(f"{text}; allowed are 1 to {count}", reason="NotFound")
        self.runs = runs_of_attempt(runs, self.attempts, self.attempt)
        """The runs of the attempt's containers, init containers first."""
        self.pod = self.runs[0].pod
        """Name of the pod of the attempt."""
        self.on_open: Callable[[], None] = lambda: None
        """Called once, when the first log of the attempt is opened."""

    @property
    def note(self) -> str:
        """Return one line about the archive, the attempt, the time of its copy, and what is missing."""
        copied = max(run.copied_at for run in self.runs)
        which = f"attempt {self.attempt} of {len(self.attempts)}, " if len(self.attempts) > 1 else ""
        missing = [
            f"; container {run.container}: {', and '.join(found)}" for run in self.runs if (found := _missing(run))
        ]
        return f"read from the archive {self._archive.name}: {which}copied at {format_time(copied)}{''.join(missing)}"

    def observe(self, after: float | None, stop: threading.Event) -> ObservedPod:  # noqa: ARG002 - it never changes
        return ObservedPod(containers=self.containers(), over=True)

    def containers(self) -> list[LoggedContainer]:
        """Return the containers of the attempt's pod."""
        default = max(self.runs, key=lambda run: (run.default, not run.init))
        return [
            LoggedContainer(name=run.container, init=run.init, default=run is default, current=run.identity)
            for run in self.runs
        ]

    def absent(self) -> ClusterError:
        """Return an error: the pod of an attempt always exists."""
        return ClusterError(f"archive {self._archive.name} has no pod {self.pod!r}", reason="NotFound")

    def open(self, container: str, options: StreamOptions) -> ArchivedLines:
        """Return the lines of a container's log from its beginning, whatever time is asked for."""
        key = next((run.key for run in self.runs if run.container == container), None)
        if key is None or options.previous:
            # The attempt before is a log of its own.
            raise ClusterError(
                f"archive {self._archive.name} has no such log of container {container!r} of pod {self.pod!r}",
                reason="NoPrevious" if options.previous else "NotFound",
            )
        said, self.on_open = self.on_open, lambda: None
        said()
        first = 0
        if options.tail_lines is not None:
            # The log is read twice, so that no line has to be kept, however long it is.
            last = max((number for number, _ in _numbered(self._archive.lines(key))), default=0)
            first = last + 1 - options.tail_lines
        return ArchivedLines(part for number, part in _numbered(self._archive.lines(key)) if number >= first)


def _missing(run: ArchivedRun) -> list[str]:
    found = []
    if not run.complete:
        found.append("copied before its end, which is missing")
    if run.left_out_bytes:
        found.append(f"{run.left_out_bytes:,} of its {run.bytes:,} bytes were left out, at the line that says so")
    if run.may_lack_beginning and run.started_at is not None and run.first_line_at is not None:
        late_s = (run.first_line_at - run.started_at).total_seconds()
        found.append(
            f"its first line is {late_s:.0f} s younger than the container, whose node may have removed lines before it "
            "(a node gives the last 10 MiB of a log by default)"
        )
    return found


def _numbered(parts: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield each part of a log with the number of its line, from 0."""
    number = 0
    for part in parts:
        yield number, part
        number += part.endswith("\n")


class ArchiveSource:
    """The `LogArchive` that reads an archive."""

    def __init__(self, archive: Archive, url: str = "") -> None:
        self.archive = archive
        self.url = url
        """URL of which this machine must have the folder. Empty: whoever gives the archive writes it."""
        self.name = archive.name

    def find(self, app_id: str, uid: str, role: str, replica: int, attempt: int | None) -> ArchivedLog:
        check_there(self.url)
        return ArchivedLog(self.archive, app_id, uid, role, replica, attempt=attempt)

    def find_run(self, app_id: str, run: str | None) -> str | None:
        with self.archive.readable():
            uids = uids_of(self.archive.index(app_folder(app_id)))
        matching = [uid for uid in uids if uid.startswith(run or "")]
        if matching:
            return matching[0]
        if uids:
            text = f"archive {self.name} has no run {run!r} of app {app_id}; it has {listed(uids[::-1], SHOWN)}"
            raise ClusterError(text, reason="NotFound")
        return None

    def replicas(self, app_id: str, uid: str) -> Sequence[tuple[str, int]]:
        with self.archive.readable():
            runs = self.archive.read(self.archive.index(job_folder(app_id, uid)))
        return sorted({(run.role, run.replica) for run in runs})


def open_log_archive(url: str) -> ArchiveSource:
    """Open the archive of a URL for reading, without a request; errors as of `open_archive`."""
    return ArchiveSource(open_archive(url), url)
