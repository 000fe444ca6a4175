"""Copy the logs of a run to the archive while `up` deletes its objects and launches the next run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager

import pulumi
from torchx_pulumi.apps.ownership import run_of_object
from torchx_pulumi.kube import PodReader
from torchx_pulumi.log_archive import ArchivedJob, copying_logs, open_archive
from torchx_pulumi.model.errors import ClusterError, InvalidJobError
from torchx_pulumi.runs.variants import variant_of_run

from torchx_pulumi_components.launch import Launch
from torchx_pulumi_components.resources import KubernetesObject

Deleted = Callable[[KubernetesObject], Awaitable[None]]
"""Called with the registered job object: ends the copies when the engine has deleted the objects of the last run."""


@asynccontextmanager
async def copying_ended_run(
    launch: Launch, cluster: PodReader | None, log_archive: str | None, say: Callable[[str], None]
) -> AsyncIterator[Deleted]:
    """Copy the logs of the run that a relaunch ends, except in previews.

    A log that is not copied is reported and does not stop the deployment.

    Args:
        launch: The decision.
        cluster: Cluster of the run. None: it cannot be read, which is said.
        log_archive: URL of the archive. None: no log is copied.
        say: Takes lines of progress, in any thread.
    """
    with ExitStack() as copies:
        ended = launch.ended
        wanted = log_archive is not None and ended is not None and launch.launching and not pulumi.runtime.is_dry_run()

        async def deleted(job_object: KubernetesObject) -> None:
            if wanted:
                # The engine has deleted the old object before it creates the new one.
                await job_object.urn.future()
                await asyncio.to_thread(copies.close)

        if wanted and log_archive is not None and ended is not None:
            try:
                await asyncio.to_thread(_begin, copies, launch, cluster, log_archive, say)
            except (ClusterError, InvalidJobError) as error:
                say(f"the logs of run {ended.job_name} are not copied to {log_archive}: {error}")
        yield deleted


def _begin(
    copies: ExitStack, launch: Launch, cluster: PodReader | None, log_archive: str, say: Callable[[str], None]
) -> None:
    ended = launch.ended
    if cluster is None:
        raise ClusterError("the cluster of the run cannot be read")
    if ended is None or ended.uid is None:
        return
    kind = variant_of_run(ended, launch.plan.options).job_object
    job_object = cluster.get(kind, ended.namespace, ended.job_name)
    run = run_of_object(job_object or {})
    if run.uid != ended.uid:
        return
    job = ArchivedJob(
        app_id=f"{ended.namespace}:{ended.job_name}", scheduler=launch.plan.options.scheduler, uid=ended.uid
    )
    copies.enter_context(copying_logs(cluster, open_archive(log_archive), job, run, progress=say))
