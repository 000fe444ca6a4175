"""The images that this process has planned: what an image in an AppDef or in arguments is built from.

An AppDef has the name of an image only. The plan says how it is built, and which part of the name is the tag that
identifies the content: the digest after the tag is no part of a run's identity.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from torchx_pulumi.images.plan import ImagePlan

_PLANS: Final[dict[str, ImagePlan]] = {}
_GUARD: Final = threading.Lock()


def remember(plan: ImagePlan) -> None:
    """Note a plan under the names of its image."""
    with _GUARD:
        _PLANS[plan.reference] = _PLANS[plan.pod_reference] = plan


def known_plans() -> Mapping[str, ImagePlan]:
    """Return the plans of this process by the names of their images, with and without the digest."""
    with _GUARD:
        return dict(_PLANS)


def split_planned(image: str) -> tuple[str, str | None]:
    """Return the name of an image without the digest that `plan_patch` added, and that digest.

    An image that this process did not plan is returned as it is, with None: a digest that the user wrote is a part of
    the image's identity.
    """
    with _GUARD:
        plan = _PLANS.get(image)
    if plan is None or image == plan.reference:
        return image, None
    return plan.reference, plan.digest
