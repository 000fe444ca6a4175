"""The runs of an app for the page and the API: what runs, what is archived, and the updates of its stack."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone

from torchx_pulumi.apps.app import App
from torchx_pulumi.logs.query import PodRun, runs_of_pod
from torchx_pulumi.model.errors import ClusterError, TorchxPulumiError
from torchx_pulumi.model.timestamps import time_text
from torchx_pulumi.stack_state.backend import backend_url, open_store
from torchx_pulumi.stack_state.stacks import StackUpdate, read_updates
from torchx_pulumi.storage.stores import READ_TIMEOUT_S, Store

from torchx_pulumi_fleet.tracker.live_fleet import LiveApp
from torchx_pulumi_fleet.tracker.observing import ClusterView
from torchx_pulumi_fleet.web.answers import Runs, Update
from torchx_pulumi_fleet.web.archives import KnownArchives
from torchx_pulumi_fleet.web.attempts import ArchivedApp, attempt_values, read_archived_app
from torchx_pulumi_fleet.web.pod_log import pods_of_run

MOST_UPDATES = 20
"""Updates of a stack: the newest."""

KEPT_S = 5.0
"""Seconds for which what was read of archives and backends is kept and shared."""

MOST_KEPT = 256
"""Apps for which it is kept."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """What archives and backend have of an app."""

    archived: ArchivedApp
    updates: list[StackUpdate]
    notes: list[str]


@dataclass(slots=True)
class _Kept:
    """The answer for one app, or the place where threads wait for it."""

    guard: threading.Lock = field(default_factory=threading.Lock)
    until: float = 0.0
    uid: str | None = None
    stored: _Stored | None = None


class RunHistory:
    """The runs of the apps that a controller tracks. For use by several threads."""

    def __init__(
        self,
        view_of: Callable[[App], ClusterView | None],
        archives: KnownArchives,
        *,
        kept_s: float = KEPT_S,
    ) -> None:
        """Name the sources; nothing is read.

        Args:
            view_of: Returns the watched cluster of an app. None: it is not watched.
            archives: The archives that may have logs.
            kept_s: Seconds for which what was read is kept.
        """
        self._view_of = view_of
        self._archives = archives
        self._kept_s = kept_s
        self._guard = threading.Lock()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._stores: dict[str, Store | None] = {}

    def of(self, app: LiveApp) -> Runs:
        """Return the runs of an app as JSON values.

        Returns:
            `runs` (the present one, then those that an archive has), `updates` of the stack, each the newest first,
            and `notes`: what could not be read. `attempt` of a run's attempts is the one of `LogRequest`.
        """
        tracked, stored = app.app, self._stored(app)
        notes = [*stored.notes]
        pods: list[PodRun] = []
        try:
            view = self._view_of(tracked)
            pods = [] if view is None else [run for pod in pods_of_run(view, tracked) for run in runs_of_pod(pod)]
        except ClusterError as error:
            notes.append(f"its pods cannot be read: {error}")
        runs = attempt_values(tracked, stored.archived, pods)
        row = app.row(datetime.now(timezone.utc))
        present = next(run for run in runs if run["current"])
        present |= {
            "state": row.state.value,
            "reason": row.reason,
            "attempt": row.attempt,
            "started_at": time_text(row.started_at) or present["started_at"],
            "finished_at": time_text(row.finished_at) or (present["finished_at"] if row.state.terminal else None),
        }
        return {"runs": runs, "updates": [*map(_update_values, stored.updates)], "notes": notes}

    def _stored(self, app: LiveApp) -> _Stored:
        with self._guard:
            kept = self._kept.setdefault(app.id, _Kept())
            self._kept.move_to_end(app.id)
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        with kept.guard:
            if kept.stored is None or kept.uid != app.app.uid or kept.until <= time.monotonic():
                kept.stored, kept.uid = self._read(app.app), app.app.uid
                kept.until = time.monotonic() + self._kept_s
            return kept.stored

    def _read(self, app: App) -> _Stored:
        archives, notes = self._archives.of(app)
        archived, problems = read_archived_app(archives, app)
        updates: list[StackUpdate] = []
        try:
            store = self._store(app.place.backend)
            if store is not None:
                updates = read_updates(store, app.stack, MOST_UPDATES)
        except (OSError, TorchxPulumiError) as error:
            problems.append(f"the updates of its stack cannot be read: {error}")
        return _Stored(archived, updates, [*notes, *problems])

    def _store(self, backend: str) -> Store | None:
        """Return the files of a backend. None: only Pulumi's own service has its history."""
        with self._guard:
            if backend not in self._stores:
                self._stores[backend] = open_store(backend_url(backend), READ_TIMEOUT_S)
            return self._stores[backend]


def _update_values(update: StackUpdate) -> Update:
    return {
        "kind": update.kind,
        "result": update.result,
        "started_at": time_text(update.started_at),
        "finished_at": time_text(update.finished_at),
        "message": update.message,
    }
