"""Build hook: entry points stand in the wheel in the order of `pyproject.toml`, which hatchling sorts by name.

TorchX takes the first scheduler that it finds for its default one, so that this order is part of what users get.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class EntryPointOrder(BuildHookInterface):  # type: ignore[misc]
    """Runs after a wheel was written, an editable one as well."""

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Put the entry points in order."""
        del version, build_data
        config: Mapping[str, Any] = self.metadata.config["project"]
        order_entry_points(Path(artifact_path), config.get("entry-points", {}))


def order_entry_points(wheel: Path, groups: Mapping[str, Mapping[str, str]]) -> None:
    """Write a wheel again with the entry points of some groups in the order that is given."""
    ordered = wheel.with_suffix(".ordered")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(ordered, "w", zipfile.ZIP_DEFLATED) as new:
        name = next(item for item in old.namelist() if item.endswith(".dist-info/entry_points.txt"))
        text = _in_order(old.read(name).decode(), groups).encode()
        for item in old.infolist():
            content = old.read(item)
            if item.filename == name:
                content = text
            elif item.filename.endswith(".dist-info/RECORD"):
                content = _recorded(content.decode(), name, text).encode()
            new.writestr(item, content)
    shutil.move(ordered, wheel)


def _in_order(text: str, groups: Mapping[str, Mapping[str, str]]) -> str:
    sections = [section.splitlines() for section in text.split("\n\n") if section.strip()]
    for lines in sections:
        wanted = groups.get(lines[0].strip("[]"))
        if wanted is not None:
            lines[1:] = [f"{name} = {target}" for name, target in wanted.items()]
    return "\n\n".join("\n".join(lines) for lines in sections) + "\n"


def _recorded(record: str, name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    lines = [
        f"{name},sha256={digest},{len(content)}" if line.startswith(f"{name},") else line
        for line in record.splitlines()
    ]
    return "\n".join(lines) + "\n"
