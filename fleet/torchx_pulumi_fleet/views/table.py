"""A fleet as a table that fits into the width of a terminal."""

from __future__ import annotations

import io

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from torchx_pulumi_fleet.views.columns import terminal_columns
from torchx_pulumi_fleet.views.row import Fleet

MIN_WIDE = 20
"""Characters of the wide column. With less space, other columns are omitted."""

GAP = 2
"""Blanks between two columns."""


def to_table(fleet: Fleet, width: int | None = None) -> str:
    """Return a fleet as a table, followed by notes about what could not be read.

    Args:
        fleet: The fleet.
        width: Characters of a line of the terminal. None: there is no terminal, and lines have any length.
    """
    lines = [] if fleet.rows else [fleet.without_rows()]
    if fleet.rows:
        table, needed = fleet_table(fleet, width)
        console = Console(file=io.StringIO(), width=width or needed, height=1, color_system=None)
        with console.capture() as captured:
            console.print(table)
        lines = [line.rstrip() for line in captured.get().splitlines()]
    return "\n".join([*lines, *fleet.remarks()]) + "\n"


def fleet_table(fleet: Fleet, width: int | None = None) -> tuple[Table, int]:
    """Return the table of the rows, and the characters of its longest line; arguments as `to_table`.

    Columns without a text are omitted, and on a narrow terminal those of the highest numbers. If that is not enough,
    the first column is cut, so that a long name leaves the states readable.
    """
    cells = {column: [column.terminal_text(row) for row in fleet.rows] for column in terminal_columns()}
    cells = {column: [column.title.upper(), *texts] for column, texts in cells.items() if any(texts)}
    sizes = {column: max(map(cell_len, texts)) for column, texts in cells.items()}
    missing = 0
    for column in sorted(sizes, key=lambda column: -(column.terminal or 0)):
        least = sum(min(size, MIN_WIDE) if each.wide else size for each, size in sizes.items())
        missing = 0 if width is None else max(least + GAP * (len(sizes) - 1) - width, 0)
        if not missing or not column.terminal:
            break
        del sizes[column]
    first = next(iter(sizes))
    sizes[first] = max(sizes[first] - missing, min(sizes[first], MIN_WIDE))
    table = Table.grid(padding=(0, GAP, 0, 0))
    for column in sizes:
        table.add_column(no_wrap=not column.wide, max_width=sizes[column] if column is first else None)
    # A row of columns, because rich takes half a millisecond for each row of a table.
    table.add_row(*(Text("\n".join(cells[column]), no_wrap=True, overflow="ellipsis") for column in sizes))
    return table, sum(sizes.values()) + GAP * (len(sizes) - 1)
