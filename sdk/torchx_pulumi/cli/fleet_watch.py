"""`torchx-pulumi fleet --watch`: the table, drawn again when something changes; or a line for each change."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from typing import Any, TextIO

from torchx_pulumi.controller.live_rows import LiveRows
from torchx_pulumi.fleet.collect import Fleet, FleetRow, Selection, StackName
from torchx_pulumi.fleet.collect.fleet_stacks import FleetStacks
from torchx_pulumi.fleet.render.screen import ChangeLines, Screen, screen_lines
from torchx_pulumi.fleet.render.table import to_table
from torchx_pulumi.model.errors import TorchxPulumiError
from torchx_pulumi.model.text import one_line

EXIT_TERMINATED = 143
"""Exit code after SIGTERM, as shells have it."""

LIST_EVERY_S = 2.0
"""Time between two listings of the stacks."""

LIST_EVERY_CLI_S = 30.0
"""The same if the backend has no versions, so that each listing reads every stack."""

TICK_S = 1.0
"""Time after which ages are updated."""

SHARE = 5.0
"""A view is drawn again after at least so many times as long as the last drawing took, so that it takes little CPU."""

MIN_PAUSE_S = 0.1

MOST_NOTES = 3
"""Messages that are kept at the foot of the table, the last ones."""

SIZE_UNKNOWN = (80, 24)


class TableView:
    """The table on a terminal. The last one stays on the screen."""

    tick_s = TICK_S
    """Time after which it is shown again without a change."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._screen = Screen(file)
        self._notes: tuple[str, ...] = ()
        self._last: Fleet | None = None

    def show(self, fleet: Fleet, others: Mapping[StackName, FleetRow], notes: Sequence[str]) -> None:  # noqa: ARG002
        """Draw what changed of the selected apps; `others` are all."""
        self._last, size = fleet, size_of(self._file)
        clock = fleet.read_at.astimezone().strftime("%H:%M:%S")
        ended = sum(row.state.terminal for row in fleet.rows)
        apps = "1 app" if len(fleet.rows) == 1 else f"{len(fleet.rows)} apps"
        foot = f"{clock}  {apps}, {len(fleet.rows) - ended} not ended; Ctrl-C ends the watch"
        self._screen.draw(screen_lines(fleet, [*self._notes, *notes, foot], width=size[0], height=size[1]), size)

    def say(self, text: str) -> None:
        """Keep a message for the foot of the table."""
        line = one_line(text)
        if line not in self._notes:
            self._notes = (*self._notes, line)[-MOST_NOTES:]

    def suspend(self) -> None:
        """Show the first screen while the process is stopped by Ctrl-Z."""
        self._screen.leave()
        os.kill(os.getpid(), signal.SIGSTOP)

    def close(self) -> None:
        """Print the whole last table on the first screen."""
        self._screen.leave()
        if self._last is not None:
            self._file.write(to_table(self._last, size_of(self._file)[0]))
            self._file.writelines(f"{note}\n" for note in self._notes)
            self._file.flush()


class LineView:
    """A line for each change, at once."""

    tick_s = None
    """Only changes are shown."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._changes = ChangeLines()
        self._noted: set[str] = set()
        self._is_begun = False

    def show(self, fleet: Fleet, others: Mapping[StackName, FleetRow], notes: Sequence[str]) -> None:
        """Print what changed; problems, each when it begins, on stderr."""
        self._file.writelines(f"{text}\n" for text in self._changes.of(fleet, others))
        self._file.flush()
        if not fleet.rows and not self._is_begun:
            which = f"none of the {len(others)} apps matches" if others else "there are no apps yet"
            self.say(f"{which}; a line follows for each that does")
        self._is_begun = True
        problems = {f"cluster {name} not reached: {why}" for name, why in fleet.unreachable.items()}
        problems |= {f"stack {item.stack} cannot be read: {item.why}" for item in fleet.broken}
        problems |= {*notes, *fleet.warnings}
        for text in sorted(problems - self._noted):
            self.say(text)
        self._noted = problems

    def say(self, text: str) -> None:
        """Print a message on stderr."""
        print(f"torchx-pulumi: warning: {one_line(text)}", file=sys.stderr, flush=True)  # noqa: T201

    def close(self) -> None:
        """Do nothing: all is printed."""


View = TableView | LineView


class FleetWatch:
    """Lists the stacks again and again in a thread, and shows what changed."""

    def __init__(
        self,
        source: FleetStacks,
        view: View,
        *,
        selection: Selection | None = None,
        live: LiveRows | None = None,
    ) -> None:
        """Take the parts; `source` was refreshed once."""
        self._source = source
        self._view = view
        self._selection = selection
        self._live = live
        self._problem: str | None = None
        self.stopped = threading.Event()
        self.wake = threading.Event()
        """Set when something may have changed."""

    def run(self) -> None:
        """Show the fleet until `stopped` is set."""
        # A daemon: a backend that does not answer cannot keep the process running.
        threading.Thread(target=self._refresh, name="fleet stacks", daemon=True).start()
        try:
            while not self.stopped.is_set():
                self.wake.clear()
                begun = time.monotonic()
                self._show()
                took_s = time.monotonic() - begun
                self.stopped.wait(max(MIN_PAUSE_S, SHARE * took_s))
                self.wake.wait(None if self._view.tick_s is None else max(self._view.tick_s, SHARE * took_s))
        finally:
            self.stopped.set()
            if self._live is not None:
                self._live.stop()

    def stop(self) -> None:
        """End the watch; for signal handlers."""
        self.stopped.set()
        self.wake.set()

    def _show(self) -> None:
        now = datetime.now(timezone.utc)
        rows = self._source.rows(now)
        unreachable: Mapping[str, str] = {}
        if self._live is not None:
            rows |= self._live.rows(rows, now)
            unreachable = self._live.unreachable
        wanted = [row for row in rows.values() if self._selection is None or self._selection.wants(row)]
        fleet = self._source.fleet(wanted, now, unreachable=unreachable)
        self._view.show(fleet, rows, [self._problem] if self._problem else [])

    def _refresh(self) -> None:
        if self._live is not None:
            self._live.refresh(())
        while not self.stopped.wait(LIST_EVERY_S if self._source.has_versions else LIST_EVERY_CLI_S):
            try:
                changed, problem = self._source.refresh(), None
            except TorchxPulumiError as error:
                changed, problem = set(), f"the stacks are shown as last read: {error}"
            if self._live is not None and changed:
                self._live.refresh(changed)
            if changed or problem != self._problem:
                self._problem = problem
                self.wake.set()


def watch_fleet(
    source: FleetStacks, selection: Selection | None, make_live: Callable[[Callable[[], None]], LiveRows] | None
) -> int:
    """Watch a fleet until Ctrl-C or SIGTERM; return the exit code.

    Args:
        source: The stacks.
        selection: Which apps are shown. None: all.
        make_live: Takes what is to be called when something changed, and returns the clusters. None: stacks only.

    Raises:
        DeployError: The backend cannot be read at the start.
        KeyboardInterrupt: Ctrl-C.
    """
    source.refresh()
    is_terminal = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    view: View = TableView(sys.stdout) if is_terminal else LineView(sys.stdout)
    try:
        watch = FleetWatch(source, view, selection=selection)
        if make_live is not None:
            watch = FleetWatch(source, view, selection=selection, live=make_live(lambda: watch.wake.set()))
        with _signals(watch, view), _messages(view):
            watch.run()
    finally:
        view.close()
    return EXIT_TERMINATED


@contextmanager
def _signals(watch: FleetWatch, view: View) -> Iterator[None]:
    """End the watch on SIGTERM, redraw when the terminal is resized, and leave its screen on Ctrl-Z."""

    def suspend(*_: Any) -> None:
        if isinstance(view, TableView):
            view.suspend()
            watch.wake.set()

    handlers: dict[int, Callable[..., Any]] = {signal.SIGTERM: lambda *_: watch.stop()}
    if isinstance(view, TableView):
        handlers |= {signal.SIGWINCH: lambda *_: watch.wake.set(), signal.SIGTSTP: suspend}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Messages(logging.Handler):
    """Passes warnings to a view: on stderr they would be written over the table."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        self._say(record.getMessage())


@contextmanager
def _messages(view: View) -> Iterator[None]:
    handler = _Messages(view.say)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


def size_of(file: TextIO) -> tuple[int, int]:
    """Return columns and lines of a terminal."""
    with suppress(OSError, ValueError):
        width, height = os.get_terminal_size(file.fileno())
        if width > 0 and height > 0:
            return width, height
    return SIZE_UNKNOWN
