"""The whole manifest, one file per feature: a change of a renderer shows as a readable diff.

`make golden` (TORCHX_PULUMI_UPDATE_GOLDEN=1) writes the files anew.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from torchx_pulumi.inputs.appfile import read_app_mapping
from torchx_pulumi.inputs.rendering import render_plan
from torchx_pulumi.inputs.run_options import read_options
from torchx_pulumi.kube.yaml_text import to_yaml
from torchx_pulumi.schedulers import plan_job

from tests.golden.cases import CASES

FOLDER = Path(__file__).parent / "volcano"
UPDATE = os.environ.get("TORCHX_PULUMI_UPDATE_GOLDEN") == "1"


def rendered(name: str) -> str:
    case = CASES[name]
    app = {"name": case.get("name", "app"), "roles": case["roles"]}
    spec = replace(read_app_mapping(app), torchx_version="0.0.0")
    options = read_options({"queue": "default", **case.get("options", {})})
    return to_yaml(render_plan(plan_job(spec, options, "app-x1", launched=case.get("launched"))))


@pytest.mark.parametrize("name", CASES)
def test_manifest_is_the_golden_one(name: str) -> None:
    path = FOLDER / f"{name}.yaml"
    text = rendered(name)
    if UPDATE:
        path.write_text(text)
    assert text == path.read_text(), "read the diff; `make golden` takes it over"
    assert to_yaml(yaml.safe_load(text)) == text


def test_every_golden_file_has_a_case() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.yaml")) == sorted(CASES)
