"""`torchx-pulumi fleet --watch`: the table, drawn again when something changes; or a line for each change."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from queue import Empty, SimpleQueue
from typing import Any

from torchx_pulumi.apps.app import AppKey
from torchx_pulumi.model.errors import TorchxPulumiError

from torchx_pulumi_fleet.tracker.user_clusters import UserClusters
from torchx_pulumi_fleet.tracker.user_fleet import UserFleet
from torchx_pulumi_fleet.views.selection import Selection
from torchx_pulumi_fleet.views.watch import LineView, TableView

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
        fleet: UserFleet,
        view: View,
        *,
        selection: Selection | None = None,
        clusters: UserClusters | None = None,
    ) -> None:
        """Take the parts; `fleet` was refreshed once."""
        self._fleet = fleet
        self._view = view
        self._selection = selection
        self._clusters = clusters
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
            if self._clusters is not None:
                self._clusters.stop()

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
        rows = self._fleet.rows(now)
        wanted = [row for row in rows if self._selection is None or self._selection.wants(row)]
        unreachable = {} if self._clusters is None else self._clusters.unreachable
        fleet = self._fleet.fleet(wanted, now, unreachable=unreachable)
        self._view.show(fleet, rows, [self._problem] if self._problem else [])

    def _refresh(self) -> None:
        tracked = self._fleet.tracked
        if self._clusters is not None:
            self._clusters.watch(app.key for app in tracked.apps())
        while not self._ended.wait(LIST_EVERY_S if tracked.has_versions else LIST_EVERY_CLI_S):
            broken, problem, changed = tracked.broken, None, set[AppKey]()
            try:
                changed = self._fleet.refresh()
            except TorchxPulumiError as error:
                problem = f"the stacks are shown as last read: {error}"
            if self._clusters is not None and changed:
                self._clusters.watch(changed)
            if changed or tracked.broken != broken or problem != self._problem:
                self._problem = problem
                self.wake()


def watch_fleet(fleet: UserFleet, selection: Selection | None, clusters: UserClusters | None) -> int:
    """Watch a fleet until Ctrl-C or SIGTERM; return the exit code.

    Args:
        fleet: The apps of the stacks.
        selection: Which apps are shown. None: all.
        clusters: Their clusters. None: the stacks only.

    Raises:
        DeployError: The backend cannot be read at the start.
        KeyboardInterrupt: Ctrl-C.
    """
    fleet.refresh()
    is_terminal = sys.stdout.isatty() and os.environ.get("TERM", "").lower() not in TERMS_WITHOUT_SCREEN
    view: View = TableView(sys.stdout) if is_terminal else LineView(sys.stdout)
    try:
        watch = FleetWatch(fleet, view, selection=selection, clusters=clusters)
        fleet.apps.subscribe(watch.wake)
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
