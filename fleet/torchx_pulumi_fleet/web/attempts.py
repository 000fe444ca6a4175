"""The attempts of an app's runs as JSON values: of its pods and of the archives, numbered as its logs are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchx_pulumi.apps.app import App
from torchx_pulumi.logs.archives import escape
from torchx_pulumi.logs.query import ContainerRun, PodRun
from torchx_pulumi.model.timestamps import time_text

from torchx_pulumi_fleet.archive import Archive, ArchivedRun
from torchx_pulumi_fleet.archive.archive import RunKey, app_folder, newest_copies, uids_of
from torchx_pulumi_fleet.archive.archived_log import attempts_of, runs_of_attempt
from torchx_pulumi_fleet.web.answers import Attempt, ShownRun

MOST_RUNS = 20
"""Runs of an app: the newest."""

MOST_ATTEMPTS = 200
"""Container runs of all runs together whose records are read: the newest of the first replicas."""

Place = tuple[str, int]
"""Role as paths in the archive have it, and replica."""


@dataclass(slots=True)
class ArchivedRuns:
    """The archived container runs of one replica in one run."""

    runs: list[ArchivedRun] = field(default_factory=list)
    before: int = 0
    """Attempts before those of `runs`."""
    omitted: int = 0
    """Container runs that are not in `runs`."""


ArchivedApp = dict[str, dict[Place, ArchivedRuns]]
"""What archives have of an app: the uids of its runs, the newest first, to the replicas of each."""


def read_archived_app(archives: Sequence[Archive], app: App) -> tuple[ArchivedApp, list[str]]:
    """Return the archived runs of an app, and what could not be read. A replica is read from the first that has it.

    Args:
        archives: In the order in which they are asked.
        app: The app.
    """
    keys: dict[tuple[str, Place], tuple[Archive, list[RunKey]]] = {}
    problems: list[str] = []
    for archive in archives:
        try:
            found = newest_copies(archive.index(app_folder(app.app_id)))
        except OSError as error:
            problems.append(f"the archive {archive.name} cannot be read: {error}")
            continue
        for key in found:
            where, mine = keys.setdefault((key.uid, (key.role, key.replica)), (archive, []))
            if where is archive:
                mine.append(key)
    newest = uids_of(key for _, mine in keys.values() for key in mine)
    uids = sorted(newest, key=lambda uid: uid != app.uid)[:MOST_RUNS]
    archived: ArchivedApp = {uid: {} for uid in uids}
    room = MOST_ATTEMPTS
    for uid, place in sorted((one for one in keys if one[0] in uids), key=lambda one: (uids.index(one[0]), one[1])):
        archive, mine = keys[uid, place]
        cut = max(len(mine) - room, 0)
        room -= len(mine) - cut
        try:
            runs = archive.read(mine[cut:])
        except OSError as error:
            problems.append(f"the archive {archive.name} cannot be read: {error}")
            break
        # Attempts are runs of the main container, which the newer records name.
        main, there = {run.key.container for run in runs if run.default}, {run.key.attempt for run in runs}
        before = {key.attempt for key in mine[:cut] if not main or key.container in main} - there
        archived[uid][place] = ArchivedRuns(runs, len(before), cut)
    return archived, problems


def attempt_values(app: App, archived: ArchivedApp, pods: Sequence[PodRun]) -> list[ShownRun]:
    """Return the runs of an app, the present one first, with the attempts of their replicas, the newest first.

    Args:
        app: The app.
        archived: What archives have of it.
        pods: Container runs of the pods of the present run.
    """
    present = app.uid or ""
    uids = dict.fromkeys((present, *archived))
    return [_run_values(app, uid, archived.get(uid, {}), pods if uid == present else ()) for uid in uids]


def _run_values(app: App, uid: str, replicas: Mapping[Place, ArchivedRuns], pods: Sequence[PodRun]) -> ShownRun:
    live: dict[Place, list[PodRun]] = {}
    for run in pods:
        live.setdefault((escape(run.role), run.replica), []).append(run)
    attempts: list[Attempt] = []
    omitted = sum(replica.omitted for replica in replicas.values())
    for place in sorted({*replicas, *live}):
        room = MOST_ATTEMPTS - len(attempts)
        found = _replica_values(replicas.get(place) or ArchivedRuns(), live.get(place, []))
        attempts += found[:room]
        omitted += len(found[room:])
    times = [(item["started_at"], item["finished_at"]) for item in attempts if not item["init"]]
    over = all(ended for _, ended in times)
    return {
        "uid": uid or None,
        "current": uid == (app.uid or ""),
        "archived": bool(replicas),
        "state": None,
        "reason": None,
        "attempt": None,
        "started_at": min((began for began, _ in times if began), default=None),
        "finished_at": max((ended for _, ended in times if ended), default=None) if over else None,
        "attempts": attempts,
        "omitted": omitted,
    }


def _replica_values(replica: ArchivedRuns, live: Sequence[PodRun]) -> list[Attempt]:
    """Return the container runs of a replica, each once, those of the newest attempt first."""
    archived = {(*run.attempt, run.container): run for run in replica.runs}
    there = {(*run.attempt, run.container): run for run in live}
    # An attempt is a run of the main container: until it has started, there is none.
    begun = {run.pod_uid for run in replica.runs} | {run.pod_uid for run in live if run.default}
    known: dict[Any, ContainerRun] = {**{name: run for name, run in there.items() if run.pod_uid in begun}, **archived}
    attempts = attempts_of(known.values())
    values: dict[Any, Attempt] = {}
    for number in range(len(attempts), 0, -1):
        for run in runs_of_attempt([*known.values()], attempts, number):
            name = (*run.attempt, run.container)
            if name not in values:
                values[name] = {
                    "role": run.role,
                    "replica": run.replica,
                    "attempt": replica.before + number,
                    "container": run.container,
                    "pod": run.pod,
                    "default": run.default,
                    "init": run.init,
                    "exit_code": run.exit_code,
                    "started_at": time_text(run.started_at),
                    "finished_at": time_text(run.finished_at),
                    "running": name in there and there[name].running,
                    "archived": name in archived,
                    "complete": archived[name].complete if name in archived else None,
                }
    return [*values.values()]
