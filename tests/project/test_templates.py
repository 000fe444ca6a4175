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
PACKAGE = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = PACKAGE["version"]
TEMPLATES = sorted((ROOT / "templates").iterdir())
OPERATOR_EXAMPLES = [ROOT / "examples" / name for name in ("controller", "platform")]


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


@pytest.mark.parametrize("template", [*TEMPLATES, *OPERATOR_EXAMPLES], ids=lambda path: path.name)
def test_a_template_names_the_package_of_this_version_or_what_that_needs(template: Path) -> None:
    if (template / "requirements.txt").exists():
        needed = Requirement((template / "requirements.txt").read_text().strip())
        if needed.name == PACKAGE["name"]:
            assert needed.specifier.contains(VERSION)
        else:
            assert needed in [Requirement(line) for line in PACKAGE["dependencies"]]
    else:
        source = SCHEMA["pluginDownloadURL"].removeprefix("git://")
        assert project(template)["packages"] == {"torchx": f"{source}@{VERSION}"}


def test_the_image_of_the_operator_has_the_package_of_this_version() -> None:
    samples = ROOT / "examples" / "operator"
    assert f"ARG VERSION={VERSION}\n" in (samples / "Dockerfile").read_text()
    assert f"/torchx-workspace:{VERSION}\n" in (samples / "job.yaml").read_text()
