"""Patched images in a Pulumi program: the reference is known in preview, the build and the push happen in `up`."""

from __future__ import annotations

from collections.abc import Mapping

import pulumi
from torchx_pulumi.errors import ImageError
from torchx_pulumi.images import ImagePlan, build_plans, plan_patch


def patched_image(
    base: str,
    workspace: str | Mapping[str, str],
    repository: str | None,
    *,
    dockerfile: str | None = None,
    build_args: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    platform: str | None = None,
    ignore_rules: str = "docker",
) -> str:
    """Patch an image with a workspace and return its reference, for the role's `image`.

    Preview builds and pushes nothing; `up` does, before this call returns, where the registry lacks the image. The
    reference is the same in both, and from `up` to `up` while nothing in the workspace changes.

    Args:
        base: Image to patch.
        workspace: Folder or fsspec URL; or several, and files, each with its place in the image's folder. Relative
            paths start at the working directory, which is the program's folder.
        repository: Where the image is pushed, without a tag. None: it stays on this machine's daemon.
        dockerfile: Path in the workspace. Unset: `Dockerfile.torchx`, else a default that copies the workspace.
        build_args: Arguments for the Dockerfile. Their values come into no state, label or log.
        labels: Labels of the image, beside ours.
        platform: For example `linux/arm64`. Unset: that of this machine.
        ignore_rules: How `.dockerignore` is read: `docker` or `torchx`.

    Raises:
        pulumi.RunError: The image cannot be planned, built or pushed.
    """
    try:
        plan = plan_patch(
            base,
            workspace,
            repository,
            dockerfile=dockerfile,
            build_args=build_args,
            labels=labels,
            platform=platform,
            ignore_rules=ignore_rules,
        )
        build_in_up([plan])
    except ImageError as error:
        raise pulumi.RunError(str(error)) from error
    return plan.reference


def build_in_up(plans: list[ImagePlan]) -> Mapping[str, str]:
    """Say what the user should know; in `up` build and push what is missing.

    Returns:
        Reference to digest. Empty in preview.

    Raises:
        ImageError: An image cannot be built or pushed.
    """
    for warning in dict.fromkeys(warning for plan in plans for warning in plan.warnings):
        pulumi.log.warn(warning)
    if pulumi.runtime.is_dry_run():
        return {}
    return build_plans(plans, pulumi.log.info)
