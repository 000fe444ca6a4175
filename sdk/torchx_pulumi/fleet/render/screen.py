"""A fleet that is shown again and again: drawn on a terminal, or as lines about its changes in files and pipes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from torchx_pulumi.fleet.collect import Fleet, FleetRow, StackName
from torchx_pulumi.fleet.columns import cause
from torchx_pulumi.fleet.render.table import cut, remarks, table_lines
from torchx_pulumi.model.text import one_line
from torchx_pulumi.model.timestamps import format_time

ENTER = "\x1b[?1049h\x1b[?25l"
"""Switch to the terminal's second screen, which has no history, and hide the cursor."""

LEAVE = "\x1b[?25h\x1b[?1049l"

BEGIN, END = "\x1b[?2026h", "\x1b[?2026l"
"""Terminals that know it show what is between only when it is complete. Others ignore it."""

CLEAR = "\x1b[2J"

CLEAR_LINE = "\x1b[K"


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


def screen_lines(fleet: Fleet, notes: Sequence[str], *, width: int, height: int) -> list[str]:
    """Return the lines of a fleet for a terminal: rows from the top, remarks below them, notes at the end.

    What does not fit is left out, and the number of rows that are left out is said.

    Args:
        fleet: The fleet.
        notes: Lines below the remarks; the last one is always shown.
        width: Columns of the terminal.
        height: Lines of the terminal.
    """
    # A full line would let some terminals continue in the next one.
    room = max(width - 1, 1)
    heading, *rows = table_lines(fleet, room) or [""]
    *most, last = [*([] if fleet.rows else [""]), *remarks(fleet), *notes] or [""]
    # The rows are what is watched: remarks may take a third of the lines.
    below = [*most[: max(height // 3 - 1, 0)], last]
    space = max(height - len(below) - 1, 0)
    if len(rows) > space:
        shown = max(space - 1, 0)
        rows = [*rows[:shown], f"... {len(rows) - shown} more; enlarge the terminal, or select fewer (--state active)"]
    lines = [heading, *rows, *below] if fleet.rows else below
    return [cut(text, room) for text in lines][-height:]


class Screen:
    """The second screen of a terminal; only the lines that changed are written."""

    def __init__(self, file: TextIO) -> None:
        """Take the terminal; nothing is written yet."""
        self._file = file
        self._drawn: list[str] = []
        self._size: tuple[int, int] | None = None

    def leave(self) -> None:
        """Show the first screen again, as it was. The next drawing is on the second one again."""
        if self._size is not None:
            self._size = None
            self._file.write(LEAVE)
            self._file.flush()

    def draw(self, lines: Sequence[str], size: tuple[int, int]) -> None:
        """Show lines, in one write.

        Args:
            lines: At most as many as the terminal has, none longer than a line.
            size: Columns and lines of the terminal. Another size than before: all lines are written.
        """
        parts = []
        if size != self._size:
            parts += [CLEAR] if self._size is not None else [ENTER, CLEAR]
            self._size, self._drawn = size, []
        for place in range(max(len(lines), len(self._drawn))):
            now = lines[place] if place < len(lines) else ""
            before = self._drawn[place] if place < len(self._drawn) else ""
            if now != before:
                parts.append(f"\x1b[{place + 1};1H{now}{CLEAR_LINE}")
        self._drawn = [*lines]
        if parts:
            self._file.write("".join([BEGIN, *parts, END]))
            self._file.flush()
