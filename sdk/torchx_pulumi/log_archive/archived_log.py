"""ArchivedLog: an attempt of a replica in an archive, as a source of logs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from torchx_pulumi.log_archive.archive import Archive, newest_copies
from torchx_pulumi.log_archive.keys import RunKey
from torchx_pulumi.log_archive.runs import ArchivedJob, ArchivedRun
from torchx_pulumi.logs.containers import LoggedContainer
from torchx_pulumi.logs.resuming import StreamOptions, read_line
from torchx_pulumi.logs.sources import ObservedPod
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.timestamps import SECOND_NS, format_time, to_nanoseconds
from torchx_pulumi.planning.names import label_value

Attempt = tuple[str, str, int]
"""Creation of the pod, uid of the pod, and restarts of its main container."""

Run = tuple[RunKey, ArchivedRun]


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
        if self._closed:
            raise StopIteration
        try:
            return next(self._lines)
        except StopIteration:
            self.finished = True
            raise

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
        with archive.readable():
            keys = [key for text in sorted({role, label_value(role)}) for key in archive.replica(job, text, replica)]
            runs = archive.read(newest_copies(keys))
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
        self._chosen = runs_of_attempt(runs, self.attempts, self.attempt)
        self.runs = [run for _, run in self._chosen.values()]
        """The runs of the attempt's containers, init containers first."""
        self.pod = self.runs[0].pod
        """Name of the pod of the attempt."""
        self.on_open: Callable[[], None] | None = None
        """Called once, when the first log of the attempt is opened."""

    @property
    def note(self) -> str:
        """Return one line about the archive, the attempt, when it was copied, and what of it is missing."""
        copied = max(run.copied_at for run in self.runs)
        which = f"attempt {self.attempt} of {len(self.attempts)}, " if len(self.attempts) > 1 else ""
        missing = [
            f"container {run.container}: {', and '.join(found)}" for run in self.runs if (found := _missing(run))
        ]
        tail = f"; {'; '.join(missing)}" if missing else ""
        return f"read from the archive {self._archive.name}: {which}copied at {format_time(copied)}{tail}"

    def observe(self, after: float | None, stop: threading.Event) -> ObservedPod:  # noqa: ARG002 - it never changes
        """Return the pod of the attempt."""
        default = next((run for run in self.runs if run.default), None)
        default = default or next((run for run in self.runs if not run.init), self.runs[0])
        containers = [
            LoggedContainer(
                name=run.container,
                init=run.init,
                default=run is default,
                current=run.container_id or f"{run.pod_uid}/{run.restarts}",
                restarts=run.restarts,
            )
            for run in self.runs
        ]
        return ObservedPod(containers=containers, over=True)

    def absent(self) -> ClusterError:
        """Return an error: the pod of an attempt always exists."""
        return ClusterError(f"archive {self._archive.name} has no pod {self.pod!r}", reason="NotFound")

    def open(self, container: str, options: StreamOptions) -> ArchivedLines:
        """Return the lines of a container's log."""
        found = self._chosen.get(container)
        if found is None or options.previous:
            # The attempt before is a log of its own.
            raise ClusterError(
                f"archive {self._archive.name} has no such log of container {container!r} of pod {self.pod!r}",
                reason="NoPrevious" if options.previous else "NotFound",
            )
        if self.on_open is not None:
            self.on_open()
            self.on_open = None
        key, since = found[0], options.since

        def read() -> Iterator[str]:
            lines = self._archive.lines(key)
            return lines if since is None else _since(lines, to_nanoseconds(since) // SECOND_NS * SECOND_NS)

        return ArchivedLines(read() if options.tail_lines is None else _tail(read, options.tail_lines))


def attempts_of(runs: Sequence[Run]) -> list[Attempt]:
    """Return the attempts of a replica: runs of the main container, in pods without one those of all containers."""
    pods: dict[tuple[str, str], list[Run]] = {}
    for key, run in runs:
        pods.setdefault((key.created, key.pod_uid), []).append((key, run))
    attempts = []
    for pod, found in pods.items():
        main = [key.restarts for key, run in found if run.default]
        attempts += [(*pod, restarts) for restarts in {*(main or (key.restarts for key, _ in found))}]
    return sorted(attempts)


def runs_of_attempt(runs: Sequence[Run], attempts: Sequence[Attempt], number: int) -> dict[str, Run]:
    """Return the run of each container in an attempt by container, init containers first.

    A container that is not the main one has its own number of restarts: in the last attempt of a pod its last run
    counts, in an earlier one the last of as many restarts.
    """
    created, pod_uid, restarts = attempts[number - 1]
    is_last = not any(one[:2] == (created, pod_uid) and one[2] > restarts for one in attempts)
    there = [(key, run) for key, run in runs if (key.created, key.pod_uid) == (created, pod_uid)]
    chosen: dict[str, Run] = {}
    for key, run in sorted(there, key=lambda item: (not item[1].init, item[1].position, item[0].restarts)):
        counts = is_last and not run.default
        if key.restarts <= restarts or counts or run.container not in chosen:
            chosen[run.container] = (key, run)
    return chosen


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


def _since(lines: Iterator[str], since_ns: int) -> Iterator[str]:
    wanted = False
    for begins, part in _with_begins(lines):
        if begins:
            line = read_line(part[:64], 0)
            wanted = line.at_ns >= since_ns if line.stamp else wanted
        if wanted:
            yield part


def _tail(read: Callable[[], Iterator[str]], number: int) -> Iterator[str]:
    """Yield the last lines of a log. It is read twice, so that no line has to be kept, however long it is."""
    before = sum(begins for begins, _ in _with_begins(read())) - number
    for begins, part in _with_begins(read()):
        before -= begins
        if before < 0:
            yield part


def _with_begins(parts: Iterator[str]) -> Iterator[tuple[bool, str]]:
    """Yield each part of a log and whether a line begins with it."""
    begins = True
    for part in parts:
        yield begins, part
        begins = part.endswith("\n")
