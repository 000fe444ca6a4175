"""The report of a planned image, and the last two that this machine planned for a workspace: what changed its tag.

One small file for each workspace, base and repository below the user's cache folder. Without it, nothing is compared.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from torchx_pulumi.images import dockerfile as dockerfiles
from torchx_pulumi.images.content.files import FileKind
from torchx_pulumi.images.content.hashing import cache_folder, remove_old
from torchx_pulumi.images.oci import LayeredImage
from torchx_pulumi.images.plan import ImagePlan
from torchx_pulumi.images.reference import Reference, parse_reference
from torchx_pulumi.images.registry import RegistryClient
from torchx_pulumi.model.errors import ImageError

if TYPE_CHECKING:
    from torchx_pulumi.images.plan import ImagePlan

_VERSION: Final = 1
_FILE_DIGITS: Final = 16
"""Hex digits of a file's hash that are kept: enough to see that it changed."""
_ARGUMENT_DIGITS: Final = 4
"""The same for a build argument. So few that its value, which may be a token, cannot be found by trying."""

REQUESTS_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChanges:
    """What differs between two plans of one workspace, which is why their tags differ."""

    tag: str
    """Tag of the earlier plan."""
    added: Sequence[str] = ()
    """Paths of files, links and folders, sorted."""
    changed: Sequence[str] = ()
    """Paths whose content, kind, executable bit or target of a link is another one, sorted."""
    removed: Sequence[str] = ()
    """Sorted."""
    bases: Mapping[str, tuple[str | None, str | None]] | None = None
    """Base image to its earlier and its present digest. None in a pair: it was not a base; None: none changed."""
    dockerfile: bool = False
    """The text or the path of the Dockerfile changed."""
    build_args: Sequence[str] = ()
    """Names of added, changed and removed build arguments, sorted."""
    labels: bool = False
    """The user's labels changed."""
    platform: tuple[str, str] | None = None
    """Earlier and present platform. None: it is the same."""


def note_plan(plan: ImagePlan, workspace: str | Mapping[str, str]) -> None:
    """Keep a plan as the last one of its workspace, and the one before it if its tag was another one.

    A plan with the tag of the last one costs the read of one line. A cache that cannot be written is no error.
    """
    file = _file(plan, workspace)
    if _header(file).get("address") == plan.address:
        return
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f"{file.stem}-")
        try:
            with os.fdopen(handle, "w", encoding="ascii") as written:
                written.write(f"{json.dumps(_summary(plan))}\n{json.dumps(_files(plan), separators=(',', ':'))}\n")
            with contextlib.suppress(FileNotFoundError):
                file.replace(_before(file))
            Path(name).replace(file)
            remove_old(file.parent)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def changes_of(plan: ImagePlan, workspace: str | Mapping[str, str]) -> PlanChanges | None:
    """Return what differs from the last plan of the workspace that had another tag. None: no such plan is known."""
    file = _file(plan, workspace)
    if _header(file).get("address") == plan.address:
        file = _before(file)
    try:
        with file.open(encoding="ascii") as read:
            old, old_files = json.loads(read.readline()), json.loads(read.readline())
        return _compare(old, old_files, _summary(plan), _files(plan)) if old["version"] == _VERSION else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _compare(
    old: Mapping[str, Any], old_files: Mapping[str, str], new: Mapping[str, Any], new_files: Mapping[str, str]
) -> PlanChanges:
    bases = {image: (old["bases"].get(image), new["bases"].get(image)) for image in {**old["bases"], **new["bases"]}}
    return PlanChanges(
        tag=old["tag"],
        added=sorted(new_files.keys() - old_files.keys()),
        changed=sorted(path for path, code in new_files.items() if old_files.get(path, code) != code),
        removed=sorted(old_files.keys() - new_files.keys()),
        bases={image: pair for image, pair in bases.items() if pair[0] != pair[1]} or None,
        dockerfile=old["dockerfile"] != new["dockerfile"],
        build_args=_differing(old["build_args"], new["build_args"]),
        labels=old["labels"] != new["labels"],
        platform=None if old["platform"] == new["platform"] else (old["platform"], new["platform"]),
    )


def _differing(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    return sorted(name for name in {**old, **new} if old.get(name) != new.get(name))


def _summary(plan: ImagePlan) -> dict[str, Any]:
    """Return what a tag is made of except for the files. No value of a build argument."""
    text = plan.hashes.get(plan.dockerfile) or _digest(plan.extra.get(plan.dockerfile, b""), _FILE_DIGITS)
    given = {name: value for name, value in plan.build_args.items() if name not in dockerfiles.SHOWN_ARGUMENTS}
    return {
        "version": _VERSION,
        "address": plan.address,
        "tag": plan.tag,
        "bases": {base.image: base.digest for base in plan.bases},
        "dockerfile": [plan.dockerfile, text[:_FILE_DIGITS]],
        "build_args": {
            name: _digest(f"{name}\0{value}".encode("utf-8", "surrogatepass"), _ARGUMENT_DIGITS)
            for name, value in given.items()
        },
        "labels": _digest(json.dumps(dict(plan.labels), sort_keys=True).encode(), _FILE_DIGITS),
        "platform": plan.platform,
    }


def _files(plan: ImagePlan) -> dict[str, str]:
    """Return a short text for every path of the image that differs when the path's content does."""
    found = {}
    for entry in plan.entries:
        kind = entry.found.kind
        if kind is FileKind.FILE:
            found[entry.path] = ("x" if entry.found.executable else "f") + plan.hashes[entry.path][:_FILE_DIGITS]
        else:
            found[entry.path] = f"l{entry.found.target}" if kind is FileKind.LINK else "d"
    return found


def _digest(content: bytes, digits: int) -> str:
    return hashlib.sha256(content).hexdigest()[:digits]


def _header(file: Path) -> dict[str, Any]:
    """Return the first line of a file. Empty: it is absent, damaged, or of another release."""
    try:
        with file.open(encoding="ascii") as read:
            header = json.loads(read.readline())
        return header if header["version"] == _VERSION else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _before(file: Path) -> Path:
    return file.with_name(f"{file.stem}-before.json")


def _file(plan: ImagePlan, workspace: str | Mapping[str, str]) -> Path:
    places = {workspace: ""} if isinstance(workspace, str) else dict(workspace)
    names = sorted((_absolute(place), to) for place, to in places.items())
    key = json.dumps([names, plan.base, plan.repository])
    return cache_folder().with_name("plans") / f"{_digest(key.encode(), 32)}.json"


def _absolute(place: str) -> str:
    return (
        place
        if "://" in place and not place.startswith("file://")
        else os.path.realpath(Path(place.removeprefix("file://")).expanduser())
    )


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
    changes: PlanChanges | None = None
    """What changed the tag. None: this machine has planned no other tag of the workspace."""
    warnings: Sequence[str] = ()
    """Warnings for the user."""


def report_plan(plan: ImagePlan, workspace: str | Mapping[str, str], registry: RegistryClient) -> PlanReport:
    """Return what is known of a planned image. The registry is asked for the layers.

    Args:
        plan: Result of `plan_patch`.
        workspace: The workspace that it was made of.
        registry: Client for the registry.
    """
    report = PlanReport(
        plan=plan, digest=plan.digest, changes=changes_of(plan, workspace), warnings=tuple(plan.warnings)
    )
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
