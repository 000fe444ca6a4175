"""The log of a replica: from its pod, else from the archives that may have it; the same rules for every reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Protocol

from torchx_pulumi.log_archive.attempts import ArchivedReplica, archived_replicas, choose_attempt
from torchx_pulumi.log_archive.reading import ArchivedCluster
from torchx_pulumi.logs import LogClock, LogQuery, read_lines
from torchx_pulumi.logs.container_log import REFUSED
from torchx_pulumi.model.errors import DIFFERENT_CLUSTER, ClusterError
from torchx_pulumi.model.options import Manifest

Label = Callable[[str], str]
"""Container -> what its lines begin with."""


class ReplicaLog(Protocol):
    """The log of a replica's pod in its cluster."""

    @property
    def kept(self) -> ArchivedReplica:
        """Return the replica and the archives that may have its log."""

    @property
    def clock(self) -> LogClock:
        """Return the clock of reading."""

    def lines(self, query: LogQuery) -> Iterator[str]:
        """Return the lines; where the pod is gone before their end, the rest from an archive.

        Raises:
            ClusterError: The log cannot be read.
        """

    def pod(self, query: LogQuery) -> Manifest | None:
        """Return the replica's pod. None: it is gone.

        Raises:
            ClusterError: It cannot be read, or the cluster is not the one of the launch.
        """

    def label(self, found: ArchivedCluster) -> Label:
        """Return what lines of an archived pod's containers begin with, where all but the init containers are read."""


def read_replica_log(live: ReplicaLog, query: LogQuery, attempt: int | None) -> Iterator[str]:
    """Return the lines of a replica's log, each with its end: from its pod, else from an archive.

    Args:
        live: The log in the cluster.
        query: The query.
        attempt: Number of the attempt, of those whose logs are kept, from 1. None: the present one, or the one before
            it if the query says `previous`.

    Raises:
        InvalidJobError: The query is not valid.
        ClusterError: The log cannot be read, or the cluster is not the one of the launch.
    """
    if attempt is None and not live.kept.archives:
        return live.lines(query)
    if attempt is not None or query.previous:
        return _lines_of_attempt(live, query, attempt)
    found: list[ArchivedCluster | None] = []

    def archived() -> ArchivedCluster | None:
        found[:] = found or [live.kept.find()]
        return found[0]

    return _or_archived(live, query, archived)


def read_archived_replica(
    kept: ArchivedReplica,
    query: LogQuery,
    attempt: int | None,
    why: str,
    *,
    label: Callable[[ArchivedCluster], Label],
    clock: LogClock,
) -> Iterator[str]:
    """Return the lines of a replica's log in an archive; nothing is asked of a cluster.

    Args:
        kept: The replica.
        query: The query.
        attempt: Number of the attempt, from 1. None: the last one, or the one before if the query says `previous`.
        why: Why it is not read from the cluster.
        label: As `ReplicaLog.label`.
        clock: The clock of reading.

    Raises:
        InvalidJobError: The query is not valid.
        ClusterError: No archive has the log, or it cannot be read.
    """
    found = kept.find() if attempt is None and not query.previous else choose_attempt(kept, None, attempt).archived
    if found is None:
        there = ", ".join(f"{role}/{number}" for role, number in archived_replicas(kept.archives, kept.job))
        text = f"archive {kept.names} has no log of {kept.role}/{kept.replica} of app {kept.job.app_id}; it has {there}"
        raise ClusterError(text, reason="NotFound")
    return _archived_lines(kept, found, query, why, label=label(found), clock=clock)


def _archived_lines(
    kept: ArchivedReplica, found: ArchivedCluster, query: LogQuery, why: str, *, label: Label, clock: LogClock
) -> Iterator[str]:
    """Return the lines of an archived log, and say where they are from and why. Empty `why`: that is not said."""
    query = replace(query, pod=found.pod, previous=False, follow=False)
    lines = read_lines(found, query, label=label if query.containers == "main" else None, clock=clock)
    kept.say(f"{f'{why}; ' if why else ''}the log of {kept.role}/{kept.replica} is {found.note}")
    return lines


def _lines_of_attempt(live: ReplicaLog, query: LogQuery, attempt: int | None) -> Iterator[str]:
    """Return the lines of an attempt. None: of the one before the present one."""
    kept, pod, why = live.kept, None, ""
    try:
        pod = live.pod(query)
    except ClusterError as error:
        if not kept.archives:
            raise
        why = str(error)
    choice = choose_attempt(kept, pod, attempt)
    if choice.live:
        follow = query.follow and not choice.previous
        query = replace(query, previous=choice.previous, follow=follow)
        return _or_archived(live, query, lambda: choice.archived)
    if choice.archived is None:
        raise ClusterError(f"the log of {kept.role}/{kept.replica} went from the archive meanwhile", reason="NotFound")
    return _archived_lines(kept, choice.archived, query, why, label=live.label(choice.archived), clock=live.clock)


def _or_archived(live: ReplicaLog, query: LogQuery, archived: Callable[[], ArchivedCluster | None]) -> Iterator[str]:
    """Return the lines of a pod's log; those of the archive where the cluster shows none of them."""

    def instead(error: ClusterError) -> Iterator[str]:
        found = archived() if _is_lost(error) else None
        if found is None:
            raise _with_hint(error, live.kept)
        why = f"pod {query.pod} is gone" if error.reason == "NotFound" else str(error)
        return _archived_lines(live.kept, found, query, why, label=live.label(found), clock=live.clock)

    try:
        lines = live.lines(query)
    except ClusterError as error:
        return instead(error)

    def read() -> Iterator[str]:
        begun = False
        try:
            with closing(lines):  # type: ignore[type-var]  # they are generators
                for line in lines:
                    begun = True
                    yield line
            return
        except ClusterError as error:
            if begun:
                raise _with_hint(error, live.kept, archived()) from error
            rest = instead(error)
        yield from rest

    return read()


def _is_lost(error: ClusterError) -> bool:
    """Return whether an error means that the cluster cannot show a log, rather than that there is none yet."""
    if error.retryable:
        return error.reason != "NotStarted"
    return error.reason in ("NotFound", "NoPrevious", DIFFERENT_CLUSTER, *REFUSED)


def _with_hint(error: ClusterError, kept: ArchivedReplica, found: ArchivedCluster | None = None) -> ClusterError:
    """Return an error with what the archives have."""
    if found is not None:
        text = f"{error}; archive {kept.names} has a copy of the log: read it again"
    elif kept.archives and _is_lost(error):
        text = f"{error}. Archive {kept.names} has no copy of it"
    else:
        return error
    return ClusterError(text, retryable=error.retryable, reason=error.reason)
