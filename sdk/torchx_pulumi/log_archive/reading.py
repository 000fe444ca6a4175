"""Archived logs as the logs of a cluster, so that every query of logs works on them unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from torchx_pulumi.kube.kinds import POD, Kind
from torchx_pulumi.kube.pod_list import PodList
from torchx_pulumi.log_archive.archive import Archive, newest_copies
from torchx_pulumi.log_archive.keys import RunKey
from torchx_pulumi.log_archive.runs import DEFAULT_CONTAINER, ArchivedJob, ArchivedRun
from torchx_pulumi.logs.stamps import read_line
from torchx_pulumi.model.cluster_identity import ClusterIdentity
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.timestamps import SECOND_NS, format_time, to_nanoseconds
from torchx_pulumi.planning.names import label_value

Attempt = tuple[str, str, int]
"""Creation of the pod, uid of the pod, and restarts of its main container."""

Run = tuple[RunKey, ArchivedRun]


class ArchivedLines:
    """`LogLines` of an archived log."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self._next: str | None = None
        self._begun = False
        self._finished = False

    @property
    def finished(self) -> bool:
        """Return whether the log was read to its end and the last line was returned."""
        return self._finished

    def __iter__(self) -> Iterator[str]:
        """Return the iterator itself."""
        return self

    def __next__(self) -> str:
        """Return the next line."""
        if not self._begun:
            self._begun, self._next = True, next(self._lines, None)
        line = self._next
        if line is None:
            self._finished = True
            raise StopIteration
        self._next = next(self._lines, None)
        self._finished = self._next is None
        return line

    def close(self) -> None:
        """Close the file."""
        self._begun, self._next = True, None
        close = getattr(self._lines, "close", None)
        if close is not None:
            close()


class ArchivedCluster:
    """A `Cluster` with one pod: that of an archived attempt of a replica. `logs.read_lines` reads its logs.

    An attempt is one run of the replica's main container: a pod, or one start of the container in it. Attempts are
    numbered from 1 in the order of their pods' creation and of their restarts. `previous` reads the attempt before.
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
        self._namespace = job.namespace
        name = f"{role}/{replica} of app {job.app_id}"
        self._runs = _runs_of(archive, job, role, replica)
        if not self._runs:
            raise ClusterError(f"archive {archive.name} has no log of {name}", reason="NotFound")
        attempts = attempts_of(self._runs)
        self.order = tuple(attempts)
        """The attempts in the archive, the oldest first."""
        self.attempts = len(attempts)
        """Number of attempts in the archive."""
        self.attempt = self.attempts if attempt is None else attempt
        """Number of the attempt."""
        if not 1 <= self.attempt <= self.attempts:
            text = f"archive {archive.name} has {self.attempts} attempts of {name}, found {self.attempt}"
            raise ClusterError(f"{text}; allowed are 1 to {self.attempts}", reason="NotFound")
        self._chosen = runs_of_attempt(self._runs, attempts, self.attempt)
        self._before = runs_of_attempt(self._runs, attempts, self.attempt - 1) if self.attempt > 1 else {}
        self.pod = next(iter(self._chosen.values()))[1].pod
        """Name of the pod of the attempt."""

    @property
    def note(self) -> str:
        """Return one line about the archive, the attempt, when it was copied, and what of it is missing."""
        runs = [run for _, run in self._chosen.values()]
        copied = max(run.copied_at for run in runs)
        which = f"attempt {self.attempt} of {self.attempts}, " if self.attempts > 1 else ""
        missing = [f"container {run.container}: " + ", and ".join(_missing(run)) for run in runs if _missing(run)]
        tail = f"; {'; '.join(missing)}" if missing else ""
        return f"read from the archive {self._archive.name}: {which}copied at {format_time(copied)}{tail}"

    @property
    def runs(self) -> list[ArchivedRun]:
        """Return the runs of the attempt's containers, init containers first."""
        return [run for _, run in self._chosen.values()]

    def get(self, kind: Kind, namespace: str | None, name: str) -> Manifest | None:
        """Return the pod of the attempt. None: another object was asked for."""
        if kind != POD or namespace != self._namespace or name != self.pod:
            return None
        runs = [run for _, run in self._chosen.values()]
        default = next((run.container for run in runs if run.default), None)
        return {
            "apiVersion": POD.api_version,
            "kind": POD.kind,
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": runs[0].pod_uid,
                "annotations": {DEFAULT_CONTAINER: default} if default else {},
            },
            "spec": {
                "initContainers": [{"name": run.container} for run in runs if run.init],
                "containers": [{"name": run.container} for run in runs if not run.init],
            },
            "status": {"containerStatuses": [self._status(run) for run in runs]},
        }

    def _status(self, run: ArchivedRun) -> dict[str, Any]:
        before = self._before.get(run.container)
        last = {"lastState": {"terminated": {"containerID": _id(before[1])}}} if before else {}
        state = {"terminated": {"containerID": _id(run)}}
        return {"name": run.container, "restartCount": run.restarts, "containerID": _id(run), "state": state, **last}

    def list(self, kind: Kind, namespace: str | None, selector: Mapping[str, Any] | None = None) -> list[Manifest]:  # noqa: ARG002 - the pod has no labels
        """Return the pod of the attempt where pods are listed, else nothing."""
        pod = self.get(kind, namespace or self._namespace, self.pod)
        return [] if pod is None else [pod]

    def list_pods(self, namespace: str, selector: Mapping[str, Any], **_options: Any) -> PodList:
        """Return the pod of the attempt."""
        return PodList(pods=self.list(POD, namespace, selector))

    def events(self, namespace: str, names: Iterable[str | None]) -> Sequence[Manifest]:  # noqa: ARG002 - there are none
        """Return no events: an archive has logs only."""
        return []

    def serves(self, kind: Kind) -> bool:
        """Return whether a kind is that of pods."""
        return kind == POD

    def identify(self) -> ClusterIdentity:
        """Raise an error: an archive does not know the cluster.

        Raises:
            ClusterError: Always.
        """
        raise ClusterError(f"the archive {self._archive.name} has no identity of a cluster")

    def logs(
        self,
        namespace: str,
        pod: str,
        container: str | None = None,
        *,
        follow: bool = False,  # noqa: ARG002 - nothing is added to an archived log
        previous: bool = False,
        timestamps: bool = False,
        tail_lines: int | None = None,
        since: datetime | None = None,
        limit_bytes: int | None = None,
        silence_s: float | None = None,  # noqa: ARG002 - an archive is never silent
        keep_ends: bool = False,
    ) -> ArchivedLines:
        """Return the lines of a container's log."""
        name = container or next((run.container for run in self.runs if run.default), self.runs[0].container)
        found = (self._before if previous else self._chosen).get(name)
        if namespace != self._namespace or pod != self.pod or (found is None and not previous):
            raise ClusterError(
                f"archive {self._archive.name} has no container {name!r} of pod {pod!r} in namespace {namespace!r}",
                reason="NotFound",
            )
        if found is None:
            text = f"archive {self._archive.name} has no attempt of container {name!r} before attempt {self.attempt}"
            raise ClusterError(f"{text}; leave `previous` out to read this one", reason="NoPrevious")
        key, since_ns = found[0], None if since is None else to_nanoseconds(since) // SECOND_NS * SECOND_NS

        def read() -> Iterator[str]:
            return self._archive.lines(key) if since_ns is None else _since(self._archive.lines(key), since_ns)

        lines = read() if tail_lines is None else _tail(read, tail_lines)
        if not timestamps:
            lines = _without_stamps(lines)
        if limit_bytes is not None:
            lines = _limited(lines, limit_bytes)
        return ArchivedLines(lines if keep_ends else (line.removesuffix("\n") for line in lines))


def _runs_of(archive: Archive, job: ArchivedJob, role: str, replica: int) -> list[Run]:
    try:
        keys = [key for name in sorted({role, label_value(role)}) for key in archive.replica(job, name, replica)]
        return archive.read(newest_copies(keys))
    except OSError as error:
        raise ClusterError(
            f"the archive {archive.name} cannot be read: {error}", retryable=not isinstance(error, PermissionError)
        ) from error


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


def _id(run: ArchivedRun) -> str:
    return run.container_id or f"{run.pod_uid}/{run.restarts}"


def _since(lines: Iterator[str], since_ns: int) -> Iterator[str]:
    begins, wanted = True, False
    for part in lines:
        if begins:
            line = read_line(part[:64], 0)
            wanted = line.at_ns >= since_ns if line.stamp else wanted
        begins = part.endswith("\n")
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


def _without_stamps(lines: Iterator[str]) -> Iterator[str]:
    begins = True
    for part in lines:
        stamp = read_line(part[:64], 0).stamp if begins else ""
        begins = part.endswith("\n")
        yield part[len(stamp) + 1 :] if stamp else part


def _limited(lines: Iterator[str], most: int) -> Iterator[str]:
    for part in lines:
        data = part.encode()[:most]
        most -= len(data)
        if data:
            yield data.decode("utf-8", "replace")
        if most <= 0:
            return
