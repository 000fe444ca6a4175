"""`log_iter`: which pod's log is meant, and how it is read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from torchx_pulumi.errors import Problem, invalid_job
from torchx_pulumi.logs import LogQuery, read_lines
from torchx_pulumi.runs.entry import RunEntry
from torchx_pulumi.torchx_scheduler.doors import Doors
from torchx_pulumi.torchx_scheduler.looking import form_named, look_at, warn_of_cluster

Again = Callable[[RunEntry], RunEntry | None]

LOOK_EVERY_S = 1.0
"""Shortest time between two looks at whether the app has ended."""


def read_log(
    doors: Doors,
    entry: RunEntry,
    role: str,
    replica: int,
    *,
    options: Mapping[str, Any],
    regex: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    follow: bool = False,
    tail_lines: int | None = None,
    again: Again,
) -> Iterator[str]:
    """Return the lines of a replica's log, each with its end.

    Args:
        doors: The ways out.
        entry: The app.
        role: Name of the role.
        replica: Replica in the role, from 0.
        options: `log_containers`, `log_previous` and `log_timestamps`, as far as they are set.
        regex: Only lines in which this is found. None: all.
        since: Only lines from this time on; a naive one is local time. None: all.
        until: Only lines up to this time; a naive one is local time. None: all.
        follow: Go on until the app has ended.
        tail_lines: Begin with so many lines of the end. None: with the first.
        again: Reads the app again from its stack, as it was launched again (`Finder.again`).

    Raises:
        InvalidJobError: There is no such role or replica, or the regular expression is none.
        ClusterError: The log cannot be read, or the cluster is not the one of the launch.
    """
    pod = _pod_of(entry, role, replica)
    containers = options.get("log_containers")
    query = LogQuery(
        namespace=entry.namespace,
        pod=pod,
        containers="all" if containers in ("all", ["all"], ("all",)) else tuple(containers) if containers else None,
        regex=regex,
        since=since,
        until=until,
        follow=follow,
        previous=bool(options.get("log_previous")),
        timestamps=options.get("log_timestamps") is not False,
        tail_lines=tail_lines,
    )
    cluster = doors.cluster_of(entry)
    head = cluster.get(form_named(entry.scheduler, entry.choice).head, entry.namespace, entry.job_name)
    warn_of_cluster(entry, cluster, head)
    return read_lines(cluster, query, ended=_Ended(doors, entry, again))


def _pod_of(entry: RunEntry, role: str, replica: int) -> str:
    pods = entry.pods.get(role)
    if pods is None:
        there = ", ".join(map(repr, entry.pods))
        raise invalid_job(entry.app_id, [Problem("role", f"{role!r} is no role of this app; it has {there}")])
    if not 0 <= replica < len(pods):
        text = f"{role}/{replica} is no replica of this app; role {role!r} has 0 to {len(pods) - 1}"
        raise invalid_job(entry.app_id, [Problem("replica", text)])
    return pods[replica]


class _Ended:
    """Tells whether an app has ended; asks the cluster not too often."""

    def __init__(self, doors: Doors, entry: RunEntry, again: Again) -> None:
        self._doors, self._entry, self._again = doors, entry, again
        self._next = 0.0
        self._over = False

    def __call__(self) -> bool:
        if not self._over and time.monotonic() >= self._next:
            entry = self._doors.index.get(self._entry) or self._entry
            sight = look_at(self._doors, entry)
            if sight.relaunched and (now := self._again(entry)) is not None:
                sight = look_at(self._doors, now)
            # Without the cluster nobody can say that a run is over.
            self._over = sight.reached and sight.status.state.terminal
            self._next = time.monotonic() + LOOK_EVERY_S
        return self._over
