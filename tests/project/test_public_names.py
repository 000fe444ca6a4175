"""The public surface: exact `__all__`, modules that import alone, a cheap import."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {
    "torchx_pulumi": "sdk",
    "torchx_pulumi_components": "components",
    "torchx_pulumi_stacks": "stacks",
    "torchx_pulumi_fleet": "fleet",
}
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


IMPORT_EACH = """
import argparse, asyncio, importlib, json, os, sys, typing
# What others made takes most of the time, and is the same for each.
import requests, torchx.runner, torchx.schedulers.api, urllib3, yaml
for name in sys.argv[1:]:
    # A child of an interpreter that has imported nothing of ours: as good as a new process, and much quicker.
    child = os.fork()
    if child == 0:
        try:
            importlib.import_module(name)
        except BaseException as error:
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_modules_import_alone() -> None:
    """Some modules of the SDK; `TORCHX_PULUMI_CASES=all`: each. Circles are found by `test_structure.py`."""
    step = 1 if os.environ.get("TORCHX_PULUMI_CASES") == "all" else 16
    modules = [name for name in MODULES if not name.startswith("torchx_pulumi_")][::step]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IMPORT_EACH, *modules], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_importing_the_sdk_brings_no_third_party() -> None:
    script = (
        "import sys, torchx_pulumi\n"
        "heavy = {'pulumi', 'kubernetes', 'docker', 'torchx', 'yaml', 'grpc', 'rich'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
