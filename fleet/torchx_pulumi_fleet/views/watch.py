"""A fleet that is shown again and again: drawn on a terminal, or as lines about its changes in files and pipes."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text
from torchx_pulumi.model.text import one_line
from torchx_pulumi.model.timestamps import format_time
from torchx_pulumi.stack_state.stacks import StackName

from torchx_pulumi_fleet.views.columns import cause
from torchx_pulumi_fleet.views.row import Fleet, FleetRow
from torchx_pulumi_fleet.views.table import fleet_table, to_table

MOST_NOTES = 3
"""Messages that are kept at the foot of the table, the last ones."""


class TableView:
    """The table on the second screen of a terminal. The last one stays on the first screen."""

    tick_s = 1.0
    """Time after which it is shown again without a change, so that ages are current."""

    def __init__(self, file: TextIO) -> None:
        # The caller has found a terminal; variables such as FORCE_COLOR may say otherwise.
        self._console = Console(file=file, highlight=False, force_terminal=True)
        self._live = Live(
            console=self._console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._notes: tuple[str, ...] = ()
        self._last: Fleet | None = None

    def show(self, fleet: Fleet, others: Sequence[FleetRow], notes: Sequence[str]) -> None:  # noqa: ARG002
        """Draw the selected apps; `others` are all."""
        self._last = fleet
        clock = fleet.read_at.astimezone().strftime("%H:%M:%S")
        ended = sum(row.state.terminal for row in fleet.rows)
        apps = "1 app" if len(fleet.rows) == 1 else f"{len(fleet.rows)} apps"
        foot = f"{clock}  {apps}, {len(fleet.rows) - ended} not ended; Ctrl-C ends the watch"
        # The console takes COLUMNS=0 for a width.
        self._console.size = shutil.get_terminal_size()
        self._live.start()
        self._live.update(screen(fleet, [*self._notes, *notes, foot], *self._console.size), refresh=True)

    def say(self, text: str) -> None:
        """Keep a message for the foot of the table."""
        line = one_line(text)
        if line not in self._notes:
            self._notes = (*self._notes, line)[-MOST_NOTES:]

    def leave(self) -> None:
        """Show the first screen again, until the next drawing."""
        self._live.stop()

    def close(self) -> None:
        """Print the whole last table on the first screen."""
        self.leave()
        if self._last is not None:
            self._console.file.write(to_table(self._last, self._console.width))
            self._console.file.writelines(f"{note}\n" for note in self._notes)
            self._console.file.flush()


def screen(fleet: Fleet, notes: Sequence[str], width: int, height: int) -> Group:
    """Return a fleet for a terminal: rows from the top, remarks below them, notes at the end.

    What does not fit is left out, and the number of rows that are left out is said. The last note is always shown.
    """
    *most, last = [*([] if fleet.rows else [fleet.without_rows()]), *fleet.remarks(), *notes]
    # The rows are what is watched: remarks may take a third of the lines.
    below = [*most[: max(height // 3 - 1, 0)], last]
    space = max(height - len(below) - 1, 0)
    if len(fleet.rows) > space:
        hidden = len(fleet.rows) - max(space - 1, 0)
        below = [f"... {hidden} more; enlarge the terminal, or select fewer (--state active)", *below]
        fleet = replace(fleet, rows=fleet.rows[: max(space - 1, 0)])
    texts = [Text(text, no_wrap=True, overflow="ellipsis") for text in below[-height:]]
    return Group(*([fleet_table(fleet, width)[0]] if fleet.rows else []), *texts)


class LineView:
    """A line for each change, at once."""

    tick_s = None
    """Only changes are shown."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._known: Mapping[tuple[StackName, str], FleetRow] = {}
        self._noted: set[str] = set()
        self._is_begun = False

    def show(self, fleet: Fleet, others: Sequence[FleetRow], notes: Sequence[str]) -> None:
        """Print a line for each selected app that is new, changed or gone; problems, when they begin, on stderr.

        Args:
            fleet: The selected apps.
            others: All apps. One that is not selected any more gets a last line.
            notes: Problems besides those of the fleet.
        """
        rows, there = _by_place(fleet.rows), _by_place(others)
        for place in dict.fromkeys([*rows, *self._known]):
            before, now = self._known.get(place), rows.get(place, there.get(place))
            if place not in rows or before is None or _told(before) != _told(rows[place]):
                row = now or self._known[place]
                words = [one_line(row.app_id), "deleted"] if now is None else [*_told(row)[1:], cause(row)]
                self._file.write(f"{format_time(fleet.read_at)} {' '.join(words).rstrip()}\n")
        self._known = rows
        self._file.flush()
        if not fleet.rows and not self._is_begun:
            which = f"none of the {len(others)} apps matches" if others else "there are no apps yet"
            self.say(f"{which}; a line follows for each that does")
        self._is_begun = True
        problems = {f"cluster {name} not reached: {why}" for name, why in fleet.unreachable.items()}
        problems |= {f"stack {item.stack} cannot be read: {item.why}" for item in fleet.broken}
        problems |= {*notes, *fleet.warnings}
        for text in sorted(problems - self._noted):
            self.say(text)
        self._noted = problems

    def say(self, text: str) -> None:
        """Print a message on stderr."""
        print(f"torchx-pulumi: warning: {one_line(text)}", file=sys.stderr, flush=True)  # noqa: T201

    def close(self) -> None:
        """Do nothing: all is printed."""


def _by_place(rows: Sequence[FleetRow]) -> dict[tuple[StackName, str], FleetRow]:
    """Return rows by what an app is known by: a stack may have several."""
    return {(row.stack, row.app_id): row for row in rows}


def _told(row: FleetRow) -> tuple[str, ...]:
    ready = f"{row.replicas_ready}/{row.replicas_wanted}"
    return str(row.attempt), one_line(row.app_id), row.state.value, one_line(row.reason) or "-", ready
