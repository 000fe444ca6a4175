"""The public surface: exact `__all__`, modules that import alone, a cheap import."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {"torchx_pulumi": "sdk", "torchx_pulumi_components": "components", "torchx_pulumi_stacks": "stacks"}
MODULES = sorted(
    ".".join(path.relative_to(ROOT / folder).with_suffix("").parts).removesuffix(".__init__")
    for package, folder in SOURCES.items()
    for path in (ROOT / folder / package).rglob("*.py")
)


@pytest.mark.parametrize("package", SOURCES)
def test_all_is_exact_and_sorted(package: str) -> None:
    module = importlib.import_module(package)
    assert list(module.__all__) == sorted(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)


@pytest.mark.parametrize("package", SOURCES)
def test_types_are_shipped(package: str) -> None:
    assert (ROOT / SOURCES[package] / package / "py.typed").exists()


def test_each_module_imports_alone() -> None:
    script = "import importlib, sys\nimportlib.import_module(sys.argv[1])"
    failed = {}
    for module in [name for name in MODULES if not name.startswith("torchx_pulumi_")]:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", script, module], capture_output=True, text=True, check=False
        )
        if done.returncode:
            failed[module] = done.stderr.splitlines()[-1]
    assert not failed


def test_importing_the_sdk_brings_no_third_party() -> None:
    script = (
        "import sys, torchx_pulumi\n"
        "heavy = {'pulumi', 'kubernetes', 'docker', 'torchx', 'yaml', 'grpc'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
