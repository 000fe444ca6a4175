"""Cancel, resume and delete apps. Each call may be repeated, also where object, stack or cluster are gone."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from torchx_pulumi.apps.look import Look
from torchx_pulumi.kube import Cluster
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.model.app_entry import RunEntry, Stage
from torchx_pulumi.model.errors import (
    ClusterError,
    DeployError,
    Problem,
    TakenOverError,
    TorchxPulumiError,
    invalid_job,
)
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.progress import ProgressCallback
from torchx_pulumi.model.requested import RequestedAction
from torchx_pulumi.model.status import read_state
from torchx_pulumi.runs.lease import Lease, claim
from torchx_pulumi.runs.variants import find_variant
from torchx_pulumi.runs.whereabouts import check_cluster, is_of_stack, is_ours
from torchx_pulumi.schedulers import ObservedObjects, Variant
from torchx_pulumi.torchx_adapter.context import AdapterContext, current_user
from torchx_pulumi.torchx_adapter.log_keeping import copying_before_deletion, pods_of
from torchx_pulumi.torchx_adapter.lookup import AppLookup, is_shared
from torchx_pulumi.torchx_adapter.observe import look_at, uid_of

logger = logging.getLogger(__name__)


def cancel_app(
    lookup: AppLookup,
    app_id: str,
    progress: ProgressCallback = logger.info,
    *,
    take_over: bool = False,
) -> bool:
    """Ask for an app to stop. Its resources become free, its stack stays as the record.

    Args:
        lookup: Finds the app, and has the index and the clusters.
        app_id: `namespace:name`.
        progress: Takes lines of progress.
        take_over: Take over an unfinished launch or deletion from any owner, without waiting.

    Returns:
        Whether the app exists.

    Raises:
        ClusterError: The cluster cannot be reached, or is not the one of the launch; nothing was changed.
        DeployError: Another process works on the app.
    """
    context = lookup.context
    found = _found(lookup, app_id, progress, take_over=take_over)
    if found is None:
        return False
    entry, cluster, variant, seen = found
    job_object = seen.job_object
    own = job_object is not None and is_ours(entry, job_object)
    look = look_at(context, entry, seen if own else ObservedObjects(at=seen.at))
    observed = context.records.note(entry, look) or {}
    if read_state(observed.get("state")).terminal:
        return True
    if job_object is None or not own:
        _request(lookup, entry, look, RequestedAction.CANCEL)
        return True
    uid = uid_of(job_object) or ""
    with copying_before_deletion(context, entry, progress, job_object):
        with _cancelling(lookup, entry, look):
            if variant.control is None:
                cluster.delete(variant.job_object, entry.namespace, entry.job_name, uid=uid or None)
            elif not variant.control.is_suspended(text_at(observed, "phase")):
                variant.control.suspend(cluster, entry.namespace, entry.job_name, uid)
        if variant.makes_pods:
            _delete_pods(cluster, entry)
    return True


def resume_app(
    lookup: AppLookup,
    app_id: str,
    progress: ProgressCallback = logger.info,
    *,
    take_over: bool = False,
) -> None:
    """Let a cancelled app run again, with the spec that it was launched with.

    Args:
        lookup: Finds the app, and has the index and the clusters.
        app_id: `namespace:name`.
        progress: Takes lines of progress.
        take_over: Take over an unfinished launch or deletion from any owner, without waiting.

    Raises:
        InvalidJobError: The app does not exist, or nothing of it can run again.
        ClusterError: The cluster cannot be reached, or is not the one of the launch.
    """
    context = lookup.context
    found = _found(lookup, app_id, progress, take_over=take_over)
    if found is None:
        raise lookup.not_found(app_id)
    entry, cluster, variant, seen = found
    if variant.control is None:
        text = f"was cancelled by deleting its {variant.job_object.kind}, which cannot be resumed; launch it again"
        raise invalid_job(app_id, [Problem("app_id", text)])
    if seen.job_object is None or not is_ours(entry, seen.job_object):
        raise invalid_job(app_id, [Problem("app_id", "has no job in the cluster any more; launch it again")])
    look = look_at(context, entry, seen)
    status = variant.read_status(seen)
    if not variant.control.is_suspended(status.phase):
        text = f"is {status.state.value} ({status.message}); only a cancelled one can be resumed"
        raise invalid_job(app_id, [Problem("app_id", text)])
    # Written when the cluster has it: a run that nobody resumes stays cancelled. Until then the next attempt tells.
    variant.control.resume(cluster, entry.namespace, entry.job_name, uid_of(seen.job_object) or "")
    _request(lookup, entry, look, RequestedAction.RESUME)


def delete_app(
    lookup: AppLookup,
    app_id: str,
    progress: ProgressCallback = logger.info,
    *,
    forget_unreachable: bool = False,
    take_over: bool = False,
) -> bool:
    """Delete an app's objects, its stack and what is kept of it.

    Args:
        lookup: Finds the app, and has the index and the clusters.
        app_id: `namespace:name`.
        progress: Takes lines of progress.
        forget_unreachable: Forget the app although its cluster cannot be reached; its objects may stay there.
        take_over: Do not wait for another process: take the app over, and remove its stack's locks.

    Returns:
        Whether the app existed.

    Raises:
        ClusterError: The cluster cannot be reached, or is not the one of the launch; nothing was forgotten.
        DeployError: The engine refused, or another process works on the app.
    """
    context = lookup.context
    known = False
    while (entry := _settled_or_unreachable(lookup, app_id, progress, forget_unreachable, take_over)) is not None:
        known = True
        if not entry.has_stack:
            raise DeployError(
                f"app {app_id} is in the cluster, and its stack is neither in the index of this machine nor in the "
                "backend in force: delete it where it was launched, or name its backend by the option pulumi_backend "
                "in .torchxconfig, or by PULUMI_BACKEND_URL"
            )
        lease = claim(context.index, entry, Stage.DELETING) if lookup.adopt(entry) is not None else None
        if lease is None:
            # Another process claimed or removed it since it was read.
            continue
        with lease:
            _delete(context, entry, progress, lease, forget_unreachable=forget_unreachable, take_over=take_over)
        break
    return known


def _delete(
    context: AdapterContext,
    entry: RunEntry,
    progress: ProgressCallback,
    lease: Lease,
    *,
    forget_unreachable: bool,
    take_over: bool,
) -> None:
    try:
        here = context.reachable(entry)
        with copying_before_deletion(context, here, progress):
            context.driver().destroy(
                here, progress, forget_unreachable=forget_unreachable, check=lease.check, take_over=take_over
            )
    except TakenOverError:
        # What is left is the new owner's.
        raise
    except TorchxPulumiError:
        lease.end(lambda now: replace(now, stage=Stage.LAUNCHED))
        raise
    except BaseException:
        # Interrupted: the next call finishes it.
        lease.end(lambda now: now)
        raise
    lease.end(lambda _: None)


def _settled_or_unreachable(
    lookup: AppLookup, app_id: str, progress: ProgressCallback, forget_unreachable: bool, take_over: bool
) -> RunEntry | None:
    try:
        return lookup.settled(app_id, progress, take_over=take_over)
    except ClusterError:
        if not forget_unreachable:
            raise
        return lookup.find(app_id)


def _found(
    lookup: AppLookup, app_id: str, progress: ProgressCallback, *, take_over: bool
) -> tuple[RunEntry, Cluster, Variant, ObservedObjects] | None:
    """Return an app that is about to be changed, with its objects. None: there is no such app.

    Where the cluster has no object of the run that is known here, the app is read again from its stack: a colleague
    may have launched it again, or deleted it.

    Raises:
        ClusterError: The cluster cannot be reached, or is not the one of the launch.
    """
    context = lookup.context
    entry = lookup.settled(app_id, progress, take_over=take_over)
    if entry is None:
        return None
    cluster, variant = context.cluster_of(entry), find_variant(entry.scheduler, entry.choice)
    seen = variant.observe(cluster, entry.namespace, entry.job_name, entry.made_pods)
    if seen.job_object is not None and is_ours(entry, seen.job_object):
        return entry, cluster, variant, seen
    if is_shared(entry) or (seen.job_object is not None and is_of_stack(entry, seen.job_object)):
        now = lookup.reread(entry)
        if now is None:
            return None
        if now is not entry:
            entry, cluster, variant = now, context.cluster_of(now), find_variant(now.scheduler, now.choice)
            seen = variant.observe(cluster, entry.namespace, entry.job_name, entry.made_pods)
    check_cluster(entry, cluster, seen.job_object)
    return entry, cluster, variant, seen


@contextmanager
def _cancelling(lookup: AppLookup, entry: RunEntry, look: Look) -> Iterator[None]:
    """Write a cancellation before the cluster is asked, so that all readers of the stack know of it.

    A request that the cluster refuses is taken back.
    """
    before, asked, is_new = _request(lookup, entry, look, RequestedAction.CANCEL)
    try:
        yield
    except ClusterError as error:
        # A request that may be tried again, after a timeout for example, may have reached the cluster.
        if is_new and not error.retryable:
            lookup.context.records.take_back(asked, look, before, by=current_user())
        raise


def _request(
    lookup: AppLookup, entry: RunEntry, look: Look, action: RequestedAction
) -> tuple[RunEntry, RunEntry, bool]:
    """Write a request; return the app before and after it, and whether it is a new one."""
    adopted = lookup.adopt(entry) is not None
    before = lookup.context.index.get(entry) if adopted else None
    asked, is_new = lookup.context.records.request(before or entry, look, action, by=current_user())
    return before or entry, asked, is_new


def _delete_pods(cluster: Cluster, entry: RunEntry) -> None:
    pods = pods_of(cluster, entry)
    if pods is None:
        raise ClusterError(f"the pods of app {entry.app_id} may not be read, and so not be deleted", reason="Forbidden")
    for pod in pods:
        cluster.delete(POD, entry.namespace, str(pod["metadata"]["name"]), uid=uid_of(pod))
