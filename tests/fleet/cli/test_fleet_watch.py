"""`fleet --watch` in one process: what it says when it has nothing to show, and its end by a signal."""

from __future__ import annotations

import io
import sys
import threading
from datetime import datetime, timezone
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from torchx_pulumi.stack_state.stacks import StackName
from torchx_pulumi_fleet.cli import fleet_watch
from torchx_pulumi_fleet.cli.fleet_watch import FleetWatch, LineView
from torchx_pulumi_fleet.views.row import Fleet, build_row

from tests.fleet.tracker.states import output
from tests.fleet.writer.live_apps import app_of

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize(("apps", "said"), [((), "there are no apps yet"), (("a", "b"), "none of the 2 apps matches")])
def test_a_watch_without_a_match_says_so_once(
    apps: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [StackName(project="torchx", stack=name) for name in apps]
    rows = [build_row(app_of(output(name.stack), name), NOW) for name in names]
    view, nothing = LineView(io.StringIO()), Fleet(backend="file:///b", read_at=NOW, rows=())
    for _ in range(2):
        view.show(nothing, rows, ())
    assert capsys.readouterr().err.count(said) == 1


def stopped_at(line: int) -> bool:
    """Run a watch, and stop it in the thread that runs it before a line of Python, as a signal does.

    Returns:
        Whether it came to that line.
    """
    nothing = Fleet(backend="file:///b", read_at=NOW, rows=())
    tracked = SimpleNamespace(has_versions=True)
    source: Any = SimpleNamespace(tracked=tracked, rows=lambda _: [], fleet=lambda *_, **__: nothing)
    view: Any = SimpleNamespace(tick_s=None, show=lambda *_: None)
    watch = FleetWatch(source, view)
    left, came = line, threading.Event()

    def trace(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal left
        left -= event == "line"
        if left == 0 and not came.is_set():
            came.set()
            sys.settrace(None)
            watch.stop()
        return trace

    def run() -> None:
        sys.settrace(trace)
        watch.run()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    if not came.wait(0.1):
        watch.stop()
    thread.join(10.0)
    assert not thread.is_alive(), f"the watch does not end after a signal before its line {line}"
    return came.is_set()


def test_a_signal_at_any_moment_ends_a_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_watch, "MIN_PAUSE_S", 0.01)
    line = 1
    while stopped_at(line):
        line += 1
    assert line > 10
