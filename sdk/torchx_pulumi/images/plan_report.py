"""What is known of a planned image before it is built: its layers, and what a push would upload."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

from torchx_pulumi.images.oci import LayeredImage
from torchx_pulumi.images.plan import ImagePlan
from torchx_pulumi.images.reference import Reference, parse_reference
from torchx_pulumi.images.registry import RegistryClient
from torchx_pulumi.model.errors import ImageError

REQUESTS_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerReport:
    """One layer of a planned image."""

    digest: str
    size: int
    """Bytes, compressed."""
    is_new: bool
    """It has files of the workspace. False: it is a layer of the base, or the image is in the registry already."""
    is_known: bool
    """The repository has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport:
    """What is known of a planned image before it is built."""

    plan: ImagePlan
    digest: str | None
    """Digest of the image: the registry's if it has the tag, else the computed one. None: not known before the build.
    """
    is_pushed: bool | None = None
    """The registry has the tag. None: it does not answer."""
    layers: Sequence[LayerReport] | None = None
    """Layers in order. None: the daemon builds the image, or the registry does not answer."""
    upload_bytes: int | None = None
    """Bytes that a push sends to the registry: layers, configuration and manifest that it lacks. Layers of a base in
    the same registry are not sent. None: not known."""
    warnings: Sequence[str] = ()
    """Warnings for the user."""


def report_plan(plan: ImagePlan, registry: RegistryClient) -> PlanReport:
    """Return what is known of a planned image. The registry is asked for the layers.

    Args:
        plan: Result of `plan_patch`.
        registry: Client for the registry.
    """
    report = PlanReport(plan=plan, digest=plan.digest, warnings=tuple(plan.warnings))
    try:
        digest = plan.digest if plan.found_at is not None else registry.digest(parse_reference(plan.reference))
        if digest is not None:
            layers = _stored_layers(replace(parse_reference(plan.reference), digest=digest), registry)
            return replace(report, digest=digest, is_pushed=True, layers=layers, upload_bytes=0)
        report = replace(report, is_pushed=False)
        return report if plan.layered is None else _with_layers(report, plan.layered, registry)
    except ImageError as error:
        return replace(report, warnings=(*report.warnings, f"what the registry has is not known: {error}"))


def _stored_layers(image: Reference, registry: RegistryClient) -> Sequence[LayerReport] | None:
    found = registry.manifest(image)
    try:
        layers = json.loads(found.content)["layers"] if found is not None else None
        return layers and [
            LayerReport(digest=str(each["digest"]), size=int(each["size"]), is_new=False, is_known=True)
            for each in layers
        ]
    except (ValueError, KeyError, TypeError):
        return None  # an index, which another builder pushed


def _with_layers(report: PlanReport, image: LayeredImage, registry: RegistryClient) -> PlanReport:
    target = parse_reference(report.plan.reference)
    base = {layer.digest: layer.size for layer in image.base_layers}
    new = {blob.digest: blob.size for blob in image.new_blobs}
    sizes = {**base, **new}
    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
        known = dict(zip(sizes, pool.map(lambda digest: registry.has_blob(target, digest), sizes), strict=True))
    is_mounted = image.base is not None and image.base.registry == target.registry
    # Layers with addresses of their own are in no registry.
    copied = {} if is_mounted else {layer.digest: layer.size for layer in image.base_layers if not layer.urls}
    config = json.loads(image.manifest.content)["config"]["digest"]
    return replace(
        report,
        layers=[
            LayerReport(digest=digest, size=sizes[digest], is_new=digest in new, is_known=known[digest])
            for digest in (*(layer.digest for layer in image.base_layers), *new)
            if digest != config
        ],
        upload_bytes=len(image.manifest.content)
        + sum(size for digest, size in {**copied, **new}.items() if not known[digest]),
    )
