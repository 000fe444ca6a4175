"""Read the object `torchx` of a stack: from the stack, from JSON text, or from a Pulumi value. Checked and typed.

Unknown fields are kept. Absent fields are None or empty, as Pulumi leaves out what is null.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any, cast

from torchx_pulumi.model.codec import from_json
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.object_fields import is_finite, number_at
from torchx_pulumi.outputs.types import SCHEMA_VERSION, TorchxOutput

__all__ = ["read_outputs", "read_schema"]


def read_outputs(source: Any) -> TorchxOutput:
    """Read the object `torchx` of a stack.

    Args:
        source: A stack of Pulumi's Automation API, its outputs, what `pulumi stack output --json` printed (or
            `pulumi stack output torchx --json`), the same as data, or a value that came through a StackReference.

    Raises:
        DeployError: The source has no such object, a newer release wrote it, or parts of it are wrong; all are named.
    """
    value = _find(source)
    version = value.get("schema_version")
    if not is_finite(version):
        raise DeployError(
            f"the output `torchx` has no schema_version: found {version!r}; was it written by this package?"
        )
    if version > SCHEMA_VERSION:
        raise DeployError(
            f"the output `torchx` has schema_version {version:g}, this release of torchx-pulumi reads up to "
            f"{SCHEMA_VERSION}; install the release that wrote it, or a newer one"
        )
    try:
        return from_json(TorchxOutput, value, "torchx")
    except ValueError as error:
        problems = "".join(f"\n  - {problem}" for problem in str(error).splitlines())
        raise DeployError(f"the output `torchx` cannot be read:{problems}\nrun `pulumi up` to write it again") from None


def is_of_later_release(output: Mapping[str, Any]) -> bool:
    """Return whether a later release wrote an object of the shape `torchx`: its fields may have another meaning."""
    return (number_at(output, "schema_version") or SCHEMA_VERSION) > SCHEMA_VERSION


def read_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the object `torchx`."""
    text = resources.files("torchx_pulumi.outputs").joinpath("schema.json").read_text(encoding="utf-8")
    return cast("dict[str, Any]", json.loads(text))


def _find(source: Any) -> Mapping[str, Any]:
    """Return the object `torchx` in a source."""
    value = source.outputs() if callable(getattr(source, "outputs", None)) else source
    if isinstance(value, (str, bytes)):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise DeployError(
                f"the outputs are not valid JSON: {error}; pass what `pulumi stack output --json` prints"
            ) from error
    if isinstance(value, Mapping) and "torchx" in value:
        value = value["torchx"]
    # Pulumi's OutputMap has each value together with whether it is secret.
    value = getattr(value, "value", value) if not isinstance(value, Mapping) else value
    if isinstance(value, str) and value.startswith("{"):
        return _find(value)
    if not isinstance(value, Mapping):
        raise DeployError(
            f"there is no output `torchx`: found {type(value).__name__}; the stack has not been deployed, or its "
            "program does not use torchx-pulumi"
        )
    return value
