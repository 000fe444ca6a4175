"""The comment of the CI sample, from digests as `pulumi preview --json` prints them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from examples.ci.preview_comment import comment, number, resources_of, totals

CI = Path(__file__).resolve().parents[3] / "examples" / "ci"
URN = "urn:pulumi:prod::train"
COMPONENT = f"{URN}::torchx:index:VolcanoTrainingJob::mnist"
JOB = f"{URN}::torchx:index:VolcanoTrainingJob$kubernetes:batch.volcano.sh/v1alpha1:Job::mnist"
STACK = {"op": "same", "urn": f"{URN}::pulumi:pulumi:Stack::train-prod", "newState": {}}


def pod(cpu: object = "2", memory: object = "8G", gpu: object = "1") -> dict[str, Any]:
    limits = {"cpu": cpu, "memory": memory, "nvidia.com/gpu": gpu, "vpc.amazonaws.com/efa": "4"}
    return {"spec": {"containers": [{"resources": {"requests": {"cpu": "1900m", "memory": "7G"}, "limits": limits}}]}}


def step(op: str, urn: str = JOB, old: Any = None, new: Any = None, parent: str = COMPONENT) -> dict[str, Any]:
    states = {"oldState": old, "newState": new}
    return {"op": op, "urn": urn} | {
        key: {"urn": urn, "parent": parent, "inputs": inputs} for key, inputs in states.items() if inputs is not None
    }


def diagnostic(severity: str, message: str) -> dict[str, str]:
    return {"severity": severity, "message": f"{severity}: {message}\n"}


def volcano(replicas: object = 4, **amounts: object) -> dict[str, Any]:
    return {"spec": {"queue": "gold", "tasks": [{"replicas": replicas, "template": pod(**amounts)}]}}


TOTALS = {
    "a Volcano Job": (volcano(), "| mnist | 4 | 8 | 4 | 32 |"),
    "tasks of one replica each": (
        {"spec": {"tasks": [{"replicas": 1, "template": pod()}] * 3}},
        "| mnist | 3 | 6 | 3 | 24 |",
    ),
    "an AppWrapper of MCAD": (
        {
            "spec": {
                "resources": {
                    "GenericItems": [
                        {"replicas": 1, "custompodresources": [{"replicas": 1}], "generictemplate": pod()},
                        {"replicas": 1, "generictemplate": {"kind": "Service", "spec": {}}},
                    ]
                }
            }
        },
        "| mnist | 1 | 2 | 1 | 8 |",
    ),
    "an AppWrapper of its successor": (
        {"spec": {"components": [{"podSets": [{"replicas": 1, "path": "template"}], "template": pod()}] * 2}},
        "| mnist | 2 | 4 | 2 | 16 |",
    ),
    "a pod": (pod(cpu="500m", memory="1Gi", gpu="0"), "| mnist | 1 | 0.5 | 0 | 1.07374 |"),
    "a secret amount": (volcano(gpu="[secret]"), "| mnist | 4 | 8 | ? | 32 |"),
    "a secret number of replicas": (volcano("[secret]"), "| mnist | ? | ? | ? | ? |"),
}


@pytest.mark.parametrize("name", TOTALS)
def test_the_totals_are_of_all_replicas(name: str) -> None:
    manifest, row = TOTALS[name]
    assert row in comment({"steps": [STACK, step("same", new=manifest)]}, failed=False)


def test_the_totals_of_all_jobs_are_added_and_deleted_ones_are_left_out() -> None:
    web = "kubernetes:apps/v1:Deployment::web"
    steps = [
        step("create", new=volcano()),
        step("same", f"{URN}::acme:index:Site${web}", new=volcano(1), parent=f"{URN}::acme:index:Site::site"),
        step("delete", JOB.replace("mnist", "gone"), old=volcano()),
    ]
    rows = ["| mnist | 4 | 8 | 4 | 32 |", "| web | 1 | 2 | 1 | 8 |", "| **all** | 5 | 10 | 5 | 40 |"]
    assert totals(resources_of({"steps": steps})) == rows


@pytest.mark.parametrize(("quantity", "amount"), [("1900m", 1.9), ("8", 8), ("2Gi", 2**31), ("1.5G", 1.5e9), (3, 3)])
def test_quantities(quantity: object, amount: float) -> None:
    assert number(quantity) == pytest.approx(amount)


def test_a_change_has_its_row_and_its_diff() -> None:
    component = step("same", COMPONENT, old={}, new={})
    text = comment({"steps": [STACK, component, step("update", old=volcano(4), new=volcano(2))]}, failed=False)
    assert text.startswith("## Preview of `prod`: changes")
    assert "| update | `mnist` | `kubernetes:batch.volcano.sh/v1alpha1:Job` |" in text
    assert '-    "replicas": 4,\n+    "replicas": 2,' in text
    assert text.count("| `mnist` |") == 1


def test_the_steps_of_a_replacement_are_one_change() -> None:
    new = volcano(8)
    steps = [step("delete-replaced", old=volcano()), step("replace", new=new), step("create-replacement", new=new)]
    text = comment({"steps": [STACK, *steps]}, failed=False)
    assert text.count("| replace | `mnist` |") == 1
    assert '-    "replicas": 4,\n+    "replicas": 8,' in text


def test_no_change() -> None:
    text = comment({"steps": [STACK, step("same", old=volcano(), new=volcano())]}, failed=False)
    assert text.startswith("## Preview of `prod`: no changes")
    assert "| Change |" not in text
    assert "| mnist | 4 |" in text


def test_a_refusal_is_named_once_and_the_noise_of_the_engine_is_left_out() -> None:
    refusal = "changing roles[trainer].env[LR] would relaunch run mnist-1a2b3c, which has been running for 2 h"
    said = [
        diagnostic("warning", "using pulumi-resource-torchx from $PATH at /usr/bin/pulumi-resource-torchx"),
        diagnostic("warning", "the service account trainer does not exist"),
        diagnostic("error", refusal),
        diagnostic("error", refusal),
        diagnostic("error", "an unhandled error occurred: program exited with non-zero exit code: 1"),
    ]
    text = comment({"steps": [STACK], "diagnostics": said}, failed=True)
    assert text.startswith("## Preview of `prod`: refused")
    assert text.count(refusal) == 1
    assert "the service account trainer does not exist" in text
    assert "$PATH" not in text
    assert "unhandled" not in text


def test_a_preview_that_printed_nothing_points_to_the_log() -> None:
    assert "see the log of this pipeline" in comment({}, failed=True)


def test_a_long_diff_is_cut() -> None:
    env = [{"name": f"V{index}", "value": "1"} for index in range(200)]
    text = comment({"steps": [STACK, step("create", new={"spec": {"env": env}})]}, failed=False)
    assert "lines in all" in text
    assert len(text.splitlines()) < 120


PIPELINES = {
    "github": (
        lambda: yaml.safe_load((CI / "github-workflow.yaml").read_text())["jobs"]["preview"]["steps"][-1]["run"],
        "gh",
        {"REQUEST": "7"},
        ["pr", "comment", "7", "--edit-last", "--create-if-none", "--body-file"],
    ),
    "gitlab": (
        lambda: yaml.safe_load((CI / "gitlab-job.yaml").read_text())["preview"]["after_script"][0],
        "curl",
        {"COMMENT_TOKEN": "hush", "CI_API_V4_URL": "https://gitlab.example.com/api/v4", "CI_PROJECT_ID": "3"},
        ["body@comment.md", "https://gitlab.example.com/api/v4/projects/3/merge_requests/7/notes"],
    ),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_posts_the_comment_if_there_is_one_and_a_token(name: str, tmp_path: Path) -> None:
    script, client, env, words = PIPELINES[name]
    (tmp_path / client).write_text('#!/bin/sh\nprintf "%s\\n" "$@" > posted\n')
    (tmp_path / client).chmod(0o755)
    given = {"RUNNER_TEMP": ".", "GITHUB_STEP_SUMMARY": "summary", "CI_MERGE_REQUEST_IID": "7", **env}

    def run(**changed: str) -> list[str]:
        (tmp_path / "posted").unlink(missing_ok=True)
        path = f"{tmp_path}:{os.environ['PATH']}"
        subprocess.run(["bash", "-e", "-c", script()], cwd=tmp_path, env={"PATH": path, **given, **changed}, check=True)
        return (tmp_path / "posted").read_text().splitlines() if (tmp_path / "posted").exists() else []

    (tmp_path / "comment.md").touch()
    assert run() == []
    (tmp_path / "comment.md").write_text("## Preview")
    assert set(words) <= set(run())
    if name == "gitlab":
        assert run(COMMENT_TOKEN="") == []
