"""The table that is drawn again and again, on terminals of any size."""

from __future__ import annotations

import io
import re
from datetime import datetime, timezone
from typing import Any

import pytest
from torchx_pulumi.fleet.collect import BrokenStack, Fleet, StackName
from torchx_pulumi.fleet.collect.row import build_row
from torchx_pulumi.fleet.render.screen import CLEAR, ENTER, LEAVE, ChangeLines, Screen, screen_lines
from torchx_pulumi.fleet.render.table import columns
from torchx_pulumi.stack_state.checkpoint import StackApp

from tests.unit.fleet.collect.states import output

NOW = datetime(2026, 1, 2, 12, tzinfo=timezone.utc)


def fleet(count: int = 3, *, broken: int = 0, **observed: Any) -> Fleet:
    rows = []
    for number in range(count):
        app = StackApp(output=output(f"a{number}", observed=observed))
        rows.append(build_row(StackName(project="torchx", stack=f"a{number}"), app, NOW))
    stacks = [BrokenStack(stack=StackName(project="p", stack=f"s{place}"), why="w" * 200) for place in range(broken)]
    return Fleet(backend="file:///b", read_at=NOW, rows=rows, broken=stacks)


@pytest.mark.parametrize("count", [0, 1, 3, 100])
@pytest.mark.parametrize("broken", [0, 1, 50])
@pytest.mark.parametrize(("width", "height"), [(1, 1), (20, 2), (40, 5), (80, 24), (300, 200)])
def test_a_fleet_fits_into_any_terminal(count: int, broken: int, width: int, height: int) -> None:
    lines = screen_lines(fleet(count, broken=broken), ["日本" * 100, "foot"], width=width, height=height)
    assert len(lines) <= height
    assert all(columns(text) <= max(width - 1, 1) for text in lines)
    assert lines[-1] == "foot"[: max(width - 1, 1)] or width == 1


def test_rows_that_do_not_fit_are_counted() -> None:
    lines = screen_lines(fleet(10), ["foot"], width=80, height=6)
    assert [text.split()[0] for text in lines] == ["APP", "team:a0", "team:a1", "team:a2", "...", "foot"]
    assert lines[4].startswith("... 7 more")
    assert len(screen_lines(fleet(4), ["foot"], width=80, height=6)) == 6


def test_only_lines_that_changed_are_written_and_all_of_them_for_another_size() -> None:
    file = io.StringIO()
    screen = Screen(file)

    def draw(lines: list[str], size: tuple[int, int] = (80, 24)) -> str:
        file.seek(0)
        file.truncate()
        screen.draw(lines, size)
        return file.getvalue()

    first = draw(["one", "two", "three"])
    assert ENTER in first
    assert re.findall(r"\x1b\[(\d+);1H(\w*)\x1b\[K", first) == [("1", "one"), ("2", "two"), ("3", "three")]
    assert draw(["one", "two", "three"]) == ""
    changed = draw(["one", "2"])
    assert re.findall(r"\x1b\[(\d+);1H(\w*)\x1b\[K", changed) == [("2", "2"), ("3", "")]
    assert CLEAR not in changed
    resized = draw(["one", "2"], (60, 24))
    assert CLEAR in resized
    assert ENTER not in resized
    assert "one" in resized


def test_the_first_screen_is_shown_again_once() -> None:
    file = io.StringIO()
    screen = Screen(file)
    screen.leave()
    assert file.getvalue() == ""
    screen.draw(["one"], (80, 24))
    screen.leave()
    screen.leave()
    assert file.getvalue().count(LEAVE) == 1
    screen.draw(["one"], (80, 24))
    assert file.getvalue().count(ENTER) == 2


def test_a_change_is_a_line_and_a_repetition_is_none() -> None:
    changes = ChangeLines()
    one = fleet(1)
    (row,) = one.rows
    assert changes.of(one, {row.stack: row}) == ["2026-01-02T12:00:00Z team:a0 RUNNING Running 1/2"]
    assert changes.of(one, {row.stack: row}) == []
    failed = fleet(1, state="FAILED", reason="ExitCode", message="exit\x1b[31m code\n3")
    assert changes.of(failed, {}) == ["2026-01-02T12:00:00Z team:a0 FAILED ExitCode 1/2 exit code 3"]
    assert changes.of(fleet(0), {}) == ["2026-01-02T12:00:00Z team:a0 deleted"]
    assert changes.of(fleet(0), {}) == []


def test_an_app_that_is_not_selected_any_more_has_a_last_line() -> None:
    changes = ChangeLines()
    changes.of(fleet(1), {})
    (ended,) = fleet(1, state="SUCCEEDED", reason="Completed").rows
    assert changes.of(fleet(0), {ended.stack: ended}) == ["2026-01-02T12:00:00Z team:a0 SUCCEEDED Completed 1/2"]
    assert changes.of(fleet(0), {ended.stack: ended}) == []
