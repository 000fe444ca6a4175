"""ArchivedLog: an attempt of a replica in an archive, as a source of logs; and which runs an attempt has."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from torchx_pulumi.log_archive.archive import Archive
from torchx_pulumi.log_archive.runs import ArchivedJob, ArchivedRun, newest_copies
from torchx_pulumi.logs.containers import Attempt, ContainerRun, LoggedContainer
from torchx_pulumi.logs.resuming import StreamOptions
from torchx_pulumi.logs.sources import ObservedPod
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.timestamps import format_time
from torchx_pulumi.planning.names import label_value

Run = TypeVar("Run", bound=ContainerRun)


def attempts_of(runs: Iterable[ContainerRun]) -> list[Attempt]:
    """Return the attempts of a replica: runs of the main container, in pods without one those of all containers."""
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
        """Return the iterator itself."""
        return self

    def __next__(self) -> str:
        """Return the next line."""
        line = None if self._closed else next(self._lines, None)
        if line is None:
            self.finished = not self._closed
            raise StopIteration
        return line

    def close(self) -> None:
        """End the reading. The file is closed with the last reference to it."""
        self._closed = True


class ArchivedLog:
    """The `LogSource` of an archived attempt of a replica. `logs.reading.read_source` reads it.

    An attempt is one run of the replica's main container: a pod, or one start of the container in it. Attempts are
    numbered from 1 in the order of their pods' creation and of their restarts.
    """

    def __init__(
        self, archive: Archive, job: ArchivedJob, role: str, replica: int, *, attempt: int | None = None
    ) -> None:
        """Read the index of a replica.

        Args:
            archive: The archive.
            job: The job.
            role: Name of the role, as the user wrote it.
            replica: Replica in the role, from 0.
            attempt: Number of the attempt, from 1. None: the last one.

        Raises:
            ClusterError: The archive has no log of the replica, or no such attempt (`reason` is `NotFound`), or it
                cannot be read.
        """
        self._archive = archive
        name = f"{role}/{replica} of app {job.app_id}"
        folders = {job.replica_folder(text, replica) for text in (role, label_value(role))}
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
        """Return one line about the archive, the attempt, when it was copied, and what of it is missing."""
        copied = max(run.copied_at for run in self.runs)
        which = f"attempt {self.attempt} of {len(self.attempts)}, " if len(self.attempts) > 1 else ""
        missing = [
            f"; container {run.container}: {', and '.join(found)}" for run in self.runs if (found := _missing(run))
        ]
        return f"read from the archive {self._archive.name}: {which}copied at {format_time(copied)}{''.join(missing)}"

    def observe(self, after: float | None, stop: threading.Event) -> ObservedPod:  # noqa: ARG002 - it never changes
        """Return the pod of the attempt."""
        runs = self.runs
        (default, *_) = [run for run in runs if run.default] or [run for run in runs if not run.init] or runs
        containers = [
            LoggedContainer(
                name=run.container,
                init=run.init,
                default=run is default,
                current=run.identity,
                restarts=run.restarts,
            )
            for run in runs
        ]
        return ObservedPod(containers=containers, over=True)

    def absent(self) -> ClusterError:
        """Return an error: the pod of an attempt always exists."""
        return ClusterError(f"archive {self._archive.name} has no pod {self.pod!r}", reason="NotFound")

    def open(self, container: str, options: StreamOptions) -> ArchivedLines:
        """Return the lines of a container's log, from its beginning also where a time is asked for."""
        key = next((run.key for run in self.runs if run.container == container), None)
        if key is None or options.previous:
            # The attempt before is a log of its own.
            raise ClusterError(
                f"archive {self._archive.name} has no such log of container {container!r} of pod {self.pod!r}",
                reason="NoPrevious" if options.previous else "NotFound",
            )
        said, self.on_open = self.on_open, lambda: None
        said()
        lines = self._archive.lines(key)
        if options.tail_lines is None:
            return ArchivedLines(lines)
        # The log is read twice, so that no line has to be kept, however long it is.
        count = sum(begins for begins, _ in _with_begins(lines))
        return ArchivedLines(_after(count - options.tail_lines, self._archive.lines(key)))


def _missing(run: ArchivedRun) -> list[str]:
    found = []
    if not run.complete:
        found.append("copied before its end, which is missing")
    if run.left_out_bytes:
        found.append(f"{run.left_out_bytes:,} of its {run.bytes:,} bytes were left out, where a line says so")
    if run.may_lack_beginning and run.started_at is not None and run.first_line_at is not None:
        late_s = (run.first_line_at - run.started_at).total_seconds()
        found.append(
            f"its first line is {late_s:.0f} s younger than the container, whose node may have removed lines before it "
            "(a node gives the last 10 MiB of a log by default)"
        )
    return found


def _after(number: int, parts: Iterator[str]) -> Iterator[str]:
    """Yield the lines after so many first ones."""
    for begins, part in _with_begins(parts):
        number -= begins
        if number < 0:
            yield part


def _with_begins(parts: Iterator[str]) -> Iterator[tuple[bool, str]]:
    """Yield each part of a log and whether a line begins with it."""
    begins = True
    for part in parts:
        yield begins, part
        begins = part.endswith("\n")
