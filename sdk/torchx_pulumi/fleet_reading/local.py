"""What this machine saw of the apps of a backend, later than their stacks may have it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchx_pulumi.errors import DeployError
from torchx_pulumi.fleet_reading.checkpoint import read_time
from torchx_pulumi.fleet_reading.row import StackName
from torchx_pulumi.redaction import without_password
from torchx_pulumi.runs.entry import RunEntry
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.runs.observation import as_observed


class LocalObservations:
    """The records of observations of one backend's apps. Nothing is read before the first question."""

    def __init__(self, backend: str, index: RunIndex | None = None) -> None:
        """Name the backend.

        Args:
            backend: Its URL.
            index: The index of launched apps. None: this user's.
        """
        self._backend = without_password(backend).rstrip("/")
        self._index = index or RunIndex()
        self._entries: dict[StackName, RunEntry] | None = None
        self.problems: list[str] = []
        """What could not be read; the rows say what their stacks say then."""

    def __call__(self, name: StackName) -> Mapping[str, Any] | None:
        """Return what was seen of a stack's app last, in the shape of `observed`. None: nothing."""
        entry = self._known().get(name)
        if entry is None:
            return None
        try:
            observation = self._index.observation(entry)
        except DeployError as error:
            self.problems.append(str(error))
            return None
        # Without a time it cannot be said to be the newer one.
        return None if observation is None or read_time(observation.observed_at) is None else as_observed(observation)

    def _known(self) -> dict[StackName, RunEntry]:
        if self._entries is None:
            try:
                entries = self._index.all()
            except DeployError as error:
                self.problems.append(str(error))
                entries = []
            self._entries = {
                StackName(project=entry.place.project, stack=entry.place.stack): entry
                for entry in entries
                if without_password(entry.place.backend).rstrip("/") == self._backend
            }
        return self._entries
