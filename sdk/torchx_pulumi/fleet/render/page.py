"""A fleet as one HTML page with its style, script and data. Its security policy allows no requests."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib import resources
from string import Template
from urllib.parse import quote

from torchx_pulumi.fleet.collect import Fleet, FleetRow
from torchx_pulumi.fleet.render.table import remarks
from torchx_pulumi.fleet.render.values import age, cause, fleet_values, freshness, gpus
from torchx_pulumi.model.timestamps import format_time

Cell = tuple[str, str | float | None, str]
"""Markup, sort key (None: its text), and CSS class."""


def _text(read: Callable[[FleetRow], str], css: str = "") -> Callable[[FleetRow], Cell]:
    return lambda row: (escape(read(row)), None, css)


def _app(row: FleetRow) -> Cell:
    return f'<a href="#{quote(str(row.stack), safe="")}">{escape(row.app_id)}</a>', row.app_id, ""


def _state(row: FleetRow) -> Cell:
    return f'<span class="state {row.state.value}">{row.state.value}</span>', None, ""


def _why(row: FleetRow) -> Cell:
    text = cause(row)
    whole = f"{row.reason}: {text}" if text and row.reason and not text.startswith(row.reason) else text or row.reason
    return escape(whole), None, ""


def _last_seen(row: FleetRow) -> Cell:
    never = float("inf")
    sort = never if row.freshness_s is None else row.freshness_s
    return escape(freshness(row)), min(sort, 1e12), "nowrap stale" if row.stale else "nowrap"


COLUMNS: Sequence[tuple[str, Callable[[FleetRow], Cell]]] = (
    ("App", _app),
    ("State", _state),
    ("Why", _why),
    ("Ready", lambda row: (f"{row.replicas_ready}/{row.replicas_wanted}", None, "nowrap")),
    ("Age", lambda row: (age(row.age_s), 1e12 if row.age_s is None else row.age_s, "nowrap")),
    ("Last seen", _last_seen),
    ("GPU", _text(gpus)),
    ("Queue", _text(lambda row: row.queue or "")),
    ("User", _text(lambda row: row.user or "")),
)
"""Heading of each column, and the function that returns its cell."""


def to_html(fleet: Fleet) -> str:
    """Return a fleet as an HTML page, which works offline and shows when the fleet was read."""
    style, script = _part("page.css"), _part("page.js")
    policy = f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'"
    notes = [text for text in remarks(fleet) if not text.startswith("stack ")]
    return Template(_part("page.html")).substitute(
        policy=escape(policy),
        title=escape(f"TorchX apps: {fleet.backend}"),
        backend=escape(fleet.backend),
        read_at=format_time(fleet.read_at),
        states=_options(row.state.value for row in fleet.rows),
        queues=_options(row.queue for row in fleet.rows),
        users=_options(row.user for row in fleet.rows),
        count=f"{len(fleet.rows)} of {len(fleet.rows)}",
        remarks="".join(f'<p class="remark">{escape(text)}</p>' for text in notes),
        headings="".join(
            f'<th role="columnheader" scope="col" aria-sort="none"><button type="button">{name}</button></th>'
            for name, _ in COLUMNS
        ),
        rows="\n".join(_row(place, row) for place, row in enumerate(fleet.rows)),
        broken=_broken(fleet),
        data=_data(fleet),
        style=style,
        script=script,
    )


def _row(place: int, row: FleetRow) -> str:
    cells = []
    for name, show in COLUMNS:
        markup, sort, css = show(row)
        more = (f' data-sort="{escape(str(sort))}"' if sort is not None else "") + (f' class="{css}"' if css else "")
        cells.append(f'<td role="cell" data-label="{name}"{more}>{markup}</td>')
    return f'<tr role="row" data-app="{place}">{"".join(cells)}</tr>'


def _options(values: Iterable[str | None]) -> str:
    known = sorted({value for value in values if value})
    return "".join(f"<option>{escape(value)}</option>" for value in known)


def _broken(fleet: Fleet) -> str:
    if not fleet.broken:
        return ""
    items = "".join(f"<dt>{escape(str(item.stack))}</dt><dd>{escape(item.why)}</dd>" for item in fleet.broken)
    return (
        f'<section aria-labelledby="broken"><h2 id="broken">Stacks that cannot be read</h2><dl>{items}</dl></section>'
    )


def _data(fleet: Fleet) -> str:
    """Return the data as JSON in which no text can end the script element."""
    text = json.dumps(fleet_values(fleet), separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _part(name: str) -> str:
    return resources.files("torchx_pulumi.fleet.render").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
