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
        # AppWrappers v1beta1.
        "mcad": ("mcad",),
        # AppWrappers v1beta2, whose definition has the name of MCAD's.
        "appwrapper": ("appwrapper",),
        # Quota for AppWrappers v1beta2, JobSets, Jobs and pods.
        "kueue": ("kueue",),
        # Gangs of the pods of AppWrappers: a default scheduler with one plugin more than Kubernetes has.
        "coscheduling": ("scheduler-plugins",),
    }
)
"""Parts of each feature, by its name."""

DEFAULT: Final = ("volcano", "mcad", "coscheduling")
"""What a cluster has unless somebody says otherwise."""

APP_WRAPPERS: Final = frozenset({"mcad", "appwrapper"})
"""No two of these in one cluster. Their pods need a default scheduler: Volcano's binds its own pods only."""


def chosen(names: Iterable[str]) -> tuple[str, ...]:
    """Return the features in the order of the table.

    Raises:
        LocalClusterError: one is unknown, or two exclude each other.
    """
    wanted = set(names)
    if unknown := sorted(wanted - FEATURES.keys()):
        raise LocalClusterError(f"no feature is called {unknown[0]!r}; there are: {', '.join(FEATURES)}")
    if wanted >= APP_WRAPPERS:
        raise LocalClusterError(
            f"{' and '.join(sorted(APP_WRAPPERS))} define the same custom resource: choose one, or use two clusters"
        )
    return tuple(name for name in FEATURES if name in wanted)


def parts_of(names: Iterable[str]) -> tuple[str, ...]:
    """Return the parts that features take, each once."""
    wanted = set(names)
    parts = tuple(part for name in FEATURES if name in wanted for part in FEATURES[name])
    plain = wanted & APP_WRAPPERS and "coscheduling" not in wanted
    return (*parts, "kube-scheduler") if plain else parts


def grown(having: Iterable[str], more: Iterable[str]) -> tuple[str, ...] | None:
    """Return the features of a running cluster that gets more. None: a part that runs would have to go for them."""
    before, after = set(having), {*having, *more}
    if after >= APP_WRAPPERS or not set(parts_of(before)) <= set(parts_of(after)):
        return None
    return chosen(after)
