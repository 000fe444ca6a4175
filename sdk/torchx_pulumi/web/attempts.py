"""The attempts of an app's runs as JSON values: of its pods and of the archives, numbered as its logs are."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchx_pulumi.controller.stack_apps import TrackedApp
from torchx_pulumi.log_archive import Archive, ArchivedJob, ArchivedRun, ContainerRunRef
from torchx_pulumi.log_archive.archive import newest_copies
from torchx_pulumi.log_archive.archived_log import Run, attempts_of, runs_of_attempt
from torchx_pulumi.log_archive.keys import RunKey
from torchx_pulumi.log_archive.runs import archived_run
from torchx_pulumi.model.timestamps import EPOCH, format_time

MOST_RUNS = 20
"""Runs of an app: the newest."""

MOST_ATTEMPTS = 200
"""Container runs of all runs together whose records are read: the newest of the first replicas."""

MOST_KEPT = 5000
"""Records that are kept in memory."""

Place = tuple[str, str, str]
"""Uid of the job object, and role and replica as paths in the archive have them."""


@dataclass(slots=True)
class _Replica:
    """The archived container runs of one replica in one run."""

    runs: list[Run] = field(default_factory=list)
    before: int = 0
    """Attempts before those of `runs`."""
    omitted: int = 0
    """Container runs that are not in `runs`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedApp:
    """What archives have of an app."""

    uids: Sequence[str]
    """Its runs, the newest first."""
    replicas: dict[Place, _Replica]


class ArchivedRecords:
    """Records of complete copies, which do not change any more, each read once. For use by several threads."""

    def __init__(self) -> None:
        """Begin empty."""
        self._guard = threading.Lock()
        self._known: OrderedDict[tuple[str, str], ArchivedRun] = OrderedDict()

    def read(self, archive: Archive, keys: Sequence[RunKey]) -> list[Run]:
        """Return keys with their records; damaged records are left out.

        Raises:
            OSError: The archive cannot be read.
        """
        with self._guard:
            known = {key: self._known.get((archive.name, key.record)) for key in keys}
        read = dict(archive.read([key for key in keys if known[key] is None]))
        with self._guard:
            for key, run in read.items():
                if run.complete:
                    self._known[archive.name, key.record] = run
            while len(self._known) > MOST_KEPT:
                self._known.popitem(last=False)
        found = ((key, known[key] or read.get(key)) for key in keys)
        return [(key, run) for key, run in found if run is not None]


def read_archived_app(
    archives: Sequence[Archive], app: TrackedApp, records: ArchivedRecords
) -> tuple[ArchivedApp, list[str]]:
    """Return what archives have of an app, and what could not be read. A replica is read from the first that has it.

    Args:
        archives: In the order in which they are asked.
        app: The app.
        records: Keeps what was read.
    """
    keys: dict[Place, tuple[Archive, list[RunKey]]] = {}
    newest: dict[str, str] = {}
    problems: list[str] = []
    for archive in archives:
        try:
            found = newest_copies(archive.of_app(app.namespace, app.job_name))
        except OSError as error:
            problems.append(f"the archive {archive.name} cannot be read: {error}")
            continue
        for key in found:
            newest[key.uid] = max(newest.get(key.uid, ""), key.created)
            where, kept = keys.setdefault((key.uid, key.role, key.replica), (archive, []))
            if where is archive:
                kept.append(key)
    uids = sorted(newest, key=lambda uid: (uid == app.uid, newest[uid], uid), reverse=True)[:MOST_RUNS]
    replicas: dict[Place, _Replica] = {}
    room = MOST_ATTEMPTS
    for place in sorted((place for place in keys if place[0] in uids), key=lambda one: _order(one, uids)):
        archive, mine = keys[place]
        mine.sort(key=lambda key: (key.order, key.container))
        cut = max(len(mine) - room, 0)
        room -= len(mine) - cut
        try:
            runs = records.read(archive, mine[cut:])
        except OSError as error:
            problems.append(f"the archive {archive.name} cannot be read: {error}")
            break
        replicas[place] = _Replica(runs, _attempts_before(mine[:cut], runs), cut)
    return ArchivedApp(uids=uids, replicas=replicas), problems


def _order(place: Place, uids: Sequence[str]) -> tuple[int, str, int, str]:
    uid, role, replica = place
    return (uids.index(uid), role, int(replica) if replica.isdecimal() else 0, replica)


def _attempts_before(keys: Iterable[RunKey], runs: Sequence[Run]) -> int:
    """Return the number of attempts of a replica's older container runs, by the main container of the newer ones."""
    main = {key.container for key, run in runs if run.default}
    read = {key.order for key, _ in runs}
    return len({key.order for key in keys if not main or key.container in main} - read)


def attempt_values(app: TrackedApp, archived: ArchivedApp, pods: Sequence[ContainerRunRef]) -> list[dict[str, Any]]:
    """Return the runs of an app, the present one first, with the attempts of their replicas, the newest first.

    Args:
        app: The app.
        archived: What archives have of it.
        pods: Container runs of the pods of the present run.
    """
    present = app.uid or ""
    made = [_run_values(app, uid, archived, pods if uid == present else ()) for uid in (present, *archived.uids)]
    return [made[0], *(run for run in made[1:] if run["uid"] != app.uid)]


def _run_values(app: TrackedApp, uid: str, archived: ArchivedApp, pods: Sequence[ContainerRunRef]) -> dict[str, Any]:
    job = ArchivedJob(app_id=app.app_id, scheduler=app.scheduler, uid=uid)
    replicas = {place: replica for place, replica in archived.replicas.items() if place[0] == uid}
    live: dict[Place, list[tuple[RunKey, ContainerRunRef]]] = {}
    for ref in pods:
        key = ref.key(job)
        live.setdefault((uid, key.role, key.replica), []).append((key, ref))
    attempts: list[dict[str, Any]] = []
    omitted = sum(replica.omitted for replica in replicas.values())
    for place in sorted({*replicas, *live}, key=lambda one: _order(one, [uid])):
        room = MOST_ATTEMPTS - len(attempts)
        replica = replicas.get(place) or _Replica()
        if not room:
            omitted += len({key.run for key, _ in (*replica.runs, *live.get(place, []))})
            continue
        found = _replica_values(job, replica, live.get(place, []))
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
        "finished_at": max((ended for _, ended in times), default=None) if over else None,
        "attempts": attempts,
        "omitted": omitted,
    }


def _replica_values(
    job: ArchivedJob, replica: _Replica, live: Sequence[tuple[RunKey, ContainerRunRef]]
) -> list[dict[str, Any]]:
    """Return the container runs of a replica, each once, those of the newest attempt first."""
    archived = {key.run: (key, run) for key, run in replica.runs}
    there = {key.run: ref for key, ref in live}
    # An attempt is a run of the main container: until it has started, there is none.
    begun = {run.pod_uid for _, run in replica.runs} | {ref.pod_uid for _, ref in live if ref.default}
    added = [
        (key, archived_run(job, ref, lines=0, size=0, left_out_bytes=0, complete=False, copied_at=EPOCH))
        for key, ref in live
        if key.run not in archived and ref.pod_uid in begun
    ]
    runs = [*archived.values(), *added]
    attempts = attempts_of(runs)
    values: dict[Any, dict[str, Any]] = {}
    for number in range(len(attempts), 0, -1):
        for key, run in runs_of_attempt(runs, attempts, number).values():
            stored, ref = archived.get(key.run), there.get(key.run)
            if key.run not in values:
                shown = _container_values(run, replica.before + number)
                shown["running"] = ref is not None and ref.running
                shown["archived"] = stored is not None
                shown["complete"] = None if stored is None else stored[1].complete
                values[key.run] = shown
    return [*values.values()]


def _container_values(run: ArchivedRun, attempt: int) -> dict[str, Any]:
    return {
        "role": run.role,
        "replica": run.replica,
        "attempt": attempt,
        "container": run.container,
        "pod": run.pod,
        "default": run.default,
        "init": run.init,
        "exit_code": run.exit_code,
        "started_at": None if run.started_at is None else format_time(run.started_at),
        "finished_at": None if run.finished_at is None else format_time(run.finished_at),
    }
