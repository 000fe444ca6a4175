"""Shapes of what registries store of an image. A client may have stored anything. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from torchx_pulumi.model.errors import ImageError

_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_DESCRIPTOR: Final = {
    "mediaType": str,
    "digest": str,
    "size": int,
    "urls": [str],
    "annotations": dict,
    "platform": dict,
}
_MANIFEST: Final = {"config": _DESCRIPTOR, "layers": [_DESCRIPTOR]}
_INDEX: Final = {"manifests": [_DESCRIPTOR]}
_RUN: Final = {
    "Env": [str],
    "WorkingDir": str,
    "Labels": dict,
    "ExposedPorts": dict,
    "Shell": [str],
}
_CONFIG: Final = {"config": _RUN, "created": str, "history": [dict], "rootfs": {"diff_ids": [str]}}
_NAMES: Final = {str: "a text", int: "a whole number", dict: "an object", list: "a list", type(None): "null"}


def check_manifest(manifest: Mapping[str, Any], where: str) -> None:
    """Check the parts of a manifest that are read.

    Raises:
        ImageError: A part has another type, or a descriptor is incomplete.
    """
    problems = list(_misfits(manifest, _MANIFEST, ""))
    if not problems:
        rows = {
            "config": manifest["config"],
            **{f"layers[{at}]": row for at, row in enumerate(manifest["layers"] or [])},
        }
        problems = [problem for at, row in rows.items() for problem in _incomplete(row, at)]
    _raise(problems, "its manifest", where)


def check_index(index: Mapping[str, Any], where: str) -> None:
    """Check the parts of an index that are read.

    Raises:
        ImageError: As of `check_manifest`.
    """
    problems = list(_misfits(index, _INDEX, ""))
    if not problems:
        for at, row in enumerate(index.get("manifests") or []):
            problems += _incomplete(row, f"manifests[{at}]")
    _raise(problems, "its index", where)


def check_config(config: Mapping[str, Any], where: str) -> None:
    """Check the parts of a configuration that an image inherits.

    Raises:
        ImageError: A part has another type.
    """
    _raise(list(_misfits(config, _CONFIG, "")), "its configuration", where)


def _raise(problems: list[str], what: str, where: str) -> None:
    if problems:
        raise ImageError(f"{where}: {what} is damaged: {'; '.join(problems[:5])}; push the image again")


def _misfits(value: Any, shape: Any, at: str) -> Iterator[str]:
    """Yield a text for each part of another type. As for Go programs, null is the same as absent in an object."""
    wanted: Any = shape if isinstance(shape, type) else type(shape)
    if not isinstance(value, wanted) or isinstance(value, bool):
        found = _NAMES.get(type(value), f"a {type(value).__name__}")
        # No value is shown: a configuration may contain secrets.
        yield f"{at} is {found}, must be {_NAMES[wanted]}"
    elif isinstance(shape, dict):
        for key, inner in shape.items():
            if value.get(key) is not None:
                yield from _misfits(value[key], inner, f"{at}.{key}" if at else key)
    elif isinstance(shape, list):
        for index, each in enumerate(value):
            yield from _misfits(each, shape[0], f"{at}[{index}]")


def _incomplete(row: Any, at: str) -> list[str]:
    """Return what a descriptor lacks."""
    if row is None:
        return [f"{at} is null, must be an object"]
    problems = []
    if not row.get("mediaType"):
        problems.append(f"{at} has no mediaType")
    digest = row.get("digest")
    if digest is None or not _DIGEST.fullmatch(digest):
        problems.append(f"{at}.digest is {digest!a}, must be sha256: and 64 hex digits")
    if row.get("size") is None or row["size"] < 0:
        problems.append(f"{at}.size is {row.get('size')}, must be 0 or more")
    return problems
