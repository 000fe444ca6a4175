"""TorchX training jobs on Kubernetes: AppDef to plan to manifest, and status back. Knows no Pulumi.

Public names only; what they need is imported when they are used, so that importing this package is fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchx_pulumi.images import PatchedImage, patch_image, plan_patch
    from torchx_pulumi.model.errors import (
        ClusterError,
        DeployError,
        ImageError,
        ImageOptionError,
        InvalidJobError,
        JobFailedError,
        MissingOptionError,
        Problem,
        RelaunchRefusedError,
        TorchxPulumiError,
        UnknownMountError,
    )
    from torchx_pulumi.outputs.reader import read_outputs

__all__ = [
    "ClusterError",
    "DeployError",
    "ImageError",
    "ImageOptionError",
    "InvalidJobError",
    "JobFailedError",
    "MissingOptionError",
    "PatchedImage",
    "Problem",
    "RelaunchRefusedError",
    "TorchxPulumiError",
    "UnknownMountError",
    "patch_image",
    "plan_patch",
    "read_outputs",
    "render",
]

_HOMES: Mapping[str, str] = {
    "PatchedImage": "torchx_pulumi.images",
    "patch_image": "torchx_pulumi.images",
    "plan_patch": "torchx_pulumi.images",
    "read_outputs": "torchx_pulumi.outputs.reader",
}
"""Modules of the public names other than errors."""


def render(app: Any, scheduler: str, options: Mapping[str, Any] | None = None, *, app_id: str) -> dict[str, Any]:
    """Render a job as the manifest that its scheduler takes. Pure but for overlay files that the job names.

    Args:
        app: A TorchX AppDef (0.7.0 or nightly), a `JobSpec`, or the same as a mapping.
        scheduler: `volcano` or `mcad`.
        options: Run options by name; Volcano's `queue` is required.
        app_id: Name of the job object, a DNS label; it is taken as it is.

    Returns:
        The Volcano Job, with gang=pods a `List` of PodGroup, Service and Pods; or the AppWrapper.

    Raises:
        InvalidJobError: The job or an option is wrong; all problems at once.
    """
    from torchx_pulumi.inputs.rendering import render_app

    return render_app(app, scheduler, options or {}, app_id=app_id)


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(_HOMES.get(name, "torchx_pulumi.model.errors")), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
