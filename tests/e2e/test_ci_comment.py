"""The comment of the CI sample, from real previews: a new job, no change, a refusal. It has no secret."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.doc_blocks import commands
from tests.e2e.project import FAKE_NODE, Project
from tests.e2e.stack_project import ROOT

pytestmark = pytest.mark.e2e

PROGRAM = f"""\
import pulumi
from torchx_pulumi_components import VolcanoTrainingJob

config = pulumi.Config()
role = {{
    "name": "trainer",
    "image": "app:1",
    "entrypoint": "sleep",
    "args": ["600"],
    "num_replicas": 3,
    "env": {{"TOKEN": config.require_secret("token"), "RATE": config.require("rate")}},
    "resource": {{"cpu": 2, "gpu": 1, "memory_mb": 4000}},
    **{json.dumps(FAKE_NODE)},
}}
VolcanoTrainingJob("train", {{"queue": "default", "namespace": config.require("namespace"), "roles": [role]}})
"""


@pytest.fixture
def project(make_project: Callable[..., Project]) -> Project:
    project = make_project(program=PROGRAM)
    words = ("--plaintext", f"namespace={project.namespace}", "--plaintext", "rate=0.1", "--secret", "token=hush-hush")
    project.run("config", "set-all", *words)
    return project


def comment_on(project: Project, *, refused: bool = False) -> str:
    values = {"ci/": f"{ROOT}/examples/ci/", "prod": "dev", " > comment.md": ""}
    (command,) = commands("docs/ci.md", "first", values)
    words = [sys.executable, *shlex.split(command)[1:]]
    done = subprocess.run(
        words, cwd=project.folder, env=project.env, text=True, capture_output=True, timeout=240, check=False
    )
    assert done.returncode == int(refused), done.stdout + done.stderr
    assert "hush-hush" not in done.stdout + done.stderr
    return done.stdout


def test_the_comment_has_changes_totals_and_refusals(project: Project) -> None:
    total = "3 | 6 | 3 | 12000 |"
    new = comment_on(project)
    assert new.startswith("## Preview of `dev`: changes")
    assert "| create | `train` | `torchx:index:VolcanoTrainingJob` |" in new
    assert '+ "spec": "[secret]"' in new
    assert f"| train | new | {total}" in new
    project.up()
    kept = comment_on(project)
    assert kept.startswith("## Preview of `dev`: no changes")
    assert total in kept
    assert "| new |" not in kept
    project.run("config", "set", "rate", "0.2")
    refused = comment_on(project, refused=True)
    assert refused.startswith("## Preview of `dev`: refused")
    assert "changing roles[trainer].env[RATE] would relaunch run train-" in refused
