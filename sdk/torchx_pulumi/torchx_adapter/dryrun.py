"""The request of an app: a plan and its manifest, made from an AppDef and run options. Pure but for the cluster."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from torchx.schedulers.ids import make_unique

from torchx_pulumi import images
from torchx_pulumi.inputs.rendering import read_job_and_options, render_plan
from torchx_pulumi.kube import Cluster, Reader
from torchx_pulumi.kube.kubeconfig import is_contents
from torchx_pulumi.kube.yaml_text import to_yaml
from torchx_pulumi.model.errors import ClusterError, ImageOptionError, Problem, invalid_job
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.job_spec import JobSpec
from torchx_pulumi.model.options import Manifest, Options
from torchx_pulumi.model.redaction import path_shown
from torchx_pulumi.outputs.ui_url import check_ui_url
from torchx_pulumi.planning import names
from torchx_pulumi.runs.registration import app_labels
from torchx_pulumi.schedulers import backend_of, plan_job
from torchx_pulumi.schedulers.manifest_objects import objects_of
from torchx_pulumi.schedulers.preflight import discover, preflight
from torchx_pulumi.stack_state.backend import choose_backend
from torchx_pulumi.stack_state.cli import backend_problems
from torchx_pulumi.torchx_adapter.run_opts import split_options

logger = logging.getLogger(__name__)

_PLAIN = frozenset({str, int, float, bool, type(None)})

LOCAL_IMAGE = "sha256:"
"""Start of the name of an image that only the Docker daemon of this machine has."""


@dataclass(init=False)
class PulumiJob:
    """The request of one app: as TorchX's `KubernetesJob`, it may be changed before it is submitted.

    It has the fields of TorchX's, which `torchx run --dryrun --json` prints. What else a launch needs are attributes
    that are no fields; they are copied and pickled with it.
    """

    images_to_push: dict[str, tuple[str, str]]
    """Image to its repository and tag, for images that are built or pushed before the launch."""
    resource: Manifest
    """What is created: one object, or a `List` of them; submitted as it is, never rendered again. Models of the
    official client may be put into it."""

    def __init__(
        self,
        images_to_push: dict[str, tuple[str, str]],
        resource: Manifest,
        plan: JobPlan[Any] | None = None,
        app: Any = None,
        config: Mapping[str, Any] | None = None,
        image_plans: Mapping[str, images.ImagePlan] | None = None,
    ) -> None:
        """Make a request.

        Args:
            images_to_push: As the field.
            resource: As the field.
            plan: The plan that it was rendered from. None: it was read back, or made by hand.
            app: Its AppDef. None: only the dry run has it.
            config: The resolved run options of the dry run. None: only the dry run has them.
            image_plans: Reference to what the image is built from, for the patched ones of `images_to_push`.
        """
        self.images_to_push = images_to_push
        self.resource = resource
        self.plan = plan
        self.app = app
        self.config = config
        self.image_plans = dict(image_plans or {})

    def manifest(self) -> Manifest:
        """Return the objects of the launch as plain values."""
        made: Manifest = _plain(self.resource)
        return made

    def __str__(self) -> str:
        """Return the manifest as YAML."""
        return to_yaml(self.manifest())

    def __repr__(self) -> str:
        """Return the manifest as YAML."""
        return str(self)


def make_request(
    app: Any,
    config: Mapping[str, Any],
    scheduler: str,
    session: str,
    *,
    image_plans: Mapping[str, images.ImagePlan] | None = None,
    cluster: Callable[[], Reader] | None = None,
) -> PulumiJob:
    """Make the request of an app.

    Args:
        app: The AppDef; it is left as it is.
        config: Resolved run options.
        scheduler: `volcano` or `mcad`.
        session: TorchX session.
        image_plans: Reference to what the image is built from; the plans of the app's images are part of the request.
        cluster: Returns the cluster that says what the options leave open. None: the defaults are planned.

    Raises:
        InvalidJobError: The job or an option is wrong; all problems at once.
        ImageOptionError: An image of this machine's daemon has no repository to be pushed to.
    """
    spec, options = read_request(app, config, scheduler)
    repository = config.get("image_repo")
    spec, pushed = _with_remote_images(spec, repository, shared=bool(config.get("shared_daemon")))
    known = image_plans or {}
    plans = {role.image: known[role.image] for role in spec.roles if role.image in known}
    pushed |= {image: plan.target for image, plan in plans.items()}
    spec = images.with_digests_apart(spec)
    if cluster is not None:
        options = _with_discovered(options, config, cluster)
    labelled: Any = replace(options, labels={**options.labels, **app_labels(session)})
    plan = plan_job(spec, labelled, _new_name(spec, options))
    for warning in plan.warnings:
        logger.warning("%s", warning)
    return PulumiJob(pushed, render_plan(plan), plan=plan, app=app, config=config, image_plans=plans)


def check_app(app: Any, config: Mapping[str, Any], scheduler: str) -> None:
    """Check an app and its run options, whatever images it will have; it is not planned.

    Raises:
        InvalidJobError: The job or an option is wrong; all problems at once.
    """
    spec, options = read_request(app, config, scheduler)
    problems = backend_of(options).find_problems(spec, options, app_id=_new_name(spec, options))
    if problems:
        raise invalid_job(spec.name, problems)


def read_request(app: Any, config: Mapping[str, Any], scheduler: str) -> tuple[JobSpec, Options]:
    """Read an app and its run options.

    Raises:
        InvalidJobError: The job or an option is wrong, those of the launch included; all problems at once.
    """
    chosen, launch = split_options(config)
    return read_job_and_options(app, chosen, scheduler, others=_launch_problems(launch))


def _launch_problems(config: Mapping[str, Any]) -> list[Problem]:
    """Return the problems of options that no manifest shows."""
    kubeconfig, link, archive = (config.get(name) for name in ("kubeconfig", "ui_url", "log_archive"))
    problems = backend_problems(choose_backend(config.get("pulumi_backend")), config.get("pulumi_organization"))
    problems += check_ui_url(link) if link else []
    if archive:
        from torchx_pulumi.logs.archives import check_archive_url

        problems += check_archive_url(archive, "log_archive")
    if kubeconfig is not None and (is_contents(kubeconfig) or path_shown(kubeconfig).endswith("not a path)")):
        # The index and the stack would hold the contents, and with them their credentials.
        text = "must be the path of a file, found contents; write them to a file that only you can read"
        problems.append(Problem("kubeconfig", text))
    return problems


def _with_discovered(options: Options, config: Mapping[str, Any], cluster: Callable[[], Reader]) -> Options:
    """Return options with what was left to the cluster; if it does not answer, a warning and the options."""
    unset = [name for name in backend_of(options).discovered if config.get(name) is None]
    # What is discovered is the API of a coscheduler's PodGroups.
    if not unset or getattr(options, "coscheduler_name", None) is None:
        return options
    try:
        return discover(cluster(), options, unset)
    except ClusterError as error:
        logger.warning("the request was not completed: %s", error)
        return options


def validate(request: PulumiJob, cluster: Callable[[], Cluster], namespace: str) -> None:
    """Let the cluster validate a request, without creating anything. If it cannot be asked, a warning.

    Args:
        request: The request.
        cluster: Returns the cluster.
        namespace: Namespace of objects that name none.

    Raises:
        InvalidJobError: The cluster, or a webhook of it, refuses the request.
    """
    name = None
    try:
        reached = cluster()
        for kind, manifest in objects_of(request.resource):
            name = manifest["metadata"].get("name", "unnamed")
            reached.create(kind, manifest["metadata"].get("namespace") or namespace, manifest, dry_run=True)
        plan = request.plan
        never, hints = ([], []) if plan is None else backend_of(plan.options).check_admission(reached, plan)
    except ClusterError as error:
        # Without credentials that it accepts, the cluster does not judge the job.
        if name is not None and not error.retryable and error.reason != "Unauthorized":
            absent = _absent_objects(request, cluster)
            refused = Problem("validate_spec", f"Invalid job spec: {error}")
            # Of a namespace that is absent, the refusal says only that.
            is_said = error.reason == "NotFound" and any(problem.path == "namespace" for problem in absent)
            raise invalid_job(name, absent if is_said else [*absent, refused]) from error
        logger.warning("the request was not validated: %s", error)
        return
    for hint in hints:
        logger.warning("%s: %s", name, hint)
    if never:
        raise invalid_job(str(name), never)


def _absent_objects(request: PulumiJob, cluster: Callable[[], Reader]) -> list[Problem]:
    """Return which objects that the options name the cluster lacks, with those that it has; empty if it does not say.

    A refusal has one of them at most, and none of those that there are.
    """
    if request.plan is None:
        return []
    try:
        return preflight(cluster(), request.plan.options)[0]
    except ClusterError as error:
        logger.info("what the options name was not looked for: %s", error)
        return []


def _with_remote_images(
    spec: JobSpec, repository: str | None, *, shared: bool
) -> tuple[JobSpec, dict[str, tuple[str, str]]]:
    """Give images of this machine's daemon the names under which they are pushed, unless it is shared."""
    if shared and not repository:
        return spec, {}
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
    """Make a name that no other launch has; the only random value."""
    tail = backend_of(options).name_tail(spec, options)
    unique = names.normalize(make_unique(names.normalize(spec.name)))
    if len(unique) + tail <= names.MAX_LABEL and names.is_service_name(unique):
        return unique
    return names.job_name(spec.name, uuid.uuid4().hex, tail=tail)


def _plain(value: Any) -> Any:
    """Return a value as JSON and YAML have it; models of the official client become mappings."""
    if type(value) in _PLAIN:
        # Most values of a manifest are; the checks below take twice as long as the rest of a large one.
        return value
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, date):
        return value.isoformat()
    if hasattr(value, "attribute_map") and hasattr(value, "openapi_types"):
        found = {field: getattr(value, attribute) for attribute, field in value.attribute_map.items()}
        return {field: _plain(item) for field, item in found.items() if item is not None}
    return value
