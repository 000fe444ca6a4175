"""Write docs/outputs.md, the outputs of the components, from the schema: `python -m tools.outputs_page`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tools.site import field_table

SCHEMA = Path(__file__).resolve().parents[1] / "components" / "schema.json"

HEAD = """# Outputs of the components

Written by `python -m tools.outputs_page`. Names are those of TypeScript and YAML: Go has `MemoryMb` for `memoryMb`,
Python `memory_mb`. What is null is absent. [Programs that read them](languages.md#programs-and-outputs);
[when they change](status.md).
"""


def outputs_page() -> str:
    """Return the page. Components with equal outputs share a section."""
    schema = json.loads(SCHEMA.read_text())
    tables: dict[str, list[str]] = {}
    for token, resource in schema["resources"].items():
        tables.setdefault(field_table(resource, ""), []).append(token.rpartition(":")[2])
    text = HEAD + "".join(f"\n## {' and '.join(names)}\n\n{table}" for table, names in tables.items())
    for name in dict.fromkeys(name for resource in schema["resources"].values() for name in _types(resource, schema)):
        kind = schema["types"][name]
        text += f"\n## {name.rpartition(':')[2]}\n\n{kind['description']}\n\n{field_table(kind, '')}"
    return text


def _types(kind: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the types that the properties of a resource or type have, and those that they have."""
    for value in kind["properties"].values():
        reference = value.get("$ref") or value.get("items", {}).get("$ref")
        if reference:
            name = reference.removeprefix("#/types/")
            yield name
            yield from _types(schema["types"][name], schema)


if __name__ == "__main__":
    sys.stdout.write(outputs_page())
