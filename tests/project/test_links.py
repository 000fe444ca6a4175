"""Pages are short and in the index; every link between them, and every module that they name, exists."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
        *(ROOT / "tools").rglob("*.md"),
    ]
)


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)", re.sub(r"(?ms)^```.*?^```$", "", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_resolve(page: Path) -> None:
    missing = []
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", page.read_text()):
        if not target.startswith(("http://", "https://", "mailto:")):
            found = page.parent / target if target else page
            if not found.exists() or (anchor and anchor not in anchors(found)):
                missing.append(f"{target}#{anchor}")
    assert not missing, f"{page}: {missing}"


LIMITS = [
    ("README.md", "lines", str.splitlines, 120),
    *((str(page.relative_to(ROOT)), "words", str.split, 1500) for page in PAGES if ROOT / "docs" in page.parents),
]
"""Page, and how many of its parts it may have."""


@pytest.mark.parametrize(("page", "what", "parts", "limit"), LIMITS, ids=str)
def test_a_page_is_short(page: str, what: str, parts: Callable[[str], list[str]], limit: int) -> None:
    assert len(parts((ROOT / page).read_text())) <= limit, f"{page} has more than {limit} {what}"


@pytest.mark.parametrize("folder", ["docs", "docs/decisions"])
def test_every_page_is_in_the_index_of_its_folder(folder: str) -> None:
    index = (ROOT / folder / "README.md").read_text()
    assert [page.name for page in sorted((ROOT / folder).glob("*.md")) if f"({page.name})" not in index] == ["README.md"]


GENERATED = {"__main__.py", "my-train.py", "train.py"}
"""Files of a user's project."""


def test_modules_that_a_page_names_exist() -> None:
    done = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = ["/" + line for line in done.stdout.splitlines()]
    missing = [
        (page.name, name)
        for page in PAGES
        if page.name != "CHANGELOG.md"
        for name in re.findall(r"`([\w./-]+\.py)`", page.read_text())
        if name not in GENERATED and not any(file.endswith("/" + name) for file in files)
    ]
    assert missing == []
