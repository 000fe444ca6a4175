"""The images that this process has planned: what an image in an AppDef or in arguments is built from.

An AppDef has the name of an image only. The plan says how it is built, and which part of the name is the tag that
identifies the content: the digest after the tag is no part of a run's identity.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from typing import Final

from torchx_pulumi.images.plan import ImagePlan

_PLANNED_TAG: Final = re.compile(r"[0-9a-f]{40}(@sha256:[0-9a-f]{64})?")
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


def is_planned_name(image: str, repository: str) -> bool:
    """Return whether an image is named as a patched one. A commit hash as a tag looks the same."""
    return image.startswith(f"{repository}:") and bool(_PLANNED_TAG.fullmatch(image[len(repository) + 1 :]))


def split_planned(image: str, repository: str | None = None) -> tuple[str, str | None]:
    """Return the name of a patched image without its digest, and the digest.

    Args:
        image: Name of an image.
        repository: Repository of patched images: a content tag in it is the name of a patched image, wherever that was
            planned. None: only the images that this process planned are patched ones.

    Returns:
        The name and None, if it has no digest or is not a patched image: a digest that the user wrote is a part of the
        image's identity.
    """
    name, at, digest = image.partition("@")
    if not at or not (image in known_plans() or (repository and is_planned_name(image, repository))):
        return image, None
    return name, digest
