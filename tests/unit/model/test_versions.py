"""The table of versions is the only place with them: packages, pins, pages and built parts have the same ones."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml
from torchx_pulumi.model.versions import VERSIONS, PartVersions, read_version, version_text

from tools.bootstrap.part import GoSource
from tools.bootstrap.parts import PARTS
from tools.matrix import ROWS

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PINS = "\n".join((ROOT / f"requirements/{name}.txt").read_text(encoding="utf-8") for name in ("dev", "nightly"))
UPPER_LIMITS = {"pulumi": "<4", "pulumi-kubernetes": "<5"}
"""Packages with a first version that is refused."""


@pytest.mark.parametrize(
    "known", [known for known in VERSIONS.values() if known.package], ids=lambda each: each.package
)
def test_the_range_of_a_package_is_that_of_the_table(known: PartVersions) -> None:
    extras = [each for group in PROJECT["optional-dependencies"].values() for each in group]
    wanted = [each for each in PROJECT["dependencies"] + extras if re.match(rf"{known.package}\b(?!-)", each)]
    limit = UPPER_LIMITS.get(known.package, "")
    oldest = re.escape(version_text(known.oldest).removesuffix(".0"))
    rule = rf"{known.package}>={oldest}(\.0)?{',' * bool(limit)}{limit}"
    assert [bool(re.fullmatch(rule, each)) for each in wanted] == [True], wanted


@pytest.mark.parametrize("name", ["torchx", "torchx-nightly", "pulumi", "pulumi-kubernetes", "kubernetes", "urllib3"])
def test_the_tested_version_is_the_newest_pinned_one(name: str) -> None:
    (known,) = [each for key, each in VERSIONS.items() if name == (each.package or (key if "nightly" in key else ""))]
    pinned = re.findall(rf"^{name}==(\S+)", PINS, re.MULTILINE)
    assert known.tested == max(pinned, key=lambda version: tuple(map(int, version.split("."))))


def test_the_oldest_python_is_that_of_the_package() -> None:
    assert PROJECT["requires-python"] == f">={version_text(VERSIONS['python'].oldest)}"


def test_the_package_and_its_workflow_name_the_versions_of_python_that_the_matrix_has() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8"))
    named = {
        "classifiers": re.findall(r"Programming Language :: Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"])),
        "workflow": workflow["jobs"]["python"]["strategy"]["matrix"]["python"],
    }
    rows = {row.python: row.base for row in ROWS if row.python}
    # `make test` needs TorchX 0.7.0 as well.
    assert named == {"classifiers": [*rows], "workflow": [one for one, base in rows.items() if base == "dev"]}


def test_every_part_that_is_built_has_its_version_from_the_table() -> None:
    built = {part.name: part.version for part in PARTS if isinstance(part.source, GoSource) and part.source.module}
    kubernetes = dict.fromkeys(
        ("kube-apiserver", "kube-controller-manager", "kubelet", "kube-scheduler"), VERSIONS["kubernetes"].tested
    )
    assert built == {name: kubernetes.get(name) or VERSIONS[name].tested for name in built}


@pytest.mark.parametrize("page", ["README.md", "docs/fleet.md"])
def test_pages_name_the_supported_versions(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    sdk = VERSIONS["pulumi-sdk"]
    assert f"`pulumi` {version_text(sdk.oldest)} or newer" in text
    assert f"[newer than {version_text(sdk.newest)}]" in text


def test_the_readme_names_the_oldest_cli_and_python() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"Python {version_text(VERSIONS['python'].oldest)} or newer" in text
    assert f"(https://www.pulumi.com/docs/install/) {version_text(VERSIONS['pulumi'].oldest)} or newer" in text


@pytest.mark.parametrize(
    ("version", "said"), [((1, 2), "older than 1.3"), ((1, 3), ""), ((1, 5), ""), ((2, 0), "newer than 1.5")]
)
def test_a_version_outside_the_range_gets_a_warning(version: tuple[int, int], said: str) -> None:
    warning = PartVersions(title="Part", tested="1.5.9", oldest=(1, 3)).warning(version)
    assert (said in (warning or ""), warning is None) == (True, not said)


def test_every_tested_version_can_be_read() -> None:
    assert [
        each.title for each in VERSIONS.values() if not read_version(each.tested) or each.oldest > each.newest
    ] == []


def test_the_page_of_tested_versions_has_the_table() -> None:
    rows = [f"| {each.title} | {each.tested} | {each.supported or 'only tests use it'} |" for each in VERSIONS.values()]
    table = "\n".join(("| Part | Tested | Supported |", "|---|---|---|", *rows))
    assert f"\n{table}\n" in (ROOT / "docs/tested-versions.md").read_text(encoding="utf-8"), table
