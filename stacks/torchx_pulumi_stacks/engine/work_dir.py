"""The folders in which the engine runs: one for each stack, and the order of a launch that is under way."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torchx_pulumi.model.app_entry import ORGANIZATION, RunEntry, StackRef, without_backend_password
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.registration_plan import RegistrationPlan
from torchx_pulumi.stack_state.files import make_folder, read_json, write_json
from torchx_pulumi.stack_state.stack_locks import OwnedLocks


def place_key(place: StackRef) -> str:
    """Return what tells a stack from all others, 24 hex digits.

    Of a backend with a password it is made of the URL as the entry has it: without the password, or in entries of
    0.1.0 with it, so that what lies on the disk is found.
    """
    parts = [place.backend, place.project, place.stack]
    if place.organization != ORGANIZATION:
        parts.append(place.organization)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]


def requested_entry(root: Path, place: StackRef) -> Any:
    """Return the entry of an app whose launch was begun here and did not come to its end. None: there is none.

    Raises:
        DeployError: It cannot be read.
    """
    order = read_json(root / "work" / place_key(place) / "order.json")
    return order.get("entry") if isinstance(order, dict) else None


class Workplace:
    """Where the engine works on one stack."""

    def __init__(self, root: Path, entry: RunEntry) -> None:
        self.key = place_key(entry.place)
        """Key of the stack."""
        self._folder = root / "work" / self.key
        self._entry = entry
        self.locks = OwnedLocks(self._folder)
        """Which locks on the stack are our own."""

    def note_order(self, run: RegistrationPlan) -> None:
        """Keep what is about to be launched, until it is known to be.

        Raises:
            DeployError: It cannot be written.
        """
        write_json(self._folder / "order.json", dataclasses.asdict(run))

    def order(self) -> RegistrationPlan | None:
        """Return what was about to be launched. None: it is not known.

        Raises:
            DeployError: It cannot be read.
        """
        value = read_json(self._folder / "order.json")
        try:
            return (
                None
                if value is None
                else RegistrationPlan(**{**value, "entry": without_backend_password(value["entry"])})
            )
        except (TypeError, KeyError):
            # Another release wrote it. What it made is removed then.
            return None

    @contextlib.contextmanager
    def open(self) -> Iterator[Path]:
        """Make a folder for one run of the CLI, which is gone afterwards.

        Raises:
            DeployError: It cannot be made.
        """
        make_folder(self._folder)
        try:
            folder = Path(tempfile.mkdtemp(prefix="run-", dir=self._folder))
            place = self._entry.place
            (folder / "Pulumi.yaml").write_text(json.dumps({"name": place.project, "runtime": "python"}))
            settings = self._settings()
            if settings:
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
        """Remove all of it."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _settings(self) -> dict[str, object]:
        """Return the stack's settings.

        The default provider is told the context that was current at the launch: it goes into the state, so that a
        deletion finds the same cluster whatever is current then.
        """
        entry = self._entry
        if entry.kubeconfig is None and entry.kube_context is None and entry.ambient_context is not None:
            return {"config": {"kubernetes:context": entry.ambient_context}}
        return {}
