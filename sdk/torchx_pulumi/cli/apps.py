"""`torchx-pulumi cancel | resume | delete | log`: commands that `torchx` lacks, or lacks in one version."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from torchx_pulumi.model.errors import DeployError, InvalidJobError, Problem, TorchxPulumiError, invalid_arguments
from torchx_pulumi.model.text import listed
from torchx_pulumi.runs.handle import DEFAULT_SESSION, Handle, handle_forms, handle_of, read_handle
from torchx_pulumi.schedulers.registry import scheduler_names

if TYPE_CHECKING:
    from torchx_pulumi.model.app_entry import RunEntry
    from torchx_pulumi.torchx_adapter.scheduler import PulumiScheduler

Command = Callable[[argparse.Namespace], int]

EXIT_FAILED = 2
"""Exit code if an app could not be deleted, as after every other error."""

ABOUT = (
    "app handle, for example pulumi_volcano://torchx/default:app; or NAMESPACE:NAME or the stack of one app, as "
    "`torchx-pulumi fleet` prints them"
)
"""Help about what names an app."""

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
    log.add_argument("--follow", "-f", action="store_true", help="go on until the app has ended; one replica")
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
    parser.add_argument(
        "handle", metavar="HANDLE", help=ABOUT + ("; repeatable" if many else ""), nargs="+" if many else None
    )
    parser.set_defaults(command=command)
    return parser


def cancel_command(arguments: argparse.Namespace) -> int:
    """Stop an app."""
    scheduler, app_id = _scheduler(arguments, arguments.handle)
    entry = scheduler.entry(app_id, to_change=True)
    if entry is None:
        _say(f"app {app_id!r} not found; nothing to cancel")
        return 0
    ended = scheduler.cancel(app_id, take_over=arguments.take_over, progress=_say)
    done = "asked to stop" if ended is None else f"had ended already, as {ended.value}"
    removal = "`pulumi destroy` in its program" if entry.of_program else "`torchx-pulumi delete`"
    _say(f"{app_id}: {done}; {removal} removes it, `torchx status` follows it")
    return 0


def resume_command(arguments: argparse.Namespace) -> int:
    """Let a cancelled app run again."""
    scheduler, app_id = _scheduler(arguments, arguments.handle)
    scheduler.resume(app_id, take_over=arguments.take_over, progress=_say)
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
    from torchx_pulumi.logs.archives import check_archive_url

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
    if arguments.follow and len(targets) > 1:
        names = listed([f"{role}/{replica}" for role, replica in targets], 3)
        raise invalid_arguments(
            Problem("--follow", f"follows one replica; there are {names}: name one, or use `torchx log --tail`")
        )
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
            follow=arguments.follow,
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
    """Return the scheduler and the id of the app that a text names.

    Raises:
        InvalidJobError: See `read_app`; or TorchX is not installed.
    """
    handle = read_handle(text) if "://" in text else None
    try:
        from torchx_pulumi.torchx_adapter.context import AdapterContext
        from torchx_pulumi.torchx_adapter.scheduler import PulumiScheduler
    except ImportError as error:
        message = f"this command needs TorchX, which cannot be imported ({error}); install `torchx-pulumi[torchx]`"
        raise invalid_arguments(Problem("torchx", message)) from error
    context = AdapterContext(make_driver=arguments.make_driver)
    handle = handle or read_app(
        text, lambda app_id, name: PulumiScheduler(name, DEFAULT_SESSION, context).entry(app_id)
    )
    return PulumiScheduler(handle.scheduler, handle.session, context), handle.app_id


def read_app(text: str, find: Callable[[str, str], RunEntry | None]) -> Handle:
    """Read what names an app: its handle; or its id or its stack, as the fleet prints them, where one app has it.

    Args:
        text: The text.
        find: Takes an app id and the name of a scheduler, and returns the app. None: unknown.

    Raises:
        InvalidJobError: It is neither, of another scheduler, or of no app or several.
        DeployError: The backend in force, or the stack in it, cannot be read.
    """
    from torchx_pulumi.runs.index import is_app_id
    from torchx_pulumi.stack_state.backend import choose_backend

    if is_app_id(text):
        found = [handle_of(entry) for name in scheduler_names() if (entry := find(text, name)) is not None]
    else:
        found = [] if "://" in text else _in_stacks(text)
    if len(found) > 1:
        raise invalid_arguments(Problem("HANDLE", f"{text!r} is {len(found)} apps: write {' or '.join(found)}"))
    if not found and "://" not in text:
        where = "which is no app of the local index, the backend or the cluster in force"
        if not is_app_id(text):
            allowed = f"{handle_forms()}, NAMESPACE:NAME, or the stack of an app"
            where = f"must be {allowed}; no such stack is in the local index or in {choose_backend()}"
        fleet = "`torchx-pulumi fleet --json` has the handles of a backend's apps"
        raise invalid_arguments(Problem("HANDLE", f"is {text!r}, {where}; {fleet}"))
    return read_handle(found[0] if found else text)


def _in_stacks(name: str) -> list[str]:
    """Return the handles of the apps in the stacks of a name: those of the local index, and of the backend in force."""
    from torchx_pulumi.apps.app import read_apps
    from torchx_pulumi.outputs.building import app_handle
    from torchx_pulumi.runs.index import RunIndex
    from torchx_pulumi.stack_state.backend import choose_backend
    from torchx_pulumi.stack_state.checkpoint import DAMAGED, checkpoint_text, parse_components
    from torchx_pulumi.stack_state.stacks import StackName, open_stacks

    found = [handle_of(one) for one in RunIndex().all() if one.has_stack and name in StackName.of(one.place).names]
    backend = choose_backend()
    stacks = open_stacks(backend)
    for stack in stacks.versions():
        if name in stack.names:
            try:
                apps = read_apps(parse_components(stacks.read(stack) or checkpoint_text("")), stack.at(backend))
            except DAMAGED as error:
                raise DeployError(f"stack {stack} cannot be read: {error}") from error
            found += [app_handle(one.run.variant.scheduler, one.run.namespace, one.run.job_name) for one in apps]
    # The session of a handle is not part of the app.
    return [*{handle.partition("://")[0] + handle.rpartition("/")[2]: handle for handle in reversed(found)}.values()]


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201
