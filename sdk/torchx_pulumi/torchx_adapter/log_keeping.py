"""Copy the logs of an app to its archive while a command deletes its pods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from torchx_pulumi.apps.ownership import run_of_entry
from torchx_pulumi.kube import Cluster
from torchx_pulumi.log_archive import ArchivedJob, copying_logs, open_archive
from torchx_pulumi.model.app_entry import RunEntry
from torchx_pulumi.model.errors import ClusterError, InvalidJobError
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.progress import ProgressCallback
from torchx_pulumi.runs.whereabouts import check_cluster, is_ours, read_job_object
from torchx_pulumi.schedulers import find_backend
from torchx_pulumi.schedulers.pods.observe import get_pods, list_pods
from torchx_pulumi.torchx_adapter.context import AdapterContext


@contextmanager
def copying_before_deletion(
    context: AdapterContext, entry: RunEntry, progress: ProgressCallback, job_object: Manifest | None = None
) -> Iterator[None]:
    """Copy the logs of an app's pods to its archive, if it has one, while the block deletes the pods.

    The block runs in any case: a log that is not copied is reported and stops nothing.

    Args:
        context: Engine, clusters, index and clock.
        entry: The app.
        progress: Takes lines of progress.
        job_object: The app's object if the caller has read it. None: it is read.
    """
    url = entry.log_archive
    with ExitStack() as copies:
        if url is not None:
            try:
                archive = open_archive(url)
                cluster = context.cluster_of(entry)
                uid, pods = _run_and_pods(entry, cluster, job_object)
                if uid is not None and pods:
                    job = ArchivedJob(app_id=entry.app_id, scheduler=entry.scheduler, uid=uid)
                    copies.enter_context(
                        copying_logs(
                            cluster, archive, job, replace(run_of_entry(entry), uid=uid), pods, progress=progress
                        )
                    )
            except (ClusterError, InvalidJobError) as error:
                progress(f"{entry.app_id}: its logs are not copied to {url}: {error}")
        yield


def pods_of(cluster: Cluster, entry: RunEntry) -> Sequence[Manifest] | None:
    """Return the pods of an app. None: they may neither be listed nor be read.

    Raises:
        ClusterError: The cluster cannot be reached.
    """
    selector = find_backend(entry.scheduler).pod_selector(entry.job_name)
    pods: Sequence[Manifest] | None = list_pods(cluster, entry.namespace, selector)
    if pods is None:
        pods = get_pods(cluster, entry.namespace, [name for role in entry.pods.values() for name in role])
    return pods


def _run_and_pods(
    entry: RunEntry, cluster: Cluster, job_object: Manifest | None
) -> tuple[str | None, Sequence[Manifest]]:
    """Return the uid of the run that is about to be deleted, and its pods.

    Raises:
        ClusterError: The cluster cannot be reached, is not the one of the launch, or refuses to show the pods.
    """
    if job_object is None:
        job_object = read_job_object(entry, cluster)
        check_cluster(entry, cluster, job_object)
    if job_object is not None and not is_ours(entry, job_object):
        return None, ()
    pods = pods_of(cluster, entry)
    if pods is None:
        raise ClusterError("the pods may not be read", reason="Forbidden")
    return entry.uid or text_at(job_object, "metadata", "uid"), pods
