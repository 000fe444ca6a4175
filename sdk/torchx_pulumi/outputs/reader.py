"""Reading the object `torchx` back: from a stack, from JSON text, from what Pulumi hands out. Checked, and typed.

A field that this release does not know is left as it is; one that is absent, as Pulumi leaves out what is null, comes
back as None or empty.
"""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from importlib import resources
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.outputs.types import SCHEMA_VERSION, TorchxOutput


def read_outputs(source: Any) -> TorchxOutput:
    """Read the object `torchx` of a stack.

    Args:
        source: A stack of Pulumi's Automation API, its outputs, what `pulumi stack output --json` printed (or
            `pulumi stack output torchx --json`), the same as data, or a value that came through a StackReference.

    Raises:
        DeployError: It is none, a newer release wrote it, or parts of it are not what they should be; all are named.
    """
    value = _find(source)
    version = value.get("schema_version")
    if isinstance(version, bool) or not isinstance(version, (int, float)):
        raise DeployError(
            f"the output `torchx` has no schema_version: found {version!r}; was it written by this package?"
        )
    if version > SCHEMA_VERSION:
        raise DeployError(
            f"the output `torchx` has schema_version {version:g}, this release of torchx-pulumi reads up to "
            f"{SCHEMA_VERSION}; install the release that wrote it, or a newer one"
        )
    problems: list[str] = []
    found = _typed(value, TorchxOutput, "torchx", problems)
    if problems:
        listed = "\n".join(f"  - {problem}" for problem in problems)
        raise DeployError(f"the output `torchx` cannot be read:\n{listed}\nrun `pulumi up` to have it written anew")
    return cast("TorchxOutput", found)


def read_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the object `torchx`."""
    text = resources.files("torchx_pulumi.outputs").joinpath("schema.json").read_text(encoding="utf-8")
    return cast("dict[str, Any]", json.loads(text))


def _find(source: Any) -> Mapping[str, Any]:
    """Find the object in what was given."""
    value = source.outputs() if callable(getattr(source, "outputs", None)) else source
    if isinstance(value, (str, bytes)):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise DeployError(
                f"the outputs are no JSON: {error}; pass what `pulumi stack output --json` prints"
            ) from error
    if isinstance(value, Mapping) and "torchx" in value:
        value = value["torchx"]
    # Pulumi's OutputMap keeps each value beside whether it is secret.
    value = getattr(value, "value", value) if not isinstance(value, Mapping) else value
    if isinstance(value, str) and value.startswith("{"):
        return _find(value)
    if not isinstance(value, Mapping):
        raise DeployError(
            f"there is no output `torchx`: found {type(value).__name__}; the stack has not been deployed, or its "
            "program is none of torchx-pulumi"
        )
    return value


def _typed(value: Any, wanted: Any, path: str, problems: list[str]) -> Any:
    """Return a value as the type has it, and note where it is not so."""
    if is_typeddict(wanted):
        return _typed_fields(value, wanted, path, problems)
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        rest = next(one for one in arguments if one is not type(None))
        return None if value is None else _typed(value, rest, path, problems)
    if origin is Literal:
        if value not in arguments:
            problems.append(f"{path}: found {value!r}, allowed are {', '.join(map(repr, arguments))}")
        return value
    if origin is list:
        if not isinstance(value, (list, tuple)):
            return _wrong(value, "a list", path, problems)
        return [_typed(item, arguments[0], f"{path}[{place}]", problems) for place, item in enumerate(value)]
    if origin is dict:
        if not isinstance(value, Mapping):
            return _wrong(value, "an object", path, problems)
        return {key: _typed(item, arguments[1], f"{path}.{key}", problems) for key, item in value.items()}
    return _plain(value, wanted, path, problems)


def _typed_fields(value: Any, wanted: Any, path: str, problems: list[str]) -> Any:
    if not isinstance(value, Mapping):
        return _wrong(value, "an object", path, problems)
    found = dict(value)
    for name, kind in get_type_hints(wanted).items():
        if found.get(name) is None and name in wanted.__optional_keys__:
            continue
        if found.get(name) is None:
            found[name] = _absent(kind, f"{path}.{name}", problems)
        else:
            found[name] = _typed(found[name], kind, f"{path}.{name}", problems)
    return found


def _absent(wanted: Any, path: str, problems: list[str]) -> Any:
    origin = get_origin(wanted)
    if origin in (Union, types.UnionType):
        return None
    if origin in (list, dict):
        return origin()
    problems.append(f"{path}: is absent")
    return None


def _plain(value: Any, wanted: Any, path: str, problems: list[str]) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float) if wanted in (int, float) else wanted):
        return _wrong(
            value, {str: "a text", int: "a whole number", float: "a number"}.get(wanted, str(wanted)), path, problems
        )
    # Pulumi has one kind of number.
    return int(value) if wanted is int and float(value).is_integer() else value


def _wrong(value: Any, wanted: str, path: str, problems: list[str]) -> Any:
    problems.append(f"{path}: found {type(value).__name__}, {wanted} is needed")
    return value
