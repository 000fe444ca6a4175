"""The names of both packages of this project, and of the commands that `torchx-pulumi-fleet` adds."""

from __future__ import annotations

from typing import Final

CORE: Final = "torchx-pulumi"
FLEET: Final = "torchx-pulumi-fleet"

INSTALL_FLEET: Final = f"pip install '{CORE}[fleet]'"
"""Command that installs it in the same version."""

FLEET_COMMANDS: Final = {
    "fleet": "list all apps of a Pulumi backend",
    "controller": "watch clusters and keep stack outputs current",
    "prune": "delete apps that ended long ago",
}
"""Commands of `torchx-pulumi` that it has, and what each does."""


def installed_versions() -> dict[str, str]:
    """Return the versions of the packages that are installed, by their names, this one first."""
    # Imported here: this takes longer than the rest of the parser of the commands.
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in (CORE, FLEET):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
