"""Observations that this machine has recorded for the apps of a backend; they may be newer than the stacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchx_pulumi.model.app_entry import ORGANIZATION, RunEntry
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.redaction import without_password
from torchx_pulumi.model.timestamps import parse_time
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.runs.observation import as_observed
from torchx_pulumi.stack_state.backend import absolute_backend
from torchx_pulumi.stack_state.stacks import StackName


class LocalObservations:
    """Recorded observations of the apps of one backend, read on first use."""

    def __init__(self, backend: str, index: RunIndex | None = None) -> None:
        """Take a backend.

        Args:
            backend: Its URL.
            index: The index of launched apps. None: this user's.
        """
        self._backend = _known_as(backend)
        self._index = index or RunIndex()
        self._entries: dict[StackName, list[RunEntry]] | None = None
        self.problems: list[str] = []
        """Problems while reading; affected rows show the observation in the stack."""

    def __call__(self, name: StackName) -> Mapping[str, Any] | None:
        """Return the last observation of a stack's app, in the shape of `observed`. None: there is none."""
        owner, _, stack = name.stack.rpartition("/")
        there = self._known().get(StackName(project=name.project, stack=stack), [])
        # The CLI omits the default organization; 0.1.0 stored none.
        entry = next((one for one in there if not owner or one.place.organization in (owner, ORGANIZATION)), None)
        if entry is None:
            return None
        try:
            observation = self._index.observation(entry)
        except DeployError as error:
            self.problems.append(str(error))
            return None
        # An observation without a time cannot be compared with the stack's.
        return None if observation is None or parse_time(observation.observed_at) is None else as_observed(observation)

    @property
    def apps(self) -> int:
        """Return how many apps of the backend are in the index."""
        return sum(map(len, self._known().values()))

    def _known(self) -> dict[StackName, list[RunEntry]]:
        if self._entries is None:
            try:
                entries = self._index.all(problem=self.problems.append)
            except DeployError as error:
                self.problems.append(str(error))
                entries = []
            self._entries = {}
            for entry in entries:
                if _known_as(entry.place.backend) == self._backend:
                    name = StackName(project=entry.place.project, stack=entry.place.stack)
                    self._entries.setdefault(name, []).append(entry)
        return self._entries


def _known_as(backend: str) -> str:
    """Return a normalized URL of a backend."""
    return absolute_backend(without_password(backend)).rstrip("/")
