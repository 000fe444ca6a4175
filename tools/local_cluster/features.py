"""What a cluster may have beside plain Kubernetes, and which parts that takes. A table and its rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from tools.local_cluster.errors import LocalClusterError

FEATURES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        # Gangs from Volcano Jobs.
        "volcano": ("volcano",),
        # AppWrappers v1beta1, and a default scheduler with gangs: Volcano binds its own pods only.
        "mcad": ("mcad", "scheduler-plugins"),
        # AppWrappers v1beta2, whose definition has the name of MCAD's.
        "appwrapper": ("appwrapper", "scheduler-plugins"),
    }
)
"""Parts of each feature, by its name."""

DEFAULT: Final = ("volcano", "mcad")
"""What a cluster has unless somebody says otherwise."""

EXCLUSIVE: Final = frozenset({"mcad", "appwrapper"})
"""No two of these in one cluster."""


def chosen(names: Iterable[str]) -> tuple[str, ...]:
    """Return the features in the order of the table.

    Raises:
        LocalClusterError: one is unknown, or two exclude each other.
    """
    wanted = set(names)
    if unknown := sorted(wanted - FEATURES.keys()):
        raise LocalClusterError(f"no feature is called {unknown[0]!r}; there are: {', '.join(FEATURES)}")
    if wanted >= EXCLUSIVE:
        raise LocalClusterError(
            f"{' and '.join(sorted(EXCLUSIVE))} define the same custom resource: choose one, or use two clusters"
        )
    return tuple(name for name in FEATURES if name in wanted)


def parts_of(names: Iterable[str]) -> tuple[str, ...]:
    """Return the parts that features take, each once."""
    return tuple(dict.fromkeys(part for name in names for part in FEATURES[name]))
