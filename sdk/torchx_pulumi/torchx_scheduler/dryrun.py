"""From an AppDef and run options to a request: a plan and its manifest. No daemon, no process, nothing is written."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torchx.schedulers.ids import make_unique

from torchx_pulumi import labels, names
from torchx_pulumi.checks.job import check_job
from torchx_pulumi.cluster import Cluster, LiveCluster
from torchx_pulumi.doors.appdef import read_app
from torchx_pulumi.doors.run_options import read_options
from torchx_pulumi.errors import (
    ClusterError,
    ImageOptionError,
    InvalidJobError,
    Problem,
    invalid_job,
)
from torchx_pulumi.forms import form_of
from torchx_pulumi.manifest_objects import objects_of
from torchx_pulumi.options import Manifest, Options
from torchx_pulumi.planner import plan_job
from torchx_pulumi.preflight import discover
from torchx_pulumi.rendering import render_plan
from torchx_pulumi.schedulers import SCHEDULERS
from torchx_pulumi.spec import JobSpec
from torchx_pulumi.torchx_scheduler.request import PulumiJob
from torchx_pulumi.torchx_scheduler.run_opts import split_options

logger = logging.getLogger(__name__)

LOCAL_IMAGE = "sha256:"
"""Start of the name of an image that only the Docker daemon of this machine has."""


def make_request(
    app: Any, config: Mapping[str, Any], scheduler: str, session: str, patched: Mapping[str, tuple[str, str]]
) -> PulumiJob:
    """Make the request of an app.

    Args:
        app: The AppDef; it is left as it is.
        config: Resolved run options.
        scheduler: `volcano` or `mcad`.
        session: TorchX session.
        patched: Images that are built and pushed before the launch, to their repositories and tags.

    Raises:
        InvalidJobError: The job or an option is wrong; all problems at once.
        ImageOptionError: An image of this machine's daemon has no repository to be pushed to.
    """
    chosen, launch = split_options(config)
    spec, options = _read(app, chosen, scheduler)
    spec, pushed = _with_remote_images(spec, launch.get("image_repo"))
    pushed |= {role.image: patched[role.image] for role in spec.roles if role.image in patched}
    own: Any = replace(
        options,
        labels={
            **options.labels,
            labels.LAUNCHER: labels.LAUNCHER_VALUE,
            labels.SESSION: names.label_value(session),
        },
    )
    plan = plan_job(spec, own, _new_name(spec, options))
    for warning in plan.warnings:
        logger.warning("%s", warning)
    return PulumiJob(images_to_push=pushed, resource=render_plan(plan), plan=plan)


def validate(request: PulumiJob, cluster: LiveCluster, namespace: str) -> None:
    """Have the cluster judge a request, without creating anything.

    A cluster that cannot be reached is a warning: whoever schedules the request will hear of it.

    Raises:
        InvalidJobError: The cluster, or a webhook of it, refuses the request.
    """
    for kind, manifest in objects_of(request.resource):
        where = manifest["metadata"].get("namespace") or namespace
        try:
            cluster.create(kind, where, manifest, dry_run=True)
        except ClusterError as error:
            if not error.retryable:
                name = manifest["metadata"].get("name", "unnamed")
                raise invalid_job(name, [Problem("validate_spec", f"Invalid job spec: {error}")]) from error
            logger.warning("the request was not validated: %s", error)
            return


def with_discovered(request: PulumiJob, cluster: Cluster) -> PulumiJob:
    """Render a request anew with what was left to the cluster: which PodGroups its coscheduler reads."""
    plan = request.plan
    if plan is None or getattr(plan.options, "coscheduler_name", None) is None:
        return request
    options = discover(cluster, plan.options, ("pod_group_api",))
    if options == plan.options:
        return request
    again = plan_job(plan.spec, options, plan.job_name)
    return PulumiJob(images_to_push=request.images_to_push, resource=render_plan(again), plan=again)


def namespace_of(manifest: Manifest, default: str) -> str:
    """Return the namespace that a manifest goes to."""
    _, head = objects_of(manifest)[0]
    return head["metadata"].get("namespace") or default


def _read(app: Any, chosen: Mapping[str, Any], scheduler: str) -> tuple[JobSpec, Options]:
    problems: list[Problem] = []
    job = str(getattr(app, "name", "unnamed"))
    spec, options = None, None
    try:
        spec = read_app(app)
    except InvalidJobError as error:
        problems.extend(error.problems)
    try:
        options = read_options(chosen, scheduler)
    except InvalidJobError as error:
        problems.extend(error.problems)
        if spec is not None:
            problems.extend(check_job(spec))
    if spec is None or options is None:
        raise invalid_job(job, problems)
    # A port that this scheduler tolerates, and all rules of job and options together, are the planner's.
    tolerated = SCHEDULERS[scheduler].tolerated
    found = [problem for problem in check_job(spec) if problem.rule not in tolerated]
    if found:
        raise invalid_job(job, found)
    return spec, options


def _with_remote_images(spec: JobSpec, repository: str | None) -> tuple[JobSpec, dict[str, tuple[str, str]]]:
    """Give images of this machine's daemon the names under which they are pushed."""
    local = {role.image for role in spec.roles if role.image.startswith(LOCAL_IMAGE)}
    if local and not repository:
        raise ImageOptionError(
            f"must specify the image repository via `image_repo` config to be able to upload local image "
            f"{', '.join(sorted(local))}; or name an image that the cluster can pull"
        )
    pushed = {image: (str(repository), image.removeprefix(LOCAL_IMAGE)) for image in sorted(local)}
    roles = [replace(role, image=":".join(pushed[role.image])) if role.image in pushed else role for role in spec.roles]
    return replace(spec, roles=tuple(roles)), pushed


def _new_name(spec: JobSpec, options: Options) -> str:
    """Make a name that no other launch has; the one place where there is randomness."""
    form = form_of(options)
    dns_names = names.role_names([role.name for role in spec.roles])
    tasks = [
        names.task_name(dns_name, index)
        for dns_name, role in zip(dns_names, spec.roles, strict=True)
        for index in range(max(role.num_replicas, 1))
    ]
    tail = form.name_tail(tasks)
    unique = names.normalize(make_unique(names.normalize(spec.name)))
    if len(unique) + tail <= names.MAX_LABEL and names.is_service_name(unique):
        return unique
    return names.job_name(spec.name, uuid.uuid4().hex, tail=tail)
