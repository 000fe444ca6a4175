"""The command `torchx-pulumi fleet`."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from torchx_pulumi.model.errors import TorchxPulumiError
from torchx_pulumi.model.fleet_package import FLEET_COMMANDS
from torchx_pulumi.schedulers.registry import scheduler_names
from torchx_pulumi.storage.files import replacing

if TYPE_CHECKING:
    from torchx_pulumi_fleet.views.selection import Selection


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to a parser."""
    fleet = commands.add_parser(
        "fleet",
        help=FLEET_COMMANDS["fleet"],
        description="List all apps of a Pulumi backend, from its stacks. Clusters that answer within 2 s are asked "
        "about what has not ended; no access to a cluster is needed.",
    )
    fleet.add_argument(
        "--backend", metavar="URL", help="Pulumi backend; default: PULUMI_BACKEND_URL, else this user's own folder"
    )
    fleet.add_argument("--project", metavar="NAME", help="only stacks of this Pulumi project; default: all")
    fleet.add_argument("--organization", metavar="NAME", help="only stacks of this organization of a Pulumi service")
    for name, what in (
        ("state", "RUNNING, FAILED, ..., or active for all that have not ended"),
        ("queue", "queue"),
        ("user", "user who launched it, or stack of the program that did"),
        ("namespace", "namespace"),
        ("scheduler", " or ".join(scheduler_names())),
    ):
        fleet.add_argument(f"--{name}", action="append", default=[], metavar="WORD", help=f"only: {what}; repeatable")
    fleet.add_argument("--since", metavar="AGE", help="only what was launched at most so long ago: 90s, 12h, 2d, 1w")
    looking = fleet.add_mutually_exclusive_group()
    looking.add_argument(
        "--live",
        action="store_true",
        default=None,
        help="ask the clusters about what has not ended, and wait for their answers; default: up to 2 s",
    )
    looking.add_argument(
        "--offline", action="store_false", dest="live", default=None, help="ask no cluster, read the stacks only"
    )
    view = fleet.add_mutually_exclusive_group()
    view.add_argument("--json", action="store_true", help="print JSON")
    view.add_argument("--html", metavar="FILE", help="write one self-contained page; - prints it")
    view.add_argument("--prometheus", action="store_true", help="print Prometheus text")
    view.add_argument(
        "--watch",
        action="store_true",
        help="keep the table on the terminal up to date until Ctrl-C; in a pipe or a file, print a line "
        "for each change",
    )
    fleet.set_defaults(command=fleet_command)


def fleet_command(arguments: argparse.Namespace) -> int:
    """Print a fleet; return 0 also if single stacks or clusters could not be read, which are named."""
    from torchx_pulumi_fleet import read_fleet
    from torchx_pulumi_fleet.views.html import to_html
    from torchx_pulumi_fleet.views.selection import read_selection
    from torchx_pulumi_fleet.views.values import to_json

    names = ("state", "queue", "user", "namespace", "scheduler", "since")
    selection = read_selection(**{name: getattr(arguments, name) for name in names})
    if arguments.watch:
        return _watch(arguments, selection)
    fleet = read_fleet(
        arguments.backend,
        project=arguments.project,
        organization=arguments.organization,
        selection=selection,
        live=arguments.live,
        make_driver=arguments.make_driver,
    )
    for problem in fleet.warnings:
        print(f"torchx-pulumi: warning: {problem}", file=sys.stderr)  # noqa: T201
    if arguments.html and arguments.html != "-":
        write_whole(Path(arguments.html), to_html(fleet))
        print(f"wrote {arguments.html}: {len(fleet.rows)} apps", file=sys.stderr)  # noqa: T201
        return 0
    if arguments.json or arguments.html:
        text = to_json(fleet) if arguments.json else to_html(fleet)
    elif arguments.prometheus:
        from torchx_pulumi_fleet.views.prometheus import to_prometheus

        text = to_prometheus(fleet)
    else:
        from torchx_pulumi_fleet.views.table import to_table

        width = shutil.get_terminal_size().columns if sys.stdout.isatty() or "COLUMNS" in os.environ else None
        text = to_table(fleet, width)
    sys.stdout.write(text)
    return 0


def _watch(arguments: argparse.Namespace, selection: Selection) -> int:
    from torchx_pulumi_fleet.cli.fleet_watch import watch_fleet
    from torchx_pulumi_fleet.tracker.reading import is_asked
    from torchx_pulumi_fleet.tracker.user_clusters import UserClusters
    from torchx_pulumi_fleet.tracker.user_fleet import UserFleet

    fleet = UserFleet(arguments.backend, project=arguments.project, organization=arguments.organization)
    wanted, says_unconfigured = partial(is_asked, selection=selection), bool(arguments.live)
    clusters = UserClusters(fleet=fleet, wanted=wanted, says_unconfigured=says_unconfigured)
    return watch_fleet(fleet, selection, None if arguments.live is False else clusters)


def write_whole(path: Path, text: str) -> None:
    """Write a file in one step, so that a web server never serves half of it.

    Raises:
        TorchxPulumiError: It cannot be written.
    """
    try:
        with replacing(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise TorchxPulumiError(f"--html {path}: cannot be written: {error.strerror or error}") from error
