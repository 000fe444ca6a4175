"""Copies the logs of pods that a command is about to delete, for a limited time and without stopping the command."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from torchx_pulumi.apps.ownership import Run, owns
from torchx_pulumi.kube import PodReader
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.log_archive.archive import Archive
from torchx_pulumi.log_archive.copying import copy_log
from torchx_pulumi.log_archive.runs import ArchivedJob, ContainerRunRef, runs_of_pod
from torchx_pulumi.logs import LogStop
from torchx_pulumi.model.errors import ClusterError, TorchxPulumiError
from torchx_pulumi.model.object_fields import text_at
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
"""Seconds in which what came of logs without an end is stored."""

SHOWN = 5
"""Containers in a message, and reasons in a report."""

ADVICE = "name another log_archive"
"""What to do about an archive that cannot be used."""


@dataclass(slots=True)
class _Copy:
    """One copy in a thread."""

    ref: ContainerRunRef
    thread: threading.Thread
    opened: threading.Event
    failure: str = ""
    complete: bool = False

    @property
    def name(self) -> str:
        """Return pod and container for messages."""
        restarts = f" (run {self.ref.restarts + 1})" if self.ref.restarts else ""
        return f"{self.ref.pod}/{self.ref.container}{restarts}"


@contextmanager
def copying_logs(
    cluster: PodReader,
    archive: Archive,
    job: ArchivedJob,
    run: Run,
    pods: Sequence[Mapping[str, Any]] | None = None,
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
    copier = _Copier(cluster, archive, job, run, progress)
    copier.begin(pods)
    try:
        yield
    except BaseException:
        copier.give_up()
        raise
    copier.finish()


class _Copier:
    def __init__(
        self,
        cluster: PodReader,
        archive: Archive,
        job: ArchivedJob,
        run: Run,
        progress: ProgressCallback,
    ) -> None:
        self._cluster = cluster
        self._archive = archive
        self._job = job
        self._run = run
        self._progress = progress
        self._stop = LogStop()
        self._keep_partial = True
        self._room = threading.BoundedSemaphore(READ_AT_ONCE)
        self._copies: list[_Copy] = []

    def begin(self, pods: Sequence[Mapping[str, Any]] | None) -> None:
        """Copy the logs of ended containers, and begin to follow the others."""
        refs = self._missing(pods)
        if not refs:
            return
        where = f"{len(refs)} container{'s' if len(refs) > 1 else ''} of app {self._job.app_id}"
        self._progress(f"copying the logs of {where} to {self._archive.name} before the pods are deleted")
        running = [ref for ref in refs if ref.running]
        ended = [ref for ref in refs if not ref.running]
        self._copies = [
            *(self._start(ref, follow=True) for ref in running[:AT_ONCE]),
            *(self._start(ref, follow=False) for ref in [*ended, *running[AT_ONCE:]]),
        ]
        end = time.monotonic() + BEFORE_S
        for copy in self._copies:
            if copy.ref in running[:AT_ONCE]:
                copy.opened.wait(max(end - time.monotonic(), 0))
            else:
                copy.thread.join(max(end - time.monotonic(), 0))

    def finish(self) -> None:
        """Wait for the copies, store what came of the others, and report what is missing."""
        waits = [copy for copy in self._copies if copy.thread.is_alive()]
        if waits:
            self._progress(f"waiting at most {BOUND_S:.0f} s for the ends of {len(waits)} logs: {_names(waits)}")
        _join(waits, BOUND_S)
        self._stop.set()
        _join(waits, STORE_S)
        for copy in self._copies:
            if copy.thread.is_alive():
                copy.failure = copy.failure or "the archive did not take it in time"
        failed = [copy for copy in self._copies if copy.failure]
        partial = [copy for copy in self._copies if not copy.failure and not copy.complete]
        whole = len(self._copies) - len(failed) - len(partial)
        reasons = [*dict.fromkeys(copy.failure for copy in failed)]
        for failure in reasons[:SHOWN]:
            names = _names([copy for copy in failed if copy.failure == failure])
            self._progress(f"warning: not copied to {self._archive.name}: the logs of {names}: {failure}")
        others = [copy for copy in failed if copy.failure in reasons[SHOWN:]]
        if others:
            self._progress(f"warning: not copied to {self._archive.name} for similar reasons: {_names(others)}")
        if partial:
            self._progress(f"warning: copied without their ends to {self._archive.name}: the logs of {_names(partial)}")
        if whole:
            self._progress(f"{whole} log{'s' if whole > 1 else ''} copied to {self._archive.name}")

    def give_up(self) -> None:
        """End the copies and store nothing of those without an end."""
        self._keep_partial = False
        self._stop.set()
        _join(self._copies, STORE_S)

    def _missing(self, pods: Sequence[Mapping[str, Any]] | None) -> list[ContainerRunRef]:
        """Return the runs that the archive does not have as a whole."""
        try:
            if pods is None:
                selector = find_backend(self._job.scheduler).pod_selector(self._job.job_name)
                pods = self._cluster.list(POD, self._job.namespace, selector)
            mine = [_with_namespace(pod, self._job.namespace) for pod in pods if owns(self._run, pod)]
            refs = [ref for pod in mine for ref in runs_of_pod(pod)]
            known = {key.run for key in self._archive.index(self._job) if not key.partial} if refs else set()
            return [ref for ref in refs if ref.key(self._job).run not in known]
        except TorchxPulumiError as error:
            why = str(error)
        except OSError as error:
            why = os_error_reason(error, ADVICE)
        self._progress(f"warning: no logs of app {self._job.app_id} are copied to {self._archive.name}: {why}")
        return []

    def _start(self, ref: ContainerRunRef, *, follow: bool) -> _Copy:
        opened = threading.Event()
        copy = _Copy(ref, threading.Thread(daemon=True, name=f"log of {ref.pod}"), opened)

        def run() -> None:
            try:
                # Who follows takes no room: it stays until the pods are deleted.
                with nullcontext() if follow else self._room:
                    if self._stop.is_set():
                        copy.failure = "there was no time left for it"
                        return
                    found = copy_log(
                        self._cluster,
                        self._archive,
                        self._job,
                        ref,
                        follow=follow,
                        stop=self._stop,
                        keep_partial=lambda: self._keep_partial,
                        opened=opened.set,
                    )
                    copy.complete = found is not None and found.complete
            except ClusterError as error:
                copy.failure = str(error)
            except OSError as error:
                # Without the path, which is another one for each log.
                copy.failure = os_error_reason(error, ADVICE)
            except Exception as error:  # noqa: BLE001 - reported; a copy never stops the command
                copy.failure = f"{type(error).__name__}: {error}"
            finally:
                opened.set()

        copy.thread = threading.Thread(target=run, daemon=True, name=f"log of {ref.pod}")
        copy.thread.start()
        return copy


def _join(copies: Sequence[_Copy], seconds: float) -> None:
    end = time.monotonic() + seconds
    for copy in copies:
        copy.thread.join(max(end - time.monotonic(), 0))


def _names(copies: Sequence[_Copy]) -> str:
    return listed([copy.name for copy in copies], SHOWN)


def _with_namespace(pod: Mapping[str, Any], namespace: str) -> Mapping[str, Any]:
    """Return a pod whose metadata has a namespace."""
    if text_at(pod, "metadata", "namespace"):
        return pod
    return {**pod, "metadata": {**(pod.get("metadata") or {}), "namespace": namespace}}
