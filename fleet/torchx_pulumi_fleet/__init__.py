"""All apps of Pulumi backends: table, live page, metrics, log archive, and the controller that keeps outputs current.

Public names only; what they need is imported when they are used, so that importing this package is fast. It cannot be
imported next to another version of `torchx-pulumi`: it uses modules that have no promise of their own.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchx_pulumi_fleet.tracker.reading import read_fleet

__all__ = ["read_fleet"]


def _check_versions(fleet: str, core: str) -> None:
    """Check that the version of `torchx-pulumi` is the one that this package needs.

    Raises:
        ImportError: It is another one.
    """
    if fleet != core:
        raise ImportError(
            f"torchx-pulumi-fleet {fleet} needs torchx-pulumi {fleet}, found {core}; run "
            f"`pip install 'torchx-pulumi[fleet]=={core}'`"
        )


_check_versions(version("torchx-pulumi-fleet"), version("torchx-pulumi"))


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("torchx_pulumi_fleet.tracker.reading"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
