"""FleetStacks: the apps in the stacks of a backend, read again only where a stack has changed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from typing import Any

from torchx_pulumi.apps.judge import latest
from torchx_pulumi.fleet.collect.row import BrokenStack, Fleet, FleetRow, build_row, complete, sort_rows
from torchx_pulumi.model.app_entry import ORGANIZATION, RunEntry
from torchx_pulumi.model.errors import BackendAbsentError, DeployError
from torchx_pulumi.model.redaction import without_password
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.stack_state.backend import absolute_backend, backend_folder, choose_backend
from torchx_pulumi.stack_state.checkpoint import DAMAGED, StackApp, UnreadableStateError, read_app
from torchx_pulumi.stack_state.stacks import StackName, Stacks, check_there, open_stacks
from torchx_pulumi.storage.files import is_folder, path_exists

Observations = Callable[[StackName], Mapping[str, Any] | None]
"""Function from a stack to the last observation of its app on this machine, in the shape of `observed`."""

GONE = "its checkpoint no longer exists; it was removed a moment ago"

LOCAL_EVERY_S = 10.0
"""Time after which the observations of this machine are read again."""


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
        """Return the last observation of a stack's app, in the shape of `observed`. None: not observed here."""
        owner, _, stack = name.stack.rpartition("/")
        there = self._known().get(StackName(project=name.project, stack=stack), [])
        # The CLI omits the default organization, also in the entry of an app that was found by a listing.
        entry = next((one for one in there if not owner or one.place.organization in (owner, ORGANIZATION)), None)
        if entry is None:
            return None
        try:
            return self._index.observation(entry)
        except DeployError as error:
            self.problems.append(str(error))
            return None

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


class FleetStacks:
    """The apps of a backend, from its stacks and the observations of this machine."""

    def __init__(
        self,
        backend: str | None = None,
        *,
        project: str | None = None,
        organization: str | None = None,
        observations: Observations | None = None,
        stacks: Stacks | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Name the backend; nothing is read yet. Arguments as `read_fleet`."""
        self._may_be_absent = not (backend or os.environ.get("PULUMI_BACKEND_URL"))
        self.backend = choose_backend(backend)
        self._is_opened_here = stacks is None
        self.stacks: Stacks = stacks or open_stacks(self.backend, organization)
        self._project = project
        self._organization = organization
        self._given = observations
        self._clock = clock
        self._versions: dict[StackName, str] = {}
        self._results: dict[StackName, StackApp | str | None] = {}
        self._busy: frozenset[StackName] = frozenset()
        self._local = LocalObservations(self.backend)
        self._seen: dict[StackName, Mapping[str, Any] | None] = {}
        self._seen_at: float | None = None

    def refresh(self) -> set[StackName]:
        """List the stacks, read those that have changed, and return those that changed or are gone.

        Raises:
            DeployError: The backend cannot be read; what was read before stays.
        """
        try:
            versions = self.stacks.versions(self._project)
        except DeployError:
            # The credentials of the backend may have been renewed.
            opened = open_stacks(self.backend, self._organization) if self._is_opened_here else self.stacks
            if isinstance(opened, type(self.stacks)):
                self.stacks = opened
            raise
        if not versions and self._is_opened_here:
            _check_folder(self.backend, self._local, may_be_absent=self._may_be_absent)
        if not versions and self._results:
            # A folder that is not mounted any more is empty: its stacks were not deleted.
            check_there(self.backend)
        busy = self.stacks.updating()
        stale = [name for name, version in versions.items() if not version or self._versions.get(name) != version]
        with ThreadPoolExecutor(self.stacks.reads_at_once) as pool:
            results = dict(zip(stale, pool.map(partial(_read_one, self.stacks), stale), strict=True))
        changed = {name for name, result in results.items() if self._results.get(name, "") != result}
        changed |= (self._results.keys() - versions.keys()) | (busy ^ self._busy)
        self._results = {name: results.get(name, self._results.get(name)) for name in versions}
        # A stack that could not be read is read again, whatever its version.
        self._versions = {name: text for name, text in versions.items() if not isinstance(self._results[name], str)}
        self._busy = busy
        self._read_local(changed)
        return changed

    @property
    def has_versions(self) -> bool:
        """Return whether a listing starts no process, and tells which stacks have changed."""
        return not self.stacks.only_cli_writes and all(self._versions.values())

    def apps(self) -> Mapping[StackName, StackApp]:
        """Return the stacks with an app."""
        return {name: result for name, result in self._results.items() if isinstance(result, StackApp)}

    def rows(self, now: datetime) -> dict[StackName, FleetRow]:
        """Return the row of each app."""
        rows = {}
        for name, app in self.apps().items():
            seen, recorded, updating = self._seen.get(name), app.output.get("observed"), name in self._busy
            if seen is None or (isinstance(recorded, Mapping) and latest(recorded, seen) is recorded):
                rows[name] = build_row(name, app, now, updating=updating)
            else:
                seen = complete(seen, recorded)
                rows[name] = build_row(name, app, now, seen=seen, source="local", updating=updating)
        return rows

    def fleet(self, rows: Sequence[FleetRow], now: datetime, *, unreachable: Mapping[str, str]) -> Fleet:
        """Return rows as a fleet, with what could not be read."""
        broken = [BrokenStack(stack=name, why=why) for name, why in self._results.items() if isinstance(why, str)]
        return Fleet(
            backend=self.backend,
            read_at=now,
            rows=sort_rows(rows),
            broken=broken,
            others=sum(result is None for result in self._results.values()),
            unreachable=unreachable,
            warnings=[*([self.stacks.notice] if self.stacks.notice else ()), *self._local.problems],
        )

    def _read_local(self, changed: set[StackName]) -> None:
        """Read the observations of this machine, and add the stacks to `changed` of which there is another one."""
        now = self._clock()
        is_due = self._seen_at is None or now - self._seen_at >= LOCAL_EVERY_S
        if is_due:
            self._local, self._seen_at = LocalObservations(self.backend), now
        observe = self._given or self._local
        seen = {name: observe(name) if is_due or name in changed else self._seen.get(name) for name in self.apps()}
        changed |= {name for name, found in seen.items() if found != self._seen.get(name)}
        self._seen = seen


def _check_folder(backend: str, local: LocalObservations, *, may_be_absent: bool) -> None:
    """Check that a backend without stacks is empty, and not a folder that is misspelled or not mounted.

    Raises:
        DeployError: There is no such folder.
        BackendAbsentError: This machine launched apps in the backend, and the folder holds no backend.
    """
    folder = backend_folder(backend)
    if folder is None or path_exists(folder / ".pulumi"):
        return
    if local.apps:
        raise BackendAbsentError(
            f"backend {backend}: there is no folder .pulumi in {folder}, and {local.apps} app(s) of this machine have "
            "their stacks in it: mount it"
        )
    if not may_be_absent and not is_folder(folder):
        raise DeployError(
            f"backend {backend}: there is no such folder; no app was launched with it, or it is not mounted, or "
            "--backend and PULUMI_BACKEND_URL name another one than the launch did"
        )


def _read_one(stacks: Stacks, name: StackName) -> StackApp | str | None:
    """Read one stack. A text says why it cannot be read; None: it holds no app."""
    try:
        text = stacks.read(name)
        return GONE if text is None else read_app(text)
    except (UnreadableStateError, DeployError) as error:
        return str(error)
    except DAMAGED as error:
        return f"its checkpoint is damaged: {error}"


def _known_as(backend: str) -> str:
    """Return a normalized URL of a backend."""
    return absolute_backend(without_password(backend)).rstrip("/")
