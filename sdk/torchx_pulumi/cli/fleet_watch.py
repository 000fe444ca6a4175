"""`torchx-pulumi fleet --watch`: the table, drawn again when something changes; or a line for each change."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from queue import Empty, SimpleQueue
from typing import Any

from torchx_pulumi.controller.live_rows import LiveRows
from torchx_pulumi.fleet.collect import Selection
from torchx_pulumi.fleet.collect.fleet_stacks import FleetStacks
from torchx_pulumi.fleet.render.watch import LineView, TableView
from torchx_pulumi.model.errors import TorchxPulumiError

EXIT_TERMINATED = 143
"""Exit code after SIGTERM, as shells have it."""

LIST_EVERY_S = 2.0
"""Time between two listings of the stacks."""

LIST_EVERY_CLI_S = 30.0
"""The same if each listing is a process of the Pulumi CLI, or reads every stack."""

SHARE = 5.0
"""A view is drawn again after at least so many times as long as the last drawing took, so that it takes little CPU."""

MIN_PAUSE_S = 0.1

TERMS_WITHOUT_SCREEN = ("", "dumb", "unknown")
"""Values of TERM in lower case; no table can be kept up to date there."""


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
        # A signal handler may put something into it at any time; the lock of an Event would stop it for good.
        self._news: SimpleQueue[None] = SimpleQueue()
        self._is_stopped = self._is_suspended = False
        self._ended = threading.Event()

    def run(self) -> None:
        """Show the fleet until it is stopped."""
        # A daemon: a backend that does not answer cannot keep the process running.
        threading.Thread(target=self._refresh, name="fleet stacks", daemon=True).start()
        try:
            while not self._is_stopped:
                if self._is_suspended:
                    self._suspend()
                begun = time.monotonic()
                self._show()
                took_s = time.monotonic() - begun
                self._wait(max(MIN_PAUSE_S, SHARE * took_s), self._view.tick_s)
        finally:
            self._ended.set()
            if self._live is not None:
                self._live.stop()

    def wake(self) -> None:
        """Show the fleet soon, because something may have changed; for threads and signal handlers."""
        self._news.put(None)

    def stop(self) -> None:
        """End the watch; for signal handlers."""
        self._is_stopped = True
        self.wake()

    def suspend(self) -> None:
        """Stop the process until it is continued, as Ctrl-Z does; for signal handlers."""
        self._is_suspended = True
        self.wake()

    def _wait(self, pause_s: float, tick_s: float | None) -> None:
        """Wait for news, after a pause that only a stop ends; at most so long. None: no limit."""
        end, has_news = time.monotonic() + pause_s, False
        while not self._is_stopped and (left_s := end - time.monotonic()) > 0:
            has_news |= self._comes_within(left_s)
        if not has_news and not self._is_stopped:
            self._comes_within(tick_s)

    def _comes_within(self, seconds: float | None) -> bool:
        try:
            self._news.get(timeout=seconds)
        except Empty:
            return False
        return True

    def _suspend(self) -> None:
        """Stop the process with its terminal as it was before, until it is continued."""
        self._is_suspended = False
        if isinstance(self._view, TableView):
            self._view.leave()
        os.kill(os.getpid(), signal.SIGSTOP)

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
        while not self._ended.wait(LIST_EVERY_S if self._source.has_versions else LIST_EVERY_CLI_S):
            try:
                changed, problem = self._source.refresh(), None
            except TorchxPulumiError as error:
                changed, problem = set(), f"the stacks are shown as last read: {error}"
            if self._live is not None and changed:
                self._live.refresh(changed)
            if changed or problem != self._problem:
                self._problem = problem
                self.wake()


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
    is_terminal = sys.stdout.isatty() and os.environ.get("TERM", "").lower() not in TERMS_WITHOUT_SCREEN
    view: View = TableView(sys.stdout) if is_terminal else LineView(sys.stdout)
    try:
        watch = FleetWatch(source, view, selection=selection)
        if make_live is not None:
            watch = FleetWatch(source, view, selection=selection, live=make_live(lambda: watch.wake()))
        with _signals(watch, view), _messages(view):
            watch.run()
    finally:
        view.close()
    return EXIT_TERMINATED


@contextmanager
def _signals(watch: FleetWatch, view: View) -> Iterator[None]:
    """End the watch on SIGTERM, redraw when the terminal is resized, and leave its screen on Ctrl-Z."""
    handlers: dict[int, Callable[..., Any]] = {signal.SIGTERM: lambda *_: watch.stop()}
    if isinstance(view, TableView):
        handlers |= {signal.SIGWINCH: lambda *_: watch.wake(), signal.SIGTSTP: lambda *_: watch.suspend()}
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
        """Show a message."""
        self._say(record.getMessage())


@contextmanager
def _messages(view: View) -> Iterator[None]:
    handler = _Messages(view.say)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
