"""Options of patched images, for `torchx run`, components, the stack program, Python and `torchx-pulumi image`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typing_extensions import TypedDict

from torchx_pulumi.model.options import option, option_table, rows_of


@option_table
class ImageOptions:
    """How a workspace is patched into an image, on every surface."""

    dockerfile: str | None = option(
        "Path of the Dockerfile in the workspace. Unset: `Dockerfile.torchx`, else one that copies the workspace",
        default=None,
    )
    build_args: Mapping[str, str] = option(
        "Arguments for the Dockerfile. Their values are written to no state, label or log. Unset: none",
        default={},
        secret=True,
    )
    platform: str | None = option(
        "Platform of the image, for example linux/arm64. Unset: that of this machine", default=None
    )
    ignore_rules: str = option(
        "How .dockerignore is read: as `docker` does, or as `torchx` does",
        default="docker",
        choices=("docker", "torchx"),
    )
    builder: str = option(
        "What builds it: `registry` (no Docker daemon), `docker`, or `auto` (the daemon only if needed)",
        default="auto",
        choices=("auto", "registry", "docker"),
    )


@option_table
class WorkspaceOptions(ImageOptions):
    """Options of the images of a launch: of `torchx run` and of the stack program."""

    image_repo: str | None = option(
        "Repository, without a tag, that images are pushed to, for example example.com/your/container",
        default=None,
    )
    shared_daemon: bool = option(
        "The cluster's nodes use this machine's Docker daemon: images need no push and no image_repo",
        default=False,
    )


@option_table
class PatchOptions(ImageOptions):
    """Options of one image in a program."""

    labels: Mapping[str, str] = option("Additional labels of the image. Unset: none", default={})


@option_table
class ImageRequest(PatchOptions):
    """One image in a program: the arguments of the component."""

    base: str = option("Image to patch. With `@sha256:...` its registry is not asked")
    workspace: Any = option(
        "Folder or fsspec URL from the program's folder, or a mapping of several to their places in the image"
    )
    repository: str | None = option(
        "Repository to push to, without a tag. Unset: the image stays on this machine's Docker daemon",
        default=None,
    )


def image_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `ImageOptions` in a mapping that has others too."""
    return {row.name: given.get(row.name) for row in rows_of(ImageOptions)}


class PatchKeywords(TypedDict, total=False):
    """Names and types of `PatchOptions`, for type checkers. None is unset."""

    dockerfile: str | None
    build_args: Mapping[str, str] | None
    platform: str | None
    ignore_rules: str | None
    builder: str | None
    labels: Mapping[str, str] | None
