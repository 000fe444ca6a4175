"""Code blocks of README and docs, by page and name.

A block that a reader runs or copies has a language and a name (`sh quick-start`), and a test takes it from its page
with `block`. A block that shows what something prints, or a picture in text, has the language `text` and no name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "components" / "torchx_pulumi_components" / "examples").glob("*.md"))
"""Examples in the descriptions of the schema's resources, by component."""
FIRST = "first"
"""Name of the block with which a page begins: lines to try."""
FENCE = re.compile(r"^```(\S*) ?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """Return language, name and text of every fenced block of a page."""
    return [(found[1], found[2], found[3]) for found in FENCE.finditer(page.read_text())]


def schema_examples(language: str) -> dict[str, str]:
    """Return component -> its example program in a language: typescript, python, go or yaml."""
    return {page.stem: text for page in EXAMPLES for known, _, text in blocks(page) if known == language}


def block(page: str, name: str) -> str:
    """Return the text of a block.

    Args:
        page: Path in the repository, such as `docs/images.md`.
        name: Of the block.
    """
    (text,) = (text for _, known, text in blocks(ROOT / page) if known == name)
    return text


def commands(page: str, name: str, values: Mapping[str, str] | None = None) -> list[str]:
    """Return the commands of a shell block, without comments.

    Args:
        page: See `block`.
        name: See `block`.
        values: Text of the page -> what the test puts in its place; each has to be in the block.
    """
    text = block(page, name).replace("\\\n", " ")
    for example, value in (values or {}).items():
        assert example in text, f"{page}: block {name!r} has no {example!r}"
        text = text.replace(example, value)
    return [re.split(r"\s+# ", line)[0].strip() for line in text.splitlines() if line.strip()]


def command_lines(page: Path) -> list[tuple[str, str]]:
    """Return name of the block and text of each line of a page's shell blocks, with `OUTPUT` in place of `$(...)`."""
    shell = [(name, text.replace("\\\n", " ")) for language, name, text in blocks(page) if language == "sh"]
    lines = [(name, line) for name, text in shell for line in text.splitlines() if line.strip()]
    return [(name, re.sub(r"\$\(.*?\)", "OUTPUT", line)) for name, line in lines]
