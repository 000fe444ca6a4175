"""Work folders of the engine: one for each stack, with the request of a pending launch."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from torchx_pulumi.model.app_entry import ORGANIZATION, RunEntry, StackRef
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.registration_plan import RegistrationPlan
from torchx_pulumi.stack_state.stack_locks import OwnedLocks
from torchx_pulumi.storage.files import make_folder, read_json, write_json


def place_key(place: StackRef) -> str:
    """Return the key of a stack in names of files and in environments: 24 hex digits."""
    parts = [place.backend, place.project, place.stack]
    if place.organization != ORGANIZATION:
        parts.append(place.organization)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]


def requested_entry(root: Path, place: StackRef) -> Any:
    """Return the entry of an app whose launch started here and has not finished. None: none has.

    Raises:
        DeployError: The file cannot be read.
    """
    order = read_json(root / "work" / place_key(place) / "order.json")
    return order.get("entry") if isinstance(order, dict) else None


class WorkDir:
    """Work folder of one stack."""

    def __init__(self, root: Path, entry: RunEntry) -> None:
        self.key = place_key(entry.place)
        """Key of the stack."""
        self._folder = root / "work" / self.key
        self._entry = entry
        self.locks = OwnedLocks(self._folder)
        """Notes of our own locks on the stack."""

    def write_request(self, run: RegistrationPlan) -> RegistrationPlan:
        """Write the request of a launch, which stays until the launch finishes, and return it.

        Raises:
            DeployError: The file cannot be written.
        """
        # `dataclasses.asdict` copies the manifests.
        write_json(self._folder / "order.json", {field.name: getattr(run, field.name) for field in fields(run)})
        return run

    def order(self) -> RegistrationPlan | None:
        """Return the request of a pending launch. None: no launch is pending, or another release wrote it.

        Raises:
            DeployError: The file cannot be read.
        """
        value = read_json(self._folder / "order.json")
        try:
            return None if value is None else RegistrationPlan(**value)
        except TypeError:
            # Another release wrote it; the caller then removes the objects of the launch.
            return None

    @contextlib.contextmanager
    def open(self) -> Iterator[Path]:
        """Create a temporary folder for one run of the CLI.

        Raises:
            DeployError: The folder cannot be created.
        """
        make_folder(self._folder)
        try:
            folder = Path(tempfile.mkdtemp(prefix="run-", dir=self._folder))
            entry, place = self._entry, self._entry.place
            (folder / "Pulumi.yaml").write_text(json.dumps({"name": place.project, "runtime": "python"}))
            if entry.kubeconfig is None and entry.kube_context is None and entry.ambient_context is not None:
                # The context at the launch: a deletion uses the same cluster if the current context changes.
                settings = {"config": {"kubernetes:context": entry.ambient_context}}
                (folder / f"Pulumi.{place.stack}.yaml").write_text(json.dumps(settings))
        except OSError as error:
            raise DeployError(
                f"{self._folder} cannot be written: {error.strerror}; free space, "
                "or set XDG_STATE_HOME to another folder"
            ) from error
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def clear(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)
