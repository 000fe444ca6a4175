"""The stack program: registers the job that a StackConfig describes, and exports its outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes
from torchx_pulumi.model.launch_options import ProgramOptions
from torchx_pulumi.model.options import chosen_arguments, rows_of
from torchx_pulumi.outputs.ui_url import fill_ui_url
from torchx_pulumi_components import export_outputs, failures_deferred
from torchx_pulumi_components.training_job import TrainingJob, component_of

from torchx_pulumi_stacks.config import StackConfig
from torchx_pulumi_stacks.images import Images, prepare_images
from torchx_pulumi_stacks.job_namespace import create_namespace


def deploy(config: StackConfig) -> TrainingJob:
    """Register the job, its namespace if configured, and the stack's exports.

    Raises:
        pulumi.RunError: The job cannot be launched; or it did not reach the state of `waitFor`, in which case the
            outputs are exported.
    """
    # Before any resource is registered: an image that cannot be built leaves no resources.
    images = prepare_images(config.app, config.images)
    with failures_deferred() as failures:
        job = create_job(with_images(config, images))
        export_outputs(job, digests=images.digests, ui_url=link_of(config, job))
    if failures:
        raise pulumi.RunError("\n".join(failures))
    return job


def with_images(config: StackConfig, images: Images) -> StackConfig:
    """Return the configuration with the final images, and their digests as an annotation of the job."""
    annotations = {**config.options.annotations, **images.annotations()}
    return replace(config, app=images.spec, options=replace(config.options, annotations=annotations))


def create_job(config: StackConfig) -> TrainingJob:
    """Register the job, and its namespace before it if configured."""
    provider = create_provider(config)
    before = []
    if config.create_namespace:
        kubeconfig = pulumi.Config().get("kubeconfig")
        before.append(create_namespace(config.options.namespace, provider, kubeconfig, config.kube_context))
    return component_of(config.scheduler).from_app(
        config.name or config.app.name,
        config.app,
        app_id=config.job_name,
        **chosen_arguments(config.options),
        **chosen_settings(config),
        opts=pulumi.ResourceOptions(provider=provider, depends_on=before),
    )


def create_provider(config: StackConfig) -> kubernetes.Provider | None:
    """Return a provider for the configured cluster. None: the ambient one is used."""
    if config.kubeconfig is None and config.kube_context is None:
        return None
    return kubernetes.Provider("cluster", kubeconfig=config.kubeconfig, context=config.kube_context)


def chosen_settings(config: StackConfig) -> Mapping[str, Any]:
    """Return the settings of the launch that are set, as component arguments."""
    rows = [row for row in rows_of(ProgramOptions) if row.component and row.name != "job_name"]
    settings = {row.name: getattr(config, row.name) for row in rows}
    return {name: value for name, value in settings.items() if value is not None}


def link_of(config: StackConfig, job: TrainingJob) -> str | None:
    """Return the link to the job in a dashboard. None: no template is configured."""
    if config.ui_url is None:
        return None
    queue = getattr(job.plan.options, "queue", None)
    where, name = job.plan.namespace, job.plan.job_name
    return fill_ui_url(config.ui_url, namespace=where, name=name, scheduler=config.scheduler, queue=queue)
