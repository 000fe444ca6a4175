"""Patched images in a Pulumi program. The reference is known in preview; `up` builds and pushes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pulumi
from torchx_pulumi.images import (
    Builder,
    ImagePlan,
    build_plans,
    describe_left_out,
    plan_patch,
)
from torchx_pulumi.model.errors import ImageError
from torchx_pulumi.model.image_options import PatchKeywords
from typing_extensions import Unpack


def patched_image(
    base: str,
    workspace: str | Mapping[str, str],
    repository: str | None,
    **options: Unpack[PatchKeywords],
) -> str:
    """Patch an image with a workspace and return its reference, for the role's `image`.

    Preview builds and pushes nothing. `up` does so before this call returns, if the registry does not have the image.
    The reference is the same in both, and stays the same while the workspace does. With the builder `registry` it has
    the digest after the tag. The tag alone is the identity of the image: a job that runs keeps the name that its pods
    have, whatever builder is chosen later.

    Args:
        base: Image to patch.
        workspace: Folder or fsspec URL; or several, and files, each with its place in the image's folder. Relative
            paths start at the working directory, which is the program's folder.
        repository: Where the image is pushed, without a tag. None: it stays in the local daemon.
        options: Those of `torchx_pulumi.model.image_options.PatchOptions`: `dockerfile`, `build_args`, `labels`,
            `platform`, `ignore_rules`, `builder`.

    Raises:
        pulumi.RunError: The image cannot be planned, built or pushed.
    """
    try:
        plan = plan_patch(base, workspace, repository, **options)
        build_in_up([plan])
    except ImageError as error:
        raise pulumi.RunError(str(error)) from error
    return plan.pod_reference


def build_in_up(plans: list[ImagePlan], hide: Callable[[str], str] = str) -> Mapping[str, str]:
    """Log warnings; in `up` build and push missing images.

    Args:
        plans: The images.
        hide: Removes secrets of the arguments from a line.

    Returns:
        Name of the image for pods to digest. In preview only those that the plans name.

    Raises:
        ImageError: An image cannot be built or pushed.
    """
    for warning in dict.fromkeys(warning for plan in plans for warning in plan.warnings):
        pulumi.log.warn(hide(warning))
    for line in dict.fromkeys(line for plan in plans for line in _messages(plan)):
        pulumi.log.info(hide(line))
    if pulumi.runtime.is_dry_run():
        return {plan.pod_reference: plan.digest for plan in plans if plan.digest is not None}
    return build_plans(plans, lambda line: pulumi.log.info(hide(line))) if plans else {}


def _messages(plan: ImagePlan) -> Iterator[str]:
    if plan.left_out:
        yield describe_left_out(plan)
    if plan.builder is Builder.REGISTRY and pulumi.runtime.is_dry_run():
        is_there = plan.found_at is not None
        state = "is in the registry, nothing to build" if is_there else "is pushed by up, without a Docker daemon"
        yield f"image {plan.pod_reference}: {state}"
