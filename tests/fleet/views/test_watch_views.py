"""The views of a watch: a table on terminals of any size, and a line for each change."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from torchx_pulumi.stack_state.stacks import StackName
from torchx_pulumi_fleet.views.row import BrokenStack, Fleet, FleetRow, build_row
from torchx_pulumi_fleet.views.watch import LineView, screen

from tests.fleet.writer.live_apps import tracked_app

NOW = datetime(2026, 1, 2, 12, tzinfo=timezone.utc)


def fleet(count: int = 3, *, broken: int = 0, **observed: Any) -> Fleet:
    rows = []
    for number in range(count):
        rows.append(build_row(tracked_app(f"a{number}", observed=observed), NOW))
    stacks = [BrokenStack(stack=StackName(project="p", stack=f"s{place}"), why="w" * 200) for place in range(broken)]
    return Fleet(backend="file:///b", read_at=NOW, rows=rows, broken=stacks)


def drawn(shown: Fleet, notes: list[str], *, width: int, height: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    with console.capture() as captured:
        console.print(screen(shown, notes, width, height))
    return captured.get().splitlines()


@pytest.mark.parametrize("count", [0, 1, 3, 100])
@pytest.mark.parametrize("broken", [0, 1, 50])
@pytest.mark.parametrize(("width", "height"), [(1, 1), (20, 2), (40, 5), (80, 24), (300, 200)])
def test_a_fleet_fits_into_any_terminal(count: int, broken: int, width: int, height: int) -> None:
    lines = drawn(fleet(count, broken=broken), ["日本" * 100, "foot"], width=width, height=height)
    assert len(lines) <= height
    assert all(cell_len(text) <= width for text in lines)
    assert lines[-1].rstrip() == "foot" or width == 1


def test_rows_that_do_not_fit_are_counted() -> None:
    lines = drawn(fleet(10), ["foot"], width=80, height=6)
    assert [text.split()[0] for text in lines] == ["APP", "team:a0", "team:a1", "team:a2", "...", "foot"]
    assert lines[4].startswith("... 7 more")
    assert len(drawn(fleet(4), ["foot"], width=80, height=6)) == 6


def lines_of(view: LineView, file: io.StringIO, shown: Fleet, *others: FleetRow) -> list[str]:
    """Return the text that a view prints of a fleet."""
    file.seek(0)
    file.truncate()
    view.show(shown, others, [])
    return file.getvalue().splitlines()


def test_a_change_is_a_line_and_a_repetition_is_none() -> None:
    view = LineView(file := io.StringIO())
    one = fleet(1)
    assert lines_of(view, file, one, *one.rows) == ["2026-01-02T12:00:00Z team:a0 RUNNING Running 1/2"]
    assert lines_of(view, file, one, *one.rows) == []
    failed = fleet(1, state="FAILED", reason="ExitCode", message="exit\x1b[31m code\n3")
    assert lines_of(view, file, failed) == ["2026-01-02T12:00:00Z team:a0 FAILED ExitCode 1/2 exit code 3"]
    assert lines_of(view, file, fleet(0)) == ["2026-01-02T12:00:00Z team:a0 deleted"]
    assert lines_of(view, file, fleet(0)) == []


def test_an_app_that_is_not_selected_any_more_has_a_last_line() -> None:
    view = LineView(file := io.StringIO())
    lines_of(view, file, fleet(1))
    (ended,) = fleet(1, state="SUCCEEDED", reason="Completed").rows
    assert lines_of(view, file, fleet(0), ended) == ["2026-01-02T12:00:00Z team:a0 SUCCEEDED Completed 1/2"]
    assert lines_of(view, file, fleet(0), ended) == []


def test_each_app_of_a_stack_has_its_lines() -> None:
    view = LineView(file := io.StringIO())
    two = fleet(2)
    one, other = (replace(row, stack=two.rows[0].stack) for row in two.rows)
    both = ["2026-01-02T12:00:00Z team:a0 RUNNING Running 1/2", "2026-01-02T12:00:00Z team:a1 RUNNING Running 1/2"]
    assert lines_of(view, file, replace(two, rows=[one, other]), one, other) == both
    assert lines_of(view, file, replace(two, rows=[other]), other) == ["2026-01-02T12:00:00Z team:a0 deleted"]
