"""Addresses of the pages of the documentation, for messages: the wheel has no pages."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import PackageMetadata


@cache
def page(name: str) -> str:
    """Return the address of a page at the tag of the installed version; of a checkout alone, its path.

    Args:
        name: Name of the file in `docs`, without `.md`.
    """
    # Imported here: every command would wait for it, and few messages name a page.
    from importlib.metadata import PackageNotFoundError, metadata

    path = f"docs/{name}.md"
    try:
        found = metadata("torchx-pulumi")
    except PackageNotFoundError:
        return path
    repository = project_urls(found).get("Repository")
    return f"{repository}/blob/v{found['Version']}/{path}" if repository else path


def project_urls(found: PackageMetadata) -> dict[str, str]:
    """Return the addresses that a package has in its metadata, by their labels."""
    return dict(line.split(", ", 1) for line in found.get_all("Project-URL", []))
