"""The command `torchx-pulumi controller`: keeps stack outputs current until it is stopped."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING

from torchx_pulumi.model.errors import TorchxPulumiError
from torchx_pulumi.model.fleet_package import FLEET_COMMANDS
from torchx_pulumi.model.object_schemes import URLS
from torchx_pulumi.model.text import in_words

if TYPE_CHECKING:
    from torchx_pulumi_fleet.tracker.reporting import Reporter

SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""Signals that stop the controller; it ends within 5 s."""

SWITCH_S = 0.0005
"""Longest time for which a thread keeps Python's own lock while others wait. With Python's 5 ms, a controller that is
busy holds the locks of stacks for 1.7 times as long."""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to a parser."""
    controller = commands.add_parser(
        "controller",
        help=FLEET_COMMANDS["controller"],
        description="Watch clusters and write what happens to the apps of Pulumi backends into their stack outputs. "
        "SIGTERM and Ctrl-C end it within 5 s; all state is in the stacks, so it may be started and killed at "
        "any time, and more than one may run.",
    )
    controller.add_argument(
        "--backend",
        action="append",
        default=[],
        metavar="URL",
        help="Pulumi backend; repeatable; default: PULUMI_BACKEND_URL, else this user's own folder",
    )
    controller.add_argument(
        "--kubeconfig", metavar="FILE", help="default: KUBECONFIG, else ~/.kube/config, else the pod's service account"
    )
    controller.add_argument(
        "--context", action="append", default=[], metavar="NAME", help="context; repeatable; default: the current one"
    )
    controller.add_argument(
        "--namespace", action="append", default=[], metavar="NAME", help="namespace; repeatable; default: all"
    )
    controller.add_argument(
        "--program-stacks", action="store_true", help="write also the stacks of users' own Pulumi programs"
    )
    controller.add_argument(
        "--log-archive",
        metavar="URL",
        help=f"archive of the logs of apps whose launch named none: a folder, {in_words(URLS)}",
    )
    controller.add_argument(
        "--archive-allow",
        action="append",
        default=[],
        metavar="URL",
        help="further archive that a launch may name (log_archive); repeatable; default: that of --log-archive only",
    )
    controller.add_argument(
        "--archive-secret-pods",
        action="store_true",
        help="archive there, and show on pages, also logs of pods that have secrets",
    )
    controller.add_argument(
        "--archive-limit",
        default="64Mi",
        metavar="SIZE",
        help="most bytes of the log of one run of a container, for example 200Mi; default: %(default)s",
    )
    controller.add_argument("--once", action="store_true", help="end as soon as all stacks are current")
    controller.add_argument(
        "--lease",
        metavar="[NAMESPACE/]NAME",
        help="write only while holding this Lease of the first cluster: of several controllers, one writes, and all "
        "serve pages; default namespace: the context's, in a pod the pod's",
    )
    _add_pages(controller)
    controller.set_defaults(command=controller_command)


def _add_pages(controller: argparse.ArgumentParser) -> None:
    controller.add_argument(
        "--listen",
        metavar="[HOST:]PORT",
        help="serve the live page, the API and metrics there; default host: 127.0.0.1; port 0: a free one",
    )
    controller.add_argument(
        "--token-file", metavar="FILE", help="token that pages and programs need; default: a random one, in the URL"
    )
    controller.add_argument("--no-auth", action="store_true", help="need no token; logs are not served then")
    controller.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="further host name under which the page is reached, for example of an ingress; repeatable",
    )


def controller_command(arguments: argparse.Namespace) -> int:
    """Run a controller until a signal; return 0."""
    stop, checked = threading.Event(), threading.Event()
    # A handler that sets the event may wait for a lock that the code holds which it interrupted. A queue has none.
    signals: SimpleQueue[int | None] = SimpleQueue()

    def end() -> None:
        if signals.get() is None:
            return
        stop.set()
        if not checked.is_set():
            # The start has written nothing, and a backend that is checked may not answer for a minute.
            os._exit(0)

    # Before all else: the first process of a container has no default action for SIGTERM.
    before = {each: signal.signal(each, lambda number, _: signals.put(number)) for each in SIGNALS}
    threading.Thread(target=end, name="signals", daemon=True).start()
    try:
        return _run(arguments, stop, checked)
    finally:
        signals.put(None)
        for each, handler in before.items():
            signal.signal(each, handler)


def _run(arguments: argparse.Namespace, stop: threading.Event, checked: threading.Event) -> int:
    from torchx_pulumi.kube import KubernetesCluster
    from torchx_pulumi.kube.kubeconfig import absolute_kubeconfig
    from torchx_pulumi.stack_state.backend import choose_backend

    from torchx_pulumi_fleet.archive.archive_rules import ArchiveRules
    from torchx_pulumi_fleet.archive.archiving import LogArchiver
    from torchx_pulumi_fleet.tracker.live_fleet import LiveFleet
    from torchx_pulumi_fleet.tracker.reporting import Reporter
    from torchx_pulumi_fleet.web.options import WebWords, check_web
    from torchx_pulumi_fleet.writer import Controller, ControllerParts, ControllerSettings
    from torchx_pulumi_fleet.writer.checks import (
        check_archives,
        check_lease,
        check_lease_access,
        check_settings,
        check_words,
        different_backends,
    )
    from torchx_pulumi_fleet.writer.election import LeaseElection, new_identity

    archives = ArchiveRules(
        own=arguments.log_archive,
        allowed=tuple(dict.fromkeys(arguments.archive_allow)),
        secret_pods=arguments.archive_secret_pods,
    )
    settings = ControllerSettings(
        backends=different_backends(choose_backend(url) for url in arguments.backend or (None,)),
        kubeconfig=absolute_kubeconfig(arguments.kubeconfig),
        contexts=tuple(dict.fromkeys(arguments.context)),
        namespaces=tuple(dict.fromkeys(arguments.namespace)),
        program_stacks=arguments.program_stacks,
        once=arguments.once,
    )
    problems, limit_bytes = check_archives(archives, arguments.archive_limit, pages=arguments.listen is not None)
    words = check_words(arguments.backend, arguments.context, arguments.namespace, arguments.kubeconfig)
    lease_problems, (lease_namespace, lease) = check_lease(arguments.lease, once=arguments.once)
    web_problems, listening = check_web(
        WebWords(
            listen=arguments.listen,
            token_file=arguments.token_file,
            no_auth=arguments.no_auth,
            allowed_hosts=arguments.allowed_host,
            once=arguments.once,
        )
    )
    try:
        further = [*words, *problems, *lease_problems, *web_problems]
        clusters = check_settings(
            settings, KubernetesCluster.connect, pages=arguments.listen is not None, further=further
        )
        home = next(iter(clusters.values()))
        lease_namespace = lease_namespace or home.namespace
        if lease:
            check_lease_access(home, lease_namespace, lease)
    except TorchxPulumiError:
        if listening is not None:
            listening.listener.close()
        raise
    reporter = Reporter()
    archiver = LogArchiver(reporter, archives, limit_bytes=limit_bytes)
    checked.set()
    # A thread that holds the lock of a stack waits for Python's own lock after each operation on a file.
    sys.setswitchinterval(SWITCH_S)
    driver = arguments.make_driver()
    try:
        with _logs_reported(reporter):
            election = None
            if lease:
                election = LeaseElection(
                    home,
                    lease_namespace,
                    lease,
                    identity=new_identity(),
                    reporter=reporter,
                    changed=lambda _: controller.lead_changed(),
                )
            leading = (lambda: True) if election is None else (lambda: election.is_leading)
            fleet = None if listening is None else LiveFleet()
            parts = ControllerParts(
                settings=settings, driver=driver, reporter=reporter, archiver=archiver, fleet=fleet, leading=leading
            )
            controller = Controller(parts, clusters)
            server = None
            if listening is not None and fleet is not None:
                from torchx_pulumi_fleet.web.serving import serve_pages

                server = serve_pages(listening, controller, fleet, settings, reporter, stop, archives=archives)
                # This line is how the token gets to the user.
                reporter.plain(f"the page: {listening.url}")
            if election is not None:
                election.start()
            ended = controller.run(stop)
            if election is not None:
                election.stop()
            ended = (server is None or server.stop()) and ended
    finally:
        driver.close()
    if not ended:
        # Threads of libraries, for example for the lookup of a host name, would be waited for at the exit.
        with suppress(OSError):
            sys.stdout.flush()
        os._exit(0)
    return 0


class _Reported(logging.Handler):
    """Passes log records on to the reporter: all records of watches, warnings of other modules."""

    def __init__(self, reporter: Reporter) -> None:
        super().__init__()
        self._reporter = reporter

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING or record.name == "torchx_pulumi_fleet.watch.object_watch":
            self._reporter.line(record.getMessage())


@contextmanager
def _logs_reported(reporter: Reporter) -> Iterator[None]:
    handler = _Reported(reporter)
    loggers = [logging.getLogger(name) for name in ("torchx_pulumi", "torchx_pulumi_fleet")]
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate
