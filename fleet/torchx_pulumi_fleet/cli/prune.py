"""The command `torchx-pulumi prune`: deletes apps that ended long ago, and ends."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import TYPE_CHECKING

from torchx_pulumi.model.errors import InvalidJobError, Problem, TorchxPulumiError, invalid_arguments
from torchx_pulumi.model.fleet_package import FLEET_COMMANDS
from torchx_pulumi.model.redaction import without_password
from torchx_pulumi.model.status import JobState
from torchx_pulumi.model.text import in_words
from torchx_pulumi.planning.names import is_dns_label

if TYPE_CHECKING:
    from torchx_pulumi.stack_state.stacks import Stacks

STATES = [state.name for state in JobState if state.terminal or state is JobState.UNKNOWN]
"""States that may be asked for. UNKNOWN: the job object was gone before the end was seen."""

EXIT_FAILED = 1
"""Exit code if an app could not be pruned."""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to a parser."""
    prune = commands.add_parser(
        "prune",
        help=FLEET_COMMANDS["prune"],
        description="Delete the apps of `torchx run` in a Pulumi backend that ended long ago, with their objects and "
        "stacks, as `torchx-pulumi delete` does. Each cluster is asked before. What is active, protected, launched "
        "again, of a program or of somebody else is left alone. Prints one line for each app that was launched before "
        "the limit, and a summary; exits with 1 if an app could not be pruned.",
    )
    prune.add_argument("--ended-before", metavar="AGE", help="apps that ended at least so long ago: 12h, 30d, 8w")
    prune.add_argument(
        "--state",
        action="append",
        default=[],
        metavar="WORD",
        help=f"only: {in_words(STATES)}; repeatable; default: all that have ended",
    )
    prune.add_argument(
        "--backend", metavar="URL", help="Pulumi backend; default: PULUMI_BACKEND_URL, else this user's own folder"
    )
    prune.add_argument(
        "--namespace", action="append", default=[], metavar="NAME", help="only: namespace; repeatable; default: all"
    )
    prune.add_argument(
        "--with-logs", action="store_true", help="delete also their logs, in the archive that the launch named"
    )
    prune.add_argument(
        "--log-archive",
        action="append",
        default=[],
        metavar="URL",
        help="with --with-logs: delete them in this archive too, for example that of the controller; repeatable",
    )
    prune.add_argument("--dry-run", action="store_true", help="print the same lines, and delete nothing")
    prune.set_defaults(command=prune_command)


def prune_command(arguments: argparse.Namespace) -> int:
    """Prune a backend; return 1 if an app could not be pruned."""
    from torchx_pulumi.kube import KubernetesCluster
    from torchx_pulumi.stack_state.backend import choose_backend

    from torchx_pulumi_fleet import read_fleet
    from torchx_pulumi_fleet.views.selection import Selection
    from torchx_pulumi_fleet.writer.pruning import Fate, Pruning

    backend, now = choose_backend(arguments.backend), datetime.now(timezone.utc)
    before, stacks = check_arguments(arguments, backend, now)
    driver, connect = arguments.make_driver(), cache(KubernetesCluster.connect)
    count: Counter[Fate] = Counter()
    try:
        fleet = read_fleet(
            arguments.backend,
            selection=Selection(namespaces=arguments.namespace),
            live=True,
            connect=connect,
            make_driver=lambda: driver,
            now=now,
        )
        for remark in (*fleet.warnings, *fleet.remarks()):
            _say(f"torchx-pulumi: warning: {remark}")
        pruning = Pruning(
            backend=backend,
            stacks=stacks,
            before=before,
            driver=driver,
            connect=connect,
            say=_say,
            dry_run=arguments.dry_run,
            archives=arguments.log_archive if arguments.with_logs else None,
            now=now,
        )
        for outcome in pruning.run(fleet.rows, [JobState[word.upper()] for word in arguments.state]):
            print(outcome, flush=True)  # noqa: T201
            count[outcome.fate] += 1
    finally:
        driver.close()
    done = Fate.DUE if arguments.dry_run else Fate.PRUNED
    words = ", ".join(f"{count[fate]} {fate.value}" for fate in (done, Fate.LEFT, Fate.FAILED))
    print(f"{words}, {len(fleet.rows) - sum(count.values())} younger or of other states")  # noqa: T201
    return EXIT_FAILED if count[Fate.FAILED] else 0


def check_arguments(arguments: argparse.Namespace, backend: str, now: datetime) -> tuple[datetime, Stacks]:
    """Return the limit and the stacks of the backend.

    Raises:
        InvalidJobError: Arguments are wrong; all problems at once.
    """
    from torchx_pulumi.stack_state.stacks import check_there, open_stacks

    from torchx_pulumi_fleet.views.selection import read_duration

    problems = [*check_words(arguments)]
    before = now
    try:
        before -= timedelta(seconds=read_duration(arguments.ended_before or ""))
    except (ValueError, OverflowError):
        text = "is missing" if arguments.ended_before is None else f"found {arguments.ended_before!r}"
        problems.append(Problem("--ended-before", f"{text}, allowed is an age such as 12h, 30d or 8w"))
    option, stacks = f"--backend {without_password(backend)}", None
    try:
        stacks = open_stacks(backend)
        if stacks.only_cli_writes:
            text = "which stacks are those of programs is not known without the files of their history"
            problems.append(Problem(option, f"{stacks.notice or text}; name a folder (file:///path) or a bucket"))
        else:
            check_there(backend)
    except TorchxPulumiError as error:
        problems.append(Problem(option, str(error)))
    if problems or stacks is None:
        raise invalid_arguments(*problems)
    return before, stacks


def check_words(arguments: argparse.Namespace) -> Iterator[Problem]:
    """Yield what is wrong with the words of options."""
    from torchx_pulumi_fleet.archive import open_archive

    for word in arguments.state:
        if word.upper() not in STATES:
            yield Problem("--state", f"found {word!r}, allowed is {in_words(STATES)}; what has not ended is left alone")
    for name in arguments.namespace:
        if not is_dns_label(name):
            yield Problem("--namespace", f"found {name!r}, allowed are lower-case letters, digits and '-', at most 63")
    if arguments.log_archive and not arguments.with_logs:
        yield Problem("--log-archive", "no logs are deleted without --with-logs; give it, or leave this out")
    for url in arguments.log_archive:
        try:
            open_archive(url)
        except InvalidJobError as error:
            yield from (Problem("--log-archive", problem.message) for problem in error.problems)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201
