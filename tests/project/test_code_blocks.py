"""Every code block of README and docs is taken by a test from its page, or is marked as output."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.doc_blocks import PAGES, ROOT, blocks

LANGUAGES = {"sh", "python", "yaml", "json", "ini", "toml"}


def taken() -> set[tuple[str, str]]:
    """Return page and name of the blocks that tests take: the constant arguments of `block` and `commands`."""
    found = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("block", "commands"):
                page, name = (getattr(argument, "value", None) for argument in node.args[:2])
                found.add((page, name))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_are_executed_or_marked_as_output(page: Path) -> None:
    tested = taken()
    for language, name, text in blocks(page):
        where = f"{page.relative_to(ROOT)}: block {name or text[:60]!r}"
        if language == "text":
            assert not name, f"{where} is output, which has no name"
            continue
        assert language in LANGUAGES, f"{where} has language {language!r}"
        assert (str(page.relative_to(ROOT)), name) in tested, f"{where} is taken by no test"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_are_fenced_and_names_are_used_once(page: Path) -> None:
    lines = page.read_text().splitlines()
    fenced = False
    for before, line in zip(["", *lines], lines, strict=False):
        fenced ^= line.startswith("```")
        assert fenced or before or not line.startswith("    "), f"{page.name}: an indented block: {line.strip()}"
    names = [name for _, name, _ in blocks(page) if name]
    assert len(names) == len(set(names))
