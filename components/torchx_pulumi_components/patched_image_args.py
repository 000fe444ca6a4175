"""Arguments of the component PatchedImage. Written by `python -m tools.components`."""

from collections.abc import Mapping
from typing import Any

import pulumi
from typing_extensions import NotRequired, TypedDict


class PatchedImageArgs(TypedDict):
    """Arguments of a patched image."""

    base: pulumi.Input[str]
    """Image to patch. With `@sha256:...` its registry is not asked."""
    workspace: Any
    """Folder or fsspec URL from the program's folder, or a mapping of several to their places in the image."""
    labels: NotRequired[Mapping[str, pulumi.Input[str]]]
    """Additional labels of the image. Unset: none."""
    repository: NotRequired[pulumi.Input[str]]
    """Repository to push to, without a tag. Unset: the image stays on this machine's Docker daemon."""
    dockerfile: NotRequired[pulumi.Input[str]]
    """Path of the Dockerfile in the workspace. Unset: `Dockerfile.torchx`, else one that copies the workspace."""
    build_args: NotRequired[pulumi.Input[Mapping[str, pulumi.Input[str]]]]
    """Arguments for the Dockerfile. Their values are written to no state, label or log. Unset: none."""
    platform: NotRequired[pulumi.Input[str]]
    """Platform of the image, for example linux/arm64. Unset: that of this machine."""
    ignore_rules: NotRequired[pulumi.Input[str]]
    """How .dockerignore is read: as `docker` does, or as `torchx` does. Unset: `docker`."""
    builder: NotRequired[pulumi.Input[str]]
    """What builds it: `registry` (no Docker daemon), `docker`, or `auto` (the daemon only if needed). Unset: `auto`."""
