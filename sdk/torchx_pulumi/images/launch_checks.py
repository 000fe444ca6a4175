"""Checks of the images of a launch: known digests, images that the cluster cannot pull, images without a plan."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from torchx_pulumi.images.patching import unplanned
from torchx_pulumi.images.plan import LOCAL_REPOSITORY, is_patched
from torchx_pulumi.images.reference import is_local_id, parse_reference, parse_repository
from torchx_pulumi.images.registry import RegistryClient
from torchx_pulumi.model.errors import ImageError, ImageOptionError


def known_digests(references: Sequence[str]) -> Mapping[str, str]:
    """Return the digests of the images that their registries have. A registry that does not answer is skipped."""
    found = {}
    with contextlib.closing(RegistryClient(tries=1)) as registry:
        for reference in dict.fromkeys(references):
            # Used by a preview only. The build asks again and reports the error.
            with contextlib.suppress(ImageError):
                digest = registry.digest(parse_reference(reference))
                if digest:
                    found[reference] = digest
    return found


def plan_push(image: str, repository: str | None) -> tuple[str, str]:
    """Return the repository and the tag to which an image of the daemon is pushed, as TorchX names them.

    Args:
        image: Id of the image, `sha256:...`.
        repository: The option `image_repo`.

    Raises:
        ImageOptionError: There is no repository.
        ImageError: The repository is not valid, or the image is not an id.
    """
    if not repository:
        raise ImageOptionError(
            f"must specify the image repository via `image_repo` config to be able to upload local image {image}"
        )
    if not is_local_id(image):
        raise ImageError(f"image {image!r}: is not an id of an image on the daemon (sha256: and 64 hex digits)")
    return parse_repository(repository).name, image.removeprefix("sha256:")


def refuse_local_only(images: Sequence[str], *, shared_daemon: bool) -> None:
    """Refuse images that exist on this machine's daemon only.

    Args:
        images: References of the job's images.
        shared_daemon: The nodes of the cluster use this machine's daemon, so that they have these images.

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
    """Refuse images that are named as `plan_patch` names them, have no plan here, and are not in their registry.

    Args:
        images: References of the job's images, without those that are built or pushed now.
        repository: The option `image_repo`. None: no image is patched.

    Returns:
        A warning for each image whose registry does not answer. The cluster may still reach it.

    Raises:
        ImageError: A registry does not have one of the images.
    """
    unknown = []
    registry = RegistryClient(tries=1)
    for image in dict.fromkeys(images):
        if not repository or not is_patched(image, repository):
            continue
        try:
            found = registry.digest(parse_reference(image))
        except ImageError as error:
            unknown.append(f"image {image}: whether it is in its registry is not known: {error}")
            continue
        if found is None:
            raise ImageError(unplanned(image))
    return unknown
