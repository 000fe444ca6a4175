"""Commands of `torchx-pulumi` that other packages bring, by entry points of the group `torchx_pulumi.commands`.

Each entry point has the name of its command and is a function that adds it to the subcommands of a parser. They are
looked up for the help, and for a name that is no command of this package.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from torchx_pulumi.model.fleet_package import FLEET, FLEET_COMMANDS, INSTALL_FLEET
from torchx_pulumi.model.plugins import find_plugins, load_plugin, package_of, why_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

COMMANDS = "torchx_pulumi.commands"
"""Group of the entry points."""

Subcommands = argparse._SubParsersAction


def add_plugin(commands: Subcommands[argparse.ArgumentParser], name: str) -> str | None:
    """Add the command of a name, if an installed package has it.

    Returns:
        Why there is none, to follow the name in a message. None: it was added.
    """
    return _add_named(commands, name, _plugins())


def add_all_plugins(commands: Subcommands[argparse.ArgumentParser]) -> None:
    """Add all commands for the help: the lines of those that cannot be used say why."""
    plugins = _plugins()
    there = {each.name for each in plugins}
    for name, what in FLEET_COMMANDS.items():
        if name not in there:
            commands.add_parser(name, help=f"{what}; needs {INSTALL_FLEET}")
    for name in sorted(there - {*commands.choices}):
        problem = _add_named(commands, name, plugins)
        if problem is not None:
            commands.add_parser(name, help=problem.replace("%", "%%"))


def _plugins() -> list[EntryPoint]:
    """Return the entry points in the order of their distributions' names."""
    plugins, problems = find_plugins(COMMANDS)
    for problem in problems:
        print(f"torchx-pulumi: warning: {problem}", file=sys.stderr)  # noqa: T201
    return sorted(plugins, key=lambda each: package_of(each).lower())


def _add_named(commands: Subcommands[argparse.ArgumentParser], name: str, plugins: Iterable[EntryPoint]) -> str | None:
    """Add the command of a name; return why there is none, as of `add_plugin`."""
    found = [each for each in plugins if each.name == name]
    if not found:
        if name in FLEET_COMMANDS:
            return f"is a command of {FLEET}, which is not installed; run: {INSTALL_FLEET}"
        there = {*commands.choices, *FLEET_COMMANDS, *(each.name for each in plugins)}
        return f"is not a command; allowed are {', '.join(sorted(there))}"
    if len(found) > 1:
        others = ", ".join(map(package_of, found[1:]))
        print(  # noqa: T201
            f"torchx-pulumi: warning: the command {name} is of {package_of(found[0])}; that of {others} is not used",
            file=sys.stderr,
        )
    return _add(commands, found[0])


def _add(commands: Subcommands[argparse.ArgumentParser], plugin: EntryPoint) -> str | None:
    trial = argparse.ArgumentParser(prog="torchx-pulumi")
    tried = trial.add_subparsers()
    try:
        add = load_plugin(plugin)
        add(tried)
        trial.format_help()
        taken = sorted(commands.choices.keys() & tried.choices.keys())
        if plugin.name in tried.choices and not taken:
            add(commands)
            commands.choices[plugin.name].set_defaults(command_package=package_of(plugin))
            return None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  # whatever another package does, also an exit, other commands work
        return f"is a command of {package_of(plugin)}, which does not work: {why_of(error)}"
    if taken:
        return f"is a command of {package_of(plugin)}, which also adds {', '.join(taken)}: that name is taken"
    return f"is a command of {package_of(plugin)}, which did not add it"
