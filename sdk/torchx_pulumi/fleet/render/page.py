"""A fleet as one HTML page with its style, script and data. Its security policy allows no requests."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from html import escape
from string import Template
from urllib.parse import quote

from torchx_pulumi.fleet.collect import Fleet, FleetRow
from torchx_pulumi.fleet.columns import age, cause, freshness, gpus
from torchx_pulumi.fleet.render.markup import (
    Cell,
    heading_cells,
    options,
    part,
    policy,
    script,
    state_markup,
    table_row,
)
from torchx_pulumi.fleet.render.table import remarks
from torchx_pulumi.fleet.render.values import fleet_values, why
from torchx_pulumi.model.timestamps import format_time


def _text(read: Callable[[FleetRow], str], css: str = "") -> Callable[[FleetRow], Cell]:
    return lambda row: (escape(read(row)), None, css)


def _last_seen(row: FleetRow) -> Cell:
    sort = 1e12 if row.freshness_s is None else min(row.freshness_s, 1e12)
    return escape(freshness(row)), sort, "nowrap stale" if row.stale else "nowrap"


COLUMNS: Sequence[tuple[str, Callable[[FleetRow], Cell]]] = (
    ("App", lambda row: (f'<a href="#{quote(str(row.stack), safe="")}">{escape(row.app_id)}</a>', row.app_id, "")),
    ("State", lambda row: (state_markup(row.state.value), None, "")),
    ("Why", _text(lambda row: why(row.state.value, row.reason, cause(row)))),
    ("Ready", lambda row: (f"{row.replicas_ready}/{row.replicas_wanted}", None, "nowrap")),
    ("Age", lambda row: (age(row.age_s), 1e12 if row.age_s is None else row.age_s, "nowrap")),
    ("Last seen", _last_seen),
    ("GPU", _text(lambda row: f"{gpus(row):g}" if gpus(row) else "")),
    ("Queue", _text(lambda row: row.queue or "")),
    ("User", _text(lambda row: row.user or "")),
)
"""Heading of each column, and the function that returns its cell."""


BROKEN = '<section aria-labelledby="broken"><h2 id="broken">Stacks that cannot be read</h2><dl>{}</dl></section>'


def to_html(fleet: Fleet) -> str:
    """Return a fleet as an HTML page, which works offline and shows when the fleet was read."""
    style, code = part("page.css"), script(part("shared.js"), part("page.js"))
    notes = [text for text in remarks(fleet) if not text.startswith("stack ")]
    broken = "".join(f"<dt>{escape(str(item.stack))}</dt><dd>{escape(item.why)}</dd>" for item in fleet.broken)
    # No text in the data can end the script element.
    data = json.dumps(fleet_values(fleet), separators=(",", ":"))
    for letter in "&<>":
        data = data.replace(letter, f"\\u{ord(letter):04x}")
    return Template(part("page.html")).substitute(
        policy=escape(policy(style=style, code=code)),
        title=escape(f"TorchX apps: {fleet.backend}"),
        backend=escape(fleet.backend),
        read_at=format_time(fleet.read_at),
        states=options(row.state.value for row in fleet.rows),
        queues=options(row.queue for row in fleet.rows),
        users=options(row.user for row in fleet.rows),
        count=f"{len(fleet.rows)} of {len(fleet.rows)}",
        remarks="".join(f'<p class="remark">{escape(text)}</p>' for text in notes),
        headings=heading_cells(name for name, _ in COLUMNS),
        rows="\n".join(table_row(COLUMNS, row, {"data-app": str(place)}) for place, row in enumerate(fleet.rows)),
        broken=BROKEN.format(broken) if broken else "",
        data=data,
        style=style,
        script=code,
    )
