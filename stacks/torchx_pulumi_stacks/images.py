"""Images of the stack program: the workspace is added to role images, and local images are pushed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import pulumi
from torchx_pulumi.images import (
    ImagePlan,
    known_digests,
    plan_patch,
    plan_push,
    push_local,
    refuse_local_only,
)
from torchx_pulumi.model.errors import ImageError, ImageOptionError
from torchx_pulumi.model.image_options import WorkspaceOptions, image_options
from torchx_pulumi.model.job_spec import JobSpec
from torchx_pulumi.model.options import option, option_table
from torchx_pulumi.runs.registration import digest_note
from torchx_pulumi_components.images import build_in_up
from torchx_pulumi_components.job_construction import spec_of

from torchx_pulumi_stacks.settings import Settings, key_of


@option_table
class ImageConfig(WorkspaceOptions):
    """What the configuration says of images. A key is the name of an option in camelCase."""

    workspace: Mapping[str, str] = option(
        "Folder or URL that is laid on the image of every role, or a mapping of several to their places", default={}
    )


IMAGE_KEYS = tuple(key_of(each.name) for each in fields(ImageConfig))
"""Configuration keys of images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """The app with its final images, and their digests."""

    spec: JobSpec
    digests: Mapping[str, str]
    """Image reference of pods to digest, for images whose digest is known."""

    def annotations(self) -> dict[str, str]:
        """Return the annotation of the job object. Empty: no digest is known."""
        images = {role.name: role.pod_image for role in self.spec.roles}
        found = {name: self.digests[image] for name, image in images.items() if image in self.digests}
        return digest_note(found)


def read_image_config(settings: Settings, root: Path) -> ImageConfig:
    """Read the keys; problems are noted in the settings."""
    given = settings.text_or_mapping("workspace")
    places = {given: ""} if isinstance(given, str) else {place: to or "" for place, to in given.items()}
    return ImageConfig(
        workspace={
            place if "://" in place else str(root / Path(place).expanduser()): to for place, to in places.items()
        },
        **settings.values_of(ImageConfig, without=("workspace",)),
    )


def prepare_images(app: Any, config: ImageConfig) -> Images:
    """Return the app with the image that each role's pods use; in `up`, build and push missing images.

    Args:
        app: AppDef or `JobSpec`; it is not changed.
        config: Of the images.

    Raises:
        ImageError: An image cannot be planned, built or pushed, or is not available to the cluster. One message has the
            problems of all roles; no resource was registered.
    """
    spec, options = spec_of(app), image_options(asdict(config))
    plans: dict[str, ImagePlan] = {}
    pushes: dict[str, tuple[str, str]] = {}
    problems: list[ImageError] = []
    for image in dict.fromkeys(role.image for role in spec.roles):
        try:
            if config.workspace:
                plans[image] = plan_patch(image, config.workspace, config.image_repo, **options)
            elif image.startswith("sha256:") and not config.shared_daemon:
                pushes[image] = plan_push(image, config.image_repo)
        except ImageError as error:
            problems.append(error)
    _raise_all(problems)
    names = {image: (plan.reference, plan.pod_digest) for image, plan in plans.items()}
    names |= {image: (f"{repository}:{tag}", None) for image, (repository, tag) in pushes.items()}
    roles = []
    for role in spec.roles:
        image, digest = names.get(role.image, (role.image, role.image_digest))
        roles.append(replace(role, image=image, image_digest=digest))
    refuse_local_only([role.image for role in roles], shared_daemon=config.shared_daemon)
    return Images(spec=replace(spec, roles=roles), digests=_make(list(plans.values()), pushes))


def _make(plans: list[ImagePlan], pushes: Mapping[str, tuple[str, str]]) -> Mapping[str, str]:
    """Build and push missing images in `up`; return the digests that are known, by the names that pods have."""
    if not plans and not pushes:
        return {}
    digests = build_in_up(plans)
    if not pulumi.runtime.is_dry_run():
        return {**digests, **push_local(pushes, pulumi.log.info)}
    by_daemon = {plan.reference: plan.why_docker for plan in plans if plan.digest is None}
    by_daemon |= {f"{repository}:{tag}": "" for repository, tag in pushes.values()}
    found = known_digests(list(by_daemon))
    for reference, why in by_daemon.items():
        there = "is in the registry, nothing to build" if reference in found else "is built and pushed by up"
        needed = f"; a Docker daemon is needed: {why}" if why and reference not in found else ""
        pulumi.log.info(f"image {reference}: {there}{needed}")
    return {**digests, **found}


def _raise_all(problems: Sequence[ImageError]) -> None:
    distinct = {str(problem): problem for problem in problems}
    if len(distinct) == 1:
        raise problems[0]
    if distinct:
        kind = ImageOptionError if all(isinstance(each, ImageOptionError) for each in problems) else ImageError
        raise kind("images cannot be prepared:\n" + "\n".join(f"- {text}" for text in distinct))
