"""Every link between the project's own pages, and every module that they name, exists."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
        *(ROOT / "tools").rglob("*.md"),
    ]
)


def test_links_resolve() -> None:
    missing = [
        (str(page.relative_to(ROOT)), target)
        for page in PAGES
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
        if not target.startswith(("http://", "https://", "mailto:")) and not (page.parent / target).exists()
    ]
    assert missing == []


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
