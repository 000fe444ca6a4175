"""TrackedStacks: the apps in the stacks of some backends. A stack is read again when it has changed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timezone
from functools import partial
from sys import intern
from typing import Any

from torchx_pulumi.apps.answer import Answer
from torchx_pulumi.apps.app import App, AppKey, read_apps
from torchx_pulumi.kube import run_concurrently
from torchx_pulumi.model.app_entry import RunEntry, StackRef
from torchx_pulumi.model.cluster_identity import ClusterIdentity
from torchx_pulumi.model.errors import TorchxPulumiError
from torchx_pulumi.stack_state.checkpoint import DAMAGED, SECRET, UnreadableStateError, output_in, parse_components
from torchx_pulumi.stack_state.stacks import ListedStacks, StackName, check_there, open_stacks

from torchx_pulumi_fleet.tracker.live_fleet import LiveFleet
from torchx_pulumi_fleet.tracker.reporting import Reporter

Place = tuple[str, StackName]
"""Backend and name of a stack."""

GONE = "its checkpoint no longer exists; it was removed a moment ago"

SHARED_LENGTH = 64
"""Length of the longest text that is stored once for several apps, in characters."""

NOTHING: Mapping[str, Any] = {}
"""In an entry, what is left out."""


@dataclass(slots=True)
class _Stack:
    """One stack as it was last read."""

    version: str = ""
    """The version that was read. Empty: not known, or the last read failed; the next listing reads it again."""
    apps: dict[str, App] = field(default_factory=dict)
    """URN to app. Empty: the stack has none."""
    why: str = ""
    """Why it, or its output `torchx`, could not be read. Empty: both could."""


@dataclass(slots=True)
class _Backend:
    """One backend."""

    stacks: ListedStacks
    reading: threading.Lock = field(default_factory=threading.Lock)
    """One that does not answer must not hold up the others."""
    listed_at: datetime | None = None
    """When it was last listed. None: never."""


@dataclass(eq=False)
class TrackedStacks:
    """The apps of all stacks of some backends. For use by several threads."""

    backends: Sequence[str]
    """Their URLs, without credentials (`choose_backend`)."""
    reporter: Reporter
    """Takes problems, each once."""
    opened: Callable[[str], ListedStacks] = open_stacks
    """Returns the stacks of a backend."""
    project: str | None = None
    """Pulumi project of the stacks. None: all projects."""
    check_empty: Callable[[str], None] = check_there
    """Raises DeployError if a backend without stacks is not there: a folder that is not mounted is empty."""
    fleet: LiveFleet | None = None
    """Is told of each app that is read or gone. None: this process serves no pages."""
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)
    """The time of listings, aware."""

    def __post_init__(self) -> None:
        """Open the backends. `refresh` reads them."""
        self._backends = {backend: _Backend(self.opened(backend)) for backend in self.backends}
        self._guard = threading.Lock()
        self._known: dict[Place, _Stack] = {}
        self._index: dict[tuple[str | None, ...], tuple[AppKey, ...]] = {}
        """What apps are found by to their keys, mostly one."""

    def refresh(self, backend: str) -> set[AppKey]:
        """List a backend, read its stacks that have changed, and return the apps that changed or are gone.

        A backend that cannot be listed keeps what was last read of it.
        """
        try:
            changed = self.read(backend)
        except TorchxPulumiError as error:
            self._is_away(backend, error)
            return set()
        self.reporter.end(f"backend {backend}", f"backend {backend} can be read again")
        return changed

    def read(self, backend: str) -> set[AppKey]:
        """Do as `refresh`, and raise the error of a backend that cannot be listed.

        Raises:
            DeployError: It cannot be listed. What was last read of it stays.
        """
        there = self._backends[backend]
        with there.reading:
            try:
                versions = there.stacks.versions(self.project)
            except TorchxPulumiError:
                self.reopen(backend)
                raise
            if not versions:
                self.check_empty(backend)
            changed = self._take(backend, versions)
            there.listed_at = self.now()
            return changed

    @property
    def unread(self) -> tuple[str, ...]:
        """Return the backends that were not read yet."""
        return tuple(name for name, backend in self._backends.items() if backend.listed_at is None)

    @property
    def read_at(self) -> datetime | None:
        """Return when the backends were last listed: the oldest of their times. None: one was never listed."""
        times = [backend.listed_at for backend in self._backends.values()]
        return None if None in times else min(filter(None, times))

    @property
    def broken(self) -> Mapping[Place, str]:
        """Return the stacks that, or whose output `torchx`, could not be read at the last attempt, each with why."""
        with self._guard:
            return {place: stack.why for place, stack in self._known.items() if stack.why}

    @property
    def has_stacks(self) -> bool:
        """Return whether any stack is known."""
        with self._guard:
            return bool(self._known)

    @property
    def others(self) -> int:
        """Return how many stacks have no app."""
        with self._guard:
            return sum(not stack.apps and not stack.why for stack in self._known.values())

    @property
    def has_versions(self) -> bool:
        """Return whether listings start no process, and tell which stacks have changed."""
        with self._guard:
            return not self.only_shown and all(stack.version or stack.why for stack in self._known.values())

    def stacks(self, backend: str) -> ListedStacks:
        """Return the stacks of a backend, as they are open now."""
        return self._backends[backend].stacks

    def reread(self, app: App) -> App | None:
        """Read the stack of an app again, whatever its version. None: the app is not in it any more."""
        place = (app.place.backend, app.stack)
        with self._backends[app.place.backend].reading:
            known, found = self._known.get(place), self._read(place)
            if known is not None and found is not None and (found.apps or self.is_there(app.place.backend)):
                self._put(place, replace(found, version=known.version))
        return self.app(app.key)

    def is_there(self, backend: str) -> bool:
        """Return whether a backend is there. If its folder is not mounted, its stacks are unknown, not gone."""
        try:
            check_there(backend)
        except TorchxPulumiError as error:
            self._is_away(backend, error)
            return False
        return True

    def _is_away(self, backend: str, error: TorchxPulumiError) -> None:
        self.reporter.begin(f"backend {backend}", f"{error}; what was last read of its stacks is used")

    def app(self, key: AppKey) -> App | None:
        """Return an app. None: its stack or its component is gone."""
        with self._guard:
            stack = self._known.get((key[0], key[1]))
            return None if stack is None else stack.apps.get(key[2])

    def apps(self) -> list[App]:
        """Return all apps."""
        with self._guard:
            return [app for stack in self._known.values() for app in stack.apps.values()]

    def of_uid(self, uid: str | None) -> frozenset[AppKey]:
        """Return the apps whose run has a job object of this uid: more than one if several stacks name it."""
        return self._find("uid", uid)

    def of_launch(self, label: str | None) -> frozenset[AppKey]:
        """Return the apps whose job object may have a value of the label `torchx-pulumi/launch`."""
        return self._find("launch", label)

    def of_job(self, namespace: str | None, job_name: str | None) -> frozenset[AppKey]:
        """Return the apps whose job object has a name, in any cluster."""
        return self._find("job", namespace, job_name)

    def _find(self, *name: str | None) -> frozenset[AppKey]:
        with self._guard:
            return frozenset(self._index.get(name, ()))

    def note_answer(self, key: AppKey, answer: Answer) -> None:
        """Note what a stack says of an app, as a writer has just written or found it."""
        with self._guard:
            stack = self._known.get((key[0], key[1]), _Stack())
            app = stack.apps.get(key[2])
            if app is None:
                return
            output = {**app.output, "observed": answer.observed}
            stack.apps[key[2]] = _kept(replace(app, answer=answer, output=output))
            self._tell(stack.apps[key[2]])

    @property
    def only_shown(self) -> tuple[str, ...]:
        """Return the backends whose stacks only the Pulumi CLI can write."""
        return tuple(name for name, backend in self._backends.items() if backend.stacks.only_cli_writes)

    def is_locked(self, app: App) -> bool:
        """Return whether the stack of an app is locked.

        Raises:
            DeployError: The locks cannot be read.
        """
        return app.stack in self._backends[app.place.backend].stacks.updating()

    def is_changing(self, app: App) -> bool:
        """Return whether a deployment changes the stack of an app now or was interrupted, or that is not known."""
        now = self.reread(app)
        try:
            return now is None or now.changing or self.is_locked(app)
        except TorchxPulumiError:
            return True

    def reopen(self, backend: str) -> None:
        """Open a backend again, as its credentials may be new. If that fails, the open one stays in use."""
        try:
            stacks = self.opened(backend)
        except TorchxPulumiError:
            return
        if isinstance(stacks, type(self._backends[backend].stacks)):
            self._backends[backend].stacks = stacks

    def _take(self, backend: str, versions: Mapping[StackName, str]) -> set[AppKey]:
        """Read the stacks that have another version than before, and drop those that are gone."""
        with self._guard:
            known = {name: stack for (where, name), stack in self._known.items() if where == backend}
        stale = [
            name
            for name, version in versions.items()
            if not version or name not in known or known[name].version != version
        ]

        def read_some(names: Sequence[StackName]) -> set[AppKey]:
            changed: set[AppKey] = set()
            for name in names:
                found = self._read((backend, name))
                if found is not None:
                    version = "" if found.why == GONE else versions[name]
                    changed |= self._put((backend, name), replace(found, version=version))
            return changed

        at_once = min(self._backends[backend].stacks.reads_at_once, len(stale))
        parts = run_concurrently(*(partial(read_some, stale[first::at_once]) for first in range(at_once)))
        changed: set[AppKey] = set().union(*parts)
        for name in known.keys() - versions.keys():
            changed |= self._put((backend, name), None)
            self.reporter.forget(f"stack {name} of {backend}")
        return changed

    def _read(self, place: Place) -> _Stack | None:
        """Read a stack. None: it cannot be read now."""
        backend, name = place
        problem = f"stack {name} of {backend}"
        try:
            text = self._backends[backend].stacks.read(name)
            found = _Stack(why=GONE) if text is None else _stack_of(text, name.at(backend))
        except (TorchxPulumiError, UnreadableStateError) as error:
            why = str(error)
        except DAMAGED as error:
            why = f"its checkpoint is damaged: {error}"
        else:
            self.reporter.end(problem, f"{problem} can be read again")
            return found
        self.reporter.begin(problem, f"{problem} cannot be read: {why}; it is tried again")
        with self._guard:
            known = self._known.setdefault(place, _Stack())
            known.version, known.why = "", why
        return None

    def _put(self, place: Place, stack: _Stack | None) -> set[AppKey]:
        """Take a stack as it was read, None for one that is gone; return the apps that it had and has."""
        with self._guard:
            before = self._known.pop(place, _Stack()).apps
            present = {} if stack is None else stack.apps
            keys = {urn: (*place, urn) for urn in (*before, *present)}
            for app in before.values():
                for name in _names(app):
                    left = tuple(key for key in self._index.pop(name, ()) if key != keys[app.urn])
                    if left:
                        self._index[name] = left
                if self.fleet is not None and app.urn not in present:
                    self.fleet.drop(app.key)
            if stack is not None:
                self._known[place] = stack
            for app in present.values():
                for name in _names(app):
                    self._index[name] = (*self._index.get(name, ()), keys[app.urn])
                self._tell(app)
        return {*keys.values()}

    def _tell(self, app: App) -> None:
        # While the lock is held, so that the fleet has the same order of changes.
        if self.fleet is not None:
            self.fleet.put_stack(app)


def _stack_of(text: str, place: StackRef) -> _Stack:
    """Read a checkpoint.

    Raises:
        UnreadableStateError: The text is not one.
    """
    checkpoint, why = parse_components(text), ""
    try:
        output_in(checkpoint)
    except UnreadableStateError as error:
        why = str(error)
    return _Stack(apps={app.urn: _kept(app) for app in read_apps(checkpoint, place)}, why=why)


def _kept(app: App) -> App:
    """Return an app as it is kept: its entry without AppDef, pods, options and declaration, its secret values null."""
    output, own, entry, cluster = _compact(app.output), app.answer.observed, app.entry, app.cluster
    if cluster is not None:
        cluster = replace(cluster, **_shared_texts(cluster))
    if entry is not None:
        place = app.place if entry.place == app.place else entry.place
        there = cluster if entry.cluster_identity is app.cluster else entry.cluster_identity
        kept: dict[str, Any] = {"place": place, "cluster_identity": there, "log_options": _compact(entry.log_options)}
        left_out: dict[str, Any] = dict.fromkeys(("app", "pods", "declared", "options"), NOTHING)
        entry = replace(entry, **_shared_texts(entry), **kept, **left_out)
    # The output mostly has the same observation.
    observed = output["observed"] if own is app.output["observed"] else _compact(own)
    answer = replace(app.answer, observed=observed or {})
    return replace(app, cluster=cluster, entry=entry, output=output, answer=answer)


def _shared_texts(data: ClusterIdentity | RunEntry) -> dict[str, Any]:
    """Return the short texts in fields of data, shared with other apps."""
    values = ((each.name, getattr(data, each.name)) for each in fields(data))
    return {name: intern(value) for name, value in values if type(value) is str and len(value) <= SHARED_LENGTH}


def _compact(value: Any) -> Any:
    """Return a JSON value in which short texts are shared with other apps, and secret ones are null."""
    if isinstance(value, str):
        return intern(str(value)) if len(value) <= SHARED_LENGTH else value
    # Of JSON, so that the quick test for this type is enough.
    if isinstance(value, dict):
        return None if SECRET in value else {intern(str(key)): _compact(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_compact(item) for item in value]
    return value


def _names(app: App) -> Iterator[tuple[str | None, ...]]:
    """Yield what an app is found by."""
    yield "job", app.run.namespace, app.run.job_name
    if app.uid is not None:
        yield "uid", app.uid
    for label in app.run.launches:
        yield "launch", label


def stack_words(apps: Iterable[App]) -> str:
    """Return text such as "3 apps in 2 stacks"."""
    listed = list(apps)
    stacks = len({(app.place.backend, app.stack) for app in listed})
    return f"{len(listed)} app{'' if len(listed) == 1 else 's'} in {stacks} stack{'' if stacks == 1 else 's'}"
