"""`torchx-pulumi cancel | resume | delete | log`: commands that `torchx` lacks, or lacks in one version."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from torchx_pulumi.log_archive import check_archive_url
from torchx_pulumi.model.errors import InvalidJobError, Problem, TorchxPulumiError, invalid_arguments
from torchx_pulumi.runs.handle import read_handle

if TYPE_CHECKING:
    from torchx_pulumi.torchx_adapter.scheduler import PulumiScheduler

Command = Callable[[argparse.Namespace], int]

EXIT_FAILED = 2
"""Exit code if an app could not be deleted, as after every other error."""

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def add_apps(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands."""
    cancel = _add(commands, "cancel", cancel_command, "stop an app; its resources come free, its record stays")
    resume = _add(commands, "resume", resume_command, "let a cancelled app run again (Volcano)")
    delete = _add(commands, "delete", delete_command, "delete apps, their stacks and their records", many=True)
    for each in (cancel, resume, delete):
        each.add_argument(
            "--take-over",
            action="store_true",
            help="do not wait for the process that works on the app: it is gone for certain, with its machine or "
            "container; its lock is removed",
        )
    delete.add_argument(
        "--forget-unreachable",
        action="store_true",
        help="forget the app although its cluster cannot be reached; its objects may stay",
    )
    log = _add(commands, "log", log_command, "print the log of a replica, or of all of them")
    log.add_argument("replica", nargs="?", metavar="ROLE[/N]", help="role, and replica in it; default: all roles")
    log.add_argument("--since", metavar="TIME", help="only lines from then on: 2026-01-31T12:00, or 10m ago")
    log.add_argument("--until", metavar="TIME", help="only lines up to then")
    log.add_argument("--regex", help="only lines in which this is found")
    log.add_argument("--container", action="append", default=None, metavar="NAME", help="container, or all; repeatable")
    which = log.add_mutually_exclusive_group()
    which.add_argument("--previous", action="store_true", help="the run before the last restart")
    which.add_argument(
        "--attempt", type=int, metavar="N", help="the N-th run of the replica whose log is kept, the oldest is 1"
    )
    log.add_argument("--archive", metavar="URL", help="archive to ask if the pod is gone; default: the launch's own")
    log.add_argument("--run", metavar="UID", help="archived run with this uid of its job object, or its beginning")
    log.add_argument("--tail", type=int, metavar="N", help="only so many lines of the end")
    log.add_argument("--follow", "-f", action="store_true", help="go on until the app has ended")
    log.add_argument("--no-timestamps", action="store_true", help="lines without the time of their writing")


def _add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    command: Command,
    text: str,
    *,
    many: bool = False,
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text)
    about = "app handle, for example pulumi_volcano://torchx/default:app" + ("; repeatable" if many else "")
    parser.add_argument("handle", metavar="HANDLE", help=about, nargs="+" if many else None)
    parser.set_defaults(command=command)
    return parser


def cancel_command(arguments: argparse.Namespace) -> int:
    """Stop an app."""
    scheduler, app_id = _scheduler(arguments, arguments.handle)
    if not scheduler.exists(app_id):
        _say(f"app {app_id!r} not found; nothing to cancel")
        return 0
    scheduler.cancel(app_id, take_over=arguments.take_over, progress=_say)
    _say(f"{app_id}: asked to stop; `torchx-pulumi delete` removes it, `torchx status` follows it")
    return 0


def resume_command(arguments: argparse.Namespace) -> int:
    """Let a cancelled app run again."""
    scheduler, app_id = _scheduler(arguments, arguments.handle)
    scheduler.resume(app_id, take_over=arguments.take_over)
    _say(f"{app_id}: asked to run again")
    return 0


def delete_command(arguments: argparse.Namespace) -> int:
    """Delete apps, one after the other. An error of one does not keep the others.

    Raises:
        InvalidJobError: A handle is wrong, and nothing was deleted.
    """
    targets: list[tuple[PulumiScheduler, str]] = []
    problems: list[Problem] = []
    failed = False
    for handle in dict.fromkeys(arguments.handle):
        try:
            targets.append(_scheduler(arguments, handle))
        except InvalidJobError as error:
            problems += error.problems
    if problems:
        raise invalid_arguments(*dict.fromkeys(problems))
    for scheduler, app_id in targets:
        try:
            known = scheduler.exists(app_id)
            scheduler.delete(
                app_id, forget_unreachable=arguments.forget_unreachable, take_over=arguments.take_over, progress=_say
            )
        except TorchxPulumiError as error:
            # Now: the next one may take long, and may be interrupted.
            _say(f"torchx-pulumi: {error}")
            failed = True
            continue
        _say(f"{app_id}: deleted" if known else f"app {app_id!r} not found; nothing to delete")
    return EXIT_FAILED if failed else 0


def log_command(arguments: argparse.Namespace) -> int:
    """Print a log."""
    scheduler, app_id = _scheduler(arguments, arguments.handle)
    now = datetime.now().astimezone()
    given = {
        "log_containers": arguments.container,
        "log_previous": arguments.previous or None,
        "log_timestamps": False if arguments.no_timestamps else None,
        "log_archive": arguments.archive,
    }
    if arguments.archive is not None and (problems := check_archive_url(arguments.archive, "--archive")):
        raise invalid_arguments(*problems)
    options = {key: value for key, value in given.items() if value is not None}
    run = arguments.run
    targets = scheduler.logs.replicas(app_id, *_replica(arguments.replica), options=options, run=run)
    for role, replica in targets:
        lines = scheduler.logs.read(
            app_id,
            role,
            replica,
            options=options,
            run=run,
            attempt=arguments.attempt,
            regex=arguments.regex,
            since=read_time("--since", arguments.since, now),
            until=read_time("--until", arguments.until, now),
            follow=arguments.follow and len(targets) == 1,
            tail_lines=arguments.tail,
            progress=_say,
        )
        for line in lines:
            sys.stdout.write(line if len(targets) == 1 else f"{role}/{replica} {line}")
            if arguments.follow:
                sys.stdout.flush()
    return 0


def read_time(option: str, text: str | None, now: datetime) -> datetime | None:
    """Read a point in time: ISO 8601 (without a zone: local time), or how long ago it was. None: not given.

    >>> from datetime import timezone
    >>> read_time("--since", "90s", datetime(2026, 1, 1, 0, 2, tzinfo=timezone.utc)).isoformat()
    '2026-01-01T00:00:30+00:00'

    Raises:
        InvalidJobError: The text is neither.
    """
    if text is None:
        return None
    number, unit = text[:-1], text[-1:]
    try:
        if unit in _UNITS and number.isdecimal():
            return now - timedelta(seconds=int(number) * _UNITS[unit])
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    except (ValueError, OverflowError):
        message = f"is {text!r}, must be a time like 2026-01-31T12:00:00+01:00, or a duration like 90s, 10m, 2h, 1d"
        raise invalid_arguments(Problem(option, message)) from None


def _replica(text: str | None) -> tuple[str | None, int | None]:
    if text is None:
        return None, None
    role, slash, number = text.partition("/")
    if slash and not number.isdecimal():
        raise invalid_arguments(Problem("replica", f"is {text!r}, must be ROLE or ROLE/N"))
    return role, int(number) if slash else None


def _scheduler(arguments: argparse.Namespace, text: str) -> tuple[PulumiScheduler, str]:
    """Return the scheduler and the app id that a handle names.

    Raises:
        InvalidJobError: It is not a handle, or of another scheduler; or TorchX is not installed.
    """
    handle = read_handle(text)
    try:
        from torchx_pulumi.torchx_adapter.context import AdapterContext
        from torchx_pulumi.torchx_adapter.scheduler import PulumiScheduler
    except ImportError as error:
        message = f"this command needs TorchX, which cannot be imported ({error}); install `torchx-pulumi[torchx]`"
        raise invalid_arguments(Problem("torchx", message)) from error
    context = AdapterContext(make_driver=arguments.make_driver)
    return PulumiScheduler(handle.scheduler, handle.session, context), handle.app_id


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201
