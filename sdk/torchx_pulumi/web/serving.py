"""serve_pages: what a controller offers, and the server that serves it."""

from __future__ import annotations

import threading

from torchx_pulumi.controller import Controller, ControllerSettings
from torchx_pulumi.controller.archive_rules import ArchiveRules
from torchx_pulumi.controller.live_fleet import LiveFleet
from torchx_pulumi.controller.reporting import Reporter
from torchx_pulumi.web.application import Application
from torchx_pulumi.web.archives import KnownArchives
from torchx_pulumi.web.events import events_of
from torchx_pulumi.web.logs import LiveLogs
from torchx_pulumi.web.metrics import ControllerMetrics
from torchx_pulumi.web.options import Listening
from torchx_pulumi.web.runs import RunHistory
from torchx_pulumi.web.server import WebServer
from torchx_pulumi.web.site import Site
from torchx_pulumi.web.tokens import FileToken


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
        runs=RunHistory(controller.view_of, known).of,
        metrics=metrics.render,
        logs=logs.open if listening.serves_logs else None,
        report=reporter.once,
    )
    server = WebServer(Application(site, listening.access), listening.listener, reporter.line)
    server.start(stop)
    return server
