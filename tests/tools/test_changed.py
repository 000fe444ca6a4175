"""Continuous integration leaves tests out only if it knows that what they are about is unchanged."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import GROUPS

ROOT = Path(__file__).resolve().parents[2]
PATHS = {group: (ROOT / ".ci" / f"paths-of-{group}").read_text().splitlines() for group in GROUPS}
CHANGES = [
    *(("tools", name, 0) for name in ("tools/one.py", "requirements/dev.txt", ".ci/run")),
    *(("tools", name, 1) for name in ("sdk/one.py", "fleet/one.py", "tests/e2e/fleet/test_one.py")),
    *(("fleet", f"sdk/torchx_pulumi/{name}", 0) for name in ("apps/one.py", "schedulers/volcano/status.py")),
    *(("fleet", name, 0) for name in ("fleet/torchx_pulumi_fleet/one.py", "tests/e2e/conftest.py")),
    *(("fleet", f"sdk/torchx_pulumi/{name}", 1) for name in ("images/one.py", "schedulers/volcano/job.py")),
    *(("fleet", name, 1) for name in ("tools/one.py", "tests/e2e/test_local_cluster.py", "docs/fleet.md")),
    *(
        (group, f"tests/{name}" if name.endswith(".py") else f"tests/{name}/test_one.py", 0)
        for group, names in GROUPS.items()
        for name in names
    ),
]
"""A group of tests, a file that is changed, and the exit code for it."""


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


@pytest.fixture(scope="module")
def fresh_clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone whose only commit is the default branch of its remote."""
    folder = tmp_path_factory.mktemp("repositories")
    origin = folder / "origin"
    git(folder, "init", "-q", "-b", "trunk", str(origin))
    (origin / ".ci").mkdir()
    for name in ("run", "changed", *(f"paths-of-{group}" for group in GROUPS)):
        shutil.copy(ROOT / ".ci" / name, origin / ".ci")
    git(origin, "add", ".")
    git(origin, "commit", "-m", "script")
    git(folder, "clone", "-q", str(origin), "clone")
    return folder / "clone"


@pytest.fixture
def clone(fresh_clone: Path, tmp_path: Path) -> Path:
    """A copy of the clone, which a test may change; no test writes to the remote."""
    return shutil.copytree(fresh_clone, tmp_path / "clone")


def ask(clone: Path, group: str = "tools", **variables: str) -> tuple[int, str]:
    env = {"PATH": os.environ["PATH"], **variables}
    done = subprocess.run([clone / ".ci" / "changed", group], env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize(("group", "name", "code"), CHANGES)
def test_a_commit_is_compared_with_the_default_branch_of_the_remote(
    clone: Path, group: str, name: str, code: int
) -> None:
    base = git(clone, "rev-parse", "HEAD")
    commit(clone, name)
    said = f"they are as in {base[:12]}\n" if code else f"{name} differs from {base[:12]}\n"
    assert ask(clone, group) == (code, said)


@pytest.mark.parametrize(("group", "path"), [(group, path) for group, paths in PATHS.items() for path in paths])
def test_every_path_that_is_compared_is_in_the_repository(group: str, path: str) -> None:
    assert git(ROOT, "ls-files", path)


def test_a_group_without_paths_is_an_error_not_a_reason_to_leave_tests_out(clone: Path) -> None:
    assert ask(clone, "nothing") == (2, "")


def test_every_test_that_can_be_left_out_is_there() -> None:
    assert [path for paths in GROUPS.values() for path in paths if not (ROOT / "tests" / path).exists()] == []


@pytest.mark.parametrize(
    ("name", "left_out"), [("docs/one.md", "tools fleet"), ("fleet/one.py", "tools"), ("tools/one.py", "fleet")]
)
def test_continuous_integration_says_what_it_leaves_out(clone: Path, tmp_path: Path, name: str, left_out: str) -> None:
    commit(clone, name)
    (tmp_path / "make").write_text('#!/bin/sh\necho "$1 without $TORCHX_PULUMI_LEFT_OUT"\n')
    (tmp_path / "make").chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([clone / ".ci" / "run"], env=env, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert [line for line in lines if " without " in line] == [
        f"{target} without {left_out}" for target in ("check", "test", "e2e")
    ]
    for group, tests in (("tools", "tests of the tools"), ("fleet", "real tests of the fleet")):
        (said,) = [line for line in lines if line.startswith(f"{tests}: ")]
        assert said.startswith(
            f"{tests}: {'left out, they are as in' if group in left_out else f'run, {name} differs'} "
        )


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
