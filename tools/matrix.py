"""Tables of docs/tested-versions.md."""

from __future__ import annotations

from torchx_pulumi.model.versions import VERSIONS


def versions_table() -> str:
    """Return the parts with their versions as a Markdown table."""
    rows = (
        f"| {known.title} | {known.tested} | {known.supported or 'only tests use it'} |" for known in VERSIONS.values()
    )
    return "\n".join(("| Part | Tested | Supported |", "|---|---|---|", *rows))
