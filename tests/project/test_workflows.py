"""The workflows run pinned actions, and get the rights that they need."""

from __future__ import annotations

import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.release import CORE, FLEET

WORKFLOWS = sorted((Path(__file__).resolve().parents[2] / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_by_commit_and_named_by_version(path: Path) -> None:
    used = re.findall(r"uses: ((?!\./).*)", path.read_text(encoding="utf-8"))
    assert used
    assert [action for action in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_job_writes_only_what_it_is_made_for(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    writing = {
        name: {scope for scope, access in job.get("permissions", {}).items() if access == "write"}
        for name, job in workflow["jobs"].items()
    }
    wanted = {"page": {"contents"}, "site": {"pages", "id-token"}}
    wanted |= {"publish": {"id-token"}, "publish-fleet": {"id-token"}}
    assert {name: scopes for name, scopes in writing.items() if scopes} == (wanted if path.stem == "release" else {})


def test_a_release_is_tested_and_checked_before_it_is_published() -> None:
    jobs = workflow("release")["jobs"]
    assert jobs["tests"] == {"uses": "./.github/workflows/tests.yml"}
    assert "workflow_call" in workflow("tests")[True]  # YAML 1.1 reads the key `on` so
    assert jobs["publish"]["needs"] == ["tests", "check"]
    assert jobs["publish-fleet"]["needs"] == "publish"
    assert jobs["page"]["needs"] == jobs["site"]["needs"] == "publish-fleet"


def test_each_package_has_a_trusted_publisher_and_files_of_its_own() -> None:
    jobs = workflow("release")["jobs"]
    kept = {
        step["with"]["name"]: step["with"]["path"].split()
        for step in jobs["check"]["steps"]
        if step.get("uses", "").startswith("actions/upload-artifact@")
    }
    published = {}
    for name in ("publish", "publish-fleet"):
        download, publish = jobs[name]["steps"]
        assert publish["uses"].startswith("pypa/gh-action-pypi-publish@")
        published[jobs[name]["environment"]] = kept[download["with"]["name"]]
    assert published == {
        environment: [f"dist/{made.stem}-*.whl", f"dist/{made.stem}-*.tar.gz"]
        for environment, made in (("package-index", CORE), ("package-index-fleet", FLEET))
    }
    (download, _) = jobs["page"]["steps"]
    assert [name for name in kept if not fnmatch(name, download["with"]["pattern"])] == []


def test_a_tag_that_is_not_on_main_is_refused(tmp_path: Path) -> None:
    (step,) = [step for step in workflow("release")["jobs"]["check"]["steps"] if "tag" in step.get("name", "")]
    commit = "git -c user.name=x -c user.email=x@example.com commit --quiet --allow-empty --message x"

    def script(text: str) -> subprocess.CompletedProcess[str]:
        words = ["bash", "-euo", "pipefail", "-c", text]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert script(f"git init --quiet; {commit}; git update-ref refs/remotes/origin/main HEAD").returncode == 0
    assert script(step["run"]).returncode == 0
    assert script(commit).returncode == 0
    refused = script(f"export GITHUB_REF_NAME=v1.2.0; {step['run']}")
    assert refused.returncode == 1
    assert refused.stdout.startswith("::error::v1.2.0 is not on main: ")


def workflow(name: str) -> Any:
    (path,) = [path for path in WORKFLOWS if path.stem == name]
    return yaml.safe_load(path.read_text(encoding="utf-8"))
