"""`make matrix`: what depends on a version, tested with each version in an environment of its own. By hand.

It prints the rows of docs/tested-versions.md. Words choose the rows whose name has one of them; the others are not run.
Environments and clusters are made afresh each time; what was left of one that could not be made is removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import filelock
from torchx_pulumi.model.versions import VERSIONS

from tools.bootstrap.cache import default_cache

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = default_cache() / "matrix"
TOOL, UV = (sys.executable, "-m"), str(Path(sys.executable).with_name("uv"))
OLD: Final = "a0822ad3"
"""The last commit with Pulumi CLI 3.259.0, Kubernetes 1.34.1 and Volcano 1.14.1 in its go.mod files."""
PACKAGES: Final = ("torchx", "torchx-nightly", "pulumi", "pulumi-kubernetes", "kubernetes", "urllib3")
FLEET: Final = ("prometheus-client", "rich", "starlette", "uvicorn")
"""Packages that only the fleet needs."""
PARTS: Final = (
    ("Pulumi CLI", "pulumi", "cli"),
    ("Kubernetes", "kube-apiserver", "cluster"),
    ("Volcano", "volcano", "cluster"),
)
"""Parts of a real run: title, name in `tools.bootstrap`, and what of a row they belong to."""
PRINT_VERSION: Final = (
    "import sys; from tools.bootstrap.parts import part_named; print(part_named(sys.argv[1]).version)"
)
ALL: Final = ("tests/unit", "tests/components", "tests/golden", "tests/parity")
TORCHX: Final = ("tests/parity", "tests/unit/torchx_adapter")
ALL_APPS: Final = ("tests/fleet",)
WIRE: Final = ("tests/unit/kube", "tests/contract/registry")
JOB: Final = "tests/e2e/test_volcano_training_job.py"
ENGINE: Final = ("tests/e2e/test_pulumi_versions.py", JOB)
VOLCANO: Final = (JOB, "tests/e2e/test_manifests_on_volcano.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One version, and the tests of what depends on it."""

    name: str
    tests: tuple[str, ...] = ()
    """Paths. Empty: there is no machine for it here."""
    base: str = "dev"
    """File in `requirements`; its pins hold but for `pins`."""
    pins: tuple[str, ...] = ()
    """Requirements in place of those of the same package."""
    python: str = ""
    """Minor version of Python. Empty: the one that runs this."""
    old: str = ""
    """What comes from the commit `OLD`: `cli` or `cluster`. Empty: nothing."""


ROWS: Final = (
    *(Row(name=f"Python {version}", tests=ALL, python=version) for version in ("3.10", "3.11", "3.12", "3.13")),
    # TorchX 0.7.0 needs `ast.Str`, which Python 3.14 does not have.
    Row(name="Python 3.14, TorchX nightly", tests=(*TORCHX, "tests/unit/stacks"), python="3.14", base="nightly"),
    Row(name="TorchX 0.7.0", tests=TORCHX),
    Row(name="TorchX nightly 2026.10.26", tests=TORCHX, base="nightly"),
    Row(name="kubernetes 28", tests=WIRE, pins=("kubernetes==28.*",)),
    Row(name="kubernetes 32, urllib3 1.26", tests=WIRE, pins=("kubernetes==32.*", "urllib3==1.26.*")),
    Row(name="kubernetes 36", tests=WIRE, pins=("kubernetes==36.*",), base="nightly"),
    Row(name="kubernetes 37, urllib3 2", tests=WIRE, pins=("kubernetes==37.*", "urllib3==2.*"), base="nightly"),
    Row(
        name="prometheus-client 0.20, rich 13, starlette 0.46, uvicorn 0.32.1",
        tests=ALL_APPS,
        # A newer import-linter, which the tests do without, needs a newer rich.
        pins=(
            *("prometheus-client==0.20.0", "rich==13.0.0", "starlette==0.46.0", "uvicorn==0.32.1"),
            "import-linter==2.0.*",
        ),
    ),
    Row(name="Pulumi CLI 3.259.0, pulumi 3.259 and 3.272", tests=ENGINE, old="cli"),
    Row(name=f"Pulumi CLI {VERSIONS['pulumi'].tested}, pulumi 3.259 and 3.272", tests=ENGINE),
    Row(name="Volcano 1.14.1, Kubernetes 1.34.1", tests=VOLCANO, old="cluster"),
    Row(name=f"Volcano {VERSIONS['volcano'].tested}, Kubernetes {VERSIONS['kubernetes'].tested}", tests=VOLCANO),
    *(Row(name=name) for name in ("Linux on arm64", "macOS")),
)


def main(words: Sequence[str]) -> int:
    """Run the rows and print the table; return 1 if one failed, 2 if a word chooses none or another run goes on."""
    unknown = [word for word in words if not any(word in row.name for row in ROWS)]
    if unknown:
        names = "\n".join(f"  {row.name}" for row in ROWS)
        print(f"matrix: no row has {', '.join(map(repr, unknown))} in its name; there are:\n{names}", file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(FOLDER / "lock", blocking=False):
            return _table(words)
    except filelock.Timeout as error:
        print(f"matrix: another run goes on, and holds {error.lock_file}: wait for its end", file=sys.stderr)
        return 2


def _table(words: Sequence[str]) -> int:
    """Run the rows and print the table; return 1 if one failed."""
    failed = 0
    print("| Version | Tests | Environment | Result |\n|---|---|---|---|", flush=True)
    for row in ROWS:
        environment, result = "", "not run"
        if row.tests and (not words or any(word in row.name for word in words)):
            try:
                environment, result = _run(row)
            except subprocess.CalledProcessError as error:
                result = f"failed: `{shlex.join(error.cmd)}` exited with {error.returncode}; see above"
        tests = ", ".join(f"`{path}`" for path in row.tests)
        failed |= result.startswith("failed")
        print(f"| {row.name} | {tests} | {environment} | {result} |", flush=True)
    return failed


def _run(row: Row) -> tuple[str, str]:
    """Return the versions of a row's environment, and the result of its tests."""
    path = os.pathsep.join(map(str, [*Path.home().glob(".pyenv/versions/*/bin"), os.environ["PATH"]]))
    base = shutil.which(f"python{row.python}", path=path) if row.python else sys.executable
    if base is None:
        return "", f"not run: no Python {row.python} on this machine"
    real = row.tests[0].startswith("tests/e2e")
    python = sys.executable if real else _environment(row, base)
    with _cluster(row) if real else contextlib.nullcontext(dict[str, str]()) as variables:
        words = [python, "-m", "pytest", "-q", *(("-m", "e2e") if real else ("-n", "2")), *row.tests]
        done = subprocess.run(words, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, check=False)
    packages = FLEET if row.tests == ALL_APPS else PACKAGES
    found = ", ".join([_found(python, packages), *(_parts(row) if real else ())])
    passed = re.search(r"\d+ passed.*(?= in )", done.stdout)
    if done.returncode or passed is None:
        return found, f"failed:\n{done.stdout[-9000:]}{done.stderr[-3000:]}"
    return found, passed[0]


def _environment(row: Row, base: str) -> str:
    """Make the environment of a row; return its Python."""
    folder = FOLDER / re.sub(r"[^a-z0-9.]+", "-", row.name.lower())
    folder.mkdir(parents=True, exist_ok=True)
    pins = (ROOT / "requirements" / f"{row.base}.txt").read_text(encoding="utf-8")
    for pin in row.pins:
        pins = re.sub(rf"(?m)^{pin.partition('==')[0]}==\S+", pin, pins)
    (folder / "pins.txt").write_text(pins, encoding="utf-8")
    python = str(folder / "venv" / "bin" / "python")
    try:
        _call(UV, "venv", "--quiet", "--seed", "--clear", "--python", base, str(folder / "venv"))
        own = ("-e", str(ROOT), "-e", str(ROOT / "fleet"))
        _call(UV, "pip", "install", "--quiet", "--python", python, "-r", str(folder / "pins.txt"), *own)
    except BaseException:
        shutil.rmtree(folder / "venv", ignore_errors=True)
        raise
    return python


@contextlib.contextmanager
def _cluster(row: Row) -> Iterator[dict[str, str]]:
    """Yield the variables of a real run: its CLI, and a cluster that ends with it."""
    name, root = "matrix", _tree(row, "cluster")
    _call(*TOOL, "tools.local_cluster", "down", "--name", name)  # of a run that was killed
    if row.old:
        old = _tree(row, row.old)
        shutil.rmtree(old, ignore_errors=True)
        _call("git", "worktree", "add", "--force", "--detach", str(old), OLD)
    variables = {"TORCHX_PULUMI_TEST_CLUSTER": name, "GRPC_ENABLE_FORK_SUPPORT": "false"}
    if row.old == "cli":
        words = (*TOOL, "tools.bootstrap", "ensure", "pulumi")
        variables["TORCHX_PULUMI_CLI"] = _call(*words, cwd=_tree(row, "cli")).split()[1]
    _call(*TOOL, "tools.local_cluster", "up", "--name", name, cwd=root)
    try:
        yield variables
    finally:
        _call(*TOOL, "tools.local_cluster", "down", "--name", name, cwd=root)


def _tree(row: Row, part: str) -> Path:
    """Return the tree from which a row has its `cli` or its `cluster`."""
    return FOLDER / "old" if row.old == part else ROOT


def _parts(row: Row) -> Iterator[str]:
    """Yield the versions of the parts of a real run, as the trees have them that they come from."""
    for title, name, part in PARTS:
        yield f"{title} {_call(sys.executable, '-c', PRINT_VERSION, name, cwd=_tree(row, part)).strip()}"


def _found(python: str, wanted: Sequence[str]) -> str:
    """Return the versions that an environment has: of Python and of the packages that are wanted."""
    listed = json.loads(_call(UV, "pip", "list", "--python", python, "--format", "json"))
    packages = [f"{each['name']} {each['version']}" for each in listed if each["name"] in wanted]
    return ", ".join([_call(python, "-V").strip(), *packages])


def _call(*words: str, cwd: Path = ROOT) -> str:
    """Run a program with the modules of its folder, and return its output. Its errors end the row."""
    path = os.pathsep.join(str(cwd / each) for each in ("sdk", "components", "stacks", "fleet"))
    return subprocess.run(
        words, cwd=cwd, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
