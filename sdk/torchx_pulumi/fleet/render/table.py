"""A fleet as a table for a terminal: as wide as it is, the last column cut where there is no room."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence

from torchx_pulumi.fleet.collect import Fleet, FleetRow
from torchx_pulumi.fleet.render.words import age, cause, freshness, gpus
from torchx_pulumi.model.text import one_line

MIN_LAST = 20
"""Columns that the last one has at least; before it gets less, others are left out."""

COLUMNS: Sequence[tuple[str, Callable[[FleetRow], str]]] = (
    ("APP", lambda row: row.app_id),
    ("STATE", lambda row: row.state.value),
    ("REASON", lambda row: row.reason),
    ("READY", lambda row: f"{row.replicas_ready}/{row.replicas_wanted}"),
    ("AGE", lambda row: age(row.age_s)),
    ("NEWS", freshness),
    ("GPU", gpus),
    ("QUEUE", lambda row: row.queue or "-"),
    ("USER", lambda row: row.user or "-"),
    ("SCHEDULER", lambda row: row.scheduler),
    ("WHY", cause),
)
"""Heading and text of each column."""

LEFT_OUT = ("SCHEDULER", "USER", "GPU", "QUEUE", "NEWS", "WHY")
"""Columns that a narrow terminal does without, the first one first."""


def to_table(fleet: Fleet, width: int | None = None) -> str:
    """Write a fleet as a table, with what could not be read beneath it.

    Args:
        fleet: What to show.
        width: Columns of the terminal. None: there is none, and nothing is cut.
    """
    cells = {name: [one_line(show(row)) for row in fleet.rows] for name, show in COLUMNS}
    names = [name for name, _ in COLUMNS if name != "GPU" or any(cells["GPU"])]
    widths = {name: max([columns(name), *map(columns, cells[name])]) for name in names}
    if width is not None:
        for name in LEFT_OUT:
            if needed(widths) <= width:
                break
            widths.pop(name, None)
    lines = [line({name: name for name in widths}, widths, width)] if fleet.rows else []
    for place in range(len(fleet.rows)):
        lines.append(line({name: cells[name][place] for name in widths}, widths, width))
    return "\n".join([*lines, *remarks(fleet)]) + "\n"


def remarks(fleet: Fleet) -> list[str]:
    """Say what the rows cannot."""
    said = [] if fleet.rows else [f"no apps in {fleet.backend}"]
    said += [f"cluster {one_line(name)} not reached: {one_line(why)}" for name, why in fleet.unreachable.items()]
    said += [f"stack {one_line(str(item.stack))} cannot be read: {one_line(item.why)}" for item in fleet.broken]
    # What concerns one app only; a cluster was said already.
    said += [
        f"{one_line(row.app_id)}: {one_line(row.note)}"
        for row in fleet.rows
        if row.note and not row.note.startswith("cluster not reached")
    ]
    stale = sum(row.stale for row in fleet.rows)
    if stale:
        said.append(f"{stale} unfinished, without news for long: --live asks the clusters")
    return said


def needed(widths: dict[str, int]) -> int:
    """Return the columns that a line needs; the last cell of a line may be cut."""
    *most, last = widths.items()
    return sum(width + 2 for _, width in most) + (min(last[1], MIN_LAST) if last[0] == "WHY" else last[1])


def line(cells: dict[str, str], widths: dict[str, int], width: int | None) -> str:
    """Put the cells of a line side by side."""
    text = "  ".join(cells[name] + " " * (size - columns(cells[name])) for name, size in widths.items()).rstrip()
    return text if width is None else cut(text, width)


def cut(text: str, width: int) -> str:
    """Cut a text to so many columns; the cut is shown."""
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
    """Return the columns that a text takes in a terminal.

    >>> columns("abc"), columns("日本")
    (3, 4)
    """
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )
