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

from tests.golden import cases, mcad_cases

FOLDER = Path(__file__).parent
UPDATE = os.environ.get("TORCHX_PULUMI_UPDATE_GOLDEN") == "1"
CASES = {"volcano": cases.CASES, "mcad": mcad_cases.CASES}
NEEDED = {"volcano": {"queue": "default"}, "mcad": {}}
"""Options without which there is no job."""


def rendered(scheduler: str, name: str) -> str:
    case = CASES[scheduler][name]
    app = {"name": case.get("name", "app"), "roles": case["roles"]}
    spec = replace(read_app_mapping(app), torchx_version="0.0.0")
    options = read_options({**NEEDED[scheduler], **case.get("options", {})}, scheduler)
    app_id = case.get("app_id", "app-x1")
    return to_yaml(render_plan(plan_job(spec, options, app_id, launched=case.get("launched"))))


@pytest.mark.parametrize(("scheduler", "name"), [(scheduler, name) for scheduler in CASES for name in CASES[scheduler]])
def test_manifest_is_the_golden_one(scheduler: str, name: str) -> None:
    path = FOLDER / scheduler / f"{name}.yaml"
    text = rendered(scheduler, name)
    if UPDATE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), "read the diff; `make golden` takes it over"
    assert to_yaml(yaml.safe_load(text)) == text


@pytest.mark.parametrize("scheduler", CASES)
def test_every_golden_file_has_a_case(scheduler: str) -> None:
    assert sorted(path.stem for path in (FOLDER / scheduler).glob("*.yaml")) == sorted(CASES[scheduler])
