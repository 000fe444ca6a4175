"""UserFleet: the apps of one backend for a user: as its stacks say, as this machine saw them, and with locks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from torchx_pulumi.apps.app import LATER, App, AppKey
from torchx_pulumi.model.app_entry import RunEntry
from torchx_pulumi.model.errors import BackendAbsentError, DeployError
from torchx_pulumi.model.redaction import without_password
from torchx_pulumi.model.requested import Requested, follows
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.stack_state.backend import absolute_backend, backend_folder, choose_backend
from torchx_pulumi.stack_state.stacks import StackName, check_there, open_stacks
from torchx_pulumi.storage.files import is_folder, path_exists

from torchx_pulumi_fleet.tracker.live_fleet import LiveApp, LiveFleet
from torchx_pulumi_fleet.tracker.reporting import Reporter
from torchx_pulumi_fleet.tracker.tracked import TrackedStacks
from torchx_pulumi_fleet.views.row import BrokenStack, Fleet, FleetRow, sort_rows

T = TypeVar("T")

LOCAL_EVERY_S = 10.0
"""Time after which the observations of this machine are read again."""


class OwnIndex:
    """What this user's index of apps knows of apps in stacks."""

    def __init__(self) -> None:
        """Read nothing yet."""
        self._index = RunIndex()
        self.problems: dict[str, None] = {}
        """Problems while reading, each once; affected rows show what the stack says."""

    def observation(self, app: App) -> Mapping[str, Any] | None:
        """Return the last observation of an app, in the shape of `observed`. None: it was not observed here."""
        return self._read(app, self._index.observation)

    def requested(self, app: App) -> Requested | None:
        """Return the last request about an app: that of its stack, or a later one that the stack does not have yet."""
        entry = self._read(app, self._index.get)
        mine = None if entry is None else entry.requested
        return mine if mine is not None and follows(mine, app.answer.requested) else app.answer.requested

    def count(self, backend: str) -> int:
        """Return how many apps have their stacks in a backend."""
        try:
            entries = self._index.all(problem=self._note)
        except DeployError as error:
            self._note(str(error))
            return 0
        return sum(_known_as(entry.place.backend) == _known_as(backend) for entry in entries)

    def _read(self, app: App, read: Callable[[RunEntry], T | None]) -> T | None:
        try:
            return None if app.entry is None else read(app.entry)
        except DeployError as error:
            self._note(str(error))
            return None

    def _note(self, problem: str) -> None:
        self.problems[problem] = None


class UserFleet:
    """The apps of one backend, which a user may read without access to a cluster."""

    def __init__(
        self,
        backend: str | None = None,
        *,
        project: str | None = None,
        organization: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open the backend; nothing is read yet. Arguments as of `read_fleet`; `clock` is monotonic."""
        self._may_be_absent = not (backend or os.environ.get("PULUMI_BACKEND_URL"))
        self.backend = choose_backend(backend)
        self.apps = LiveFleet()
        """The apps as they are shown."""
        self.tracked = TrackedStacks(
            [self.backend],
            # The rows and remarks of a fleet have the problems.
            Reporter(write=lambda _: None),
            opened=partial(open_stacks, organization=organization),
            project=project,
            check_empty=self._check_empty,
            fleet=self.apps,
        )
        self.own = OwnIndex()
        self._local_at: float | None = None
        self._clock = clock
        self._busy: frozenset[StackName] = frozenset()
        self._changed: set[AppKey] = set()

    def refresh(self) -> set[AppKey]:
        """List the stacks, read those that have changed, and return the apps that changed or are gone.

        Raises:
            DeployError: The backend cannot be read; what was read before stays.
        """
        # If locks cannot be listed, the next call returns what changed.
        self._changed |= self.tracked.read(self.backend)
        busy = self.tracked.stacks(self.backend).updating()
        moved, self._busy = busy ^ self._busy, busy
        now, changed = self._clock(), self._changed
        is_due = self._local_at is None or now - self._local_at >= LOCAL_EVERY_S
        if is_due:
            self.own, self._local_at = OwnIndex(), now
        for app in self.tracked.apps():
            is_read = is_due or app.key in changed
            if (is_read and self.apps.put_local(app.key, self.own.observation(app))) or app.stack in moved:
                changed.add(app.key)
        self._changed = set()
        return changed

    def rows(self, now: datetime) -> list[FleetRow]:
        """Return the row of each app, but for those of later releases: their stacks are in `Fleet.broken`."""
        return [app.row(now, updating=app.app.stack in self._busy) for app in self._shown()]

    def _shown(self) -> list[LiveApp]:
        return [app for app in self.apps.apps() if app.app.left_alone != LATER]

    def fleet(self, rows: Iterable[FleetRow], now: datetime, *, unreachable: Mapping[str, str]) -> Fleet:
        """Return rows as a fleet, with what could not be read."""
        selected = sort_rows([*rows])
        notice = self.tracked.stacks(self.backend).notice
        broken = sorted(((name, why) for (_, name), why in self.tracked.broken.items()), key=lambda one: str(one[0]))
        return Fleet(
            backend=self.backend,
            read_at=now,
            rows=selected,
            broken=[BrokenStack(stack=name, why=why) for name, why in broken],
            others=self.tracked.others,
            # Of a fleet that changes meanwhile.
            excluded=max(len(self._shown()) - len(selected), 0),
            unreachable=unreachable,
            warnings=[*([notice] if notice else ()), *self.own.problems],
        )

    def _check_empty(self, backend: str) -> None:
        """Check that a backend without stacks is empty, and not a folder that is misspelled or not mounted.

        Raises:
            DeployError: There is no such folder.
            BackendAbsentError: The folder holds no backend, and had stacks, or this machine launched apps in it.
        """
        folder = backend_folder(backend)
        if folder is None or path_exists(folder / ".pulumi"):
            return
        if count := self.own.count(backend):
            raise BackendAbsentError(
                f"backend {backend}: there is no folder .pulumi in {folder}, and {count} app(s) of this machine have "
                "their stacks in it: mount it"
            )
        if not self._may_be_absent and not is_folder(folder):
            raise DeployError(
                f"backend {backend}: there is no such folder; no app was launched with it, or it is not mounted, or "
                "--backend and PULUMI_BACKEND_URL name another one than the launch did"
            )
        if self.tracked.has_stacks:
            check_there(backend)


def _known_as(backend: str) -> str:
    """Return a normalized URL of a backend."""
    return absolute_backend(without_password(backend)).rstrip("/")
