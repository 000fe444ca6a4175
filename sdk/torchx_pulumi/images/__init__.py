"""Patched images: a workspace as a layer on a base image, named by its content, built and pushed if it is missing.

`plan_patch` needs no daemon and changes nothing. `build_plans` builds and pushes missing images: their layers only, or
by the Docker daemon. A launch without a workspace needs the names of images only, so the modules of the names below are
imported when these are used; docker-py, urllib3 and fsspec later still.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchx_pulumi.images.patching import (
        PatchedImage,
        build_plans,
        known_digests,
        patch_image,
        push_local,
        refuse_unplanned,
    )
    from torchx_pulumi.images.plan import Builder, ImagePlan, describe_left_out
    from torchx_pulumi.images.planning import plan_patch
    from torchx_pulumi.images.reference import (
        is_local_id,
        is_patched,
        plan_push,
        refuse_local_only,
        with_digests_apart,
    )

__all__ = [
    "Builder",
    "ImagePlan",
    "PatchedImage",
    "build_plans",
    "describe_left_out",
    "is_local_id",
    "is_patched",
    "known_digests",
    "patch_image",
    "plan_patch",
    "plan_push",
    "push_local",
    "refuse_local_only",
    "refuse_unplanned",
    "with_digests_apart",
]

_HOMES: Mapping[str, str] = {
    "Builder": "plan",
    "ImagePlan": "plan",
    "PatchedImage": "patching",
    "build_plans": "patching",
    "describe_left_out": "plan",
    "is_local_id": "reference",
    "is_patched": "reference",
    "known_digests": "patching",
    "patch_image": "patching",
    "plan_patch": "planning",
    "plan_push": "reference",
    "push_local": "patching",
    "refuse_local_only": "reference",
    "refuse_unplanned": "patching",
    "with_digests_apart": "reference",
}
"""Module of each name."""


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
