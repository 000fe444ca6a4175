"""Read a fleet: all stacks of a backend, merged with newer observations of this machine and of the clusters."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from typing import Any

from torchx_pulumi.fleet.collect.live import PATIENCE_S, LiveReader
from torchx_pulumi.fleet.collect.row import BrokenStack, Fleet, FleetRow, build_row, complete, sort_rows
from torchx_pulumi.fleet.collect.selection import Selection
from torchx_pulumi.model.app_entry import ORGANIZATION, RunEntry, StackRef
from torchx_pulumi.model.errors import BackendAbsentError, DeployError
from torchx_pulumi.model.redaction import without_password
from torchx_pulumi.model.status import JobStatus
from torchx_pulumi.model.timestamps import parse_time
from torchx_pulumi.outputs.newer import is_newer
from torchx_pulumi.runs import recording
from torchx_pulumi.runs.driver import Driver
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.runs.observation import as_observed
from torchx_pulumi.runs.whereabouts import Connect
from torchx_pulumi.stack_state.backend import absolute_backend, backend_folder, choose_backend
from torchx_pulumi.stack_state.checkpoint import DAMAGED, StackApp, UnreadableStateError, read_app
from torchx_pulumi.stack_state.files import is_folder, path_exists
from torchx_pulumi.stack_state.stacks import StackName, Stacks, open_stacks

Observations = Callable[[StackName], Mapping[str, Any] | None]
"""Function from a stack to the last observation of its app on this machine, in the shape of `observed`."""


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


def read_fleet(
    backend: str | None = None,
    *,
    project: str | None = None,
    organization: str | None = None,
    selection: Selection | None = None,
    observations: Observations | None = None,
    live: bool | None = False,
    connect: Connect | None = None,
    make_driver: Callable[[], Driver] | None = None,
    stacks: Stacks | None = None,
    now: datetime | None = None,
) -> Fleet:
    """Return all apps of a backend, read from its stacks; clusters are queried only if `live` is not False.

    Args:
        backend: URL of the Pulumi backend. None: PULUMI_BACKEND_URL, else this user's own folder, which may be absent.
        project: Pulumi project. None: all of them.
        organization: Organization of a Pulumi service. None: all that this user may see.
        selection: Filter of apps. None: all.
        observations: Last observations of apps. None: those of this machine.
        live: Query the clusters of unfinished apps. None: only clusters that respond within `live.PATIENCE_S`, and
            clusters without access are skipped silently.
        connect: Connects to a cluster. None: by kubeconfig.
        make_driver: Creates the driver that writes observed final states of apps of `torchx run` to their stacks. None:
            they are not written.
        stacks: The stacks. None: those of the backend.
        now: End of all ages, aware. None: the current time.

    Raises:
        DeployError: The backend cannot be read. A single stack that cannot be read is in `Fleet.broken`.
    """
    moment = now or datetime.now(timezone.utc)
    named = backend or os.environ.get("PULUMI_BACKEND_URL")
    backend = choose_backend(backend)
    opened: Stacks = stacks or open_stacks(backend, organization)
    local = LocalObservations(backend)
    names = opened.names(project)
    if not names and stacks is None:
        _check_folder(backend, local, may_be_absent=not named)
    busy = opened.updating()
    broken: list[BrokenStack] = []
    found: list[tuple[StackName, StackApp]] = []
    read = partial(_read_one, opened)
    for name, result in zip(names, _each(read, names, opened), strict=True):
        if isinstance(result, str):
            broken.append(BrokenStack(stack=name, why=result))
        elif result is not None:
            found.append((name, result))
    rows = [_row(name, app, moment, observations or local, busy) for name, app in found]
    unreachable: Mapping[str, str] = {}
    if live is not False:
        reader = LiveReader(
            opened,
            connect,
            now=lambda: now or datetime.now(timezone.utc),
            patience_s=PATIENCE_S if live is None else None,
            note=None if make_driver is None else partial(_note_end, make_driver, backend),
        )
        wanted = [(row, app) for row, (_, app) in zip(rows, found, strict=True) if _asked(row, selection)]
        fresh, unreachable = reader.refresh(wanted)
        rows = [fresh.get(row.stack, row) for row in rows]
    kept = [row for row in rows if selection is None or selection.wants(row)]
    return Fleet(
        backend=backend,
        read_at=moment,
        rows=sort_rows(kept),
        broken=broken,
        others=len(names) - len(broken) - len(found),
        unreachable=unreachable,
        warnings=[*([opened.notice] if opened.notice else ()), *local.problems],
    )


def _note_end(
    make_driver: Callable[[], Driver], backend: str, name: StackName, entry: RunEntry, status: JobStatus, at: datetime
) -> None:
    """Write the final state of an app that `torchx run` launched."""
    place = StackRef(backend=backend, project=name.project, stack=name.stack)
    recording.note(RunIndex(), make_driver, replace(entry, place=place), status, at)


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


def _each(
    read: Callable[[StackName], StackApp | str | None], names: list[StackName], opened: Stacks
) -> list[StackApp | str | None]:
    if opened.reads_at_once == 1:
        return [read(name) for name in names]
    with ThreadPoolExecutor(opened.reads_at_once) as pool:
        return list(pool.map(read, names))


def _read_one(stacks: Stacks, name: StackName) -> StackApp | str | None:
    """Read one stack. A text says why it cannot be read; None: it holds no app."""
    try:
        return read_app(stacks.read(name))
    except (UnreadableStateError, DeployError) as error:
        return str(error)
    except DAMAGED as error:
        return f"its checkpoint is damaged: {error}"


def _row(
    name: StackName, app: StackApp, now: datetime, observations: Observations, busy: frozenset[StackName]
) -> FleetRow:
    seen = observations(name)
    recorded = app.output.get("observed")
    if seen is None or (isinstance(recorded, Mapping) and not is_newer(seen, recorded)):
        return build_row(name, app, now, updating=name in busy)
    return build_row(name, app, now, seen=complete(seen, recorded), source="local", updating=name in busy)


def _asked(row: FleetRow, selection: Selection | None) -> bool:
    """Return whether to query the cluster of an app: it has not ended, and only its state may exclude it."""
    if row.state.terminal:
        return False
    return selection is None or selection.whatever_the_state().wants(row)


def _known_as(backend: str) -> str:
    """Return a normalized URL of a backend."""
    return absolute_backend(without_password(backend)).rstrip("/")
