from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.local_cluster import leftovers, processes
from tools.local_cluster.errors import LocalClusterError
from tools.local_cluster.layout import Layout
from tools.local_cluster.startup import Component, Startup, Step

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

SLEEPS = (sys.executable, "-c", "import time; time.sleep(600)")


def quiet(names: list[str], elapsed_s: float) -> None:
    pass


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Layout]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = Layout.of("unit")
    made.create()
    yield made
    leftovers.clear(made)
    assert not leftovers.anything_left(made)


def test_a_unit_starts_after_what_it_needs(layout: Layout) -> None:
    order: list[str] = []
    open_gate = threading.Event()
    units = [
        Step(name="last", run=lambda: order.append("last"), needs=("first", "process")),
        Component(name="process", command=SLEEPS, ready=open_gate.is_set, needs=("first",)),
        Step(name="first", run=lambda: order.append("first")),
        Step(name="beside", run=lambda: (order.append("beside"), open_gate.set())[0], needs=("first",)),
    ]
    Startup(layout, units).run(quiet)
    assert order[0] == "first"
    assert order[-1] == "last"
    assert [p.name for p in processes.recorded(layout) if p.alive] == ["process"]


def test_what_is_ready_already_is_not_started_again(layout: Layout) -> None:
    order: list[str] = []
    units = [
        Step(name="first", run=lambda: order.append("first")),
        Step(name="added", run=lambda: order.append("added"), needs=("first",)),
    ]
    Startup(layout, units, ready=["first"]).run(quiet)
    assert order == ["added"]


def test_components_that_were_added_are_ended_without_the_others(layout: Layout) -> None:
    Startup(layout, [Component(name=name, command=SLEEPS, ready=lambda: True) for name in ("one", "added")]).run(quiet)
    leftovers.end_others(layout, {"one"})
    assert [p.name for p in processes.recorded(layout) if p.alive] == ["one"]


def test_a_component_that_ends_is_named_with_the_end_of_its_log(layout: Layout) -> None:
    command = (sys.executable, "-c", "print('port is taken'); raise SystemExit(3)")
    units = [
        Component(name="broken", command=command, ready=lambda: False),
        Component(name="after", command=SLEEPS, ready=lambda: True, needs=("broken",)),
    ]
    with pytest.raises(LocalClusterError, match=r"broken ended with exit code 3(.|\n)*port is taken"):
        Startup(layout, units).run(quiet)
    assert not (layout.logs / "after.log").exists()


def test_a_component_that_is_never_ready_is_named_with_what_was_seen_last(layout: Layout) -> None:
    def refuse() -> bool:
        raise ConnectionRefusedError("nobody listens")

    unit = Component(name="slow", command=SLEEPS, ready=refuse, timeout_s=0.2)
    with pytest.raises(LocalClusterError, match=r"slow was not ready after 0 s \(nobody listens\)"):
        Startup(layout, [unit]).run(quiet)


def test_a_program_that_is_not_there_is_named(layout: Layout) -> None:
    with pytest.raises(LocalClusterError, match=r"gone did not start: .*No such file"):
        Startup(layout, [Component(name="gone", command=("/nowhere/program",), ready=lambda: True)]).run(quiet)


def test_an_unforeseen_error_of_a_step_stops_the_start(layout: Layout) -> None:
    def fail() -> None:
        raise RuntimeError("unforeseen")

    with pytest.raises(LocalClusterError, match="odd: RuntimeError: unforeseen"):
        Startup(layout, [Step(name="odd", run=fail), Step(name="next", run=fail, needs=("odd",))]).run(quiet)


def test_waiting_is_told_with_names(layout: Layout) -> None:
    told: list[list[str]] = []
    unit = Component(name="waits", command=SLEEPS, ready=lambda: len(told) > 2)
    Startup(layout, [unit]).run(lambda names, elapsed_s: told.append(list(names)))
    assert ["waits"] in told


def test_an_interrupt_leaves_nothing_starting_in_the_background(layout: Layout) -> None:
    def interrupt(names: list[str], elapsed_s: float) -> None:
        raise KeyboardInterrupt

    units = [Component(name="one", command=SLEEPS, ready=lambda: False)]
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        Startup(layout, units).run(interrupt)
    assert threading.active_count() == before


def test_what_a_component_started_is_found_by_its_mark_and_ended(layout: Layout) -> None:
    script = f"import subprocess, time; subprocess.Popen({list(SLEEPS)!r}, start_new_session=True); time.sleep(600)"
    units = [
        Component(
            name="parent",
            command=(sys.executable, "-c", script),
            ready=lambda: len(list(processes.marked(layout))) == 2,
        )
    ]
    Startup(layout, units).run(quiet)
    parent = next(processes.recorded(layout))
    os.kill(parent.pid, signal.SIGKILL)
    os.waitpid(parent.pid, 0)
    assert len(processes.running(layout)) == 1
    leftovers.clear(layout)
    assert processes.running(layout) == []


def test_a_process_that_ignores_the_request_is_killed(layout: Layout) -> None:
    script = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('set', flush=True); time.sleep(600)"
    )
    log = layout.logs / "stubborn.log"
    unit = Component(name="stubborn", command=(sys.executable, "-c", script), ready=lambda: "set" in log.read_text())
    Startup(layout, [unit]).run(quiet)
    assert processes.end(processes.running(layout), patience_s=0.2) == []


def test_a_reused_pid_is_not_taken_for_ours(layout: Layout) -> None:
    with subprocess.Popen(SLEEPS) as stranger:
        ours = processes.Process(name="etcd", pid=stranger.pid, started=1, boot=processes._boot())
        assert not ours.alive
        assert processes.end([ours], patience_s=0.1) == []
        assert stranger.poll() is None
        stranger.kill()


def test_a_record_of_before_a_reboot_is_not_running(layout: Layout) -> None:
    started = processes._start_time(os.getpid())
    assert started is not None
    assert not processes.Process(name="etcd", pid=os.getpid(), started=started, boot="another").alive
    assert processes.Process(name="etcd", pid=os.getpid(), started=started, boot=processes._boot()).alive
