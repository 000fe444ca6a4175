"""Copies the logs of pods that a command is about to delete, for a limited time and without stopping the command."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
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
    copier = _Copier(cluster=cluster, archive=archive, job=job, run=run, progress=progress)
    copier.begin(pods)
    try:
        yield
    except BaseException:
        copier.give_up()
        raise
    copier.finish()


@dataclass(slots=True, kw_only=True)
class _Copier:
    cluster: PodReader
    archive: Archive
    job: ArchivedJob
    run: Run
    progress: ProgressCallback
    stop: LogStop = field(default_factory=LogStop)
    keep_partial: bool = True
    room: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(READ_AT_ONCE))
    copies: list[_Copy] = field(default_factory=list)

    def begin(self, pods: Sequence[Mapping[str, Any]] | None) -> None:
        """Copy the logs of ended containers, and begin to follow the others."""
        refs = self._missing(pods)
        if not refs:
            return
        where = f"{len(refs)} container{'s' if len(refs) > 1 else ''} of app {self.job.app_id}"
        self.progress(f"copying the logs of {where} to {self.archive.name} before the pods are deleted")
        running = [ref for ref in refs if ref.running]
        ended = [ref for ref in refs if not ref.running]
        self.copies = [
            *(_Copy(self, ref, follow=True) for ref in running[:AT_ONCE]),
            *(_Copy(self, ref, follow=False) for ref in [*ended, *running[AT_ONCE:]]),
        ]
        for copy in self.copies:
            copy.start()
        end = time.monotonic() + BEFORE_S
        for copy in self.copies:
            left_s = max(end - time.monotonic(), 0)
            if copy.follow:
                copy.opened.wait(left_s)
            else:
                copy.join(left_s)

    def finish(self) -> None:
        """Wait for the copies, store what came of the others, and report what is missing."""
        waits = [copy for copy in self.copies if copy.is_alive()]
        if waits:
            self.progress(f"waiting at most {BOUND_S:.0f} s for the ends of {len(waits)} logs: {_names(waits)}")
        _join(waits, BOUND_S)
        self.stop.set()
        _join(waits, STORE_S)
        by_failure: dict[str, list[_Copy]] = {}
        for copy in self.copies:
            failure = copy.failure or ("the archive did not take it in time" if copy.is_alive() else "")
            by_failure.setdefault(failure, []).append(copy)
        there = by_failure.pop("", [])
        name = self.archive.name
        for failure, failed in [*by_failure.items()][:SHOWN]:
            self.progress(f"warning: not copied to {name}: the logs of {_names(failed)}: {failure}")
        others = [copy for failed in [*by_failure.values()][SHOWN:] for copy in failed]
        if others:
            self.progress(f"warning: not copied to {name} for similar reasons: {_names(others)}")
        partial = [copy for copy in there if not copy.complete]
        if partial:
            self.progress(f"warning: copied without their ends to {name}: the logs of {_names(partial)}")
        whole = len(there) - len(partial)
        if whole:
            self.progress(f"{whole} log{'s' if whole > 1 else ''} copied to {name}")

    def give_up(self) -> None:
        """End the copies and store nothing of those without an end."""
        self.keep_partial = False
        self.stop.set()
        _join(self.copies, STORE_S)

    def _missing(self, pods: Sequence[Mapping[str, Any]] | None) -> list[ContainerRunRef]:
        """Return the runs that the archive does not have as a whole."""
        try:
            if pods is None:
                selector = find_backend(self.job.scheduler).pod_selector(self.job.job_name)
                pods = self.cluster.list(POD, self.job.namespace, selector)
            mine = [_with_namespace(pod, self.job.namespace) for pod in pods if owns(self.run, pod)]
            refs = [ref for pod in mine for ref in runs_of_pod(pod)]
            known = {key.run for key in self.archive.index(self.job) if not key.partial} if refs else set()
            return [ref for ref in refs if ref.key(self.job).run not in known]
        except TorchxPulumiError as error:
            why = str(error)
        except OSError as error:
            why = os_error_reason(error, ADVICE)
        self.progress(f"warning: no logs of app {self.job.app_id} are copied to {self.archive.name}: {why}")
        return []


class _Copy(threading.Thread):
    """One copy. A daemon: an archive that does not answer cannot keep the process running."""

    def __init__(self, copier: _Copier, ref: ContainerRunRef, *, follow: bool) -> None:
        super().__init__(daemon=True, name=f"log of {ref.pod}")
        self.ref = ref
        self.follow = follow
        self.opened = threading.Event()
        self.failure = ""
        self.complete = False
        self._copier = copier

    def run(self) -> None:
        """Copy the log."""
        copier = self._copier
        try:
            # Who follows takes no room: it stays until the pods are deleted.
            with nullcontext() if self.follow else copier.room:
                if copier.stop.is_set():
                    self.failure = "there was no time left for it"
                    return
                found = copy_log(
                    copier.cluster,
                    copier.archive,
                    copier.job,
                    self.ref,
                    follow=self.follow,
                    stop=copier.stop,
                    keep_partial=lambda: copier.keep_partial,
                    opened=self.opened.set,
                )
                self.complete = found is not None and found.complete
        except ClusterError as error:
            self.failure = str(error)
        except OSError as error:
            # Without the path, which is another one for each log.
            self.failure = os_error_reason(error, ADVICE)
        except Exception as error:  # noqa: BLE001 - reported; a copy never stops the command
            self.failure = f"{type(error).__name__}: {error}"
        finally:
            self.opened.set()


def _join(copies: Sequence[_Copy], seconds: float) -> None:
    end = time.monotonic() + seconds
    for copy in copies:
        copy.join(max(end - time.monotonic(), 0))


def _names(copies: Sequence[_Copy]) -> str:
    """Return pods and containers for messages."""
    runs = (f" (run {copy.ref.restarts + 1})" if copy.ref.restarts else "" for copy in copies)
    return listed([f"{copy.ref.pod}/{copy.ref.container}{run}" for copy, run in zip(copies, runs, strict=True)], SHOWN)


def _with_namespace(pod: Mapping[str, Any], namespace: str) -> Mapping[str, Any]:
    """Return a pod whose metadata has a namespace."""
    if text_at(pod, "metadata", "namespace"):
        return pod
    return {**pod, "metadata": {**(pod.get("metadata") or {}), "namespace": namespace}}
