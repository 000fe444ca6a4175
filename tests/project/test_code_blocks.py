"""Every code block of README and docs is taken by a test from its page, is an example of the schema, or is output."""

from __future__ import annotations

import ast

from tests.doc_blocks import FIRST, PAGES, ROOT, blocks, schema_examples

LANGUAGES = {"sh", "python", "yaml", "json", "ini", "toml"}


def taken() -> set[tuple[str, str]]:
    """Return page and name of the blocks that tests take: the constant arguments of `block` and `commands`."""
    found = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text()
        if "doc_blocks" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("block", "commands"):
                page, name = (getattr(argument, "value", None) for argument in node.args[:2])
                found.add((page, name))
    return found


def test_blocks_are_taken_by_a_test_or_marked_as_output() -> None:
    tested, wrong = taken(), []
    for page in PAGES:
        name_of_page = str(page.relative_to(ROOT))
        for language, name, text in blocks(page):
            is_output = language == "text" and not name
            # tests/components and make e2e take these from their files.
            is_example = text in schema_examples(language).values()
            is_taken = name == FIRST or (name_of_page, name) in tested  # tests/project/test_first_blocks.py
            if not (is_output or is_example or (language in LANGUAGES and is_taken)):
                wrong.append((name_of_page, language, name or text[:60]))
    assert wrong == []


def test_blocks_are_fenced_and_names_are_used_once() -> None:
    for page in PAGES:
        lines = page.read_text().splitlines()
        fenced = False
        for before, line in zip(["", *lines], lines, strict=False):
            fenced ^= line.startswith("```")
            assert fenced or before or not line.startswith("    "), f"{page.name}: an indented block: {line.strip()}"
        names = [name for _, name, _ in blocks(page) if name]
        assert len(names) == len(set(names)), page.name
