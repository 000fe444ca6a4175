"""Rules of the tree: names, secrets of the machine, docs of public things."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = [
    "sdk/torchx_pulumi",
    "components/torchx_pulumi_components",
    "stacks/torchx_pulumi_stacks",
    "fleet/torchx_pulumi_fleet",
    "tools",
]
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def tracked_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\n")  # fmt: skip
    return [ROOT / name for name in listed if name and (ROOT / name).is_file()]


def test_the_environments_hold_both_releases_of_urllib3() -> None:
    """`make test` runs the tests of the wire in both, as TorchX 0.7.0 and the nightly bring them."""
    pins = [(ROOT / "requirements" / f"{name}.txt").read_text() for name in ("dev", "nightly")]
    assert [re.findall(r"^urllib3==(\d+)\.", pin, re.MULTILINE) for pin in pins] == [["1"], ["2"]]
    nightly = next(line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("NIGHTLY_TESTS"))
    assert {"tests/unit/kube/test_connections.py", "tests/unit/images/test_registry.py"} <= set(nightly.split())


def test_git_ignores_the_environment_that_a_package_of_a_clone_gets() -> None:
    """`pulumi package add ./components` makes it in the folder of the plugin."""
    made = [f"components/{name}" for name in ("bin/python", "lib/python3.11/site.py", "lib64", "pyvenv.cfg")]
    ran = subprocess.run(["git", "check-ignore", *made], cwd=ROOT, check=False, capture_output=True, text=True)
    assert ran.stdout.split() == made


def test_modules_have_telling_names() -> None:
    vague = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}
    assert not [path for path in MODULES if path.stem in vague]


def test_every_module_says_what_lives_in_it() -> None:
    silent = [path for path in MODULES if path.read_text().strip() and not path.read_text().lstrip().startswith('"""')]
    assert not silent


def test_docstrings_begin_with_what_a_function_does() -> None:
    """`Return what ...` says in a clause what a noun says."""
    mute = re.compile(r'"""Return what\b')
    found = [path for path in tracked_files() if path.suffix == ".py" and mute.search(path.read_text(encoding="utf-8"))]
    assert found == [Path(__file__)]


def test_no_file_names_a_path_of_a_machine() -> None:
    machine = re.compile(r"(?<![\w.$}/])/(?:root|work|home/\w+)/")
    named = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in tracked_files()
        if path != Path(__file__) and path.suffix not in {".sum", ".png"}
        for line in path.read_text(errors="replace").splitlines()
        if machine.search(line)
    ]
    assert not named


def test_no_file_names_a_package_registry() -> None:
    registries = re.compile(
        r"(pypi\.org|files\.pythonhosted|proxy\.golang\.org|sum\.golang\.org|registry\.npmjs|deb\.debian\.org)"
    )
    named = [
        str(path.relative_to(ROOT))
        for path in tracked_files()
        if path != Path(__file__) and registries.search(path.read_text(errors="replace"))
    ]
    assert not named
