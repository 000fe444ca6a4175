"""Files with pod overlays: paths and `file://` URIs, and with fsspec all other URIs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from torchx_pulumi.model.redaction import hide, passwords_of, path_shown, without_password, yaml_problem


def read_overlay_file(uri: str) -> dict[str, Any]:
    """Read a pod overlay, JSON or YAML, from a path or a URI.

    Raises:
        ValueError: It cannot be read, or holds no mapping; the message names it.
    """
    data = parse_overlay(_read_text(uri), uri)
    if not isinstance(data, dict):
        raise ValueError(f"overlay file {path_shown(uri)} must hold a mapping, holds {type(data).__name__}")  # noqa: TRY004 - one class for all
    return data


def parse_overlay(text: str, name: str) -> Any:
    """Parse JSON or YAML; the YAML tag `!!python/tuple` marks a list that replaces, as in TorchX."""
    try:
        return json.loads(text)
    except ValueError:
        pass  # YAML then; JSON is tried first because YAML takes no tabs
    import yaml

    class TupleLoader(yaml.SafeLoader):
        """Safe YAML, and tuples."""

    def construct_tuple(loader: yaml.SafeLoader, node: yaml.SequenceNode) -> tuple[Any, ...]:
        return tuple(loader.construct_sequence(node, deep=True))

    TupleLoader.add_constructor("tag:yaml.org,2002:python/tuple", construct_tuple)
    try:
        return yaml.load(text, Loader=TupleLoader)  # noqa: S506 - a safe loader with one tag more
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark else ""
        raise ValueError(f"overlay file {path_shown(name)} is not valid YAML{line}: {yaml_problem(error)}") from None


def _read_text(uri: str) -> str:
    parts = urlsplit(uri)
    try:
        if "://" not in uri:
            return Path(uri).read_text(encoding="utf-8")
        if parts.scheme == "file":
            return Path(unquote(parts.netloc + parts.path)).read_text(encoding="utf-8")
        return _read_remote(uri)
    except OSError as error:
        raise ValueError(f"overlay file {path_shown(uri)} cannot be read: {error.strerror or error}") from error
    except (ValueError, ImportError) as error:
        raise ValueError(f"overlay file {path_shown(uri)} cannot be read: {without_password(str(error))}") from error


def _read_remote(uri: str) -> str:
    try:
        import fsspec
    except ImportError as error:
        raise ValueError("install fsspec to read overlays from other places than files") from error
    try:
        with fsspec.open(uri, "r") as file:
            return str(file.read())
    except Exception as error:  # noqa: BLE001 - each file system has errors of its own, and some repeat the URI
        reason = hide(without_password(str(error)), passwords_of(uri))
        raise ValueError(f"{type(error).__name__}: {reason}") from None
