"""Observe an app: its live objects, else its last observation. Starts no process."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torchx_pulumi.apps.app import App
from torchx_pulumi.apps.look import Look, Remembered, look_at, read_objects
from torchx_pulumi.kube import Cluster, PodReader
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.model.app_entry import RunEntry, Stage
from torchx_pulumi.model.errors import DIFFERENT_CLUSTER, ClusterError, DeployError
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.requested import RequestedAction
from torchx_pulumi.model.status import JobState, JobStatus, Reason
from torchx_pulumi.runs.observation import status_of
from torchx_pulumi.runs.whereabouts import UNDECIDED_CLUSTER, check_cluster, read_job_object
from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects
from torchx_pulumi.schedulers.diagnosis.messages import MESSAGES
from torchx_pulumi.torchx_adapter.context import AdapterContext

logger = logging.getLogger(__name__)

Through = Callable[[PodReader, Kind], PodReader]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSnapshot:
    """One observation of an app."""

    status: JobStatus
    look: Look
    """What was read of it."""
    error: ClusterError | None = None
    """Why the present state is not known. None: the status was read from the cluster."""
    relaunched: bool = False
    """The cluster has an object of the app, with another uid than is known here."""

    @property
    def seen(self) -> ObservedObjects:
        """Return its live objects. Empty: the status is from the record."""
        return self.look.objects or ObservedObjects()

    @property
    def present(self) -> bool:
        """Return whether the app's object is in the cluster."""
        return self.seen.job_object is not None


def observe_app(
    context: AdapterContext,
    entry: RunEntry,
    through: Through = lambda cluster, _: cluster,
    remembered: Remembered | None = None,
) -> AppSnapshot:
    """Observe an app and note the observation. If the cluster cannot be reached, return the last one.

    Args:
        context: Engine, clusters, index and clock.
        entry: The app.
        through: Takes the cluster and the kind of the app's object, and returns the cluster that is asked.
        remembered: What the last look of this process remembered. None: it is the first one.

    Raises:
        ClusterError: The kubeconfig leads to another cluster than the one of the launch.
    """
    app = App.of(entry)
    try:
        cluster = context.cluster_of(entry)
        seen = read_objects(app.run, through(cluster, app.run.variant.job_object))
        check_cluster(entry, cluster, seen.job_object)
    except ClusterError as error:
        if error.reason == DIFFERENT_CLUSTER:
            raise
        look = look_at_app(context, entry, None, remembered)
        status = _unreachable_status(context, entry, context.records.note(entry, look), error)
        return AppSnapshot(status=status, look=look, error=error)
    look = look_at_app(context, entry, seen, remembered)
    relaunched = look.gone and app.launched(seen.job_object)
    status = shown(look, context.records.note(entry, look)) or UNSEEN
    return AppSnapshot(status=status, look=look, relaunched=relaunched)


UNSEEN = JobStatus(state=JobState.UNKNOWN, reason=Reason.NOT_OBSERVED, message=MESSAGES[Reason.NOT_OBSERVED])


def look_at_app(
    context: AdapterContext, entry: RunEntry, objects: ObservedObjects | None, remembered: Remembered | None = None
) -> Look:
    """Return a look at an app now; arguments as of `apps.look.look_at`.

    A deployment changes the app before its launch is complete, and while its stack is locked.
    """

    def changing() -> bool:
        if entry.stage is not Stage.LAUNCHED:
            return True
        try:
            return entry.has_stack and bool(context.driver().locks(entry))
        except DeployError as error:
            logger.debug("whether the stack of %s is locked is not known: %s", entry.app_id, error)
            return False

    return look_at(App.of(entry).run, objects, context.now(), remembered=remembered).asking_if_changing(changing)


def shown(look: Look, observed: Mapping[str, Any] | None) -> JobStatus | None:
    """Return an observation as a status, with all replicas if they were seen just now. None: unknown.

    It is the status of the look if that says the same. Another process, or an earlier look, may have said more.
    """
    seen = None if look.status is None or look.by_absence(look.status) else look.status
    if observed is None:
        return None
    if seen is not None and _says(seen, observed):
        return seen
    status = status_of(observed)
    if seen is None or (seen.state, seen.attempt) != (status.state, status.attempt):
        return status
    return dataclasses.replace(status, roles=seen.roles)


def _says(status: JobStatus, observed: Mapping[str, Any]) -> bool:
    """Return whether a status is what an observation says."""
    said = tuple(observed.get(name) for name in ("state", "reason", "message", "attempt"))
    return said == (status.state.value, status.reason.value, status.message, status.attempt)


def read_with_warning(entry: RunEntry, cluster: Cluster) -> Manifest | None:
    """Return the object under an app's name, and warn if the cluster may not be that of the launch.

    Raises:
        ClusterError: It is another cluster, or it does not answer.
    """
    job_object = read_job_object(entry, cluster)
    try:
        check_cluster(entry, cluster, job_object)
    except ClusterError as error:
        if error.reason != UNDECIDED_CLUSTER:
            raise
        logger.warning("%s", error)
    return job_object


def _unreachable_status(
    context: AdapterContext, entry: RunEntry, observed: Mapping[str, Any] | None, error: ClusterError
) -> JobStatus:
    status = None if observed is None else status_of(observed)
    if status is not None and status.state.terminal:
        return status
    request = (context.index.get(entry) or entry).requested
    cancelled = request is not None and request.action is RequestedAction.CANCEL
    asked = f"; its cancellation was requested at {request.at}" if request is not None and cancelled else ""
    if observed is None or status is None:
        message = f"{error}; it was launched at {entry.launched_at}, and was not observed since{asked}"
        return dataclasses.replace(UNSEEN, message=message)
    message = f"as of {observed.get('observed_at')}: {status.message}{asked}; it may have changed since: {error}"
    return dataclasses.replace(status, message=message)
