"""The table of columns: each view shows what a row of it says."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from typing import Any, get_args

import pytest
from torchx_pulumi.stack_state.stacks import StackName
from torchx_pulumi_fleet.views import columns
from torchx_pulumi_fleet.views.columns import COLUMNS, Cell, Column, ShownApp, detail, summary
from torchx_pulumi_fleet.views.html import to_html
from torchx_pulumi_fleet.views.page import part
from torchx_pulumi_fleet.views.row import Fleet, FleetRow, build_row
from torchx_pulumi_fleet.views.selection import read_selection
from torchx_pulumi_fleet.views.table import to_table
from torchx_pulumi_fleet.web.schemas import column_schemas

from tests.fleet.tracker.states import output
from tests.fleet.writer.live_apps import app_of

NOW = datetime(2026, 1, 2, 12, tzinfo=timezone.utc)
NAME = StackName(project="torchx", stack="s")


def row(**changes: Any) -> FleetRow:
    return build_row(app_of(output("a", **changes), NAME), NOW)


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
    of_page = {"key": "phase", "title": "Phase", "cell": "text"}
    assert of_page in data["columns"]
    assert of_page in data["choices"]
    assert "phase" in data["searched"]
    assert data["apps"][0]["phase"] == "Running"


@pytest.mark.parametrize(
    ("state", "reason", "said"),
    [
        ("PENDING", "ImageUnavailable", "push the image"),
        ("RUNNING", "CrashLoop", "push the image"),
        ("PENDING", "Unschedulable", ""),
        ("FAILED", "ImageUnavailable", ""),
        ("PENDING", ["odd"], ""),
    ],
)
def test_what_waits_for_a_person_says_what_to_do(state: str, reason: object, said: str) -> None:
    diagnoses = [{"reason": reason, "summary": "why", "resolution": "push\nthe image"}, {"reason": "CrashLoop"}]
    shown = summary(ShownApp("id", "file:///b", row(observed={"state": state, "diagnoses": diagnoses})))
    assert (shown["advice"], shown["cause"]) == (said, "why")


@pytest.mark.parametrize(("created_by", "said"), [("ada", "ada"), ("infra/prod", "stack infra/prod"), (None, "")])
def test_a_person_and_a_stack_of_a_program_are_told_apart(created_by: str | None, said: str) -> None:
    one = row(declared={"created_by": created_by})
    assert summary(ShownApp("id", "file:///b", one))["launcher"] == said
    assert said in to_table(Fleet(backend="file:///b", read_at=NOW, rows=[one]))
    # What a table shows is what the filter takes, and the bare name as well.
    assert created_by is None or all(read_selection(user=[word]).wants(one) for word in (said, created_by))
    assert not read_selection(user=["prod"]).wants(one)


def test_a_value_has_one_name() -> None:
    keys = list(detail(ShownApp("id", "file:///b", row())))
    assert len(keys) == len(set(keys)) == len(COLUMNS) + len(columns.DETAILS)


def test_the_script_draws_each_kind_of_cell() -> None:
    cells = part("apps.js").partition("const CELLS = {")[2].partition("\n};")[0]
    assert set(re.findall(r"^  (\w+)[:,]", cells, re.MULTILINE)) == {*get_args(Cell)}
