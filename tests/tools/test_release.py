"""What stops a release: each rule of `tools.release`, on a small repository."""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tools import release
from tools.release import (
    PACKAGES,
    CheckError,
    Release,
    check_build,
    check_changelog,
    check_dist,
    check_docs,
    check_recordings,
    check_schema,
    check_tree,
    check_version,
    check_wheel,
    license_problems,
    run,
)

Check = Callable[[Release], Iterator[str]]
DIGEST = hashlib.sha256(b"recorded").hexdigest()
FILES = {
    "pyproject.toml": 'version = "1.2.0"\n',
    "CHANGELOG.md": "# Changelog\n\n## 1.2.0 - unreleased\n\n- New.\n\n## 1.1.0 - 2026-01-02\n\n- Old.\n",
    "README.md": "pulumi package add REPOSITORY/components@1.2.0\n",
    "tests/recordings/v1_2_0/apps.json.gz": "recorded",
    "tests/recordings/SHA256SUMS": f"{DIGEST}  v1_2_0/apps.json.gz\n",
    **dict.fromkeys(("SECURITY.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "LICENSE"), "text\n"),
}


class Repository:
    """A repository that may be released as it is, but for what a test changes."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.root.mkdir()
        self.git("init", "--quiet")
        self.commit(FILES)

    def git(self, *words: str) -> None:
        run("git", "-c", "user.name=x", "-c", "user.email=x@example.com", *words, cwd=self.root)

    def commit(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "x")

    def problems(self, check: Check) -> list[str]:
        return list(check(self.release()))

    def release(self, version: str = "1.2.0") -> Release:
        return Release(root=self.root, version=version, scratch=Path(tempfile.mkdtemp(dir=self.root.parent)))


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_a_repository_that_keeps_the_rules_may_be_released(repository: Repository) -> None:
    for check in (check_tree, check_version, check_changelog, check_recordings):
        assert repository.problems(check) == [], check.__name__
    repository.commit({"CHANGELOG.md": "## 1.2.0 - 2026-02-03\n\n- New.\n"})
    repository.git("tag", "v1.2.0")
    for check in (check_version, check_changelog):
        assert repository.problems(check) == [], check.__name__


def test_what_is_not_committed_and_files_that_are_missing_are_named(repository: Repository) -> None:
    (repository.root / "SECURITY.md").unlink()
    assert repository.problems(check_tree) == [
        "1 file(s) are not committed, the first is SECURITY.md: commit or remove them",
        "SECURITY.md is missing: write it",
    ]


def test_a_history_that_is_cut_off_is_not_enough(repository: Repository, tmp_path: Path) -> None:
    repository.commit({"x": "x"})
    run("git", "clone", "--quiet", "--depth", "1", repository.root.as_uri(), tmp_path / "shallow")
    shallow = Release(root=tmp_path / "shallow", version="1.2.0", scratch=tmp_path)
    assert [problem.rsplit(": ")[-1] for problem in check_tree(shallow)] == ["git fetch --unshallow"]


def test_pages_and_tag_name_the_version_of_the_project(repository: Repository) -> None:
    repository.commit({"docs/ä b.md": "components@1.1.0, components@v1.2.0 and components@{commit}\n"})
    repository.git("tag", "v1.3.0")
    assert repository.problems(check_version) == [
        "docs/ä b.md installs components@1.1.0: write 1.2.0",
        "the tag v1.3.0 is not v1.2.0: change `version` in pyproject.toml, or tag another commit",
    ]


@pytest.mark.parametrize(
    ("text", "tag", "problem"),
    [
        ("## 1.1.0 - 2026-01-02\n", "", "CHANGELOG.md has no section"),
        ("## 1.2.0 - soon\n", "", "its section is dated 'soon'"),
        ("## 1.2.0 - 2026-02-30\n", "", "its section is dated '2026-02-30'"),
        ("## 1.2.0 - 20260203\n", "", "its section is dated '20260203'"),
        ("## 1.2.0\n", "", "its section is dated ''"),
        ("## 1.2.0 - unreleased\n", "v1.2.0", "its section is dated 'unreleased'"),
        ("## 1.2.0 - unreleased\n" + "- New.\n" * 150, "", "its section has 151 lines"),
    ],
)
def test_the_changelog_has_a_short_section_with_a_day(
    repository: Repository, text: str, tag: str, problem: str
) -> None:
    repository.commit({"CHANGELOG.md": text})
    if tag:
        repository.git("tag", tag)
    (found,) = repository.problems(check_changelog)
    assert found.startswith(problem)


def test_a_minor_version_without_recordings_is_not_released(repository: Repository) -> None:
    assert list(check_recordings(repository.release("1.3.1"))) == [
        "there are none of this version: python -m tests.recordings v1_3_0"
    ]


def test_recordings_are_frozen(repository: Repository) -> None:
    recording = repository.root / "tests/recordings/v1_2_0/apps.json.gz"
    recording.write_text("changed")
    recording.with_name("new.json.gz").write_text("new")
    assert repository.problems(check_recordings) == [
        "v1_2_0/apps.json.gz was changed: recordings are frozen, restore it and record under the name of a new version",
        "v1_2_0/new.json.gz is not listed: in tests/recordings, sha256sum v1_2_0/new.json.gz >> SHA256SUMS",
    ]
    recording.unlink()
    assert repository.problems(check_recordings)[0] == "v1_2_0/apps.json.gz is gone: recordings are frozen, restore it"


def test_a_recording_that_was_ever_listed_stays_frozen(repository: Repository) -> None:
    changed = hashlib.sha256(b"changed").hexdigest()
    repository.commit(
        {
            "tests/recordings/v1_2_0/apps.json.gz": "changed",
            "tests/recordings/SHA256SUMS": f"{changed}  v1_2_0/apps.json.gz\n",
        }
    )
    repository.git("config", "color.ui", "always")
    restore = f"first listed as {DIGEST[:12]}: restore the recording and its line in SHA256SUMS"
    assert repository.problems(check_recordings) == [f"v1_2_0/apps.json.gz was {restore}"]
    repository.commit({name: FILES[name] for name in FILES if name.startswith("tests/recordings")})
    listed = (repository.root / "tests/recordings/SHA256SUMS").read_text()
    repository.commit({"tests/recordings/v1_3_0/x.gz": "recorded"})
    repository.commit({"tests/recordings/SHA256SUMS": f"{listed}{DIGEST}  v1_3_0/x.gz\n"})
    assert repository.problems(check_recordings) == []


def test_a_schema_that_is_not_generated_is_named(repository: Repository) -> None:
    rule = "schema: .venv/.synced\n\t@echo generated > schema.json\n\n.venv/.synced:\n\t@exit 1\n"
    schema = {"components/schema.json": "{}", "tests/components/released_schema/1.2.0.json": "{}"}
    repository.commit({"Makefile": rule, "schema.json": "generated\n", **schema})
    assert repository.problems(check_schema) == []
    repository.commit({"schema.json": "by hand\n"})
    assert repository.problems(check_schema) == [
        "schema.json is not what is generated: run `make schema`, read the diff and commit it"
    ]
    repository.commit({"schema.json": "generated\n", "components/schema.json": "changed"})
    (problem,) = repository.problems(check_schema)
    assert problem.startswith("tests/components/released_schema/1.2.0.json is not the schema of this version")


def test_a_file_that_is_gone_is_named_without_a_traceback(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(release, "CHECKS", (check_tree, check_version))
    monkeypatch.setattr(release, "CHECKS_OF_PACKAGES", ())
    (repository.root / "README.md").unlink()
    assert release.main(repository.root) == 1
    tree, version, _ = capsys.readouterr().out.splitlines()
    assert "the first is README.md" in tree
    assert version.endswith("README.md: No such file or directory; restore it, or make it readable")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "pyproject.toml is missing: restore it"),
        ('name = "x"\n', "pyproject.toml has no line with a version: write one line"),
        ("version = '1.2.0'\n", "pyproject.toml has \"version = '1.2.0'\": write one line"),
        ('version = "1.2"\n', "pyproject.toml has 'version = \"1.2\"': write one line"),
        ('version = "1.2.0"\nversion = "1.3.0"\n', "and 'version = \"1.3.0\"': write one line"),
    ],
)
def test_a_version_that_is_not_three_numbers_is_named(
    repository: Repository, text: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = repository.root / "pyproject.toml"
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    assert release.main(repository.root) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("release: ")
    assert said in line


def test_dist_holds_what_was_built_alone(repository: Repository) -> None:
    new = repository.release()
    (new.scratch / "first" / "tree").mkdir(parents=True)
    (new.scratch / "first" / "x.whl").write_text("built")
    dist = repository.root / "dist"
    dist.write_text("a file")
    assert list(check_dist(new)) == ["is not a folder: remove it"]
    dist.unlink()
    dist.mkdir()
    (dist / "old.whl").write_text("old")
    assert list(check_dist(new)) == []
    assert [path.name for path in dist.iterdir()] == ["x.whl"]


def test_a_program_that_is_missing_is_named() -> None:
    with pytest.raises(CheckError, match=r"^no-such-git: No such file or directory; install it$"):
        run("no-such-git")
    with pytest.raises(CheckError, match=r"`make release-check` installs it$"):
        run(Path("/nowhere/twine"))


def test_documentation_that_is_not_built_is_named(repository: Repository) -> None:
    with pytest.raises(CheckError, match=r"`make --no-print-directory docs` exited with 2: .*docs"):
        repository.problems(check_docs)
    # Without a rule, make takes the folder `docs` for what it should make.
    (repository.root / "docs").mkdir()
    (repository.root / "Makefile").write_text("clean:\n")
    (problem,) = repository.problems(check_docs)
    assert "made no build/site/index.html" in problem
    (repository.root / "Makefile").write_text(
        ".PHONY: docs\ndocs:\n\t@mkdir -p build/site && touch build/site/index.html\n"
    )
    assert repository.problems(check_docs) == []


PROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "torchx-pulumi"
version = "1.2.0"
[tool.hatch.build.targets.wheel]
packages = ["one", "two"]
[tool.hatch.build.targets.sdist]
include = ["one", "two"]
"""


def test_an_sdist_that_lacks_a_file_of_the_wheel_is_found(repository: Repository) -> None:
    code = {f"{name}/__init__.py": "" for name in ("one", "two")}
    repository.commit({"pyproject.toml": PROJECT, **code})
    assert repository.problems(check_build) == []
    repository.commit({"pyproject.toml": PROJECT.replace('include = ["one", "two"]', 'include = ["one"]')})
    (problem,) = repository.problems(check_build)
    assert problem.startswith("torchx_pulumi-1.2.0-py2.py3-none-any.whl depends on")


INFO = "torchx_pulumi-1.2.0.dist-info"
WHEEL = {
    **{f"{package}/py.typed": "" for package in PACKAGES},
    "torchx_pulumi/outputs/schema.json": "{}",
    f"{INFO}/METADATA": "Name: torchx-pulumi\n\n[whole](https://example.com) and [here](#anchor)\n",
    f"{INFO}/licenses/LICENSE": "",
}


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"tests/__init__.py": ""}, "tests/__init__.py does not belong to it"),
        ({"torchx_pulumi/tests/x.py": ""}, "torchx_pulumi/tests/x.py does not belong to it"),
        ({"torchx_pulumi_stacks/py.typed": None}, "torchx_pulumi_stacks/py.typed is missing"),
        ({"torchx_pulumi/outputs/schema.json": None}, "torchx_pulumi/outputs/schema.json is missing"),
        ({f"{INFO}/licenses/LICENSE": None}, f"{INFO}/licenses/LICENSE is missing"),
        ({f"{INFO}/METADATA": "\n[a page](docs/README.md)\n"}, "its description links to docs/README.md"),
    ],
)
def test_a_wheel_with_too_little_or_too_much_is_named(
    repository: Repository, changed: Mapping[str, str | None], problem: str
) -> None:
    release = repository.release()
    (release.scratch / "first").mkdir()
    with zipfile.ZipFile(release.scratch / "first" / "x.whl", "w") as wheel:
        for name, text in {**WHEEL, **changed}.items():
            if text is not None:
                wheel.writestr(name, text)
    assert next(check_wheel(release)).startswith(problem)


def test_what_was_not_built_is_said_by_name(repository: Repository) -> None:
    with pytest.raises(CheckError, match=r"^needs \*\.whl, which a check above did not make"):
        repository.problems(check_wheel)


def component(*licenses: Mapping[str, Any], name: str = "x") -> dict[str, Any]:
    return {"name": name, "version": "1", "licenses": licenses}


def test_licenses_that_are_not_allowed_are_named() -> None:
    classifier = {"license": {"name": "License :: OSI Approved :: BSD License"}}
    fine = [
        component({"license": {"id": "MIT"}}, classifier),
        component({"expression": "Apache-2.0 AND MIT"}),
        component({"expression": "GPL-3.0-only OR MIT"}),
        component(name="protobuf"),
    ]
    assert list(license_problems(fine)) == []
    wrong = [
        component(),
        component({"license": {"id": "GPL-3.0-only"}}),
        component({"expression": "GPL-3.0-only AND MIT"}),
        component({"license": {"id": "MIT"}}, {"license": {"name": "Proprietary"}}),
    ]
    assert [problem.partition(":")[0] for problem in license_problems(wrong)] == [
        "x 1 has no license",
        "x 1 has GPL-3.0-only",
        "x 1 has GPL-3.0-only AND MIT",
        "x 1 has MIT, Proprietary",
    ]
