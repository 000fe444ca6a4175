"""Metadata hook: links of the README that is in the wheel lead to the repository at the tag of the version.

The package index shows that README, and would leave relative links as they are.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Readme(MetadataHookInterface):  # type: ignore[misc]
    """Runs when metadata are made."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme`, which `pyproject.toml` lists as dynamic."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = with_addresses(text, metadata["urls"]["Repository"], f"v{metadata['version']}")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def with_addresses(text: str, repository: str, tag: str) -> str:
    """Return a page with whole addresses in place of relative links and images."""

    def whole(found: re.Match[str]) -> str:
        image, label, target = found.groups()
        return f"{image}{label}({repository}/{'raw' if image else 'blob'}/{tag}/{target})"

    return re.sub(r"(!?)(\[[^\]]*\])\((?!https?://|#)([^)\s]+)\)", whole, text)
