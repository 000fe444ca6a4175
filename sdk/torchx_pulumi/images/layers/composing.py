"""An image from a base, a Dockerfile and files: its layers, its configuration and its manifest."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any, Final

from torchx_pulumi.images.content.files import Entry
from torchx_pulumi.images.dockerfile import instructions
from torchx_pulumi.images.layers.base_image import BaseImage
from torchx_pulumi.images.layers.copying import Context, KnownPaths, members_of
from torchx_pulumi.images.layers.interpreting import (
    Copy,
    HidesLinkError,
    Interpreter,
    NeedsDaemonError,
    UnsupportedError,
    absolute,
    unsupported,
)
from torchx_pulumi.images.layers.layer import Layer, known_layer, make_layer
from torchx_pulumi.images.oci import (
    DOCKER_CONFIG,
    DOCKER_LAYER,
    DOCKER_MANIFEST,
    OCI_CONFIG,
    OCI_LAYER,
    OCI_MANIFEST,
    Blob,
    BytesBlob,
    Descriptor,
    LayeredImage,
    Manifest,
)
from torchx_pulumi.images.platforms import Platform
from torchx_pulumi.model.errors import ImageError

MOST_LAYERS: Final = 127
"""Layers of an image that Docker and containerd can mount."""
EPOCH: Final = "1970-01-01T00:00:00Z"
_DROPPED: Final = ("container", "container_config", "docker_version", "id", "parent")
"""Parts of a configuration that describe how the base was built."""
_SKIPPABLE: Final = tuple(bytes((first, 0x2A, 0x4D, 0x18)) for first in range(0x50, 0x60))
_COMPRESSED: Final = (b"\x1f\x8b\x08", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", *_SKIPPABLE)
"""First bytes of gzip, bzip2, xz and zstd, which ADD unpacks if they contain an archive."""


def compose(
    base: BaseImage | None,
    *,
    text: str,
    where: str,
    build_args: Mapping[str, str],
    labels: Mapping[str, str],
    platform: str,
    entries: Sequence[Entry],
) -> LayeredImage:
    """Return an image ready to be pushed. Files are read only for layers that the user's cache does not know.

    Args:
        base: The base. None: `FROM scratch`.
        text: Text of the Dockerfile.
        where: Name of the Dockerfile in messages.
        build_args: All build arguments with their values.
        labels: Labels of the image, in addition to those of the base and of the Dockerfile.
        platform: Platform of an image without a base.
        entries: Files that COPY sees, with their hashes.

    Raises:
        UnsupportedError: The image needs the daemon. It has all reasons.
        ImageError: A source does not exist, a file changed or cannot be read, or there are too many layers.
    """
    if reasons := unsupported(text, where):
        raise UnsupportedError(reasons)
    scratch = {key: value for key, value in Platform.parse(platform)._asdict().items() if value}
    base_config = base.config if base is not None else scratch
    own = base_config.get("config") or {}
    created = base_config.get("created") or EPOCH
    layers: list[Layer] = []
    history: list[dict[str, Any]] = []
    problems: list[str] = []  # why the daemon is needed
    warnings: list[str] = []  # what the daemon does no better
    errors: list[str] = []  # what the user must change
    if own.get("OnBuild"):
        problems.append("the base has ONBUILD instructions, which need the builder docker")
    interpreter, context = Interpreter(own, build_args, where), Context(entries)
    known = KnownPaths(is_complete=base is None)
    known.add_folder(absolute(own.get("WorkingDir") or "/"))
    for step in instructions(text):
        try:
            copy = interpreter.run(step)
            for folder in interpreter.folders:
                known.add_folder(folder)
            layer = None if copy is None else _layer(copy, context, known)
        except NeedsDaemonError as error:
            problem = f"{where} line {step.line}: {step.word} {error}"
            problems.append(f"{problem}, which needs the builder docker")
            if isinstance(error, HidesLinkError):
                warnings.append(f"{problem}. The builder docker replaces such a link as well")
            continue
        except ImageError as error:
            errors.append(f"{where} line {step.line}: {step.word}: {error}")
            continue
        if layer is not None:
            layers.append(layer)
        if interpreter.is_begun and step.word != "FROM":
            # The text of the instruction has no values of build arguments.
            empty = {"empty_layer": True} if layer is None else {}
            history.append({"created": created, "created_by": step.text, **empty})
    problems += _left_empty(interpreter, layers, absolute(own.get("WorkingDir") or "/"), where)
    if problems:
        raise UnsupportedError(problems, warnings)
    if errors:
        raise ImageError("\n".join(errors))
    config = {key: value for key, value in base_config.items() if key not in _DROPPED}
    config["config"] = _without_nothing({**interpreter.config, "Image": ""}, labels)
    config["created"] = created
    config["history"] = [*(base_config.get("history") or []), *history]
    below = (base_config.get("rootfs") or {}).get("diff_ids") or []
    config["rootfs"] = {"type": "layers", "diff_ids": [*below, *(each.diff_id for each in layers)]}
    return _image(base, config, layers, where)


def _left_empty(interpreter: Interpreter, layers: Sequence[Layer], first: str, where: str) -> list[str]:
    """Return a reason for each folder that only WORKDIR makes. The container runtime makes the last one."""
    last = absolute(interpreter.config.get("WorkingDir") or "/")
    reasons = []
    for folder, line in interpreter.folders.items():
        # The first and the last working directory are in the base, or are made when a container starts.
        if any(f"{each}/".startswith(f"{folder.rstrip('/')}/") for each in (first, last)):
            continue
        if not any(f"/{member.path}".startswith(f"{folder}/") for layer in layers for member in layer.members):
            reasons.append(
                f"{where} line {line}: WORKDIR makes an empty folder {folder} that is not the last working directory, "
                "which needs the builder docker"
            )
    return reasons


def _layer(copy: Copy, context: Context, known: KnownPaths) -> Layer:
    members, files = members_of(copy, context, known)
    layer = known_layer(members, copy.word)
    if layer is not None:
        return layer
    # Files that ADD may unpack are refused. Those within a folder are copied as they are.
    for entry in files if copy.word == "ADD" else ():
        try:
            with entry.open() as file:
                begin = file.read(tarfile.BLOCKSIZE)
        except OSError as error:
            raise ImageError(f"{entry.path!a}: can no longer be read ({error.strerror or error}); run again") from error
        if begin.startswith(_COMPRESSED) or _is_tar(begin):
            raise NeedsDaemonError(f"unpacks {entry.path}; COPY copies it as it is")
    return make_layer(members, copy.word)


def _is_tar(begin: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(begin, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def _without_nothing(config: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the configuration with the labels, without empty parts."""
    merged = {**config, "Labels": {**(config.get("Labels") or {}), **labels}}
    return {key: value for key, value in merged.items() if value or (key == "Cmd" and value == [])}


def _image(base: BaseImage | None, config: Mapping[str, Any], layers: Sequence[Layer], where: str) -> LayeredImage:
    is_docker = base is not None and base.manifest.media_type == DOCKER_MANIFEST
    below = base.layers if base is not None else []
    count = len(below) + len(layers)
    if count > MOST_LAYERS:
        raise ImageError(
            f"{where}: the image would have {count} layers, {len(below)} of them the base's; at most {MOST_LAYERS} can "
            "be mounted; join its COPY instructions, or flatten the base"
        )
    blob = BytesBlob(content=_json(config))
    media_type = DOCKER_MANIFEST if is_docker else OCI_MANIFEST
    manifest = {
        "schemaVersion": 2,
        "mediaType": media_type,
        "config": _descriptor(DOCKER_CONFIG if is_docker else OCI_CONFIG, blob),
        "layers": [*below, *(_descriptor(DOCKER_LAYER if is_docker else OCI_LAYER, layer) for layer in layers)],
    }
    distinct = {layer.digest: layer for layer in layers}
    return LayeredImage(
        manifest=Manifest(media_type=media_type, content=_json(manifest)),
        base=base.reference if base is not None else None,
        base_layers=[Descriptor.read(each) for each in below],
        new_blobs=[*distinct.values(), blob],
    )


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def _descriptor(media_type: str, blob: Blob) -> dict[str, Any]:
    return {"mediaType": media_type, "size": blob.size, "digest": blob.digest}
