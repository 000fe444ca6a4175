"""Cancel, resume and delete apps. Each call may be repeated, also if object, stack or cluster are gone."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torchx_pulumi.apps.app import App
from torchx_pulumi.apps.look import Look, read_objects
from torchx_pulumi.kube import Cluster
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.model.app_entry import RunEntry, Stage
from torchx_pulumi.model.errors import (
    ClusterError,
    DeployError,
    Problem,
    invalid_job,
)
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.progress import ProgressCallback
from torchx_pulumi.model.requested import RequestedAction
from torchx_pulumi.model.status import JobState, read_state
from torchx_pulumi.runs.lease import claim
from torchx_pulumi.runs.whereabouts import check_cluster
from torchx_pulumi.schedulers import Variant
from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects
from torchx_pulumi.schedulers.pods.observe import get_pods, list_pods
from torchx_pulumi.torchx_adapter.context import current_user
from torchx_pulumi.torchx_adapter.lookup import AppLookup, is_shared
from torchx_pulumi.torchx_adapter.observe import look_at_app

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An app that a user wants to cancel, resume or delete."""

    lookup: AppLookup
    """Finds the app, and has the index and the clusters."""
    app_id: str
    """`namespace:name`."""
    progress: ProgressCallback = logger.info
    """Takes lines of progress."""
    take_over: bool = False
    """Take the app over from any owner, without waiting; a deletion removes its stack's locks too."""

    def cancel(self) -> JobState | None:
        """Ask for the app to stop, if it exists. Its resources become free, its stack stays as the record.

        Returns:
            The state with which it had ended before. None: it had not, or does not exist.

        Raises:
            ClusterError: The cluster cannot be reached, or is not the one of the launch; nothing was changed.
            DeployError: Another process works on the app.
        """
        context = self.lookup.context
        found = self._found()
        if found is None:
            return None
        entry, cluster, variant, seen = found
        job_object = seen.job_object
        look = look_at_app(context, entry, seen)
        observed = context.records.note(entry, look) or {}
        if (state := read_state(observed.get("state"))).terminal:
            return state
        if job_object is None or look.gone:
            self._request(entry, look, RequestedAction.CANCEL)
            return None
        uid = text_at(job_object, "metadata", "uid") or ""
        with self._cancelling(entry, look):
            if variant.control is None:
                cluster.delete(variant.job_object, entry.namespace, entry.job_name, uid=uid or None)
            elif not variant.control.is_suspended(text_at(observed, "phase")):
                variant.control.suspend(cluster, entry.namespace, entry.job_name, uid)
        for pod in _pods_of(cluster, entry) if variant.makes_pods else ():
            cluster.delete(POD, entry.namespace, str(pod["metadata"]["name"]), uid=text_at(pod, "metadata", "uid"))
        return None

    def resume(self) -> None:
        """Let the cancelled app run again, with the spec that it was launched with.

        Raises:
            InvalidJobError: The app does not exist, or nothing of it can run again; nothing was changed.
            ClusterError: The cluster cannot be reached, or is not the one of the launch.
        """
        found = self._found()
        if found is None:
            raise self.lookup.not_found(self.app_id)
        entry, cluster, variant, seen = found
        if variant.control is None:
            kind = variant.job_object.kind
            text = f"was cancelled by deleting its {kind}, which cannot be resumed; launch it again"
            if seen.job_object is not None and App.of(entry).owns(seen.job_object):
                status = variant.read_status(seen)
                text = f"is {status.state.value} ({status.message}); only its controller resumes an {kind}"
                text += f"; {status.advice}" if status.advice else ""
            raise invalid_job(self.app_id, [Problem("app_id", text)])
        if seen.job_object is None or not App.of(entry).owns(seen.job_object):
            text = "has no job in the cluster any more; launch it again"
            raise invalid_job(self.app_id, [Problem("app_id", text)])
        look = look_at_app(self.lookup.context, entry, seen)
        status = variant.read_status(seen)
        if not variant.control.is_suspended(status.phase):
            text = f"is {status.state.value} ({status.message}); only a cancelled one can be resumed"
            raise invalid_job(self.app_id, [Problem("app_id", text)])
        left = variant.control.restarts_left(seen.job_object)
        if left is not None and left < 1:
            text = (
                f"cannot be resumed: {variant.scheduler} counts a resume as a retry, none is left, and it would end as "
                "failed. Nothing was done. Launch it again, with a higher max_retries if it is to be resumed"
            )
            raise invalid_job(self.app_id, [Problem("app_id", text)])
        variant.control.resume(cluster, entry.namespace, entry.job_name, seen.uid or "")
        # Written when the cluster has it: a run that nobody resumes stays cancelled. Until then the next attempt tells.
        self._request(entry, look, RequestedAction.RESUME)
        if left is not None:
            text = f"counts this resume as a retry; left for failures and further resumes: {left - 1}"
            self.progress(f"{self.app_id}: {variant.scheduler} {text}")

    def delete(self, *, forget_unreachable: bool = False) -> None:
        """Delete the app's objects, its stack and what is kept of it, if it exists.

        Args:
            forget_unreachable: Forget the app although its cluster cannot be reached; its objects may stay there.

        Raises:
            ClusterError: The cluster cannot be reached, or is not the one of the launch; nothing was forgotten.
            DeployError: The engine refused, or another process works on the app.
        """
        while (entry := self._settled(forget_unreachable=forget_unreachable)) is not None:
            if entry.of_program:
                raise DeployError(
                    f"app {self.app_id} is the job of a Pulumi program: take it out of the program and run `pulumi "
                    "up`, or run `pulumi destroy` there. `torchx-pulumi fleet` has the stack, in the column LAUNCHED BY"
                )
            if not entry.has_stack:
                raise DeployError(
                    f"app {self.app_id} is in the cluster, and its stack is neither in the index of this machine nor "
                    "in the backend in force: delete it where it was launched, or name its backend by the option "
                    "pulumi_backend in .torchxconfig, or by PULUMI_BACKEND_URL"
                )
            adopted = self.lookup.adopt(entry) is not None
            lease = claim(self.lookup.context.index, entry, Stage.DELETING) if adopted else None
            if lease is None:
                # Another process claimed or removed it since it was read.
                continue
            with lease, lease.deleting():
                self.lookup.context.driver().destroy(
                    self.lookup.context.reachable(entry),
                    self.progress,
                    forget_unreachable=forget_unreachable,
                    check=lease.check,
                    take_over=self.take_over,
                )
            return

    def _settled(self, *, forget_unreachable: bool = False) -> RunEntry | None:
        try:
            return self.lookup.settled(self.app_id, self.progress, take_over=self.take_over)
        except ClusterError:
            if not forget_unreachable:
                raise
            return self.lookup.find(self.app_id)

    def _found(self) -> tuple[RunEntry, Cluster, Variant, ObservedObjects] | None:
        """Return the app with its objects. None: the app does not exist.

        If the cluster has no object of the run that is known here, the app is read again from its stack: a colleague
        may have launched it again, or deleted it.

        Raises:
            ClusterError: The cluster cannot be reached, or is not the one of the launch.
        """
        entry = self._settled()
        if entry is None:
            return None
        cluster, variant, seen = self._read(entry)
        app = App.of(entry)
        if app.owns(seen.job_object):
            return entry, cluster, variant, seen
        if is_shared(entry) or app.launched(seen.job_object):
            now = self.lookup.reread(entry)
            if now is None:
                return None
            if now is not entry:
                entry, (cluster, variant, seen) = now, self._read(now)
        check_cluster(entry, cluster, seen.job_object)
        return entry, cluster, variant, seen

    def _read(self, entry: RunEntry) -> tuple[Cluster, Variant, ObservedObjects]:
        cluster, run = self.lookup.context.cluster_of(entry), App.of(entry).run
        return cluster, run.variant, read_objects(run, cluster)

    @contextmanager
    def _cancelling(self, entry: RunEntry, look: Look) -> Iterator[None]:
        """Write a cancellation before the cluster is asked, so that all readers of the stack know of it.

        A request that the cluster refuses is taken back.
        """
        before, asked, is_new = self._request(entry, look, RequestedAction.CANCEL)
        try:
            yield
        except ClusterError as error:
            # A request that may be tried again, after a timeout for example, may have reached the cluster.
            if is_new and not error.retryable:
                self.lookup.context.records.take_back(asked, look, before, by=current_user())
            raise

    def _request(self, entry: RunEntry, look: Look, action: RequestedAction) -> tuple[RunEntry, RunEntry, bool]:
        """Write a request; return the app before and after it, and whether it is a new one."""
        context = self.lookup.context
        adopted = self.lookup.adopt(entry) is not None
        before = (context.index.get(entry) if adopted else None) or entry
        if before.of_program:
            before = self.lookup.with_program_stack(before)
        asked, is_new = context.records.request(before, look, action, by=current_user())
        return before, asked, is_new


def _pods_of(cluster: Cluster, entry: RunEntry) -> Sequence[Manifest]:
    """Return the pods of an app.

    Raises:
        ClusterError: They may neither be listed nor be read, or the cluster cannot be reached.
    """
    selector = App.of(entry).run.pod_selector
    pods: Sequence[Manifest] | None = list_pods(cluster, entry.namespace, selector)
    if pods is None:
        pods = get_pods(cluster, entry.namespace, [name for role in entry.pods.values() for name in role])
    if pods is None:
        text = f"the pods of app {entry.app_id} may not be read, and so not be deleted"
        raise ClusterError(text, reason="Forbidden")
    return pods
