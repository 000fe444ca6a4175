"""A fleet as a table that fits into the width of a terminal."""

from __future__ import annotations

import unicodedata

from torchx_pulumi.fleet.collect import Fleet
from torchx_pulumi.fleet.columns import terminal_columns
from torchx_pulumi.model.text import one_line

MIN_LAST = 20
"""Characters of the last column. With less space, other columns are omitted."""


def to_table(fleet: Fleet, width: int | None = None) -> str:
    """Return a fleet as a table, followed by notes about what could not be read.

    Args:
        fleet: The fleet.
        width: Characters of a line of the terminal. None: there is no terminal, and lines have any length.
    """
    return "\n".join([*table_lines(fleet, width), *remarks(fleet)]) + "\n"


def table_lines(fleet: Fleet, width: int | None = None) -> list[str]:
    """Return the heading and a line for each row; arguments as `to_table`. Empty: there is no row."""
    shown = terminal_columns()
    cells = {column.title: [column.terminal_text(row) for row in fleet.rows] for column in shown}
    names = [name for name in cells if name != "GPU" or any(cells["GPU"])]
    widths = {name: max([columns(name), *map(columns, cells[name])]) for name in names}
    if width is not None:
        for name in [
            column.title for column in sorted(shown, key=lambda column: -(column.terminal or 0)) if column.terminal
        ]:
            if needed(widths) <= width:
                break
            widths.pop(name, None)
    lines = [line({name: name.upper() for name in widths}, widths, width)] if fleet.rows else []
    for place in range(len(fleet.rows)):
        lines.append(line({name: cells[name][place] for name in widths}, widths, width))
    return lines


def remarks(fleet: Fleet) -> list[str]:
    """Return the notes below the rows, for example about unreachable clusters and unreadable stacks."""
    notes = [] if fleet.rows else [f"no apps in {fleet.backend}"]
    notes += [f"cluster {one_line(name)} not reached: {one_line(why)}" for name, why in fleet.unreachable.items()]
    notes += [f"stack {one_line(str(item.stack))} cannot be read: {one_line(item.why)}" for item in fleet.broken]
    # Notes about one app. Clusters are listed above.
    notes += [
        f"{one_line(row.app_id)}: {one_line(row.note)}"
        for row in fleet.rows
        if row.note and not row.note.startswith("cluster not reached")
    ]
    stale = sum(row.stale for row in fleet.rows)
    if stale:
        notes.append(f"{stale} unfinished, last seen long ago: --live asks the clusters")
    return notes


def needed(widths: dict[str, int]) -> int:
    """Return the characters that a line needs. The last cell may be cut."""
    *most, last = widths.items()
    return sum(width + 2 for _, width in most) + (min(last[1], MIN_LAST) if last[0] == "Why" else last[1])


def line(cells: dict[str, str], widths: dict[str, int], width: int | None) -> str:
    """Return a line of the table."""
    text = "  ".join(cells[name] + " " * (size - columns(cells[name])) for name, size in widths.items()).rstrip()
    return text if width is None else cut(text, width)


def cut(text: str, width: int) -> str:
    """Return a text of at most `width` columns. A cut text ends with an ellipsis."""
    if columns(text) <= width:
        return text
    kept, used = [], 0
    for character in text:
        used += columns(character)
        if used > width - 1:
            break
        kept.append(character)
    return "".join(kept).rstrip() + "\u2026"


def columns(text: str) -> int:
    """Return the columns of a terminal that a text takes.

    >>> columns("abc"), columns("日本")
    (3, 4)
    """
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )
