"""FleetStream: changes of a fleet as server-sent events. No queue per client: all share the frames between versions."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime, timezone

from torchx_pulumi.model.timestamps import format_time

from torchx_pulumi_fleet.views.columns import summary
from torchx_pulumi_fleet.web import limits
from torchx_pulumi_fleet.web.answers import FleetFrame
from torchx_pulumi_fleet.web.bounds import Workers
from torchx_pulumi_fleet.web.site import Site

PING = b": ping\n\n"
"""A comment, so that proxies and browsers see that the connection lives."""


MOST_FRAMES = 16
"""Frames that are kept for further clients: one for each version that a client had before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What changed between two versions, as an event."""

    version: int
    problems: tuple[str, ...]
    empty: bool
    """No app changed."""
    data: bytes


class FleetStream:
    """The changes of one site, for any number of clients. All but `close` belongs to the server's event loop."""

    def __init__(self, site: Site, workers: Workers) -> None:
        """Take the site, and the threads that make frames; nothing is watched until there is a client."""
        self._site = site
        self._workers = workers
        self._word = secrets.token_hex(4)
        self._clients = 0
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self._next = asyncio.Event()
        """Set, and replaced, when there is something new for clients."""
        self._frames: dict[int | None, asyncio.Future[Frame]] = {}
        self._watching: asyncio.Task[None] | None = None

    def name(self, version: int) -> str:
        """Return the name of a version, which no other process has."""
        return f"{self._word}-{version}"

    def read_name(self, name: str | None) -> int | None:
        """Return the version of a name. None: this process did not give the name."""
        word, _, number = (name or "").partition("-")
        known = word == self._word and number.isascii() and number.isdigit() and len(number) < 16
        return int(number) if known else None

    def close(self) -> None:
        """End the streams of all clients. From any thread."""
        self._closed = True
        if self._loop is not None:
            _call(self._loop, self._wake)

    async def events(self, since: int | None, may: Callable[[], bool]) -> AsyncIterator[bytes]:
        """Give frames and pings until the stream is closed.

        Args:
            since: Version that the client has. None: it has none.
            may: Returns whether the client may still read.
        """
        self._enter()
        try:
            known, problems = since, None
            while not self._closed:
                waiting = self._next
                frame = await self._frame(known)
                if problems != frame.problems or not frame.empty:
                    yield frame.data
                known, problems = frame.version, frame.problems
                while not await _is_set(waiting, limits.PING_S):
                    if not may():
                        return
                    yield PING
        finally:
            self._leave()

    def _enter(self) -> None:
        self._clients += 1
        if self._watching is None:
            self._loop = asyncio.get_running_loop()
            # What it is now, before any frame is made, so that no change after it is missed.
            self._watching = self._loop.create_task(self._watch(self._state()))

    def _leave(self) -> None:
        self._clients -= 1
        if self._clients == 0 and self._watching is not None:
            self._watching.cancel()
            self._watching = None
            self._frames.clear()

    def _state(self) -> tuple[int, tuple[str, ...]]:
        return self._site.fleet.version, self._site.remarks()

    async def _watch(self, last: tuple[int, tuple[str, ...]]) -> None:
        """Notice changes, and wake the clients: at most once in `FRAME_S`."""
        loop = asyncio.get_running_loop()
        end = self._site.fleet.subscribe(lambda: _call(loop, self._changed.set))
        try:
            while True:
                self._changed.clear()
                now = self._state()
                if now != last:
                    last = now
                    self._frames.clear()
                    self._wake()
                    await asyncio.sleep(limits.FRAME_S)
                await _is_set(self._changed, limits.PROBLEMS_S)
        finally:
            end()

    def _wake(self) -> None:
        waiting, self._next = self._next, asyncio.Event()
        waiting.set()

    async def _frame(self, since: int | None) -> Frame:
        made = self._frames.get(since)
        if made is None:
            while len(self._frames) >= MOST_FRAMES:
                del self._frames[next(iter(self._frames))]
            made = asyncio.ensure_future(self._workers.run(self._make, since))
            self._frames[since] = made
        # One client that leaves must not take the frame from the others.
        return await asyncio.shield(made)

    def _make(self, since: int | None) -> Frame:
        change = self._site.fleet.changes(since)
        now, problems = datetime.now(timezone.utc), self._site.remarks()
        values: FleetFrame = {
            "version": self.name(change.version),
            "whole": change.whole,
            "apps": [summary(app.shown(now)) for app in change.changed],
            "gone": list(change.gone),
            "problems": list(problems),
            "read_at": format_time(now),
        }
        text = json.dumps(values, separators=(",", ":"))
        data = f"event: fleet\nid: {self.name(change.version)}\ndata: {text}\n\n"
        empty = not (change.whole or change.changed or change.gone)
        return Frame(version=change.version, problems=problems, empty=empty, data=data.encode())


def _call(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    """Call a function in a loop, from any thread. A loop that has ended has no client."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function)


async def _is_set(event: asyncio.Event, timeout_s: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except asyncio.TimeoutError:
        return False
    return True
