"""Copies the logs of pods that a command is about to delete, for a limited time and without stopping the command."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from torchx_pulumi.apps.ownership import Run, owns
from torchx_pulumi.kube import PodReader
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.log_archive.archive import Archive, ArchivedJob
from torchx_pulumi.log_archive.copying import LogCopy
from torchx_pulumi.logs import LogStop
from torchx_pulumi.logs.query import PodRun, runs_of_pod
from torchx_pulumi.model.errors import ClusterError, TorchxPulumiError
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.progress import ProgressCallback
from torchx_pulumi.model.text import listed
from torchx_pulumi.schedulers import find_backend
from torchx_pulumi.storage.files import os_error_reason

AT_ONCE = 64
"""Running containers whose logs are followed; those of others are read once."""

READ_AT_ONCE = 16
"""Logs that are read once at the same time."""

BOUND_S = 60.0
"""Seconds for which a command waits for the ends of containers after it has deleted their pods."""

BEFORE_S = 60.0
"""Seconds for which logs of ended containers are copied before the command deletes their pods."""

STORE_S = 20.0
"""Seconds in which unfinished logs are stored."""

SHOWN = 5
"""Containers in a message, and reasons in a report."""

ADVICE = "name another log_archive"
"""What to do about an archive that cannot be used."""


@contextmanager
def copying_logs(
    cluster: PodReader,
    archive: Archive,
    job: ArchivedJob,
    run: Run,
    pods: Sequence[Manifest] | None = None,
    *,
    progress: ProgressCallback,
) -> Iterator[None]:
    """Copy the logs of pods around a block that deletes them.

    Logs of ended containers are copied before the block. Those of running containers are followed from before the block
    to their ends, at most `BOUND_S` after it; what came until then is stored as incomplete. Errors of the archive
    or of reading logs are reported by `progress` and never raised. If the block raises, copying ends at once.

    Args:
        cluster: Cluster of the pods.
        archive: The archive.
        job: The job.
        run: The same in its cluster: the pods that it owns are copied.
        pods: Pods with the job's name as they were observed. None: they are listed.
        progress: Takes lines of progress and warnings.
    """
    runs: list[PodRun] = []
    try:
        if pods is None:
            pods = cluster.list(POD, job.namespace, find_backend(job.scheduler).pod_selector(job.job_name))
        runs = [found for pod in pods if owns(run, pod) for found in runs_of_pod(pod)]
        whole = {*archive.index(job.folder)} if runs else set()
        runs = [found for found in runs if job.key(found) not in whole]
    except (TorchxPulumiError, OSError) as error:
        why = os_error_reason(error, ADVICE) if isinstance(error, OSError) else str(error)
        progress(f"warning: no logs of app {job.app_id} are copied to {archive.name}: {why}")
    if runs:
        where = f"{len(runs)} container{'s' if len(runs) > 1 else ''} of app {job.app_id}"
        progress(f"copying the logs of {where} to {archive.name} before the pods are deleted")
    stop = LogStop()
    running, ended = [found for found in runs if found.running], [found for found in runs if not found.running]
    room = threading.BoundedSemaphore(READ_AT_ONCE)
    copies = [
        # Who follows takes no room: it stays until the pods are deleted.
        *(
            _Copy(LogCopy(cluster, archive, job, found, follow=True, stop=stop), nullcontext())
            for found in running[:AT_ONCE]
        ),
        *(_Copy(LogCopy(cluster, archive, job, found, stop=stop), room) for found in [*ended, *running[AT_ONCE:]]),
    ]
    for copy in copies:
        copy.start()
    end = time.monotonic() + BEFORE_S
    for copy in copies:
        left_s = max(end - time.monotonic(), 0)
        if copy.log.follow:
            copy.log.opened.wait(left_s)
        else:
            copy.join(left_s)
    try:
        yield
    except BaseException:
        for copy in copies:
            copy.log.keep_partial = False
        stop.set()
        _join(copies, STORE_S)
        raise
    waits = [copy for copy in copies if copy.is_alive()]
    if waits:
        progress(f"waiting at most {BOUND_S:.0f} s for the ends of {len(waits)} logs: {_names(waits)}")
    _join(waits, BOUND_S)
    stop.set()
    _join(waits, STORE_S)
    for line in _report(copies, archive.name):
        progress(line)


def _report(copies: Sequence[_Copy], name: str) -> Iterator[str]:
    """Yield what was not copied to an archive, each reason once, then the number of copied logs."""
    by_failure: dict[str, list[_Copy]] = {}
    for copy in copies:
        failure = copy.failure or ("the archive did not take it in time" if copy.is_alive() else "")
        by_failure.setdefault(failure, []).append(copy)
    there = by_failure.pop("", [])
    for failure, failed in [*by_failure.items()][:SHOWN]:
        yield f"warning: not copied to {name}: the logs of {_names(failed)}: {failure}"
    others = [copy for failed in [*by_failure.values()][SHOWN:] for copy in failed]
    if others:
        yield f"warning: not copied to {name} for similar reasons: {_names(others)}"
    partial = [copy for copy in there if not copy.complete]
    if partial:
        yield f"warning: copied without their ends to {name}: the logs of {_names(partial)}"
    whole = len(there) - len(partial)
    if whole:
        yield f"{whole} log{'s' if whole > 1 else ''} copied to {name}"


class _Copy(threading.Thread):
    """One copy. A daemon: an archive that does not answer cannot keep the process running."""

    def __init__(self, log: LogCopy, room: AbstractContextManager[object]) -> None:
        super().__init__(daemon=True, name=f"log of {log.run.pod}")
        self.log = log
        self.failure = ""
        """Why it failed. Empty: it did not, or not yet."""
        self.complete = False
        self._room = room

    def run(self) -> None:
        try:
            with self._room:
                if self.log.stop.is_set():
                    self.failure = "there was no time left for it"
                    return
                found = self.log.make()
                self.complete = found is not None and found.complete
        except ClusterError as error:
            self.failure = str(error)
        except OSError as error:
            # Without the path, which is another one for each log.
            self.failure = os_error_reason(error, ADVICE)
        except Exception as error:  # noqa: BLE001 - reported; a copy never stops the command
            self.failure = f"{type(error).__name__}: {error}"


def _join(copies: Sequence[_Copy], seconds: float) -> None:
    end = time.monotonic() + seconds
    for copy in copies:
        copy.join(max(end - time.monotonic(), 0))


def _names(copies: Sequence[_Copy]) -> str:
    """Return pods and containers for messages."""
    runs = [copy.log.run for copy in copies]
    names = [f"{run.pod}/{run.container}{f' (run {run.restarts + 1})' if run.restarts else ''}" for run in runs]
    return listed(names, SHOWN)
