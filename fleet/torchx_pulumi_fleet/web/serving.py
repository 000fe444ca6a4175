"""serve_pages: what a controller offers, and the server that serves it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import uvicorn
from torchx_pulumi.apps.app import App
from torchx_pulumi.model.object_fields import number_at, text_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.timestamps import parse_time, time_text
from torchx_pulumi.schedulers import find_backend, scheduler_names

from torchx_pulumi_fleet.archive.archive_rules import ArchiveRules
from torchx_pulumi_fleet.tracker.live_fleet import LiveFleet
from torchx_pulumi_fleet.tracker.observing import ClusterView
from torchx_pulumi_fleet.tracker.reporting import Reporter
from torchx_pulumi_fleet.web import limits
from torchx_pulumi_fleet.web.answers import Event, ShownQueue
from torchx_pulumi_fleet.web.application import Application
from torchx_pulumi_fleet.web.archives import KnownArchives
from torchx_pulumi_fleet.web.connections import Connection
from torchx_pulumi_fleet.web.logs import LiveLogs
from torchx_pulumi_fleet.web.metrics import ControllerMetrics
from torchx_pulumi_fleet.web.options import Listening
from torchx_pulumi_fleet.web.runs import RunHistory
from torchx_pulumi_fleet.web.site import Site
from torchx_pulumi_fleet.web.tokens import FileToken
from torchx_pulumi_fleet.writer import Controller, ControllerSettings

MOST_EVENTS = 200
"""Events of one app: the newest."""

LONGEST_MESSAGE = 2000
"""Characters of a message."""


class _Server(uvicorn.Server):
    """A server that waits for its end; uvicorn's own looks for it ten times a second, the most work of a quiet process.

    `Connection` makes the header Date, which uvicorn's makes meanwhile.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        if not self.should_exit:
            await self._ended.wait()

    def end(self) -> None:
        """Let it end; for use by any thread."""
        self.should_exit = True
        if self._loop is not None:
            # A loop that is closed has ended already.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._ended.set)


class WebServer:
    """One server."""

    def __init__(self, application: Application, listener: socket.socket, report: Callable[[str], None]) -> None:
        """Take what is served, the listening socket, and what takes a line if the server fails."""
        self._application = application
        self._listener = listener
        self._report = report
        self._stopping = False
        config = uvicorn.Config(
            application,
            http=Connection,
            ws="none",
            loop="asyncio",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            # Failures of requests are reported by the application; a line for each bad request of a stranger would
            # fill the log.
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=limits.CONNECTIONS,
            timeout_keep_alive=int(limits.HEAD_S),
            timeout_graceful_shutdown=int(limits.STOP_S),
            h11_max_incomplete_event_size=limits.HEAD_BYTES,
        )
        self._server = _Server(config)
        # A daemon: a request that waits for a backend cannot keep the process running.
        self._thread = threading.Thread(target=self._serve, name="web server", daemon=True)

    def start(self, stop: threading.Event | None = None) -> None:
        """Begin to answer. The socket listens already, so that no connection is refused before.

        Args:
            stop: Begins the end of the server when it is set, while others end as well. None: `stop` begins it.
        """
        # Inherited by each connection.
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.SOCKET_BYTES)
        self._thread.start()
        if stop is not None:
            threading.Thread(target=self._stop_after, args=(stop,), name="web stop", daemon=True).start()

    def stop(self) -> bool:
        """End all responses, then the server; return whether everything has ended after at most twice `STOP_S`."""
        self._begin_stop()
        self._thread.join(2 * limits.STOP_S)
        return not self._thread.is_alive()

    def _stop_after(self, stop: threading.Event) -> None:
        stop.wait()
        self._begin_stop()

    def _begin_stop(self) -> None:
        self._stopping = True
        self._application.close()
        self._server.end()

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._listener])
            why = "it ended by itself"
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the controller goes on, and its people are told
            why = f"{type(error).__name__}: {error}"
        finally:
            self._listener.close()
        if not self._stopping:
            self._report(f"pages are not served any more: {why}; restart the controller, and please report this error")


def serve_pages(
    listening: Listening,
    controller: Controller,
    fleet: LiveFleet,
    settings: ControllerSettings,
    reporter: Reporter,
    stop: threading.Event,
    *,
    archives: ArchiveRules,
) -> WebServer:
    """Begin to serve the pages of a controller, before it runs.

    Args:
        listening: Where, and for whom.
        controller: The controller.
        fleet: The apps that it sees.
        settings: Its settings.
        reporter: Takes lines.
        stop: Begins the end of the server when it is set.
        archives: Which archives are read, and whether logs of pods with Secrets are served.
    """
    if isinstance(listening.access.token, FileToken):
        listening.access.token.report = reporter.line
    metrics = ControllerMetrics(fleet, controller, backends=settings.backends)
    known = KnownArchives(archives)
    logs = LiveLogs(controller.view_of, fleet.find, known)
    site = Site(
        fleet=fleet,
        backends=settings.backends,
        problems=controller.problems,
        not_ready=controller.not_ready,
        events=lambda app: events_of(controller.view_of(app.app), app.app),
        queues=lambda: [*queues_of(controller.views)],
        runs=RunHistory(controller.view_of, known).of,
        metrics=metrics.render,
        logs=logs.open if listening.serves_logs else None,
        report=reporter.once,
    )
    server = WebServer(Application(site, listening.access), listening.listener, reporter.line)
    server.start(stop)
    return server


def events_of(view: ClusterView | None, app: App) -> list[Event]:
    """Return the events of an app's objects as JSON values, the newest first.

    Args:
        view: Its cluster. None: the controller does not watch it, and there are none.
        app: The app.

    Raises:
        ClusterError: Events are not watched, and the cluster does not answer.
    """
    if view is None:
        return []
    return [_values(event) for event in reversed(view.events_of(app)[-MOST_EVENTS:])]


def queues_of(views: Iterable[ClusterView]) -> Iterator[ShownQueue]:
    """Yield the queues of clusters as last watched. Those that cannot be watched are left out; no request is made."""
    backends = [find_backend(name) for name in scheduler_names()]
    for view in views:
        for backend in backends:
            if backend.queue_kind is None or not view.watched.is_synced(backend.queue_kind, None):
                continue
            for found in view.watched.list(backend.queue_kind, None):
                capability, allocated = backend.queue_amounts(found)
                name = text_at(found, "metadata", "name") or ""
                yield ShownQueue(cluster=view.name, name=name, capability=capability, allocated=allocated)


def _values(event: Manifest) -> Event:
    times = (
        text_at(event, "lastTimestamp"),
        text_at(event, "eventTime"),
        text_at(event, "metadata", "creationTimestamp"),
    )
    time = next((found for found in map(parse_time, times) if found is not None), None)
    kind, name = text_at(event, "involvedObject", "kind") or "", text_at(event, "involvedObject", "name") or ""
    return {
        "time": time_text(time),
        "type": text_at(event, "type") or "Normal",
        "reason": text_at(event, "reason") or "",
        "message": (text_at(event, "message") or text_at(event, "note") or "")[:LONGEST_MESSAGE],
        "object": f"{kind}/{name}",
        "count": max(number_at(event, "count") or 1, 1),
        "source": text_at(event, "reportingComponent") or None,
    }
