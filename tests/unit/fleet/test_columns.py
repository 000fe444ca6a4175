"""The table of columns: each view shows what a row of it says."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from typing import Any, get_args

import pytest
from torchx_pulumi.fleet import columns
from torchx_pulumi.fleet.collect import Fleet, StackName
from torchx_pulumi.fleet.collect.row import FleetRow, build_row
from torchx_pulumi.fleet.columns import COLUMNS, Cell, Column, ShownApp, detail, summary
from torchx_pulumi.fleet.page import part
from torchx_pulumi.fleet.render.page import to_html
from torchx_pulumi.fleet.render.table import to_table
from torchx_pulumi.stack_state.checkpoint import StackApp
from torchx_pulumi.web.schemas import column_schemas

from tests.unit.fleet.collect.states import output

NOW = datetime(2026, 1, 2, 12, tzinfo=timezone.utc)
NAME = StackName(project="torchx", stack="s")


def row(**changes: Any) -> FleetRow:
    return build_row(NAME, StackApp(output=output("a", **changes)), NOW)


def test_a_new_column_is_one_row_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    new = Column("phase", str, "Own phase.", title="Phase", terminal=2, cell="text", choice=True, searched=True)
    monkeypatch.setattr(columns, "COLUMNS", (*COLUMNS, new))
    shown = ShownApp("id", "file:///b", row())
    assert summary(shown)["phase"] == "Running"
    assert column_schemas(columns.COLUMNS)["phase"] == {"type": "string", "description": "Own phase."}
    fleet = Fleet(backend="file:///b", read_at=NOW, rows=[shown.row])
    heading, line = to_table(fleet).splitlines()
    assert line[heading.index("PHASE") :].startswith("Running")
    data = json.loads(re.findall(r'<script type="application/json" id="data">(.*)</script>', to_html(fleet))[0])
    assert {"key": "phase", "title": "Phase", "cell": "text", "choice": True} in data["columns"]
    assert "phase" in data["searched"]
    assert data["apps"][0]["phase"] == "Running"


def test_a_value_has_one_name() -> None:
    keys = list(detail(ShownApp("id", "file:///b", row())))
    assert len(keys) == len(set(keys)) == len(COLUMNS) + len(columns.DETAILS)


def test_the_script_draws_each_kind_of_cell() -> None:
    cells = part("apps.js").partition("const CELLS = {")[2].partition("\n};")[0]
    assert set(re.findall(r"^  (\w+)[:,]", cells, re.MULTILINE)) == {*get_args(Cell)}
