"""Build what a release publishes, and check it: `python -m tools.release` (`make release-check`).

Each check prints one line: ok, or what is wrong and what to do. `dist` then holds wheel, sdist and SBOM of both.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
CHECKERS: Final = ROOT / ".venv-release" / "bin"
UV: Final = Path(sys.executable).with_name("uv")
LICENSES: Final = (
    *("Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MIT-0", "MPL-2.0", "PSF-2.0", "Python-2.0"),
    *("Apache Software License", "BSD License", "Mozilla Public License 2.0 (MPL 2.0)"),
)
"""Licenses that a dependency may have, as SPDX identifiers or as names of classifiers."""
SILENT: Final = {"protobuf": "BSD-3-Clause"}
"""Dependencies whose metadata name no license that tools read, and the one that their own file states."""


NAMING: Final = ("*.md", "*.yaml", "templates/*/go.mod", "examples/*/Dockerfile")
"""Files that may name the version."""
NAMED: Final = re.compile(
    r"(components@v?|torchx-(?:workspace|controller):|resource-torchx-v|torchx-pulumi/sdk/go v|ARG VERSION=|the tag `v|"
    r"fixes: now )(\d[\w.]*\w)"
)
"""A version, after what says that it is the one of this project."""


class CheckError(Exception):
    """A check cannot be made. Its text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """What is published under one name."""

    name: str
    folder: str
    """Where its `pyproject.toml` is."""
    packages: tuple[str, ...]
    """Python packages with types."""
    also: tuple[str, ...] = ()
    """Python packages without."""
    files: tuple[str, ...] = ()
    """Files that the wheel has besides."""
    sources: tuple[str, ...]
    """What the sdist has besides its metadata: folders and files."""
    needs: str
    """What its metadata require of the other one, with `{version}`."""

    @property
    def stem(self) -> str:
        """Return the prefix of the names of its files."""
        return self.name.replace("-", "_")


CORE: Final = Distribution(
    name="torchx-pulumi",
    folder=".",
    packages=("torchx_pulumi", "torchx_pulumi_components", "torchx_pulumi_stacks"),
    also=("torchx_plugins",),
    files=("torchx_pulumi/outputs/schema.json",),
    sources=("sdk", "components", "stacks", "tools/wheel", "CHANGELOG.md"),
    needs="torchx-pulumi-fleet=={version}; extra == 'fleet'",
)
FLEET: Final = Distribution(
    name="torchx-pulumi-fleet",
    folder="fleet",
    packages=("torchx_pulumi_fleet",),
    sources=("torchx_pulumi_fleet",),
    needs="torchx-pulumi=={version}",
)
DISTRIBUTIONS: Final = (CORE, FLEET)
EXTRAS: Final = "torchx,kubernetes,docker,s3"
"""Extras of the core that the SBOMs count: all that a user may install, but `nightly`, which excludes `torchx`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """What the checks look at."""

    root: Path
    version: str
    scratch: Path
    """An empty folder, removed at the end. Each build has a folder in it."""

    def git(self, *words: str) -> str:
        """Run git in the tree; return what it printed."""
        return run("git", *words, cwd=self.root)

    def tags(self) -> list[str]:
        """Return the version tags of the commit that is checked out."""
        return self.git("tag", "--points-at", "HEAD", "--list", "v*").split()

    def check_out(self, name: str) -> Path:
        """Write the committed files into a folder of their own."""
        folder = self.scratch / name / "tree"
        self.git("checkout-index", "--all", f"--prefix={folder}/")
        return folder

    def built(self, pattern: str, build: str = "first") -> Path:
        """Return the file of a build with this name; raise CheckError if it is not there."""
        for path in (self.scratch / build).glob(pattern):
            return path
        raise CheckError(f"needs {pattern}, which a check above did not make: see there")

    def wheel(self, made: Distribution, build: str = "first") -> Path:
        """Return the wheel of a distribution, as `built`."""
        return self.built(f"{made.stem}-{self.version}-*.whl", build)

    def sdist(self, made: Distribution, build: str = "first") -> Path:
        """Return the sdist of a distribution, as `built`."""
        return self.built(f"{made.stem}-{self.version}.tar.gz", build)


def run(*words: str | Path, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> str:
    """Run a program and return what it printed; raise CheckError with the end of what it said if it fails."""
    given = {**os.environ, **(env or {})}
    try:
        done = subprocess.run(words, cwd=cwd, env=given, capture_output=True, text=True, check=False)
    except OSError as error:
        advice = "`make release-check` installs it" if "/" in str(words[0]) else "install it"
        raise CheckError(f"{words[0]}: {error.strerror}; {advice}") from None
    if done.returncode:
        said = " / ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-3:])
        raise CheckError(f"`{' '.join(map(str, words))}` exited with {done.returncode}: {said}")
    return done.stdout


def check_tree(release: Release) -> Iterator[str]:
    """What is checked is what is committed, with its history."""
    if changed := release.git("status", "--porcelain").splitlines():
        yield f"{len(changed)} file(s) are not committed, the first is {changed[0][3:]}: commit or remove them"
    if release.git("rev-parse", "--is-shallow-repository").strip() == "true":
        yield "the history is cut off, so that recordings cannot be compared with it: git fetch --unshallow"
    for name in ("SECURITY.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "LICENSE"):
        if not (release.root / name).is_file():
            yield f"{name} is missing: write it"


def check_version(release: Release) -> Iterator[str]:
    """The other package, pages, examples, templates, and a tag of this commit, have the version of `pyproject.toml`."""
    if (found := version_of(release.root, FLEET.folder)) != release.version:
        yield f"{FLEET.folder}/pyproject.toml has version {found}: write {release.version}, that of pyproject.toml"
    series = re.sub(r"\d+$", "x", release.version)
    for name in filter(None, release.git("ls-files", "-z", *NAMING).split("\0")):
        for before, found in NAMED.findall((release.root / name).read_text(encoding="utf-8")):
            wanted = series if before == "fixes: now " else release.version
            if found != wanted:
                yield f"{name} names {before}{found}: write {wanted}"
    for tag in release.tags():
        if tag != f"v{release.version}":
            yield f"the tag {tag} is not v{release.version}: change `version` in pyproject.toml, or tag another commit"


def check_changelog(release: Release) -> Iterator[str]:
    """The version has a section, short enough to be read; one with a tag has the day of the release."""
    text = (release.root / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = {re.split(" - |\n", part, maxsplit=1)[0]: part for part in re.split(r"(?m)^## ", text)}
    if release.version not in sections:
        yield f"CHANGELOG.md has no section `## {release.version} - YYYY-MM-DD`: write it"
        return
    lines = sections[release.version].splitlines()
    if len(lines) > 150:
        yield f"its section has {len(lines)} lines, of 150 allowed: shorten it"
    day = lines[0].partition(" - ")[2]
    if not is_day(day) and (day != "unreleased" or release.tags()):
        yield f"its section is dated {day!r}: write the day as YYYY-MM-DD, or `unreleased` before the commit has a tag"


def is_day(text: str) -> bool:
    """Return whether a text is a day of the calendar, as YYYY-MM-DD."""
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def check_recordings(release: Release) -> Iterator[str]:
    """A minor release has recordings, and those that were ever listed are as they were."""
    folder = release.root / "tests" / "recordings"
    name = "v{}_{}_0".format(*release.version.split("."))
    if not list(folder.glob(f"{name}/*.gz")):
        yield f"there are none of this version: python -m tests.recordings {name}"
    yield from frozen(release, folder, "v*/*.gz")


def check_released(release: Release) -> Iterator[str]:
    """The schemas of released versions are as they were. This version's is not listed before the commit has a tag."""
    folder = release.root / "tests" / "components" / "released_schema"
    return frozen(release, folder, "*.json", opened="" if release.tags() else f"{release.version}.json")


def frozen(release: Release, folder: Path, pattern: str, opened: str = "") -> Iterator[str]:
    """Say which files are not as `SHA256SUMS` of a folder first listed them; only `opened` may be unlisted."""
    sums, place = folder / "SHA256SUMS", folder.relative_to(release.root)
    lines = sums.read_text(encoding="utf-8").splitlines() if sums.is_file() else []
    listed = {line[66:]: line[:64] for line in lines}
    there = {str(path.relative_to(folder)): path for path in folder.glob(pattern)}
    for name in sorted(listed.keys() | (there.keys() - {opened})):
        if name not in there:
            yield f"{place}/{name} is gone: it is frozen, restore it"
        elif name not in listed:
            yield f"{place}/{name} is not listed: in {place}, sha256sum {name} >> SHA256SUMS"
        elif hashlib.sha256(there[name].read_bytes()).hexdigest() != listed[name]:
            yield f"{place}/{name} was changed: it is frozen, restore it; a new version has a file of its own"
    history = release.git("log", "--reverse", "--format=", "-p", "--no-color", "--", str(sums))
    first = {name: digest for digest, name in reversed(re.findall(r"(?m)^\+([0-9a-f]{64})  (.+)$", history))}
    for name, digest in first.items():
        if listed.get(name) != digest:
            yield f"{place}/{name} was first listed as {digest[:12]}: restore the file and its line in SHA256SUMS"


def check_schema(release: Release) -> Iterator[str]:
    """`make schema` changes no file, and the schema is kept for the versions that follow."""
    copy, python = release.check_out("schema"), Path(sys.executable).parent
    paths = os.pathsep.join(str(copy / name) for name in ("", "sdk", "components", "stacks", "fleet"))
    run("make", "-o", ".venv/.synced", "schema", f"VENV={python}", cwd=copy, env={"PYTHONPATH": paths})
    folder = release.git("rev-parse", "--absolute-git-dir").strip()
    for name in run("git", f"--git-dir={folder}", f"--work-tree={copy}", "diff", "--name-only", cwd=copy).splitlines():
        yield f"{name} is not what is generated: run `make schema`, read the diff and commit it"
    schema, kept = Path("components/schema.json"), Path(f"tests/components/released_schema/{release.version}.json")
    if not (copy / kept).is_file() or (copy / kept).read_bytes() != (copy / schema).read_bytes():
        yield f"{kept} is not the schema of this version: cp {schema} {kept}"


def check_docs(release: Release) -> Iterator[str]:
    """The documentation site can be built."""
    run("make", "--no-print-directory", "docs", cwd=release.root)
    if not (release.root / "build" / "site" / "index.html").is_file():
        yield "`make docs` made no build/site/index.html: see the target docs in Makefile"


def check_build(release: Release) -> Iterator[str]:
    """A wheel made by way of the sdist, and one from another folder with other times and modes, are the same."""
    first, second = (release.check_out(name) for name in ("first", "second"))
    for path in second.rglob("*"):
        os.utime(path, (1e9, 1e9))
        path.chmod(path.stat().st_mode & 0o700)
    for made in DISTRIBUTIONS:
        for tree, kinds in ((first, ()), (second, ("--sdist", "--wheel"))):
            words = ("--quiet", "--no-build-isolation", "--python", sys.executable, "--out-dir", tree.parent)
            run(UV, "build", *words, *kinds, tree / made.folder)
        for find in (release.wheel, release.sdist):
            one = find(made)
            if one.read_bytes() != find(made, "second").read_bytes():
                yield f"{one.name} depends on folder, time or mode, or the sdist lacks a file: see diffoscope"


def check_sdist(release: Release) -> Iterator[str]:
    """An sdist has the folders of its distribution alone."""
    metadata = ("pyproject.toml", "README.md", "LICENSE", "PKG-INFO", ".gitignore")
    for made in DISTRIBUTIONS:
        own = [Path(f"{made.stem}-{release.version}", each) for each in (*made.sources, *metadata)]
        with tarfile.open(release.sdist(made)) as archive:
            names = archive.getnames()
        if foreign := [name for name in names if not any(Path(name).is_relative_to(each) for each in own)]:
            project = Path(made.folder, "pyproject.toml")
            yield f"{foreign[0]} and {len(foreign) - 1} more do not belong to it: see [tool.hatch.build] in {project}"


def check_wheel(release: Release) -> Iterator[str]:
    """The package index takes the metadata; a wheel has its packages alone, and needs the same version of the other."""
    for made in DISTRIBUTIONS:
        wheel = release.wheel(made)
        yield from wheel_problems(made, wheel, release.version)
        run(CHECKERS / "twine", "--no-color", "check", "--strict", wheel, release.sdist(made))


def wheel_problems(made: Distribution, wheel: Path, version: str) -> Iterator[str]:
    """Say what is wrong in a wheel and in its metadata."""
    project, info = Path(made.folder, "pyproject.toml"), f"{made.stem}-{version}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        names, metadata = archive.namelist(), archive.read(f"{info}/METADATA").decode()
    if dead := re.findall(r"\]\((?!https?://|#)([^)\s]*)", metadata):
        yield f"its description links to {dead[0]}, which is no address: [project.urls] needs the row Repository"
    required, wanted = (
        re.findall(r"(?m)^Requires-Dist: (torchx-pulumi\b.*)$", metadata),
        made.needs.format(version=version),
    )
    if required != [wanted]:
        yield f"{made.name} requires {' and '.join(required) or 'nothing'} of this project: write {wanted} in {project}"
    types = (f"{package}/py.typed" for package in made.packages)
    for name in {*types, *made.files, f"{info}/licenses/LICENSE"}.difference(names):
        yield f"{name} is missing: see [tool.hatch.build] in {project}"
    for name in names:
        if name.split("/", 1)[0] not in {*made.packages, *made.also, info} or "/tests/" in name:
            yield f"{name} does not belong to it: see [tool.hatch.build] in {project}"


def check_install(release: Release) -> Iterator[str]:
    """In fresh environments, without this tree, the commands run: of the core alone, and of both packages."""
    pins, schema = release.root / "requirements" / "dev.txt", release.root / "components" / "schema.json"
    wheels: list[Path] = []
    versions = ""
    for made in DISTRIBUTIONS:
        environment = release.scratch / made.name
        alone = {"PYTHONPATH": "", "VIRTUAL_ENV": str(environment)}
        wheels.append(release.wheel(made))
        run(UV, "venv", "--quiet", "--python", sys.executable, environment)
        first, *others = wheels
        run(UV, "pip", "install", "--quiet", "--constraint", pins, f"{first}[{EXTRAS}]", *others, env=alone)
        versions += f"{made.name} {release.version}\n"
        expected = {"torchx-pulumi --version": versions}
        expected["pulumi-resource-torchx --schema"] = schema.read_text(encoding="utf-8")
        for command, wanted in expected.items():
            name, option = command.split()
            if (printed := run(environment / "bin" / name, option, env=alone)) != wanted:
                yield f"{made.name}: `{command}` printed {printed[:60]!r} in place of {wanted[:60]!r}"
    run(environment / "bin" / "torchx-pulumi", "fleet", "--help", env=alone)


def check_sbom(release: Release) -> Iterator[str]:
    """What is installed with a wheel has a bill of materials, and licenses of the list."""
    for made in DISTRIBUTIONS:
        sbom = release.wheel(made).with_name(f"{made.stem}-{release.version}.cdx.json")
        words = ("--pyproject", release.root / made.folder / "pyproject.toml", "--output-reproducible", "-o", sbom)
        run(CHECKERS / "cyclonedx-py", "environment", *words, release.built("bin/python", made.name))
        yield from license_problems(json.loads(sbom.read_text(encoding="utf-8"))["components"])


def license_problems(components: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Say which components of an SBOM have no license, or one that is not in `LICENSES`."""
    for component in components:
        entries = [entry.get("license", entry) for entry in component.get("licenses", ())]
        names = [entry.get("expression") or entry.get("id") or entry["name"].split(" :: ")[-1] for entry in entries]
        names = names or [SILENT.get(component["name"], "no license")]
        parts = [part.split(" OR ") for name in names for part in name.split(" AND ")]
        if not all(any(choice in LICENSES for choice in choices) for choices in parts):
            yield f"{component['name']} {component['version']} has {', '.join(names)}: read it and replace the package"


def check_dist(release: Release) -> Iterator[str]:
    """The files that were built are in `dist`, and no others."""
    dist = release.root / "dist"
    if dist.is_symlink() or dist.is_file():
        yield "is not a folder: remove it"
        return
    if dist.exists():
        shutil.rmtree(dist)
    shutil.copytree(release.scratch / "first", dist, ignore=shutil.ignore_patterns("tree", ".gitignore"))


def version_of(root: Path, folder: str = ".") -> str:
    """Return the version of the project in a folder; raise CheckError if it is not three numbers."""
    name = Path(folder, "pyproject.toml")
    if not (root / name).is_file():
        raise CheckError(f"{name} is missing: restore it")
    found = re.findall(r"(?m)^version\b.*$", (root / name).read_text(encoding="utf-8"))
    versions = [re.fullmatch(r'version = "(\d+\.\d+\.\d+)"', line) for line in found]
    if len(versions) != 1 or versions[0] is None:
        said = " and ".join(map(repr, found)) or "no line with a version"
        raise CheckError(f'{name} has {said}: write one line, as `version = "1.2.0"`')
    return versions[0][1]


CHECKS: Final = (
    *(check_tree, check_version, check_changelog),
    *(check_recordings, check_released, check_schema, check_docs),
)
CHECKS_OF_PACKAGES: Final = (check_build, check_sdist, check_wheel, check_install, check_sbom, check_dist)


def main(root: Path = ROOT) -> int:
    """Make the checks; return 1 if one of them found something."""
    try:
        version = version_of(root)
    except CheckError as error:
        print(f"release: {error}")
        return 1
    failed = 0
    with tempfile.TemporaryDirectory(prefix="torchx-pulumi-release-") as folder:
        release = Release(root=root, version=version, scratch=Path(folder))
        (release.scratch / "first").mkdir()
        for check in (*CHECKS, *CHECKS_OF_PACKAGES):
            problems: list[str] = []
            try:
                problems.extend(check(release))
            except CheckError as error:
                problems.append(str(error))
            except OSError as error:
                problems.append(f"{error.filename}: {error.strerror}; restore it, or make it readable")
            failed += bool(problems)
            print(f"{check.__name__.removeprefix('check_'):10} {'; '.join(problems) or 'ok'}", flush=True)
    print(f"release {version}: {f'{failed} check(s) found something' if failed else 'dist is ready'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
