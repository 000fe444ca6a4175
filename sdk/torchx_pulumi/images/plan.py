"""The plan of a patched image: its inputs, its name and its builder; names of images of the daemon. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from torchx_pulumi.images.bases import Base
from torchx_pulumi.images.content.files import Entry
from torchx_pulumi.images.content.tree import shown_path
from torchx_pulumi.images.oci import LayeredImage
from torchx_pulumi.images.reference import DIGEST, is_local_id, parse_repository
from torchx_pulumi.model.errors import ImageError, ImageOptionError
from torchx_pulumi.model.job_spec import JobSpec
from torchx_pulumi.model.text import listed

LOCAL_REPOSITORY: Final = "torchx-pulumi-local"
"""Repository of images that exist on this machine's daemon only."""
CONTENT_LABEL: Final = "torchx-pulumi/content"
"""Label of an image: its content address."""
WORKSPACE_LABEL: Final = "torchx-pulumi/workspace"
"""Label of an image: the address of its workspace's files."""
_PREFIX: Final = "patched-"
"""Begin of the tags of patched images."""
_TAG_DIGITS: Final = 40
_PATCHED: Final = re.compile(rf"([^@]+:{_PREFIX}[0-9a-f]{{{_TAG_DIGITS}}})(?:@({DIGEST}))?")
_MOST_NAMED: Final = 8
"""Paths that a line about excluded files lists."""


class Builder(str, Enum):
    """The builder of an image."""

    REGISTRY = "registry"
    """The layers are pushed to the registry, without a daemon."""
    DOCKER = "docker"
    """The Docker daemon builds and pushes the image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePlan:
    """Plan of a patched image: its inputs and its name."""

    base: str
    """The image to patch, as the user wrote it."""
    repository: str | None
    """Repository to push to. None: the image stays on this machine's daemon."""
    address: str
    """64 hex digits: the content address."""
    workspace_address: str
    """64 hex digits: the address of the workspace's files."""
    bases: Sequence[Base]
    """External images of the build. Empty: it begins with `FROM scratch`."""
    dockerfile: str
    """Path of the Dockerfile in the context."""
    text: str = field(default="", repr=False)
    """Text of the Dockerfile."""
    is_default: bool = False
    """The workspace has no Dockerfile; the default one is generated."""
    platform: str
    """Platform of the pulled bases and of the image, for example `linux/arm64`."""
    build_args: Mapping[str, str] = field(default_factory=dict, repr=False)
    """All build arguments with their values."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the user."""
    warnings: Sequence[str] = ()
    """Warnings for the user."""
    left_out: Sequence[str] = ()
    """Files and folders of the workspace that are excluded by default, for example `.git`."""
    entries: Sequence[Entry] = field(default=(), repr=False)
    """Files of the image, with their hashes."""
    sent_only: Sequence[Entry] = field(default=(), repr=False)
    """Files that are sent to the daemon and are not part of the image."""
    builder: Builder = Builder.DOCKER
    """Builder of the image, if its registry does not have it."""
    why_docker: str = ""
    """Why the Docker daemon is needed. Empty: with another builder, or if the option `builder` asks for it."""
    digest: str | None = None
    """Digest of the image's manifest, computed from the content. None: not known before the push, which the builder
    `docker` makes."""
    found_at: float | None = None
    """Time (`time.time`) at which the registry had the image with this digest. None: it did not, or was not asked."""
    layered: LayeredImage | None = field(default=None, repr=False)
    """The image as it is pushed by the builder `registry`. None: the daemon builds it."""

    @property
    def tag(self) -> str:
        """Return the tag: `patched-` and the first 40 digits of the address."""
        return _PREFIX + self.address[:_TAG_DIGITS]

    @property
    def own_tag(self) -> str:
        """Return the tag for an image whose tag has another digest: registries may remove untagged images."""
        return f"{self.tag}-{str(self.digest).removeprefix('sha256:')[:12]}"

    @property
    def reference(self) -> str:
        """Return the name of the image without a digest. It is the same on every machine and for every builder."""
        return ":".join(self.target)

    @property
    def pod_digest(self) -> str | None:
        """Return the digest that pods name after the tag, or None if they name the tag only."""
        return self.digest if self.builder is Builder.REGISTRY else None

    @property
    def pod_reference(self) -> str:
        """Return the name of the image for pods: with the digest after the tag for the builder `registry`."""
        return self.reference if self.pod_digest is None else f"{self.reference}@{self.pod_digest}"

    @property
    def target(self) -> tuple[str, str]:
        """Return the repository and the tag, as TorchX splits an image's name."""
        return self.repository or LOCAL_REPOSITORY, self.tag

    @property
    def all_labels(self) -> dict[str, str]:
        """Return the labels that follow from the content. They contain no values of build arguments."""
        return {**self.labels, CONTENT_LABEL: self.address, WORKSPACE_LABEL: self.workspace_address}


def is_patched(image: str, repository: str = "") -> bool:
    """Return whether an image is named as a patched one, in a repository if one is given."""
    return image.startswith(f"{repository}:" if repository else "") and _PATCHED.fullmatch(image) is not None


def split_patched(image: str) -> tuple[str, str | None]:
    """Return the name of an image and its digest apart, if it is named as a patched one.

    The tag of a patched image identifies its content, so the digest after it is not a part of a run's identity. The
    digest of any other image is, and stays in the name.

    >>> split_patched("r/app:1@sha256:" + "0" * 64)[1], split_patched("r/app:patched-" + "0" * 40)[1]
    (None, None)
    """
    found = _PATCHED.fullmatch(image)
    return (found[1], found[2]) if found else (image, None)


def with_digests_apart(spec: JobSpec) -> JobSpec:
    """Return a job whose patched images have their digests apart: a digest is no part of the job's identity."""
    apart = [(role, *split_patched(role.image)) for role in spec.roles]
    roles = [replace(role, image=image, image_digest=digest) if digest else role for role, image, digest in apart]
    return replace(spec, roles=roles)


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


def shown_left_out(plan: ImagePlan) -> list[str]:
    """Return the files that are excluded by default, for messages."""
    paths = [shown_path(each) for each in plan.left_out]
    return [path if path.isprintable() else repr(path) for path in paths]


def describe_left_out(plan: ImagePlan) -> str:
    """Return a line about the files that are excluded by default."""
    names = shown_left_out(plan)
    kept = f"a line `!{names[0]}` in .dockerignore keeps it"
    return f"image {plan.reference}: left out by default: {listed(names, _MOST_NAMED)} ({kept})"
