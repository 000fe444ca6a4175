"""Parts of HTML that the offline page and the controller's live page share: rows, scripts, security policies."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from typing import TypeVar

Cell = tuple[str, str | float | None, str]
"""Markup, sort key (None: its text), and CSS class."""

T = TypeVar("T")

SHARED = "torchx_pulumi.fleet.render"
"""Package of the files that pages share."""


def heading_cells(names: Iterable[str]) -> str:
    """Return the cells of a table's heading; each is a button that sorts by its column."""
    return "".join(
        f'<th role="columnheader" scope="col" aria-sort="none"><button type="button">{name}</button></th>'
        for name in names
    )


def table_row(columns: Sequence[tuple[str, Callable[[T], Cell]]], item: T, attributes: Mapping[str, str]) -> str:
    """Return a row of a table. On a narrow screen each cell shows its heading.

    Args:
        columns: Heading of each column, and the function that returns its cell.
        item: What the row shows.
        attributes: Attributes of the row.
    """
    cells = []
    for name, show in columns:
        markup, sort, css = show(item)
        more = (f' data-sort="{escape(str(sort))}"' if sort is not None else "") + (f' class="{css}"' if css else "")
        cells.append(f'<td role="cell" data-label="{name}"{more}>{markup}</td>')
    row = "".join(f' {name}="{escape(value)}"' for name, value in attributes.items())
    return f'<tr role="row"{row}>{"".join(cells)}</tr>'


def state_markup(state: str) -> str:
    """Return a state in its color."""
    return f'<span class="state {escape(state)}">{escape(state)}</span>'


def options(values: Iterable[str | None]) -> str:
    """Return the options of a selection, sorted, each once. None and empty values are left out."""
    known = sorted({value for value in values if value})
    return "".join(f"<option>{escape(value)}</option>" for value in known)


def part(name: str, package: str = SHARED) -> str:
    """Return a file that belongs to a page."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def script(*parts: str) -> str:
    """Return one script whose names are its own, from the texts of its files."""
    return '"use strict";\n(() => {\n' + "".join(parts) + "})();\n"


def policy(*more: str, style: str = "", code: str = "") -> str:
    """Return a Content-Security-Policy: no requests, and only this style and this script.

    Args:
        more: Further directives.
        style: Text of the style element. Empty: there is none.
        code: Text of the script element. Empty: there is none.
    """
    named = [("style-src", style), ("script-src", code)]
    allowed = [f"{name} '{content_hash(text)}'" for name, text in named if text]
    return "; ".join(["default-src 'none'", "img-src data:", *allowed, *more])


def content_hash(text: str) -> str:
    """Return the hash of a style or script as a security policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
