"""Reading recordings, and telling how what is made now differs from them. No difference is tolerated."""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torchx_pulumi.model.labels import VERSION

HERE = Path(__file__).parent


@functools.cache
def recorded(release: str, what: str) -> Any:
    """Return the recordings of a release: `programs` or `apps`."""
    return json.loads(gzip.decompress((HERE / release / f"{what}.json.gz").read_bytes()))


def assert_same(found: Any, expected: Any) -> None:
    """Compare two JSON values, byte for byte, and say where they differ."""
    told = list(differences(found, expected))
    assert not told, "differs from what was recorded:\n" + "\n".join(told[:20])


def differences(found: Any, expected: Any, path: str = "") -> Iterator[str]:
    """Yield where two JSON values differ."""
    if isinstance(found, dict) and isinstance(expected, dict):
        for key in sorted({*found, *expected}):
            where = f"{path}.{key}" if path else str(key)
            if key not in found:
                yield f"{where}: is gone, was {expected[key]!r}"
            elif key in expected:
                yield from differences(found[key], expected[key], where)
            else:
                yield f"{where}: is new: {found[key]!r}"
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        for index, (one, other) in enumerate(zip(found, expected, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif not _same(found, expected):
        yield f"{path}: is {found!r}, was {expected!r}"


def _same(found: Any, expected: Any) -> bool:
    """Compare two single values; an integer may have become a float on the way through Pulumi's state."""
    if isinstance(found, (int, float)) and isinstance(expected, (int, float)):
        return found == expected and isinstance(found, bool) == isinstance(expected, bool)
    return json.dumps(found) == json.dumps(expected)


def by_urn(registered: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the parts of registrations that an existing run must keep, by URN.

    Not the specs, which golden files have; not what was observed, nor the order in which things are made; not the
    version of TorchX, which is no part of an identity.
    """
    kept = {}
    for item in registered:
        inputs = {key: value for key, value in item["inputs"].items() if key != "spec"}
        outputs = item["outputs"] and {key: value for key, value in item["outputs"].items() if key != "observed"}
        rest = {key: value for key, value in item.items() if key not in ("urn", "depends_on")}
        kept[item["urn"]] = {**rest, "inputs": _without_version(inputs), "outputs": outputs}
    return kept


def _without_version(inputs: dict[str, Any]) -> dict[str, Any]:
    metadata = inputs.get("metadata") or {}
    if VERSION not in (metadata.get("labels") or {}):
        return inputs
    labels = {key: value for key, value in metadata["labels"].items() if key != VERSION}
    return {**inputs, "metadata": {**metadata, "labels": labels}}


def with_specs(registered: list[dict[str, Any]], first: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put the specs, which are recorded once, into what a later run of a program registered."""
    specs = {item["urn"]: item["inputs"].get("spec") for item in first}
    return [
        {**item, "inputs": {**item["inputs"], **({"spec": spec} if (spec := specs.get(item["urn"])) else {})}}
        for item in registered
    ]
