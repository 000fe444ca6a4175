"""Continuous integration leaves the tests of the tools out only if it knows that the tools are unchanged."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import TOOL_TESTS

SCRIPT = Path(__file__).resolve().parents[2] / ".ci" / "tools-changed"

TESTS = [name if name.endswith(".py") else f"{name}/test_one.py" for name in TOOL_TESTS]
"""Tests that are left out."""


def git(repository: Path, *words: str) -> str:
    identity = ("-c", "user.name=tester", "-c", "user.email=tester@localhost")
    done = subprocess.run(["git", *identity, *words], cwd=repository, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(repository: Path, name: str) -> str:
    (repository / name).parent.mkdir(parents=True, exist_ok=True)
    (repository / name).write_text("changed\n")
    git(repository, "add", name)
    git(repository, "commit", "-m", name)
    return git(repository, "rev-parse", "HEAD")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone whose only commit is the default branch of its remote."""
    origin = tmp_path / "origin"
    git(tmp_path, "init", "-q", "-b", "trunk", str(origin))
    (origin / ".ci").mkdir()
    shutil.copy(SCRIPT, origin / ".ci")
    commit(origin, ".ci/tools-changed.md")
    git(origin, "add", ".")
    git(origin, "commit", "-m", "script")
    git(tmp_path, "clone", "-q", str(origin), "clone")
    return tmp_path / "clone"


def ask(clone: Path, **variables: str) -> tuple[int, str]:
    env = {"PATH": os.environ["PATH"], **variables}
    done = subprocess.run([clone / ".ci" / "tools-changed"], env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("name", "code"),
    [("sdk/one.py", 1), ("tools/one.py", 0), ("requirements/dev.txt", 0), *((f"tests/{name}", 0) for name in TESTS)],
)
def test_a_commit_is_compared_with_the_default_branch_of_the_remote(clone: Path, name: str, code: int) -> None:
    base = git(clone, "rev-parse", "HEAD")
    commit(clone, name)
    said = f"they are as in {base[:12]}\n" if code else f"{name} differs from {base[:12]}\n"
    assert ask(clone) == (code, said)


def test_files_that_are_not_committed_count(clone: Path) -> None:
    commit(clone, "sdk/one.py")
    (clone / "tools").mkdir()
    (clone / "tools" / "new.py").touch()
    assert ask(clone)[0] == 0


def test_the_variables_of_ci_systems_name_another_base(clone: Path) -> None:
    tools = commit(clone, "tools/one.py")
    git(clone, "update-ref", "refs/remotes/origin/release", tools)
    commit(clone, "sdk/one.py")
    assert ask(clone)[0] == 0
    assert ask(clone, GITHUB_BASE_REF="release")[0] == 1
    assert ask(clone, CI_MERGE_REQUEST_DIFF_BASE_SHA=tools)[0] == 1
    assert ask(clone, CI_MERGE_REQUEST_DIFF_BASE_SHA="", GITHUB_BASE_REF="")[0] == 0


@pytest.mark.parametrize("variables", [{}, {"GITHUB_BASE_REF": "absent"}, {"CI_MERGE_REQUEST_DIFF_BASE_SHA": "0" * 40}])
def test_without_a_known_base_the_tests_run(clone: Path, variables: dict[str, str]) -> None:
    # HEAD is the default branch: which commit it was before is unknown.
    if variables:
        commit(clone, "sdk/one.py")
    assert ask(clone, **variables) == (0, "the base commit is unknown\n")


def test_without_the_files_of_the_base_the_tests_run(clone: Path) -> None:
    base = git(clone, "rev-parse", "HEAD")
    commit(clone, "sdk/one.py")
    tree = git(clone, "rev-parse", f"{base}^{{tree}}")
    (clone / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    assert ask(clone) == (0, f"git cannot compare them with {base[:12]}\n")
