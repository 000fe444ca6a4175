"""The programs of this checkout, in a copy of its root, with the stack's configuration as a test wants it."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.project import Project

ROOT = Path(__file__).resolve().parents[2]
HERE = ("Pulumi.yaml", "stacks", "examples")


class StackProject(Project):
    """One of the checkout's projects, found as a user finds it: by the folder of its Pulumi.yaml."""

    def __init__(
        self, root: Path, env: dict[str, str], namespace: str, *, place: str = ".", config_dir: str = "."
    ) -> None:
        for name in HERE:
            source = ROOT / name
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, root / name)
        (root / ".venv").symlink_to(sys.prefix)
        self.root = root
        self.folder = root / place
        if place != ".":
            (self.folder / "venv").symlink_to(sys.prefix)
        self.namespace = namespace
        self.env = env
        self._config_file = root / config_dir / "Pulumi.dev.yaml"
        self.run("stack", "init", "dev")
        self._created = self._config_file.read_text() if self._config_file.exists() else ""

    def configure(self, **config: Any) -> None:
        """Write the stack's configuration, in place of what it was."""
        name = yaml.safe_load((self.folder / "Pulumi.yaml").read_text())["name"]
        body = json.dumps({f"{name}:{key}": value for key, value in config.items()})
        self._config_file.write_text(f"{self._created}\nconfig: {body}\n")

    def configured(self, **config: Any) -> StackProject:
        """Write the stack's configuration and return the project."""
        self.configure(**config)
        return self
