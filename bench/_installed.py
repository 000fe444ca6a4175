"""How both sides of a benchmark are installed: compiled, as pip does it; and which Kubernetes provider they use."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tools.sync import compile_bytecode


def compile_as_pip() -> str:
    """Compile all packages of this environment, let child processes keep bytecode, and return a line that says so.

    Without bytecode each process compiles what it imports: a second for TorchX's Kubernetes client.

    Raises:
        SystemExit: There is no bytecode, because the environment cannot be written.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compile_bytecode(Path(sys.prefix))
    for package in ("kubernetes", "torchx", "pulumi"):
        spec = importlib.util.find_spec(package)
        if spec is None or spec.cached is None or not Path(spec.cached).exists():
            raise SystemExit(f"bench: {package} has no bytecode in {sys.prefix}; make the folder writable: `make sync`")
    return "both sides with compiled bytecode, as pip installs them"


def kubernetes_provider(env: Mapping[str, str]) -> str:
    """Return which Kubernetes provider the engines of an environment start: its own words, and where it is."""
    found = shutil.which("pulumi-resource-kubernetes", path=env["PATH"])
    if found is None:
        return "the Kubernetes provider that Pulumi downloads"
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    return f"the Kubernetes provider {said or 'of Pulumi'}, {found}"
