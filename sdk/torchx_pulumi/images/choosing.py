"""The builder of a planned image: layers that are pushed to the registry, or the Docker daemon."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace

from torchx_pulumi.images.bases import DigestSource
from torchx_pulumi.images.layers import BaseImage, UnsupportedError, compose, copied_files, read_base, unsupported
from torchx_pulumi.images.plan import Builder, ImagePlan, content_labels
from torchx_pulumi.images.reference import parse_reference
from torchx_pulumi.images.registry import RegistryClient
from torchx_pulumi.model.errors import ImageError


def choose_builder(plan: ImagePlan, text: str, registry: RegistryClient, wanted: str) -> ImagePlan:
    """Return the plan with its builder and, if the builder is `registry`, the digest of the image.

    Args:
        plan: The plan with its address.
        text: Text of the Dockerfile.
        registry: Client that is asked for the tag, and for the base if the tag does not exist.
        wanted: `auto`, `registry` or `docker`.

    Raises:
        ImageError: `registry` is wanted and cannot build the image, the base cannot be used, or files changed.
    """
    if wanted == Builder.DOCKER.value:
        return plan
    reasons = _reasons(plan, text)
    if not reasons:
        digest = _pushed_digest(plan, registry)
        if digest is not None:
            return replace(plan, builder=Builder.REGISTRY, digest=digest, found_at=time.time())
        try:
            return compose_image(plan, text, registry)
        except UnsupportedError as error:
            reasons = list(error.reasons)
        except ImageError as error:
            # The daemon may have the base that the registry does not give now.
            if wanted == Builder.REGISTRY.value or not error.retryable:
                raise
            reasons = [str(error)]
    if wanted == Builder.REGISTRY.value:
        lines = "".join(f"\n  - {reason}" for reason in reasons)
        raise ImageError(
            f"image {plan.reference}: the builder `registry` cannot build it:{lines}\n"
            "change that, or set the option builder to `docker` or `auto`"
        )
    return replace(plan, why_docker="; ".join(reasons))


def compose_image(plan: ImagePlan, text: str, registry: RegistryClient) -> ImagePlan:
    """Return the plan with the layers of the image and its computed digest.

    Raises:
        UnsupportedError: The image needs the daemon, by its base or by its files.
        ImageError: The base cannot be read or used, or files of the workspace changed.
    """
    base: BaseImage | None = read_base(registry, plan.bases[0], plan.platform) if plan.bases else None
    entries, extra = copied_files(plan.entries, plan.sent_only, plan.extra, plan.dockerfile)
    layered = compose(
        base,
        text=text,
        where=plan.dockerfile,
        build_args=plan.build_args,
        labels=content_labels(plan),
        platform=plan.platform,
        entries=entries,
        extra=extra,
        hashes=plan.hashes,
    )
    return replace(plan, builder=Builder.REGISTRY, digest=layered.manifest.digest, layered=layered)


def _reasons(plan: ImagePlan, text: str) -> Sequence[str]:
    """Return why the daemon is needed, as far as the Dockerfile and the names of the images say."""
    reasons = [] if plan.repository is not None else ["without image_repo, the image exists on the daemon only"]
    local = [each.image for each in plan.bases if each.source is DigestSource.DAEMON]
    if local:
        reasons.append(f"base image {', '.join(local)}: no registry has it, only the daemon")
    return [*reasons, *unsupported(text, plan.dockerfile)]


def _pushed_digest(plan: ImagePlan, registry: RegistryClient) -> str | None:
    # A registry that does not answer now is asked again before the image is pushed, which reports the error.
    with contextlib.suppress(ImageError):
        return registry.digest(parse_reference(plan.reference))
    return None
