"""Observe an app: its live objects, else its last observation. Starts no process."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torchx_pulumi.kube import Cluster, LiveCluster
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.model.app_entry import RunEntry
from torchx_pulumi.model.errors import DIFFERENT_CLUSTER, ClusterError, DeployError
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.status import JobState, JobStatus, Reason
from torchx_pulumi.runs import recording
from torchx_pulumi.runs.observation import Observation, remembered
from torchx_pulumi.runs.recording import cancelled_words, with_cancel
from torchx_pulumi.runs.whereabouts import UNDECIDED_CLUSTER, check_cluster, is_of_stack, is_ours
from torchx_pulumi.schedulers import ObservedObjects, Variant, find_backend
from torchx_pulumi.torchx_adapter.context import AdapterContext

logger = logging.getLogger(__name__)

Through = Callable[[Cluster, Kind], Cluster]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSnapshot:
    """One observation of an app."""

    status: JobStatus
    seen: ObservedObjects = dataclasses.field(default_factory=ObservedObjects)
    """Its live objects. Empty: the status is from the record."""
    error: ClusterError | None = None
    """Why the present state is not known. None: the status was read from the cluster."""
    relaunched: bool = False
    """The cluster has an object of the app, with another uid than is known here."""

    @property
    def present(self) -> bool:
        """Return whether the app's object is in the cluster."""
        return self.seen.job_object is not None


def variant_named(scheduler: str, name: str) -> Variant:
    """Return the variant of a recorded run.

    Raises:
        DeployError: A newer release made it in a way that this one does not know.
    """
    variant = find_backend(scheduler).variants.get(name)
    if variant is not None:
        return variant
    raise DeployError(
        f"this release of torchx-pulumi does not know the variant {name!r} of {scheduler}; "
        "install the release that launched it, or a newer one"
    )


def observe_app(context: AdapterContext, entry: RunEntry, through: Through = lambda cluster, _: cluster) -> AppSnapshot:
    """Observe an app and note the observation. Where the cluster cannot be reached, the last observation is returned.

    Args:
        context: Engine, clusters, index and clock.
        entry: The app.
        through: Takes the cluster and the kind of the app's object, and returns the cluster that is asked.

    Raises:
        ClusterError: The kubeconfig leads to another cluster than the one of the launch.
    """
    variant = variant_named(entry.scheduler, entry.choice)
    try:
        cluster = context.cluster_of(entry)
        seen = variant.observe(through(cluster, variant.job_object), entry.namespace, entry.job_name, entry.made_pods)
        check_cluster(entry, cluster, seen.job_object)
    except ClusterError as error:
        if error.reason == DIFFERENT_CLUSTER:
            raise
        return AppSnapshot(status=_unreachable_status(entry, last_seen(context, entry), error), error=error)
    if seen.job_object is None or not is_ours(entry, seen.job_object):
        return AppSnapshot(
            status=_note_gone(context, entry),
            relaunched=seen.job_object is not None and is_of_stack(entry, seen.job_object),
        )
    status = with_cancel(entry, variant.read_status(seen), seen.job_object)
    if status.reason is Reason.POD_GONE or _may_be_cancelled(entry, variant, status, seen.job_object):
        # The stack may have the end from before the deletion of the pods, or that it was asked for.
        status = _cancelled_elsewhere(status, last_seen(context, entry))
    noted = note(context, entry, status)
    return AppSnapshot(status=shown(status, noted), seen=seen)


def shown(status: JobStatus, noted: Observation) -> JobStatus:
    """Return a status, or the end that was seen before the job's pods were deleted."""
    ended_before = status.reason is Reason.POD_GONE and noted.state.terminal and noted.reason is not Reason.POD_GONE
    return remembered(noted) if ended_before else status


def warn_if_undecided(entry: RunEntry, cluster: LiveCluster, job_object: Manifest | None) -> None:
    """Warn before something is read of a cluster that is not known to be the one of the launch.

    Args:
        entry: The app.
        cluster: The cluster that was reached.
        job_object: What was found there under the name of the app's object.

    Raises:
        ClusterError: It is another cluster.
    """
    try:
        check_cluster(entry, cluster, job_object)
    except ClusterError as error:
        if error.reason != UNDECIDED_CLUSTER:
            raise
        logger.warning("%s", error)


def note(context: AdapterContext, entry: RunEntry, status: JobStatus) -> Observation:
    """Note what was seen, and write the end of the run to its stack; see `recording.note`."""
    return recording.note(context.index, context.driver, entry, status, context.now())


def last_seen(context: AdapterContext, entry: RunEntry) -> Observation | None:
    """Return the last observation of an app, of the index or of its stack; see `recording.last_seen`."""
    return recording.last_seen(context.index, context.driver, entry, context.now())


def _may_be_cancelled(
    entry: RunEntry, variant: Variant, status: JobStatus, job_object: Mapping[str, Any] | None
) -> bool:
    """Return whether a run ended in a way in which a cancelled one does, and no cancellation is known here."""
    failed = status.state in (JobState.FAILED, JobState.UNKNOWN)
    return entry.cancelled_at is None and failed and variant.shows_cancel(status, job_object)


def _cancelled_elsewhere(status: JobStatus, last: Observation | None) -> JobStatus:
    """Return a status as CANCELLED where the stack says that this was requested."""
    if last is None or last.reason is not Reason.CANCELLED or status.state not in (JobState.FAILED, JobState.UNKNOWN):
        return status
    return dataclasses.replace(status, state=JobState.CANCELLED, reason=last.reason, message=last.message)


def _note_gone(context: AdapterContext, entry: RunEntry) -> JobStatus:
    """Return the status of an app whose object is gone, and write its end to its stack where that is due.

    A missing object is an observed end only where the app was cancelled.
    """
    last = last_seen(context, entry)
    status = gone_status(entry, last)
    if status.state is JobState.CANCELLED and (last is None or not last.state.terminal):
        note(context, entry, dataclasses.replace(status, uid=entry.uid))
    elif last is not None:
        recording.record_end(context.index, context.driver, entry, last, context.now())
    return status


def gone_status(entry: RunEntry, last: Observation | None) -> JobStatus:
    """Return the status of an app whose objects are not in the cluster any more."""
    status = remembered(last) if last is not None else None
    if status is not None and status.state.terminal:
        return status
    known = status or JobStatus(state=JobState.UNKNOWN, reason=Reason.NOT_FOUND, message="")
    if entry.cancelled_at is not None:
        known = dataclasses.replace(known, reason=Reason.CANCELLED, message=cancelled_words(entry))
    if known.reason is Reason.CANCELLED:
        return dataclasses.replace(known, state=JobState.CANCELLED)
    seen = f"last seen {known.state.value} at {last.observed_at}" if last is not None else "its state was never seen"
    # What a time to live removed has ended, and how is not known; a job without one vanished in mid-run.
    if entry.options.get("ttl_seconds_after_finished") is not None:
        message = f"its objects are gone, as ttl_seconds_after_finished asks for; {seen}"
        return dataclasses.replace(known, state=JobState.UNKNOWN, reason=Reason.NOT_FOUND, message=message)
    message = f"its objects are gone from the cluster, and its cancellation was not requested here; {seen}"
    return dataclasses.replace(known, state=JobState.FAILED, reason=Reason.NOT_FOUND, message=message)


def _unreachable_status(entry: RunEntry, last: Observation | None, error: ClusterError) -> JobStatus:
    asked = "" if entry.cancelled_at is None else f"; its cancellation was requested at {entry.cancelled_at}"
    if last is None:
        status = JobStatus(state=JobState.UNKNOWN, reason=Reason.NOT_FOUND, message="it was never observed")
        message = f"{error}; it was launched at {entry.launched_at}, and was not observed since{asked}"
        return dataclasses.replace(status, message=message)
    status = remembered(last)
    if status.state.terminal:
        return status
    message = f"as of {last.observed_at}: {status.message}{asked}; it may have changed since: {error}"
    return dataclasses.replace(status, message=message)


def uid_of(job_object: Mapping[str, Any]) -> str | None:
    """Return the uid of an object. None: it has none."""
    uid = (job_object.get("metadata") or {}).get("uid")
    return None if uid is None else str(uid)
