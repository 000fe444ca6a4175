"""The two packages have one version and the same users; what only the fleet needs is required by the fleet alone."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from torchx_pulumi.model.fleet_package import CORE, FLEET, INSTALL_FLEET

from tools.matrix import ALL_APPS, ROWS

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = [tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"] for folder in ("", "fleet")]
OURS, THEIRS = PROJECTS
LIBRARIES = ("prometheus-client", "rich", "starlette", "uvicorn")


def requirements(project: dict[str, list[str]]) -> dict[str, Requirement]:
    return {found.name: found for found in map(Requirement, project["dependencies"])}


def test_they_have_one_version_and_need_it_exactly() -> None:
    assert (OURS["name"], THEIRS["name"]) == (CORE, FLEET)
    assert OURS["version"] == THEIRS["version"]
    assert OURS["optional-dependencies"]["fleet"] == [f"{FLEET}=={OURS['version']}"]
    assert str(requirements(THEIRS)[CORE]) == f"{CORE}=={OURS['version']}"
    assert f"pip install '{CORE}[fleet]'" == INSTALL_FLEET


@pytest.mark.parametrize("key", ["requires-python", "license", "license-files", "urls"])
def test_they_have_the_same(key: str) -> None:
    assert OURS[key] == THEIRS[key]
    assert (ROOT / "LICENSE").read_bytes() == (ROOT / "fleet" / "LICENSE").read_bytes()


def test_they_are_for_the_same_versions_of_python() -> None:
    python = [[each for each in project["classifiers"] if "Python ::" in each] for project in PROJECTS]
    assert python[0] == python[1]


def test_the_core_needs_no_library_of_the_fleet() -> None:
    assert requirements(THEIRS).keys() == {CORE, *LIBRARIES}
    assert requirements(OURS).keys().isdisjoint({FLEET, *LIBRARIES})


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_page_of_tested_versions_and_the_matrix_have_the_libraries_of_the_fleet(name: str) -> None:
    (oldest,) = [each.version for each in requirements(THEIRS)[name].specifier]
    pinned = re.findall(rf"(?m)^{name}==(\S+)", (ROOT / "requirements" / "dev.txt").read_text())
    newest = max(pinned, key=lambda version: [*map(int, version.split("."))])
    row = f"| {name} | {newest} | {oldest} or newer |"
    assert row in (ROOT / "docs" / "tested-versions.md").read_text()
    (oldest_row,) = [each for each in ROWS if each.tests == ALL_APPS]
    (pin,) = [Requirement(each) for each in oldest_row.pins if each.startswith(f"{name}==")]
    assert Version(oldest) in pin.specifier
    assert f"{name} {oldest}" in oldest_row.name
