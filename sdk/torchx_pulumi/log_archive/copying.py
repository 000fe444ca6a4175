"""Copy the log of one container run from a cluster into an archive, complete or marked as incomplete."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone

from torchx_pulumi.kube import PodReader
from torchx_pulumi.log_archive.archive import Archive
from torchx_pulumi.log_archive.run_reader import TRIES, RunReader
from torchx_pulumi.log_archive.runs import ArchivedJob, ArchivedRun, ContainerRunRef, archived_run
from torchx_pulumi.log_archive.spool import LimitedSpool
from torchx_pulumi.logs import LogStop
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.timestamps import parse_time

LIMIT_BYTES = 64 << 20
"""Most bytes of the text of one container run that are kept by default."""


def copy_log(
    cluster: PodReader,
    archive: Archive,
    job: ArchivedJob,
    ref: ContainerRunRef,
    *,
    follow: bool = False,
    stop: LogStop | None = None,
    limit_bytes: int = LIMIT_BYTES,
    advice: str = "",
    keep_partial: Callable[[], bool] = lambda: True,
    tries: int | None = None,
    opened: Callable[[], None] = lambda: None,
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
) -> ArchivedRun | None:
    """Copy the log of a container run, unless the archive has it as a whole.

    Memory is bounded, whatever the lengths of lines and log are. Nothing is written to the archive before the log was
    read to its end, or as far as it can be.

    Args:
        cluster: Cluster of the pod.
        archive: The archive.
        job: Job of the pod.
        ref: The run.
        follow: Read a running container's log until it ends. False: read what there is.
        stop: Ends the copy early. None: nothing does.
        limit_bytes: Most bytes of text to keep: the first half and the last half.
        advice: How to change the limit, for the line about what was left out.
        keep_partial: Returns, when a copy was stopped or failed, whether what was read is stored as incomplete. A copy
            of a container that runs and is not followed always is.
        tries: Interrupted streams without new text after which reading fails. None: 4.
        opened: Called when the first lines were requested, or the copy has ended.
        now: Returns the current time.

    Returns:
        The record in the archive. None: the copy was stopped, and what was read of it is not stored.

    Raises:
        ClusterError: The log cannot be read. `reason` is `NotFound` or `Replaced` if it is lost.
        OSError: The archive, or the folder for temporary files, cannot be written; errno ENOSPC: it is full.
    """
    stop = stop or LogStop()
    reader: RunReader | None = None
    try:
        key = ref.key(job)
        known = archive.find(key)
        if known is not None:
            return known
        reader = RunReader(cluster, ref, stop, lambda: LimitedSpool(limit_bytes, advice=advice), opened, tries or TRIES)
        complete, failure = False, None
        try:
            complete = reader.read(follow=follow)
        except ClusterError as error:
            failure = error
        if failure is not None and (not reader.spool.size or not keep_partial()):
            raise failure
        if stop.is_set() and not complete and not keep_partial():
            return None
        log = reader.spool.finish()
        run = archived_run(
            job,
            reader.ref,
            lines=reader.spool.lines,
            size=reader.spool.size,
            left_out_bytes=reader.spool.left_out_bytes,
            complete=complete,
            copied_at=now().replace(microsecond=0),
            first_line_at=_first_line_at(reader),
        )
        archive.write(key, run, log)
        return run
    finally:
        if reader is not None:
            reader.spool.close()
        opened()


def _first_line_at(reader: RunReader) -> datetime | None:
    found = parse_time(reader.spool.first_line.partition(" ")[0])
    return None if found is None else found.replace(microsecond=0)
