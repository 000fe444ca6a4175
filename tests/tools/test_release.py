"""What stops a release: each rule of `tools.release`, on a small repository."""

from __future__ import annotations

import hashlib
import io
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tools import release
from tools.release import (
    CORE,
    FLEET,
    CheckError,
    Distribution,
    Release,
    check_build,
    check_changelog,
    check_dist,
    check_docs,
    check_recordings,
    check_released,
    check_schema,
    check_sdist,
    check_tree,
    check_version,
    check_wheel,
    license_problems,
    run,
    wheel_problems,
)

Check = Callable[[Release], Iterator[str]]
DIGEST = hashlib.sha256(b"recorded").hexdigest()
FILES = {
    "pyproject.toml": 'version = "1.2.0"\n',
    "fleet/pyproject.toml": 'version = "1.2.0"\n',
    "CHANGELOG.md": "# Changelog\n\n## 1.2.0 - unreleased\n\n- New.\n\n## 1.1.0 - 2026-01-02\n\n- Old.\n",
    "README.md": "pulumi package add REPOSITORY/components@1.2.0\n",
    "tests/recordings/v1_2_0/apps.json.gz": "recorded",
    "tests/recordings/SHA256SUMS": f"{DIGEST}  v1_2_0/apps.json.gz\n",
    "tests/components/released_schema/1.1.0.json": "recorded",
    "tests/components/released_schema/1.2.0.json": "{}",
    "tests/components/released_schema/SHA256SUMS": f"{DIGEST}  1.1.0.json\n",
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
    for check in (check_tree, check_version, check_changelog, check_recordings, check_released):
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
    repository.commit(
        {
            "docs/ä b.md": "components@1.1.0, components@v1.2.0 and components@{commit}; the tag `v1.1.0`\n",
            "SECURITY.md": "The newest minor version gets fixes: now 1.1.x.\n",
            "docs/c.md": "The newest minor version gets fixes: now 1.2.x.\n",
            "templates/go/go.mod": "\tx.example/torchx-pulumi/sdk/go v1.1.0\n\tx.example/sdk/go v1.0.0\n",
            "examples/operator/Dockerfile": "# docker build -t torchx-workspace:1.1.0\nARG VERSION=1.1.0\n",
        }
    )
    repository.git("tag", "v1.3.0")
    *files, tag = repository.problems(check_version)
    assert files == [
        f"{name} names {found}: write {'1.2.x' if name == 'SECURITY.md' else '1.2.0'}"
        for name, found in (
            ("SECURITY.md", "fixes: now 1.1.x"),
            ("docs/ä b.md", "components@1.1.0"),
            ("docs/ä b.md", "the tag `v1.1.0"),
            ("examples/operator/Dockerfile", "torchx-workspace:1.1.0"),
            ("examples/operator/Dockerfile", "ARG VERSION=1.1.0"),
            ("templates/go/go.mod", "torchx-pulumi/sdk/go v1.1.0"),
        )
    ]
    assert tag == "the tag v1.3.0 is not v1.2.0: change `version` in pyproject.toml, or tag another commit"


def test_a_package_of_another_version_is_not_what_is_checked(repository: Repository) -> None:
    other = BOTH["fleet/pyproject.toml"].replace('version = "1.2.0"', 'version = "1.3.0"')
    repository.commit({**BOTH, "fleet/pyproject.toml": other})
    with pytest.raises(CheckError, match=r"^needs torchx_pulumi_fleet-1.2.0-\*\.whl, which a check above did not make"):
        repository.problems(check_build)


def test_both_packages_have_one_version(repository: Repository) -> None:
    repository.commit({"fleet/pyproject.toml": 'version = "1.3.0"\n'})
    assert repository.problems(check_version) == [
        "fleet/pyproject.toml has version 1.3.0: write 1.2.0, that of pyproject.toml"
    ]
    repository.commit({"fleet/pyproject.toml": "version = 3\n"})
    with pytest.raises(CheckError, match=r"^fleet/pyproject.toml has 'version = 3': write one line"):
        repository.problems(check_version)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """Files that `SHA256SUMS` freezes."""

    check: Check
    folder: str
    old: str
    """A file that is listed."""
    new: str
    """A file that may be added."""

    def sums(self, text: str) -> str:
        return f"{hashlib.sha256(text.encode()).hexdigest()}  {self.old}\n"


FROZEN = (
    Frozen(check=check_recordings, folder="tests/recordings", old="v1_2_0/apps.json.gz", new="v1_2_0/new.gz"),
    Frozen(check=check_released, folder="tests/components/released_schema", old="1.1.0.json", new="1.1.1.json"),
)
of_each_kind = pytest.mark.parametrize("kind", FROZEN, ids=lambda kind: kind.check.__name__)


@of_each_kind
def test_what_is_listed_is_frozen(repository: Repository, kind: Frozen) -> None:
    old, new = f"{kind.folder}/{kind.old}", f"{kind.folder}/{kind.new}"
    repository.commit({old: "changed", new: "new"})
    (repository.root / new).write_text("new")
    assert repository.problems(kind.check) == [
        f"{old} was changed: it is frozen, restore it; a new version has a file of its own",
        f"{new} is not listed: in {kind.folder}, sha256sum {kind.new} >> SHA256SUMS",
    ]
    (repository.root / old).unlink()
    assert repository.problems(kind.check)[0] == f"{old} is gone: it is frozen, restore it"


@of_each_kind
def test_what_was_ever_listed_stays_frozen(repository: Repository, kind: Frozen) -> None:
    old, new, sums = (f"{kind.folder}/{name}" for name in (kind.old, kind.new, "SHA256SUMS"))
    repository.git("config", "color.ui", "always")
    repository.commit({old: "changed", sums: kind.sums("changed")})
    restore = f"{old} was first listed as {DIGEST[:12]}: restore the file and its line in SHA256SUMS"
    assert repository.problems(kind.check) == [restore]
    (repository.root / old).unlink()
    (repository.root / sums).unlink()
    assert repository.problems(kind.check)[-1] == restore
    repository.commit({old: "recorded", new: "recorded", sums: f"{kind.sums('recorded')}{DIGEST}  {kind.new}\n"})
    assert repository.problems(kind.check) == []


def test_a_version_with_a_tag_has_its_schema_listed(repository: Repository) -> None:
    repository.git("tag", "v1.2.0")
    (problem,) = repository.problems(check_released)
    assert problem.startswith("tests/components/released_schema/1.2.0.json is not listed")


def test_a_schema_that_is_not_generated_is_named(repository: Repository) -> None:
    rule = "schema: .venv/.synced\n\t@echo generated > schema.json\n\n.venv/.synced:\n\t@exit 1\n"
    repository.commit({"Makefile": rule, "schema.json": "generated\n", "components/schema.json": "{}"})
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
include = ["/one", "/two"]
"""
BOTH = {
    "pyproject.toml": PROJECT,
    "fleet/pyproject.toml": PROJECT.replace("torchx-pulumi", "torchx-pulumi-fleet"),
    **{f"{folder}{name}/__init__.py": "" for folder in ("", "fleet/") for name in ("one", "two")},
}


def test_an_sdist_that_lacks_a_file_of_the_wheel_is_found(repository: Repository) -> None:
    repository.commit(BOTH)
    assert repository.problems(check_build) == []
    repository.commit(
        {name: text.replace('include = ["/one", "/two"]', 'include = ["/one"]') for name, text in BOTH.items()}
    )
    for made, problem in zip((CORE, FLEET), repository.problems(check_build), strict=True):
        assert problem.startswith(f"{made.stem}-1.2.0-py2.py3-none-any.whl depends on")


def sdist(made: Distribution, folder: Path, *names: str) -> None:
    own = [f"{source}/x.py" for source in made.sources]
    with tarfile.open(folder / f"{made.stem}-1.2.0.tar.gz", "w:gz") as archive:
        for name in ("PKG-INFO", "pyproject.toml", *own, *names):
            archive.addfile(tarfile.TarInfo(f"{made.stem}-1.2.0/{name}"), io.BytesIO())


def test_an_sdist_has_its_own_folders_alone(repository: Repository) -> None:
    release = repository.release()
    folder = release.scratch / "first"
    folder.mkdir()
    sdist(CORE, folder)
    sdist(FLEET, folder)
    assert list(check_sdist(release)) == []
    sdist(CORE, folder, "fleet/torchx_pulumi_fleet/x.py", "tools/release.py")
    sdist(FLEET, folder, "sdk/x.py")
    assert [problem.partition(": ")[0] for problem in check_sdist(release)] == [
        "torchx_pulumi-1.2.0/fleet/torchx_pulumi_fleet/x.py and 1 more do not belong to it",
        "torchx_pulumi_fleet-1.2.0/sdk/x.py and 0 more do not belong to it",
    ]


REQUIRED = {CORE: "torchx-pulumi-fleet==1.2.0; extra == 'fleet'", FLEET: "torchx-pulumi==1.2.0"}


def files_of(made: Distribution) -> dict[str, str]:
    """The files of a wheel as it should be."""
    info = f"{made.stem}-1.2.0.dist-info"
    required = f"Requires-Dist: rich>=13\nRequires-Dist: {REQUIRED[made]}\n"
    return {
        **{f"{package}/py.typed": "" for package in made.packages},
        **dict.fromkeys(made.files, "{}"),
        f"{info}/METADATA": f"Name: x\n{required}\n[whole](https://example.com) and [here](#anchor)\n",
        f"{info}/licenses/LICENSE": "",
    }


def problems_of(made: Distribution, changed: Mapping[str, str | None], folder: Path) -> list[str]:
    with zipfile.ZipFile(folder / "x.whl", "w") as wheel:
        for name, text in {**files_of(made), **changed}.items():
            if text is not None:
                wheel.writestr(name, text)
    return list(wheel_problems(made, folder / "x.whl", "1.2.0"))


INFO = "torchx_pulumi-1.2.0.dist-info"


@pytest.mark.parametrize("made", [CORE, FLEET], ids=lambda made: made.name)
def test_a_wheel_as_it_should_be_is_taken(made: Distribution, tmp_path: Path) -> None:
    assert problems_of(made, {}, tmp_path) == []


@pytest.mark.parametrize(
    ("made", "changed", "problem"),
    [
        (CORE, {"tests/__init__.py": ""}, "tests/__init__.py does not belong to it"),
        (CORE, {"torchx_pulumi/tests/x.py": ""}, "torchx_pulumi/tests/x.py does not belong to it"),
        (CORE, {"torchx_pulumi_fleet/x.py": ""}, "torchx_pulumi_fleet/x.py does not belong to it"),
        (
            FLEET,
            {"torchx_pulumi/x.py": ""},
            "torchx_pulumi/x.py does not belong to it: see [tool.hatch.build] in fleet/",
        ),
        (CORE, {"torchx_pulumi_stacks/py.typed": None}, "torchx_pulumi_stacks/py.typed is missing"),
        (FLEET, {"torchx_pulumi_fleet/py.typed": None}, "torchx_pulumi_fleet/py.typed is missing"),
        (CORE, {"torchx_pulumi/outputs/schema.json": None}, "torchx_pulumi/outputs/schema.json is missing"),
        (CORE, {f"{INFO}/licenses/LICENSE": None}, f"{INFO}/licenses/LICENSE is missing"),
    ],
)
def test_a_wheel_with_too_little_or_too_much_is_named(
    made: Distribution, changed: Mapping[str, str | None], problem: str, tmp_path: Path
) -> None:
    (found,) = problems_of(made, changed, tmp_path)
    assert found.startswith(problem)


def test_a_description_with_a_relative_link_is_named(tmp_path: Path) -> None:
    metadata = f"Requires-Dist: {REQUIRED[CORE]}\n\n[a page](docs/README.md)\n"
    (found,) = problems_of(CORE, {f"{INFO}/METADATA": metadata}, tmp_path)
    assert found.startswith("its description links to docs/README.md")


@pytest.mark.parametrize(
    ("made", "required", "problem"),
    [
        (
            FLEET,
            ["torchx-pulumi==1.1.0"],
            "requires torchx-pulumi==1.1.0 of this project: write torchx-pulumi==1.2.0 in",
        ),
        (
            FLEET,
            ["torchx-pulumi>=1.2.0"],
            "requires torchx-pulumi>=1.2.0 of this project: write torchx-pulumi==1.2.0 in",
        ),
        (FLEET, [], "requires nothing of this project: write torchx-pulumi==1.2.0 in fleet/pyproject.toml"),
        (
            CORE,
            ["torchx-pulumi-fleet==1.1.0; extra == 'fleet'"],
            "requires torchx-pulumi-fleet==1.1.0; extra == 'fleet' of this project: "
            "write torchx-pulumi-fleet==1.2.0; extra == 'fleet' in pyproject.toml",
        ),
        (
            CORE,
            [REQUIRED[CORE], "torchx-pulumi-fleet==1.2.0"],
            "extra == 'fleet' and torchx-pulumi-fleet==1.2.0 of this",
        ),
    ],
)
def test_a_wheel_that_needs_another_version_of_the_other_one_is_named(
    made: Distribution, required: list[str], problem: str, tmp_path: Path
) -> None:
    metadata = "".join(f"Requires-Dist: {each}\n" for each in required)
    (found,) = problems_of(made, {f"{made.stem}-1.2.0.dist-info/METADATA": metadata}, tmp_path)
    assert found.startswith(f"{made.name} requires ")
    assert problem in found


def test_what_was_not_built_is_said_by_name(repository: Repository) -> None:
    with pytest.raises(CheckError, match=r"^needs torchx_pulumi-1.2.0-\*\.whl, which a check above did not make"):
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
