"""TrackedStacks: the apps in the stacks of some backends, read again only where a stack has changed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from typing import Any

from torchx_pulumi.controller.app_output import compact
from torchx_pulumi.controller.live_fleet import LiveFleet
from torchx_pulumi.controller.reporting import Reporter
from torchx_pulumi.controller.stack_apps import AppKey, TrackedApp, kept_of_observed, read_stack_apps
from torchx_pulumi.kube import run_concurrently
from torchx_pulumi.model.app_entry import ORGANIZATION, StackRef
from torchx_pulumi.model.errors import TorchxPulumiError
from torchx_pulumi.stack_state.backend import backend_folder
from torchx_pulumi.stack_state.checkpoint import DAMAGED
from torchx_pulumi.stack_state.folder_stack import check_there
from torchx_pulumi.stack_state.stacks import ListedStacks, StackName, open_stacks

LAST_READ = "what was last read of its stacks is used"


@dataclass(slots=True)
class _Stack:
    """One stack as it was last read."""

    version: str
    apps: dict[str, TrackedApp] = field(default_factory=dict)
    """URN to app. Empty: the stack has none."""


class TrackedStacks:
    """The apps of all stacks of some backends. For use by several threads."""

    def __init__(
        self,
        backends: Sequence[str],
        reporter: Reporter,
        *,
        opened: Callable[[str], ListedStacks] = open_stacks,
        fleet: LiveFleet | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        """Name the backends; nothing is read yet.

        Args:
            backends: Their URLs, without credentials (`choose_backend`).
            reporter: Takes problems, each once.
            opened: Returns the stacks of a backend.
            fleet: Is told of each app that is read or gone. None: there are no pages.
            now: The time of listings, aware.
        """
        self._opened = opened
        self._fleet = fleet
        self._now = now
        self._listed: dict[str, datetime] = {}
        self._broken: set[tuple[str, StackName]] = set()
        self._stacks = {backend: opened(backend) for backend in backends}
        self._reporter = reporter
        # A backend that does not answer must not hold up the others.
        self._reading = {backend: threading.Lock() for backend in backends}
        self._guard = threading.Lock()
        self._known: dict[tuple[str, StackName], _Stack] = {}
        self._by_uid: dict[str, set[AppKey]] = {}
        self._by_launch: dict[str, set[AppKey]] = {}
        self._by_job: dict[tuple[str, str], set[AppKey]] = {}
        self._older: dict[AppKey, Mapping[str, Any]] = {}
        """Observations of stacks that are older than what the watches have."""

    def refresh(self, backend: str) -> set[AppKey]:
        """List a backend, read its stacks that have changed, and return the apps that changed or are gone.

        A backend that cannot be listed keeps what was last read of it.
        """
        with self._reading[backend]:
            stacks, problem = self._stacks[backend], f"backend {backend}"
            try:
                versions = stacks.versions(None)
                folder = backend_folder(backend)
                if not versions and folder is not None:
                    # A folder that is not mounted is empty: no stack of it counts as deleted.
                    check_there(folder, backend)
            except TorchxPulumiError as error:
                self._reporter.begin(problem, f"{error}; {LAST_READ}")
                self._reopen(backend)
                return set()
            self._reporter.end(problem, f"backend {backend} can be read again")
            changed = self._take(backend, stacks, versions)
            with self._guard:
                self._listed[backend] = self._now()
            return changed

    @property
    def unread(self) -> tuple[str, ...]:
        """Return the backends that were not read yet."""
        with self._guard:
            return tuple(backend for backend in self._stacks if backend not in self._listed)

    @property
    def read_at(self) -> datetime | None:
        """Return when the backends were last listed: the oldest of their times. None: one of them was never listed."""
        with self._guard:
            return min(self._listed.values()) if len(self._listed) == len(self._stacks) else None

    @property
    def broken(self) -> int:
        """Return how many stacks could not be read when they were last asked for."""
        with self._guard:
            return len(self._broken)

    def reread(self, app: TrackedApp) -> TrackedApp | None:
        """Read the stack of an app again, whatever its version. None: the app is not in it any more."""
        stacks = self._stacks[app.backend]
        with self._reading[app.backend]:
            with self._guard:
                known = self._known.get((app.backend, app.stack))
            apps = self._read(app.backend, stacks, app.stack)
            if not apps and not self.is_there(app.backend):
                return self.app(app.key)
            if apps is not None and known is not None:
                self._put(app.backend, app.stack, _Stack(version=known.version, apps=apps))
        return self.app(app.key)

    def is_there(self, backend: str) -> bool:
        """Return whether a backend is there. Of a folder that is not mounted, stacks are unknown, not gone."""
        folder = backend_folder(backend)
        try:
            if folder is not None:
                check_there(folder, backend)
        except TorchxPulumiError as error:
            self._reporter.begin(f"backend {backend}", f"{error}; {LAST_READ}")
            return False
        return True

    def app(self, key: AppKey) -> TrackedApp | None:
        """Return an app. None: its stack or its component is gone."""
        with self._guard:
            stack = self._known.get((key[0], key[1]))
            return None if stack is None else stack.apps.get(key[2])

    def apps(self) -> list[TrackedApp]:
        """Return all apps."""
        with self._guard:
            return [app for stack in self._known.values() for app in stack.apps.values()]

    def of_uid(self, uid: str | None) -> frozenset[AppKey]:
        """Return the apps whose run has a job object of this uid: more than one if several stacks name it."""
        with self._guard:
            return frozenset(() if uid is None else self._by_uid.get(uid, ()))

    def of_launch(self, label: str | None) -> frozenset[AppKey]:
        """Return the apps whose job object may have a value of the label `torchx-pulumi/launch`."""
        with self._guard:
            return frozenset(() if label is None else self._by_launch.get(label, ()))

    def of_job(self, namespace: str | None, job_name: str | None) -> frozenset[AppKey]:
        """Return the apps whose job object has a name, in whichever cluster."""
        with self._guard:
            return frozenset(self._by_job.get((namespace or "", job_name or ""), ()))

    def note_written(self, key: AppKey, observed: Mapping[str, Any]) -> None:
        """Note an observation that this process has just written."""
        kept = kept_of_observed(observed)
        with self._guard:
            self._older[key] = kept
            stack = self._known.get((key[0], key[1]))
            app = None if stack is None else stack.apps.get(key[2])
            if stack is not None and app is not None:
                output = replace(app.output, output=compact({**app.output.output, "observed": observed}))
                stack.apps[key[2]] = replace(app, observed=kept, output=output)
                self._tell(stack.apps[key[2]])

    def note_read(self) -> None:
        """Note that the clusters are listed from now on: whatever the stacks have was observed before that."""
        with self._guard:
            self._older |= {app.key: app.observed for stack in self._known.values() for app in stack.apps.values()}

    def is_older(self, app: TrackedApp) -> bool:
        """Return whether what is watched is later than the observation that the stack has.

        It is if this process wrote the observation, or read it before it listed the clusters.
        """
        with self._guard:
            return self._older.get(app.key) == app.observed

    def _reopen(self, backend: str) -> None:
        """Open a backend again: its credentials may have been renewed. Where that fails, it stays as it was opened."""
        try:
            stacks = self._opened(backend)
        except TorchxPulumiError:
            return
        if isinstance(stacks, type(self._stacks[backend])):
            self._stacks[backend] = stacks

    def _take(self, backend: str, stacks: ListedStacks, versions: Mapping[StackName, str]) -> set[AppKey]:
        """Read the stacks that have another version than before, and drop those that are gone."""
        with self._guard:
            known = {name: stack.version for (where, name), stack in self._known.items() if where == backend}
        stale = [name for name, version in versions.items() if not version or known.get(name) != version]
        changed: set[AppKey] = set()
        for start in range(0, len(stale), stacks.reads_at_once):
            part = stale[start : start + stacks.reads_at_once]
            for name, apps in zip(
                part, run_concurrently(*(partial(self._read, backend, stacks, name) for name in part)), strict=True
            ):
                before = self._keys(backend, name)
                if apps is None:
                    # It is tried again with the next listing.
                    continue
                self._put(backend, name, _Stack(version=versions[name], apps=apps))
                changed |= before | self._keys(backend, name)
        with self._guard:
            broken = {name for where, name in self._broken if where == backend}
        for name in (known.keys() | broken) - versions.keys():
            changed |= self._keys(backend, name)
            self._put(backend, name, None)
            self._broken.discard((backend, name))
            self._reporter.forget(f"stack {name} of {backend}")
        return changed

    def _read(self, backend: str, stacks: ListedStacks, name: StackName) -> dict[str, TrackedApp] | None:
        """Return the apps of a stack. None: it cannot be read now."""
        owner, _, stack = name.stack.rpartition("/")
        place = StackRef(backend=backend, project=name.project, stack=stack, organization=owner or ORGANIZATION)
        problem = f"stack {name} of {backend}"
        try:
            text = stacks.export(place)
            # Without a checkpoint it was removed after it was listed.
            apps = [] if text is None else read_stack_apps(text, place, name)
        except (TorchxPulumiError, *DAMAGED) as error:
            self._reporter.begin(problem, f"{problem} cannot be read: {error}; it is tried again")
            with self._guard:
                self._broken.add((backend, name))
            return None
        self._reporter.end(problem, f"{problem} can be read again")
        with self._guard:
            self._broken.discard((backend, name))
        return {app.urn: app for app in apps}

    def _keys(self, backend: str, name: StackName) -> set[AppKey]:
        with self._guard:
            stack = self._known.get((backend, name))
            return set() if stack is None else {app.key for app in stack.apps.values()}

    def _put(self, backend: str, name: StackName, stack: _Stack | None) -> None:
        with self._guard:
            before = self._known.pop((backend, name), None)
            for app in before.apps.values() if before is not None else ():
                self._unlink(app)
            present = {} if stack is None else stack.apps
            for urn in () if before is None else before.apps.keys() - present.keys():
                self._older.pop((backend, name, urn), None)
                if self._fleet is not None:
                    self._fleet.drop((backend, name, urn))
            if stack is None:
                return
            self._known[(backend, name)] = stack
            for app in stack.apps.values():
                self._link(app)
                self._tell(app)

    def _tell(self, app: TrackedApp) -> None:
        # While the lock is held, so that the fleet has the same order of changes.
        if self._fleet is not None:
            self._fleet.put_stack(app)

    def _link(self, app: TrackedApp) -> None:
        if app.uid is not None:
            self._by_uid.setdefault(app.uid, set()).add(app.key)
        for label in app.launches:
            self._by_launch.setdefault(label, set()).add(app.key)
        self._by_job.setdefault((app.namespace, app.job_name), set()).add(app.key)

    def _unlink(self, app: TrackedApp) -> None:
        if app.uid is not None:
            _discard(self._by_uid, app.uid, app.key)
        for label in app.launches:
            _discard(self._by_launch, label, app.key)
        _discard(self._by_job, (app.namespace, app.job_name), app.key)


def _discard(index: dict[Any, set[AppKey]], name: Any, key: AppKey) -> None:
    keys = index.get(name, set())
    keys.discard(key)
    if not keys:
        index.pop(name, None)


def stack_words(apps: Iterable[TrackedApp]) -> str:
    """Return how many apps there are in how many stacks, for messages."""
    listed = list(apps)
    stacks = len({(app.backend, app.stack) for app in listed})
    return f"{len(listed)} app{'' if len(listed) == 1 else 's'} in {stacks} stack{'' if stacks == 1 else 's'}"
