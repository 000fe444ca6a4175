"""Lines about what changed in a fleet, for files and pipes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchx_pulumi.fleet.collect import Fleet, FleetRow, StackName
from torchx_pulumi.fleet.render.values import cause
from torchx_pulumi.model.text import one_line
from torchx_pulumi.model.timestamps import format_time


class ChangeLines:
    """Compares each fleet with the one before it."""

    def __init__(self) -> None:
        self._known: dict[StackName, FleetRow] = {}

    def of(self, fleet: Fleet, others: Mapping[StackName, FleetRow]) -> list[str]:
        """Return a line for each app that is new, changed or gone: time, app, state, reason, replicas, cause.

        Args:
            fleet: The selected apps.
            others: All apps. One that is not selected any more gets a last line.
        """
        lines = []
        rows = {row.stack: row for row in fleet.rows}
        for name, row in rows.items():
            before = self._known.get(name)
            if before is None or _told(before) != _told(row):
                lines.append(_line(fleet, row))
        for name, before in self._known.items():
            if name not in rows:
                now = others.get(name)
                lines.append(f"{_start(fleet, before)} deleted" if now is None else _line(fleet, now))
        self._known = rows
        return lines


def _told(row: FleetRow) -> tuple[Any, ...]:
    return row.app_id, row.state, row.reason, row.attempt, row.replicas_ready, row.replicas_wanted


def _start(fleet: Fleet, row: FleetRow) -> str:
    return f"{format_time(fleet.read_at)} {one_line(row.app_id)}"


def _line(fleet: Fleet, row: FleetRow) -> str:
    ready = f"{row.replicas_ready}/{row.replicas_wanted}"
    return f"{_start(fleet, row)} {row.state.value} {one_line(row.reason) or '-'} {ready} {cause(row)}".rstrip()
