"""Patched images: a workspace as a layer on a base image, named by its content, built and pushed if it is missing.

`plan_patch` needs no daemon and changes nothing. `build_plans` builds and pushes missing images: their layers only, or
by the Docker daemon. docker-py, urllib3 and fsspec are imported on demand.
"""

from __future__ import annotations

from torchx_pulumi.images.patching import (
    PatchedImage,
    build_plans,
    known_digests,
    patch_image,
    push_local,
    refuse_unplanned,
)
from torchx_pulumi.images.plan import (
    Builder,
    ImagePlan,
    describe_left_out,
    is_patched,
    plan_push,
    refuse_local_only,
    with_digests_apart,
)
from torchx_pulumi.images.planning import plan_patch
from torchx_pulumi.images.reference import is_local_id

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
