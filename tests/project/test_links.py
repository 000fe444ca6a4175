"""Pages are short and in the index; every link between them, and every module that they name, exists."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.project.sources import ROOT, SOURCES, nodes_of

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


def test_links_resolve() -> None:
    missing = []
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", page.read_text()):
            found = page.parent / target if target else page
            if target.startswith(("http://", "https://", "mailto:")):
                continue
            if not found.exists() or (anchor and anchor not in anchors(found)):
                missing.append((str(page.relative_to(ROOT)), f"{target}#{anchor}"))
    assert missing == []


def test_commits_that_pages_name_are_in_the_history() -> None:
    """Commits are made again when branches are joined; a page that names one of a branch then names nothing."""
    git = partial(subprocess.run, cwd=ROOT, capture_output=True, text=True, check=False)
    if git(["git", "rev-parse", "--is-shallow-repository"]).stdout.strip() != "false":
        pytest.skip("this checkout does not have the whole history")
    named = {
        name
        for page in PAGES
        for name in re.findall(r"\bcommit (?:that \w+ them is )?([0-9a-f]{7,40})\b", page.read_text())
    }
    assert len(named) >= 2
    assert [name for name in named if git(["git", "merge-base", "--is-ancestor", name, "HEAD"]).returncode] == []


LIMITS = {"README.md": (str.splitlines, 120), "docs/**/*.md": (str.split, 1500)}
"""Pages, and how many lines or words each may have."""


def test_pages_are_short() -> None:
    sizes = [
        (page.name, len(parts(page.read_text())), limit)
        for pattern, (parts, limit) in LIMITS.items()
        for page in ROOT.glob(pattern)
    ]
    assert [page for page, size, limit in sizes if size > limit] == []


def test_every_page_is_in_the_index_of_its_folder() -> None:
    pages = [page for page in PAGES if ROOT / "docs" in page.parents and page.name != "README.md"]
    assert [page.name for page in pages if f"({page.name})" not in (page.parent / "README.md").read_text()] == []


def test_the_product_names_pages_by_their_addresses() -> None:
    """A user of the wheel has no folder `docs`."""
    named, paths = set(), []
    for path in SOURCES:
        docstrings = {id(node.value) for node in nodes_of(path) if isinstance(node, ast.Expr)}
        for node in nodes_of(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                paths += [(path.name, found) for found in re.findall(r"docs/[\w-]+\.md", node.value)]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "page":
                named |= {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
    assert paths == []
    assert {"permissions", "tested-versions", "live-state"} <= named
    assert [name for name in named if not (ROOT / "docs" / f"{name}.md").exists()] == []
    schemas = [
        (ROOT / name).read_text() for name in ("components/schema.json", "sdk/torchx_pulumi/outputs/schema.json")
    ]
    assert [found for text in schemas for found in re.findall(r"docs/[\w-]+\.md", text)] == []


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


def test_each_module_of_logs_and_archives_is_in_the_map_of_symptoms() -> None:
    table = (ROOT / "AGENTS.md").read_text().split("# Where a fault of a log is")[1].split("\n# ")[0]
    named = set(re.findall(r"`((?:logs|archive)/\w+\.py)`", table))
    folders = (ROOT / "sdk/torchx_pulumi/logs", ROOT / "fleet/torchx_pulumi_fleet/archive")
    there = {f"{folder.name}/{path.name}" for folder in folders for path in folder.glob("*.py")}
    assert named == {name for name in there if not name.endswith("__init__.py")}
