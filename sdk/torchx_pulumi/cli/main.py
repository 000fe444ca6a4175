"""The console command `torchx-pulumi`: one module per group of commands. It has no rules of jobs."""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING, Any, NoReturn

from torchx_pulumi.cli.apps import add_apps
from torchx_pulumi.cli.doctor import add_doctor
from torchx_pulumi.cli.image import add_image
from torchx_pulumi.cli.plugins import Subcommands, add_all_plugins, add_plugin
from torchx_pulumi.cli.program import add_program
from torchx_pulumi.model.errors import DeployError, Problem, TorchxPulumiError, invalid_arguments
from torchx_pulumi.model.fleet_package import CORE, installed_versions
from torchx_pulumi.model.plugins import why_of
from torchx_pulumi.planning.platforms import check_platform
from torchx_pulumi.schedulers.registry import scheduler_names

if TYPE_CHECKING:
    from torchx_pulumi.runs.driver import Driver

EXIT_INVALID = 2
"""Exit code of a mistake in the command line or in the job."""

EXIT_INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


def main(argv: Sequence[str] | None = None, *, make_driver: Callable[[], Driver] | None = None) -> int:
    """Run a command; return its exit code.

    A user's mistake ends as one message on stderr and exit code 2, never as a traceback.

    Args:
        argv: Arguments after the command's name. None: those of this process.
        make_driver: Makes the engine. None: commands that need one say so.
    """
    try:
        code = _code_of(argv, make_driver or _no_driver)
        # Otherwise the interpreter writes the rest of the output when it ends, where an error is a traceback.
        if sys.stdout is not None:  # the caller closed it
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output has ended
        _drop_output()
        return 0
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _drop_output()
        print("torchx-pulumi: no space is left on the device that is written to; free some", file=sys.stderr)  # noqa: T201
        return EXIT_INVALID
    return code


def _code_of(argv: Sequence[str] | None, make_driver: Callable[[], Driver]) -> int:
    """Run a command; return its exit code, also after a mistake or Ctrl-C."""
    try:
        return _run(argv, make_driver)
    except TorchxPulumiError as error:
        print(f"torchx-pulumi: {error}", file=sys.stderr)  # noqa: T201
        return EXIT_INVALID
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _run(argv: Sequence[str] | None, make_driver: Callable[[], Driver]) -> int:
    words = [*(sys.argv[1:] if argv is None else argv)]
    try:
        arguments = _parser(words).parse_args(words)
    except SystemExit as exit_:  # argparse ends the process, which a caller of `main` does not expect
        return exit_.code if isinstance(exit_.code, int) else EXIT_INVALID
    arguments.make_driver = make_driver
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A name may hold a letter that the encoding of the output does not have.
        sys.stdout.reconfigure(errors="backslashreplace")
    check_platform()
    command: Callable[[argparse.Namespace], int] | None = getattr(arguments, "command", None)
    if command is None:
        raise DeployError(f"the package of the command {words[0]} does not say what it runs; ask its authors")
    try:
        return command(arguments)
    except ImportError as error:
        package = getattr(arguments, "command_package", CORE)
        text = f"{package} is installed without what the command {words[0]} needs"
        raise DeployError(f"{text}: {why_of(error)}; run: pip install {package}") from error


def _drop_output() -> None:
    # The interpreter writes what is left of the output once more when it ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _no_driver() -> Driver:
    raise DeployError("this way of starting torchx-pulumi has no engine; start the console command `torchx-pulumi`")


def render_command(arguments: argparse.Namespace) -> int:
    """Print the manifest of an AppDef file as YAML."""
    from torchx_pulumi.inputs.appfile import read_app_file
    from torchx_pulumi.inputs.rendering import plan_app, render_plan
    from torchx_pulumi.kube.yaml_text import to_yaml

    spec = read_app_file(arguments.file)
    plan = plan_app(spec, arguments.scheduler, read_option_words(arguments.option), app_id=arguments.app_id)
    text = to_yaml(render_plan(plan))
    for warning in plan.warnings:
        print(f"torchx-pulumi: warning: {warning}", file=sys.stderr)  # noqa: T201
    sys.stdout.write(text)
    return 0


def read_option_words(words: Sequence[str]) -> dict[str, str]:
    """Split `KEY=VALUE` words.

    Raises:
        InvalidJobError: A word has no `=`, no key, or a key that came before.

    >>> read_option_words(["queue=test", "labels=a=b"])
    {'queue': 'test', 'labels': 'a=b'}
    """
    options: dict[str, str] = {}
    problems = []
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or not key:
            problems.append(Problem("--option", f"is {word!r}, must be KEY=VALUE"))
        elif key in options:
            problems.append(Problem("--option", f"gives {key} twice; remove one"))
        options[key] = value
    if problems:
        raise invalid_arguments(*problems)
    return options


class _ShowVersions(argparse.Action):
    """Prints the versions of the packages, which take longer to find than the rest of the parser."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        for name, version in ({CORE: "(a checkout that is not installed)"} | installed_versions()).items():
            print(name, version)  # noqa: T201
        parser.exit()


class _CommandParser(argparse.ArgumentParser):
    """Parser of one command. Arguments that it does not have are its mistake: its usage says which it has."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown


class _Parser(argparse.ArgumentParser):
    """Parser whose help has the commands of other packages, which are looked up for it alone, as that takes time."""

    commands: Subcommands[argparse.ArgumentParser]
    unknown: str | None = None
    """Why there is no command of the first word. What is before it, such as `--version`, counts nevertheless."""

    def error(self, message: str) -> NoReturn:
        super().error(self.unknown or message)

    def print_help(self, file: IO[str] | None = None) -> None:  # type: ignore[override]
        add_all_plugins(self.commands)
        super().print_help(file)


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Make the parser of some words; a command of another package is looked up if they begin with it."""
    parser = _Parser(prog="torchx-pulumi", description="TorchX training jobs on Kubernetes.")
    parser.add_argument("--version", action=_ShowVersions, nargs=0, help="print the versions and end")
    commands: Subcommands[argparse.ArgumentParser] = parser.add_subparsers(
        title="commands", required=True, metavar="COMMAND", parser_class=_CommandParser
    )
    parser.commands = commands
    render = commands.add_parser("render", help="print the manifest of an AppDef file as YAML")
    render.add_argument(
        "--scheduler", required=True, help=f"scheduler that runs the job: {' or '.join(scheduler_names())}"
    )
    render.add_argument("--app-id", required=True, metavar="ID", help="name of the job object")
    render.add_argument(
        "--option", action="append", default=[], metavar="KEY=VALUE", help="run option, for example queue=default"
    )
    render.add_argument("file", metavar="FILE", help="AppDef file, YAML or JSON")
    render.set_defaults(command=render_command)
    add_apps(commands)
    add_program(commands)
    add_image(commands)
    add_doctor(commands)
    name = next((word for word in words if not word.startswith("-")), None)
    if name is not None and name not in commands.choices:
        problem = add_plugin(commands, name)
        if problem is not None:
            parser.unknown = f"{name} {problem}"
    return parser
