"""The log of a replica: from its pod, else from the archives that may have it; the same rules for every reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

from torchx_pulumi.log_archive.archived_log import ArchivedLog
from torchx_pulumi.log_archive.attempts import ArchivedReplica, archived_replicas, choose_attempt
from torchx_pulumi.logs import LogClock, LogQuery, LogStop
from torchx_pulumi.logs.following import REFUSED
from torchx_pulumi.logs.reading import Label, read_source
from torchx_pulumi.model.errors import DIFFERENT_CLUSTER, ClusterError
from torchx_pulumi.model.options import Manifest


class ReplicaLog:
    """The log of a replica. This class reads archives; subclasses know the replica's pod."""

    def __init__(self, kept: ArchivedReplica, *, clock: LogClock, stop: LogStop | None = None) -> None:
        """Read nothing yet.

        Args:
            kept: The replica and the archives that may have its log.
            clock: The clock of reading.
            stop: Ends the reading. None: nothing does.
        """
        self.kept = kept
        self.clock = clock
        self.stop = stop or LogStop()

    def lines(self, query: LogQuery) -> Iterator[str]:
        """Return the lines; where the pod is gone before their end, the rest from an archive.

        Raises:
            ClusterError: The log cannot be read.
        """
        raise NotImplementedError

    def pod(self, query: LogQuery) -> Manifest | None:
        """Return the replica's pod. None: it is gone.

        Raises:
            ClusterError: It cannot be read, or the cluster is not the one of the launch.
        """
        raise NotImplementedError

    def label(self, query: LogQuery, found: ArchivedLog) -> Label | None:  # noqa: ARG002 - for subclasses
        """Return what lines of an archived pod's containers begin with; None as of `read_lines`."""
        return None

    def read(self, query: LogQuery, attempt: int | None) -> Iterator[str]:
        """Return the lines of the log, each with its end: from the pod, else from an archive.

        Args:
            query: The query.
            attempt: Number of the attempt, of those whose logs are kept, from 1. None: the present one, or the one
                before it if the query says `previous`.

        Raises:
            InvalidJobError: The query is not valid.
            ClusterError: The log cannot be read, or the cluster is not the one of the launch.
        """
        kept, pod, why = self.kept, None, ""
        if attempt is None and not (query.previous and kept.archives):
            return self._or_archived(query, kept.find) if kept.archives else self.lines(query)
        try:
            pod = self.pod(query)
        except ClusterError as error:
            if not kept.archives:
                raise
            why = str(error)
        choice = choose_attempt(kept, pod, attempt)
        if choice.live:
            query = replace(query, previous=choice.previous, follow=query.follow and not choice.previous)
            return self._or_archived(query, lambda: choice.archived)
        if choice.archived is None:
            text = f"the log of {kept.role}/{kept.replica} went from the archive meanwhile"
            raise ClusterError(text, reason="NotFound")
        return self._archived_lines(choice.archived, query, why)

    def read_archived(self, query: LogQuery, attempt: int | None, why: str) -> Iterator[str]:
        """Return the lines of the log in an archive; nothing is asked of a cluster.

        Args:
            query: The query.
            attempt: Number of the attempt, from 1. None: the last one, or the one before if the query says `previous`.
            why: Why it is not read from the cluster.

        Raises:
            InvalidJobError: The query is not valid.
            ClusterError: No archive has the log, or it cannot be read.
        """
        kept = self.kept
        found = kept.find() if attempt is None and not query.previous else choose_attempt(kept, None, attempt).archived
        if found is None:
            there = ", ".join(f"{role}/{number}" for role, number in archived_replicas(kept.archives, kept.job))
            text = f"archive {kept.names} has no log of {kept.role}/{kept.replica} of app {kept.job.app_id}"
            raise ClusterError(f"{text}; it has {there}", reason="NotFound")
        return self._archived_lines(found, query, why)

    def _archived_lines(self, found: ArchivedLog, query: LogQuery, why: str) -> Iterator[str]:
        """Return the lines of an archived log, and say where they are from and why. Empty `why`: that is not said."""
        query = replace(query, pod=found.pod, previous=False, follow=False)
        lines = read_source(found, query, label=self.label(query, found), clock=self.clock, stop=self.stop)
        self.kept.say(f"{f'{why}; ' if why else ''}the log of {self.kept.role}/{self.kept.replica} is {found.note}")
        return lines

    def _or_archived(self, query: LogQuery, find: Callable[[], ArchivedLog | None]) -> Iterator[str]:
        """Return the lines of the pod's log; those of the archive where the cluster shows none of them."""

        def instead(error: ClusterError) -> Iterator[str]:
            found = find() if _is_lost(error) else None
            if found is None:
                raise _with_hint(error, self.kept)
            why = f"pod {query.pod} is gone" if error.reason == "NotFound" else str(error)
            return self._archived_lines(found, query, why)

        try:
            lines = self.lines(query)
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
                    raise _with_hint(error, self.kept, find()) from error
                rest = instead(error)
            yield from rest

        return read()


def _is_lost(error: ClusterError) -> bool:
    """Return whether an error means that the cluster cannot show a log, rather than that there is none yet."""
    if error.retryable:
        return error.reason != "NotStarted"
    return error.reason in ("NotFound", "NoPrevious", DIFFERENT_CLUSTER, *REFUSED)


def _with_hint(error: ClusterError, kept: ArchivedReplica, found: ArchivedLog | None = None) -> ClusterError:
    """Return an error with what the archives have."""
    if found is not None:
        text = f"{error}; archive {kept.names} has a copy of the log: read it again"
    elif kept.archives and _is_lost(error):
        text = f"{error}. Archive {kept.names} has no copy of it"
    else:
        return error
    return ClusterError(text, retryable=error.retryable, reason=error.reason)
