"""Starts components in the order of what they need, side by side where possible, and waits until each is ready.

Knows nothing of any particular component: it gets a table.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tools.local_cluster import processes
from tools.local_cluster.errors import LocalClusterError
from tools.local_cluster.layout import Layout

POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """A process of the cluster."""

    name: str
    """Unique; names its log as well."""
    command: tuple[str, ...]
    """Program and arguments."""
    ready: Callable[[], bool]
    """Whether it serves. May raise OSError or LocalClusterError, which means not yet."""
    needs: tuple[str, ...] = ()
    """Components and steps that must be ready before it starts."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables beside those of the caller."""
    timeout_s: float = 60.0
    """Seconds until it must be ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Something to do between components, such as creating objects."""

    name: str
    """Unique."""
    run: Callable[[], None]
    """Does it."""
    until: Callable[[], bool] = lambda: True
    """Whether it has taken effect; like `Component.ready`."""
    needs: tuple[str, ...] = ()
    """Components and steps that must be ready before it."""
    timeout_s: float = 30.0
    """Seconds until it must have taken effect."""


Unit = Component | Step


class Startup:
    """One run through a table of units."""

    def __init__(self, layout: Layout, units: Iterable[Unit], *, ready: Iterable[str] = ()) -> None:
        """Take the table.

        Args:
            layout: folders of the cluster.
            units: all that the cluster is made of.
            ready: names of those that are ready already, which are left alone.
        """
        self._layout = layout
        self._units = {unit.name: unit for unit in units}
        self._done = {name: threading.Event() for name in self._units}
        for name in ready:
            self._done[name].set()
        self._begun: set[str] = set()
        self._stop = threading.Event()
        self._failures: list[LocalClusterError] = []

    def run(self, waiting: Callable[[list[str], float], None]) -> None:
        """Start everything.

        Args:
            waiting: told about every 50 ms which units have begun and are not ready, and the seconds so far.

        Raises:
            LocalClusterError: a unit failed; the text has the end of its log.
        """
        begin = time.monotonic()
        left = [unit for name, unit in self._units.items() if not self._done[name].is_set()]
        threads = [threading.Thread(target=self._bring, args=(unit,), daemon=True) for unit in left]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                waiting(self._unfinished(), time.monotonic() - begin)
                time.sleep(POLL_S)
        finally:  # also on Ctrl-C: nothing may be started behind the back of the cleaning up
            self._stop.set()
            for thread in threads:
                thread.join()
        if self._failures:
            raise self._failures[0]

    def _bring(self, unit: Unit) -> None:
        try:
            for need in unit.needs:
                while not self._done[need].wait(POLL_S):
                    if self._stop.is_set():
                        return
            if self._stop.is_set():
                return
            self._begun.add(unit.name)
            if isinstance(unit, Component):
                self._start(unit)
            else:
                unit.run()
                self._wait(unit.name, unit.until, unit.timeout_s, None)
            if not self._stop.is_set():
                self._done[unit.name].set()
        except LocalClusterError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001  a thread's error is reported by the caller's thread
            self._fail(LocalClusterError(f"{unit.name}: {type(error).__name__}: {error}"))

    def _unfinished(self) -> list[str]:
        return [name for name, done in self._done.items() if name in self._begun and not done.is_set()]

    def _start(self, component: Component) -> None:
        try:
            child = processes.start(self._layout, component.name, component.command, component.environment)
        except OSError as error:
            raise LocalClusterError(f"{component.name} did not start: {error}") from error
        try:
            self._wait(component.name, component.ready, component.timeout_s, child)
        finally:
            if child.returncode is None:
                child.returncode = 0  # it outlives this program by design: no warning about that

    def _wait(
        self, name: str, ready: Callable[[], bool], timeout_s: float, child: subprocess.Popen[bytes] | None
    ) -> None:
        deadline, reason = time.monotonic() + timeout_s, ""
        while not self._stop.is_set():
            if child is not None and child.poll() is not None:
                raise LocalClusterError(self._story(name, f"ended with exit code {child.returncode}"))
            try:
                if ready():
                    return
            except (OSError, LocalClusterError) as error:
                reason = f" ({error})"
            if time.monotonic() > deadline:
                raise LocalClusterError(self._story(name, f"was not ready after {timeout_s:.0f} s{reason}"))
            time.sleep(POLL_S)

    def _story(self, name: str, what: str) -> str:
        tail = processes.log_tail(self._layout, name)
        return f"{name} {what}" + (f"; end of its log:\n{tail}" if tail else "")

    def _fail(self, error: LocalClusterError) -> None:
        self._failures.append(error)
        self._stop.set()
