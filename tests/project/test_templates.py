"""Templates and samples name the package as its schema does, and its version as the checkout does."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "components" / "schema.json").read_text())
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
TEMPLATES = sorted((ROOT / "templates").iterdir())


def project(template: Path) -> dict[str, Any]:
    return dict(yaml.safe_load((template / "Pulumi.yaml").read_text()))


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_a_template_is_one_of_pulumi(template: Path) -> None:
    found = project(template)
    assert (found["name"], found["description"]) == ("${PROJECT}", "${DESCRIPTION}")
    assert found["template"]["description"]
    for key, each in found["template"]["config"].items():
        assert each["description"], key
        assert isinstance(each.get("default", ""), str), f"{key}: the CLI takes texts only"


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_a_template_names_the_package_of_this_version(template: Path) -> None:
    if (template / "requirements.txt").exists():
        assert Requirement((template / "requirements.txt").read_text().strip()).specifier.contains(VERSION)
    else:
        source = SCHEMA["pluginDownloadURL"].removeprefix("git://")
        assert project(template)["packages"] == {"torchx": f"{source}@{VERSION}"}


def test_the_image_of_the_operator_has_the_package_of_this_version() -> None:
    samples = ROOT / "examples" / "operator"
    assert f"ARG VERSION={VERSION}\n" in (samples / "Dockerfile").read_text()
    assert f"/torchx-workspace:{VERSION}\n" in (samples / "job.yaml").read_text()
