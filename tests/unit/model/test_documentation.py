"""Messages name a page by its address in the repository, at the tag of the version."""

from __future__ import annotations

import importlib.metadata
from email.message import Message
from importlib.metadata import PackageNotFoundError
from typing import Any

import pytest
from torchx_pulumi.model import documentation

ADDRESS = "https://example.com/team/project"


@pytest.mark.parametrize(
    ("urls", "expected"),
    [
        ([f"Homepage, {ADDRESS}/site", f"Repository, {ADDRESS}"], f"{ADDRESS}/blob/v1.2.0/docs/permissions.md"),
        ([], "docs/permissions.md"),
        (None, "docs/permissions.md"),
    ],
)
def test_a_page_is_named_by_its_address_or_by_its_path(
    urls: list[str] | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(name: str) -> Any:
        if urls is None:
            raise PackageNotFoundError(name)
        metadata = Message()
        metadata["Version"] = "1.2.0"
        for url in urls:
            metadata["Project-URL"] = url
        return metadata

    monkeypatch.setattr(importlib.metadata, "metadata", found)
    assert documentation.page.__wrapped__("permissions") == expected
