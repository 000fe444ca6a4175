"""The plan of a patched image: its inputs, its name and its builder. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from torchx_pulumi.images.bases import Base
from torchx_pulumi.images.content.files import Entry
from torchx_pulumi.images.content.tree import shown_path
from torchx_pulumi.images.oci import LayeredImage
from torchx_pulumi.images.reference import LOCAL_REPOSITORY, patched_tag
from torchx_pulumi.model.text import listed

CONTENT_LABEL: Final = "torchx-pulumi/content"
"""Label of an image: its content address."""
WORKSPACE_LABEL: Final = "torchx-pulumi/workspace"
"""Label of an image: the address of its workspace's files."""
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
        return patched_tag(self.address)

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


def shown_left_out(plan: ImagePlan) -> list[str]:
    """Return the files that are excluded by default, for messages."""
    paths = [shown_path(each) for each in plan.left_out]
    return [path if path.isprintable() else repr(path) for path in paths]


def describe_left_out(plan: ImagePlan) -> str:
    """Return a line about the files that are excluded by default."""
    names = shown_left_out(plan)
    kept = f"a line `!{names[0]}` in .dockerignore keeps it"
    return f"image {plan.reference}: left out by default: {listed(names, _MOST_NAMED)} ({kept})"
