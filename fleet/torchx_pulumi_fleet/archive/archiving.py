"""Copies the logs of tracked apps into archives: of containers that end, and of pods that are being deleted."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial

from torchx_pulumi.apps.app import App, AppKey
from torchx_pulumi.apps.ownership import Run, owns
from torchx_pulumi.kube import Cluster
from torchx_pulumi.logs.archives import without_parameters
from torchx_pulumi.logs.query import PodRun, runs_of_pod
from torchx_pulumi.logs.waiting import LogStop
from torchx_pulumi.model.errors import ClusterError, InvalidJobError
from torchx_pulumi.model.object_fields import is_being_deleted, text_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.redaction import without_password
from torchx_pulumi.schedulers.pods.observe import has_secrets

from torchx_pulumi_fleet.archive import Archive, ArchivedRun, LogCopy, open_archive
from torchx_pulumi_fleet.archive.archive import job_folder, key_of_run
from torchx_pulumi_fleet.archive.archive_rules import ArchiveRules
from torchx_pulumi_fleet.archive.copying import LIMIT_BYTES, TRIES
from torchx_pulumi_fleet.tracker.reporting import Reporter
from torchx_pulumi_fleet.tracker.work_queue import WorkQueue, start_thread, wait_until

CopyKey = tuple[str, str]
"""URL of the archive, and path of the record in it."""

COPIES = 16
"""Logs of ended containers that are copied at the same time."""

FOLLOWED = 64
"""Containers of pods that are being deleted whose logs are followed at the same time."""

NEW_S, URGENT_S = -1e6, -2e6
"""Delays of copies that were not tried yet, and of those whose pod is being deleted: they come first."""

REFUSED_S = 300.0
"""Time until a log that the credentials may not read is tried again."""

TRIES_AFTER_DELETION = 3
"""Failures after which the log of a deleted pod counts as lost."""

MOST_INDEXED = 2000
"""Jobs whose archived runs are kept in memory."""

ADVICE = "; --archive-limit of the controller changes it"


@dataclass(slots=True, kw_only=True)
class PendingCopy:
    """One container run that has to be copied."""

    key: CopyKey
    archive: Archive
    cluster: Cluster
    job: Run
    ref: PodRun
    gone: bool = False
    """The pod is gone."""
    active: bool = False
    """A thread copies it."""
    failures: int = 0
    """Failures since the pod was gone."""

    @property
    def folder(self) -> str:
        """Return the folder of the job object in the archive."""
        return job_folder(self.job.app_id, self.job.uid or "")

    @property
    def name(self) -> str:
        """Return the name of the log in messages."""
        return f"{self.job.app_id}: the log of {self.ref.pod}/{self.ref.container}"


@dataclass(eq=False)
class LogArchiver:
    """Copies the logs of tracked apps. Calls return at once and never raise; the work is done by its own threads.

    A log goes into the archive that the launch of its app named, if that counts (`ArchiveRules`), else into the
    controller's own. The latter has no logs of pods with Secrets, unless that is asked for.
    """

    reporter: Reporter
    """Takes lines."""
    rules: ArchiveRules
    """Which archives are written, and for which launches."""
    limit_bytes: int = LIMIT_BYTES
    """Most bytes of the text of one container run to keep."""
    retry_s: float = 1.0
    """Time until a copy is tried again after a failure. Doubled by each further one in a row."""
    longest_retry_s: float = 30.0
    """Longest of these times."""

    def __post_init__(self) -> None:
        """Begin without copies. `start` starts the threads."""
        self._stop = LogStop()
        self._guard = threading.Lock()
        self._copies: dict[CopyKey, PendingCopy] = {}
        self._runs: dict[AppKey, tuple[Run, ...]] = {}
        self._chosen: dict[AppKey, set[str | None]] = {}
        """Uids of runs whose launch chose the archive, as their job objects showed."""
        self._opened = cache(open_archive)
        self._indexed: OrderedDict[tuple[str, str], set[str]] = OrderedDict()
        """URL of the archive and folder of a job to the records of runs that need no copy any more."""
        self._queues: dict[bool, WorkQueue[CopyKey]] = {
            running: WorkQueue(retry_s=self.retry_s, longest_retry_s=self.longest_retry_s) for running in (False, True)
        }
        """Copies of containers that have ended, and of those whose logs are followed."""
        self._threads: list[threading.Thread] = []

    def summary(self) -> str:
        """Return one line for the start of the controller: where logs go, and which are left out."""
        rules, allowed = self.rules, ", ".join(map(without_password, self.rules.allowed))
        if rules.own is None and not allowed:
            return "no logs are archived (--log-archive, --archive-allow)"
        if rules.own is None:
            return f"logs are archived of apps whose launch names {allowed} (log_archive), of no others (--log-archive)"
        left_out = "" if rules.secret_pods else ", without those of pods with secrets (--archive-secret-pods)"
        first = f"; a launch's own archive comes first, if it is {allowed}" if allowed else ""
        return f"logs are archived in {without_password(rules.own)}{left_out}{first}"

    def start(self) -> None:
        """Start its threads, but those that follow logs, which start as they are needed."""
        work = partial(self._queues[False].serve, self._run)
        self._threads += [start_thread(work, "archive") for _ in range(COPIES)]

    def mark(self, namespaces: Sequence[str], now: datetime) -> None:
        """Note in the archives that a controller writes them now; arguments as of `Archive.mark`."""
        urls = [url for url in (self.rules.own, *self.rules.allowed) if url is not None]
        for url in urls:
            archive = self._archive(url)
            if archive is None:
                continue
            try:
                place = without_parameters(url)
                archive.mark(namespaces, now, [each for each in urls if without_parameters(each) == place])
            except OSError as error:
                self._unusable(url, archive, error)

    def pod_changed(
        self, app: App, cluster: Cluster, pod: Manifest, job_object: Manifest | None, *, deleted: bool
    ) -> None:
        """Take a pod of an app as it is now.

        Every pod is passed at least once after the start, and again after each change, and where the app's stack or
        its job object is read later than the pod.

        Args:
            app: The app, as its stack was last read. Its `uid` may be that of another run than the pod's.
            cluster: The real cluster with the pod.
            pod: The pod, without the fields that `kube.trimming.trim` drops. It must not be changed.
            job_object: The job object of the app's name as the cluster has it or had it last. None: it was not seen.
            deleted: The pod is gone, and this is what it was last.
        """
        try:
            self._pod_changed(app, cluster, pod, job_object, deleted=deleted)
        except Exception as error:  # noqa: BLE001 - one pod must not end the watch of all others
            name = text_at(pod, "metadata", "name")
            text = f"{app.app_id}: pod {name}: {type(error).__name__}: {error}; please report this error"
            self.reporter.once(f"archive error {app.app_id}", text)

    def stop(self, timeout_s: float) -> None:
        """End. The next start copies the rest, as long as the pods exist."""
        for queue in self._queues.values():
            queue.close()
        self._stop.set()
        end = time.monotonic() + timeout_s
        for thread in [*self._threads]:
            thread.join(max(end - time.monotonic(), 0.0))

    def wait_until_idle(self, timeout_s: float) -> bool:
        """Wait until every log that can be copied now is copied; return whether all are."""
        return wait_until(lambda: not any(queue.pending() for queue in self._queues.values()), self._stop, timeout_s)

    def _pod_changed(
        self, app: App, cluster: Cluster, pod: Manifest, job_object: Manifest | None, *, deleted: bool
    ) -> None:
        job, going = self._run_of(app, pod), deleted or is_being_deleted(pod)
        url = None if job is None else self._chosen_url(app, job.uid, pod, job_object, going=going)
        archive = None if url is None else self._archive(url)
        if job is None or url is None or archive is None:
            return
        folder = job_folder(job.app_id, job.uid or "")
        with self._guard:
            for ref in runs_of_pod(pod):
                key = (url, key_of_run(folder, ref).record)
                is_done = key[1] in self._indexed.get((url, folder), ())
                if (not ref.running or going) and not is_done:
                    made = PendingCopy(key=key, archive=archive, cluster=cluster, job=job, ref=ref)
                    self._add(self._copies.setdefault(key, made), ref, urgent=going)
                if deleted and key in self._copies:
                    self._copies[key].gone = True

    def _add(self, copy: PendingCopy, ref: PodRun, *, urgent: bool) -> None:
        """Queue a copy, unless it is being made."""
        if copy.active:
            return
        if copy.ref.running or not ref.running:
            copy.ref = ref
        queue = self._queues[copy.ref.running]
        queue.add(copy.key, URGENT_S if urgent else NEW_S)
        if copy.ref.running and len(self._threads) < COPIES + FOLLOWED and not self._stop.is_set():
            self._threads.append(start_thread(partial(queue.serve, self._run), "archive"))

    def _run_of(self, app: App, pod: Manifest) -> Run | None:
        """Return the run of an app that a pod belongs to; its uid is known. None: the pod is of none."""
        known = self._runs.get(app.key, ())
        if app.uid is not None and app.run not in known:
            # The pods of a run may still end while the stack has the next one.
            known = (app.run, *[run for run in known if run.uid != app.uid][:1])
            self._runs[app.key] = known
            self._chosen[app.key] = self._chosen.get(app.key, set()) & {run.uid for run in known}
        return next((run for run in known if owns(run, pod)), None)

    def _chosen_url(
        self, app: App, uid: str | None, pod: Manifest, job_object: Manifest | None, *, going: bool
    ) -> str | None:
        """Return the archive for the logs of a pod: that of its launch, if it counts, else the controller's own."""
        if self.rules.of_launch(app, job_object) is not None:
            self._chosen.setdefault(app.key, set()).add(app.uid)
        own, named = self.rules.own, self.rules.named(app)
        if named is not None and uid in self._chosen.get(app.key, ()):
            return named
        if named is not None and job_object is None and not going:
            # The pod is passed again with its job object, which shows whose launch it is.
            return None
        if app.log_archive is None:
            why = "the launch named no log_archive"
        elif named is None:
            why = "the log_archive that the launch named is not allowed (--archive-allow)"
        else:
            why = "its job object does not show the label of its launch, so its log_archive does not count"
        if own is not None and (self.rules.secret_pods or not has_secrets(pod)):
            if app.log_archive is not None:
                words = f"{app.app_id}: its logs go to {without_password(own)}: {why}"
                self.reporter.once(f"archive choice {app.key}", words)
            return own
        if own is not None:
            why = f"its pods have secrets, and {why} (--archive-secret-pods)"
        elif app.log_archive is None:
            return None
        self.reporter.once(f"archive secrets {app.key}", f"{app.app_id}: its logs are not archived: {why}")
        return None

    def _archive(self, url: str) -> Archive | None:
        """Return the archive of a URL. None: it cannot be opened, which is reported once."""
        try:
            return self._opened(url)
        except InvalidJobError as error:
            text = f"logs of some apps are not archived: {'; '.join(map(str, error.problems))}"
            self.reporter.begin(f"archive {url}", text)
            return None

    def _run(self, key: CopyKey) -> None:
        """Copy one run, and plan the next attempt unless it is finished."""
        with self._guard:
            copy = self._copies.get(key)
            if copy is None or copy.active:
                return
            copy.active = True
            ref = copy.ref
        delay_s: float | None = None
        try:
            delay_s = self._attempt(copy, ref)
        except Exception as error:  # noqa: BLE001 - one log must not end the work on all others
            text = f"{copy.name}: {type(error).__name__}: {error}; please report this error"
            self.reporter.once(f"archive error {copy.job.app_id}", text)
            delay_s = 0.0
        finally:
            with self._guard:
                copy.active = False
                if delay_s is None:
                    self._copies.pop(key, None)
                    self._indexed.get((key[0], copy.folder), set()).add(key[1])
        if delay_s is None:
            for queue in self._queues.values():
                queue.succeeded(key)
        elif delay_s == 0.0:
            self._queues[copy.ref.running].retry(key)
        else:
            self._queues[copy.ref.running].add(key, delay_s, pending=False)

    def _attempt(self, copy: PendingCopy, ref: PodRun) -> float | None:
        """Copy a run. Return when it is tried again: 0.0 as after each failure. None: it is finished."""
        try:
            if copy.key[1] in self._index(copy):
                return None
            run = LogCopy(
                copy.cluster,
                copy.archive,
                copy.job,
                ref,
                stop=self._stop,
                limit_bytes=self.limit_bytes,
                advice=ADVICE,
                tries=TRIES if ref.running else 1,
            ).make()
        except ClusterError as error:
            return self._unreadable(copy, error)
        except OSError as error:
            return self._after_failure(copy, self._unusable(copy.key[0], copy.archive, error))
        self.reporter.end(f"archive {copy.key[0]}", f"log archive {copy.archive.name} can be used again")
        return self._after_copy(copy, run)

    def _unusable(self, url: str, archive: Archive, error: OSError) -> str:
        text = f"log archive {archive.name} cannot be used: {error.strerror or error}; it is tried again"
        self.reporter.begin(f"archive {url}", text)
        return text

    def _after_copy(self, copy: PendingCopy, run: ArchivedRun) -> float | None:
        self.reporter.end(f"log {copy.job.app_id}", f"{copy.name} is archived")
        if self._stop.is_set():
            return 0.0
        if run.complete:
            if run.may_lack_beginning:
                self.reporter.once(
                    f"late log {copy.job.app_id} {copy.job.uid}",
                    f"{copy.name} may lack its first lines: a node gives the last 10 MiB of a log by default",
                )
            return None
        if not copy.gone:
            # Its end may be readable in a moment.
            return 0.0
        self._lost(copy, "its pod was gone before it was read to its end; what was read is archived")
        return None

    def _unreadable(self, copy: PendingCopy, error: ClusterError) -> float | None:
        if self._stop.is_set():
            return 0.0
        if error.reason in ("Forbidden", "Unauthorized"):
            self.reporter.begin(
                f"logs {copy.cluster.api_server}",
                f"logs may not be read, and are not archived (permission: get pods/log): {error}; they are tried again "
                f"every {REFUSED_S:g} s",
            )
            return None if copy.gone else REFUSED_S
        if not error.retryable:
            self._lost(copy, str(error))
            return None
        self.reporter.begin(f"log {copy.job.app_id}", f"{copy.name} is not archived yet: {error}; it is tried again")
        return self._after_failure(copy, str(error))

    def _after_failure(self, copy: PendingCopy, why: str) -> float | None:
        """Return when a copy is tried again. None: its pod is gone, and it was tried often enough."""
        copy.failures += copy.gone
        if copy.failures < TRIES_AFTER_DELETION:
            return 0.0
        self._lost(copy, why)
        return None

    def _lost(self, copy: PendingCopy, why: str) -> None:
        self.reporter.forget(f"log {copy.job.app_id}")
        self.reporter.once(
            f"lost log {copy.job.app_id} {copy.job.uid}",
            f"{copy.name} is not archived as a whole: {why}; others may follow",
        )

    def _index(self, copy: PendingCopy) -> set[str]:
        """Return the records that a job's archive had when it was first asked, and those that need no copy since."""
        place = (copy.key[0], copy.folder)
        with self._guard:
            known = self._indexed.get(place)
            if known is not None:
                self._indexed.move_to_end(place)
                return known
        found = {key.record for key in copy.archive.index(copy.folder) if not key.partial}
        with self._guard:
            # Another thread may have read it too, and have added what it copied.
            found = self._indexed.setdefault(place, found)
            if len(self._indexed) > MOST_INDEXED:
                self._indexed.popitem(last=False)
        return found
