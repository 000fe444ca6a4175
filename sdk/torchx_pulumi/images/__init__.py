"""Patched images: a workspace as a thin layer on a base, named by its content, built and pushed only when new.

Knows neither Pulumi nor TorchX. `plan_patch` needs no daemon and changes nothing; `build_plans` makes what is missing.
What needs docker-py or the network is imported when it is used.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchx_pulumi.images.patching import ImageBuilder, PatchedImage, is_planned_name, unplanned
from torchx_pulumi.images.plan import LOCAL_REPOSITORY, ImagePlan, describe_left_out, first_plan, make_plan
from torchx_pulumi.images.reference import is_local_id, parse_reference, parse_repository
from torchx_pulumi.images.registry.client import RegistryClient
from torchx_pulumi.images.registry.retrying import Backoff
from torchx_pulumi.model.errors import ImageError, ImageOptionError

__all__ = [
    "ImagePlan",
    "PatchedImage",
    "build_plans",
    "describe_left_out",
    "first_plan",
    "is_local_id",
    "known_digests",
    "patch_image",
    "plan_patch",
    "plan_push",
    "push_local",
    "refuse_local_only",
    "refuse_unplanned",
]


def plan_patch(
    base: str,
    workspace: str | Mapping[str, str],
    repository: str | None,
    *,
    dockerfile: str | None = None,
    build_args: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    platform: str | None = None,
    ignore_rules: str = "docker",
    client: Any = None,
) -> ImagePlan:
    """Find the reference that a patched image will have. Nothing is built or pushed; the base's registry is asked.

    Args:
        base: Image to patch. Pinned with `@sha256:...` no registry is asked either.
        workspace: Folder, or URL that fsspec opens; or several of them, and files, each with its place in the image's
            folder, for example `{"~/train": "", "~/shared": "shared"}`.
        repository: Where the image is pushed, without a tag. None: it stays on this machine's daemon.
        dockerfile: Path in the workspace. Unset: `Dockerfile.torchx`, and without that a default which copies the
            workspace into the base's working directory.
        build_args: Arguments for the Dockerfile, next to IMAGE (the base) and WORKSPACE (a fixed word). Their values
            are in the tag as a hash only.
        labels: Labels of the image, beside ours.
        platform: For example `linux/arm64`. Unset: that of this machine.
        ignore_rules: How `.dockerignore` is read: `docker`, or `torchx` for the simpler rules of TorchX's patching.
        client: docker-py client that is asked for a base which no registry has. Unset: made when it is needed.

    Returns:
        The plan; `reference` is the image's name, the same for the same content on every machine.

    Raises:
        ImageError: The workspace cannot be read, the Dockerfile or a name is wrong, or nobody knows the base.
    """
    return make_plan(
        base,
        workspace,
        repository,
        registry=RegistryClient(),
        dockerfile=dockerfile,
        build_args=build_args,
        labels=labels,
        platform=platform,
        ignore_rules=ignore_rules,
        client=client,
    )


def build_plans(
    plans: Sequence[ImagePlan], tell: Callable[[str], None], *, every_line: bool = False, client: Any = None
) -> Mapping[str, str]:
    """Build and push what the registry lacks; plans with one reference are one build, others run side by side.

    Args:
        plans: What `plan_patch` returned.
        tell: Takes lines of progress, from several threads.
        every_line: Tell every line of a build, not only its steps and a line now and then.
        client: docker-py client to use, one image after the other. Unset: Docker's own environment says which daemon.

    Returns:
        Reference to digest; without a repository to the image's id.

    Raises:
        ImageError: An image could not be built or pushed; all of them in one message. No tag was left half done.
    """
    made = ImageBuilder(registry=RegistryClient(), tell=tell, client=client, every_line=every_line).make(plans)
    return {image.reference: image.digest for image in made}


def patch_image(
    base: str,
    workspace: str | Mapping[str, str],
    repository: str | None,
    *,
    dockerfile: str | None = None,
    build_args: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    platform: str | None = None,
    ignore_rules: str = "docker",
    tell: Callable[[str], None] | None = None,
    client: Any = None,
) -> PatchedImage:
    """Patch an image with a workspace: build and push it, or do nothing where the registry has it already.

    Args:
        base: As for `plan_patch`, like all that is not listed here.
        workspace: As above.
        repository: As above.
        dockerfile: As above.
        build_args: As above.
        labels: As above.
        platform: As above.
        ignore_rules: As above.
        tell: Takes lines of progress. Unset: there are none.
        client: docker-py client to use. Unset: Docker's own environment says which daemon.

    Returns:
        Its reference and digest, and what was done.

    Raises:
        ImageError: As for `plan_patch` and `build_plans`.
    """
    plan = plan_patch(
        base,
        workspace,
        repository,
        dockerfile=dockerfile,
        build_args=build_args,
        labels=labels,
        platform=platform,
        ignore_rules=ignore_rules,
        client=client,
    )
    tell = tell or _nothing
    for line in (*plan.warnings, *([describe_left_out(plan)] if plan.left_out else [])):
        tell(line)
    return ImageBuilder(registry=RegistryClient(), tell=tell, client=client).make([plan])[0]


def known_digests(references: Sequence[str]) -> Mapping[str, str]:
    """Return the digests of those images that a registry has now; one that does not answer counts as without."""
    registry, found = RegistryClient(backoff=Backoff(tries=1)), {}
    for reference in dict.fromkeys(references):
        # For what is shown in a preview: whoever builds asks again, and hears why.
        with contextlib.suppress(ImageError):
            digest = registry.digest(parse_reference(reference))
            if digest:
                found[reference] = digest
    return found


def plan_push(image: str, repository: str | None) -> tuple[str, str]:
    """Return the repository and the tag that an image of the daemon is pushed to, as TorchX names them.

    Args:
        image: Its id, `sha256:...`.
        repository: The option `image_repo`.

    Raises:
        ImageOptionError: There is no repository.
        ImageError: The repository is none, or the image is no id.
    """
    if not repository:
        raise ImageOptionError(
            f"must specify the image repository via `image_repo` config to be able to upload local image {image}"
        )
    if not is_local_id(image):
        raise ImageError(f"image {image!r}: is no id of an image on the daemon (sha256: and 64 hex digits)")
    return parse_repository(repository).name, image.removeprefix("sha256:")


def push_local(
    images: Mapping[str, tuple[str, str]], tell: Callable[[str], None], *, client: Any = None
) -> Mapping[str, str]:
    """Push images that are on the daemon, those that the registry lacks.

    Args:
        images: Id on the daemon to repository and tag, as `plan_push` returns them.
        tell: Takes lines of progress, from several threads.
        client: docker-py client to use. Unset: Docker's own environment says which daemon.

    Returns:
        Reference to digest.

    Raises:
        ImageError: An image is not there or cannot be pushed; all of them in one message.
    """
    return ImageBuilder(registry=RegistryClient(), tell=tell, client=client).push_local(images)


def refuse_local_only(images: Sequence[str], *, shared_daemon: bool) -> None:
    """Refuse images that a cluster cannot see because they are on this machine's daemon only.

    Args:
        images: References of the job's images.
        shared_daemon: The cluster's nodes use this machine's daemon, so that they see them.

    Raises:
        ImageOptionError: There are such images.
    """
    local = [image for image in images if image.startswith(f"{LOCAL_REPOSITORY}:") or is_local_id(image)]
    if local and not shared_daemon:
        raise ImageOptionError(
            f"{', '.join(dict.fromkeys(local))}: only this machine's daemon has it, and the cluster would not find it; "
            'set image_repo to a repository that both reach, run without a workspace (`--workspace ""`), or set '
            "shared_daemon where the cluster's nodes use this daemon"
        )


def refuse_unplanned(images: Sequence[str], repository: str | None) -> Sequence[str]:
    """Refuse images with a name as `plan_patch` gives it that nothing here can build, and that no registry has.

    Args:
        images: References of the job's images, less those that are built or pushed now.
        repository: The option `image_repo`. None: no image is patched.

    Returns:
        A line about each whose registry does not answer: the cluster may reach it all the same.

    Raises:
        ImageError: The registry does not have one of them.
    """
    unknown = []
    registry = RegistryClient(backoff=Backoff(tries=1))
    for image in dict.fromkeys(images):
        if not repository or not is_planned_name(image, repository):
            continue
        try:
            found = registry.digest(parse_reference(image))
        except ImageError as error:
            unknown.append(f"image {image}: whether it is in its registry is not known: {error}")
            continue
        if found is None:
            raise ImageError(unplanned(image))
    return unknown


def _nothing(_line: str) -> None:
    """Tell nobody."""
