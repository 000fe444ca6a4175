"""`fleet --watch` where its output is no terminal: what it says when it has nothing to show."""

from __future__ import annotations

import io
from datetime import datetime, timezone

import pytest
from torchx_pulumi.cli.fleet_watch import LineView
from torchx_pulumi.fleet.collect import Fleet, StackName
from torchx_pulumi.fleet.collect.row import build_row
from torchx_pulumi.stack_state.checkpoint import StackApp

from tests.unit.fleet.collect.states import output

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize(("apps", "said"), [((), "there are no apps yet"), (("a", "b"), "none of the 2 apps matches")])
def test_a_watch_without_a_match_says_so_once(
    apps: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [StackName(project="torchx", stack=name) for name in apps]
    rows = {name: build_row(name, StackApp(output=output(name.stack)), NOW) for name in names}
    view, nothing = LineView(io.StringIO()), Fleet(backend="file:///b", read_at=NOW, rows=())
    for _ in range(2):
        view.show(nothing, rows, ())
    assert capsys.readouterr().err.count(said) == 1
