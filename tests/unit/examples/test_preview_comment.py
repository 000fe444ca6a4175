"""The comment of the CI sample, from events as `pulumi preview --json` streams them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from examples.ci.preview_comment import SECRET, comment, events_of

CI = Path(__file__).resolve().parents[3] / "examples" / "ci"
JOB = "kubernetes:batch.volcano.sh/v1alpha1:Job"
COMPONENT = "torchx:index:VolcanoTrainingJob"
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""What previews have for an output that is known after the update only."""


def event(kind: str, op: str, type_: str, name: str = "mnist", **states: Any) -> dict[str, Any]:
    return {kind: {"metadata": {"op": op, "type": type_, "urn": f"urn:pulumi:prod::train::{type_}::{name}", **states}}}


def step(op: str, old: Any = None, new: Any = None, type_: str = JOB, name: str = "mnist") -> dict[str, Any]:
    states = {key: each and {"inputs": each} for key, each in (("old", old), ("new", new))}
    return event("resourcePreEvent", op, type_, name, **states)


def job(name: str = "mnist", replicas: int = 4, observed: Any = UNKNOWN) -> list[dict[str, Any]]:
    """Return the events of a component: its creation, and its outputs."""
    total = {"cpu": 0.1 * replicas, "gpu": replicas, "memory_mb": 4_000_000 * replicas, "devices": {}}
    outputs = {"declared": {"roles": [{"replicas": replicas}], "resources_total": total}, "observed": observed}
    made = event("resOutputsEvent", "create", COMPONENT, name, new={"outputs": {}})
    return [step("create", new={}, type_=COMPONENT, name=name), made, outputs_of(name, outputs)]


def outputs_of(name: str, outputs: Any, op: str = "create") -> dict[str, Any]:
    return event("resOutputsEvent", op, COMPONENT, name, new={"outputs": outputs})


def said(severity: str, message: str, **more: Any) -> dict[str, Any]:
    return {"diagnosticEvent": {"severity": severity, "message": f"{message}\n", **more}}


STACK = step("same", type_="pulumi:pulumi:Stack", name="train-prod")


def manifest(replicas: int) -> dict[str, Any]:
    return {"spec": {"queue": "gold", "tasks": [{"replicas": replicas}]}}


def test_the_totals_are_of_all_jobs_that_may_run() -> None:
    ended = {"state": "SUCCEEDED"}
    text = comment([STACK, *job(), *job("wide", 3, {"state": "RUNNING"}), *job("over", 8, ended)], failed=False)
    assert "| mnist | new | 4 | 0.4 | 4 | 16000000 |" in text
    assert "| wide | RUNNING | 3 | 0.3 | 3 | 12000000 |" in text
    assert "| over | SUCCEEDED | 8 | 0.8 | 8 | 32000000 |" in text
    assert "| **not ended** |  | 7 | 0.7 | 7 | 28000000 |" in text


HIDDEN = {SECRET: "1b47", "ciphertext": "AAABAAx"}


@pytest.mark.parametrize(
    ("hidden", "row"),
    [
        ({"gpu": HIDDEN}, "| mnist | new | 4 | 0.4 | ? | 16000000 |"),
        ({"cpu": UNKNOWN}, "| mnist | new | 4 | ? | 4 | 16000000 |"),
    ],
)
def test_an_amount_that_is_secret_or_not_known_yet_has_a_question_mark(hidden: Any, row: str) -> None:
    *made, outputs = job()
    outputs["resOutputsEvent"]["metadata"]["new"]["outputs"]["declared"]["resources_total"] |= hidden
    text = comment([STACK, *made, outputs], failed=False)
    assert row in text
    assert row.replace("mnist | new", "**not ended** | ") in text


def test_an_output_of_another_resource_is_no_job() -> None:
    outputs = {"declared": None}
    exported = event("resOutputsEvent", "same", "pulumi:pulumi:Stack", "train-prod", new={"outputs": outputs})
    text = comment([STACK, *job(), exported], failed=False)
    assert "| **not ended** |  | 4 | 0.4 | 4 | 16000000 |" in text
    assert text.count("| new |") == 1


def test_a_line_ends_at_a_line_feed_only() -> None:
    said = {"diagnosticEvent": {"severity": "error", "message": "one\u0085two"}}
    assert events_of(json.dumps(said, ensure_ascii=False) + "\n") == [said]


def test_of_a_large_object_the_part_from_the_first_difference_is_compared() -> None:
    def tasks(version: int) -> dict[str, Any]:
        return {"tasks": [{"args": [f"{index}"] * 20} for index in range(1000)], "z": [version, *range(5_000)]}

    text = comment([STACK, step("update", tasks(1), tasks(2))], failed=False)
    assert "-  1,\n+  2,\n" in text
    assert re.search(r"# lines \d+ to \d+ of the object are not compared", text)


@pytest.mark.parametrize("declared", [HIDDEN, UNKNOWN])
def test_a_job_of_which_nothing_is_known_has_a_row(declared: Any) -> None:
    *made, outputs = job()
    outputs["resOutputsEvent"]["metadata"]["new"]["outputs"]["declared"] = declared
    assert "| mnist | new | ? | ? | ? | ? |" in comment([STACK, *made, outputs], failed=False)


def test_a_deleted_job_asks_for_nothing() -> None:
    _, _, outputs = job()
    outputs["resOutputsEvent"]["metadata"]["op"] = "delete"
    assert "| Job |" not in comment([STACK, step("delete", old={}, type_=COMPONENT), outputs], failed=False)


def test_a_change_has_its_row_and_its_diff() -> None:
    text = comment([STACK, step("update", old=manifest(4), new=manifest(2))], failed=False)
    assert text.startswith("## Preview of `prod`: changes")
    assert f"| update | `mnist` | `{JOB}` |" in text
    assert '-    "replicas": 4\n+    "replicas": 2' in text
    assert "train-prod" not in text


def test_the_steps_of_a_replacement_are_one_change() -> None:
    new = manifest(8)
    steps = [step("delete-replaced", old=manifest(4)), step("replace", new=new), step("create-replacement", new=new)]
    text = comment([STACK, *steps], failed=False)
    assert text.count("| replace | `mnist` |") == 1
    assert '-    "replicas": 4\n+    "replicas": 8' in text


def test_secrets_are_named_as_such() -> None:
    text = comment([STACK, step("create", new={"spec": {"queue": "gold", "tasks": HIDDEN}})], failed=False)
    assert '"tasks": "[secret]"' in text
    assert "AAABAAx" not in text


def test_no_change() -> None:
    text = comment([STACK, step("same", old=manifest(4), new=manifest(4))], failed=False)
    assert text == "## Preview of `prod`: no changes\n"


def test_a_refusal_is_named_once_and_the_noise_of_the_engine_is_left_out() -> None:
    refusal = "changing roles[trainer].env[LR] would relaunch run mnist-1a2b3c, which has been running for 2 h"
    events = [
        STACK,
        said("warning", "using pulumi-resource-torchx from $PATH at /usr/bin/pulumi-resource-torchx"),
        said("warning", "the service account trainer does not exist"),
        said("info", "in place: num_replicas of run other-4d5e6f"),
        said("info", "waiting", ephemeral=True),
        said("debug", "registering resource"),
        said("error", refusal),
        said("error", refusal),
        said("error", "an unhandled error occurred: program exited with non-zero exit code: 1"),
    ]
    text = comment(events, failed=True)
    assert text.startswith("## Preview of `prod`: refused")
    assert text.count(refusal) == 1
    for part in ("the service account trainer does not exist", "in place: num_replicas"):
        assert part in text
    for part in ("$PATH", "unhandled", "waiting", "registering"):
        assert part not in text


def test_a_preview_that_printed_nothing_points_to_the_log() -> None:
    assert "see the log of this pipeline" in comment([], failed=True)


def test_a_machine_without_the_cli_is_told_so_in_one_line(tmp_path: Path) -> None:
    words = [sys.executable, str(CI / "preview_comment.py")]
    done = subprocess.run(words, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.endswith("cannot run pulumi: No such file or directory; install the Pulumi CLI, and put it on PATH")


def test_a_cli_that_is_killed_in_the_middle_of_a_line_has_a_comment(tmp_path: Path) -> None:
    printed = json.dumps(step("create", new=manifest(4)))
    (tmp_path / "pulumi").write_text(f"#!/bin/sh\nprintf '%s\\n%s' '{printed}' '{printed[:25]}'\nexit 137\n")
    (tmp_path / "pulumi").chmod(0o755)
    words = [sys.executable, str(CI / "preview_comment.py")]
    done = subprocess.run(words, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    for part in ("see the log of this pipeline", f"| create | `mnist` | `{JOB}` |"):
        assert part in done.stdout


def test_a_long_diff_is_cut() -> None:
    env = [{"name": f"V{index}", "value": "1"} for index in range(200)]
    text = comment([STACK, step("create", new={"spec": {"env": env}})], failed=False)
    assert "lines in all" in text
    assert len(text.splitlines()) < 120


def test_hostile_texts_stay_what_they_are() -> None:
    name = "a|b`<img>\n\n# @all"
    said_text = "one\n~~~~~~~\n# @team"
    text = comment([STACK, *job(name), step("create", new={}, name=name), said("error", said_text)], failed=True)
    assert f"~~~~~~~~text\n{said_text}\n~~~~~~~~\n" in text
    shown = "a&#124;b&#96;&#60;img&#62;&#10;&#10;&#35; &#64;all"
    assert f"| create | `{shown}` |" in text
    assert f"<details><summary>create {shown}</summary>" in text
    assert f"| {shown} | new | 4 |" in text
    assert "<img" not in text


def test_a_huge_preview_leaves_out_diffs_first() -> None:
    wide = {"metadata": {"annotations": {"x": "A" * 20_000}}}
    events = [STACK, said("error", "no queue"), said("error", "E" * 70_000), said("warning", "no account")]
    for index in range(1500):
        events += [*job(f"{index}-{'j' * 60}", 1), step("create", new=wide, name=f"job-{index}")]
    text = comment(events, failed=True)
    assert 50_000 < len(text) <= 65_000
    for part in ("| **not ended** |  | 1500 |", "3000 rows in all", "no queue", "no account", "have no space here"):
        assert part in text
    assert "70000 characters in all" in text
    assert text.count("\n~~~~~~") % 2 == 0
    assert text.count("<details>") == text.count("</details>") > 0


def github_jobs() -> dict[str, Any]:
    jobs: dict[str, Any] = yaml.safe_load((CI / "github-workflow.yaml").read_text())["jobs"]
    return jobs


PIPELINES = {
    "github": (
        lambda: github_jobs()["comment"]["steps"][-1]["run"],
        "comment/comment.md",
        "gh",
        {"REQUEST": "7"},
        ["pr", "comment", "7", "--edit-last", "--create-if-none", "--body-file"],
    ),
    "gitlab": (
        lambda: yaml.safe_load((CI / "gitlab-job.yaml").read_text())["preview"]["after_script"][0],
        "comment.md",
        "curl",
        {"COMMENT_TOKEN": "hush", "CI_API_V4_URL": "https://gitlab.example.com/api/v4", "CI_PROJECT_ID": "3"},
        ["body@comment.md", "https://gitlab.example.com/api/v4/projects/3/merge_requests/7/notes"],
    ),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_posts_the_comment_if_there_is_one_and_a_token(name: str, tmp_path: Path) -> None:
    script, file, client, env, words = PIPELINES[name]
    (tmp_path / client).write_text('#!/bin/sh\nprintf "%s\\n" "$@" > posted\n')
    (tmp_path / client).chmod(0o755)
    given = {"RUNNER_TEMP": ".", "GITHUB_STEP_SUMMARY": "summary", "CI_MERGE_REQUEST_IID": "7", **env}

    def run(**changed: str) -> list[str]:
        (tmp_path / "posted").unlink(missing_ok=True)
        path = f"{tmp_path}:{os.environ['PATH']}"
        subprocess.run(["bash", "-e", "-c", script()], cwd=tmp_path, env={"PATH": path, **given, **changed}, check=True)
        return (tmp_path / "posted").read_text().splitlines() if (tmp_path / "posted").exists() else []

    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    assert run() == []
    (tmp_path / file).write_text("## Preview")
    assert set(words) <= set(run())
    if name == "gitlab":
        assert run(COMMENT_TOKEN="") == []


def test_the_job_that_may_write_runs_nothing_of_the_branch_of_a_pull_request() -> None:
    jobs = github_jobs()
    assert {name: job["permissions"] for name, job in jobs.items()} == {
        "preview": {"contents": "read"},
        "comment": {"pull-requests": "write"},
    }
    download, _ = jobs["comment"]["steps"]
    assert download["uses"].startswith("actions/download-artifact@")
    assert download["with"]["name"] == jobs["preview"]["steps"][-1]["with"]["name"]
    assert "github.token" not in str(jobs["preview"])
