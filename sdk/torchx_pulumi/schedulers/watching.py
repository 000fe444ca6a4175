"""The kinds that a process watches to know the state of all apps, the labels of their objects, and the permissions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from torchx_pulumi.kube import Selector
from torchx_pulumi.kube.kinds import EVENT, POD, Kind
from torchx_pulumi.model import labels
from torchx_pulumi.schedulers.permissions import READING, Permission
from torchx_pulumi.schedulers.registry import find_backend, scheduler_names

WATCH_VERBS: Final = ("get", "list", "watch")
"""Verbs on each watched kind."""


def watch_list() -> list[tuple[Kind, Selector | None]]:
    """Return each kind that the registered schedulers observe, once, with the labels that an object must have.

    Events have no labels, and queues are not made by this package: all of them are watched.
    """
    found: dict[Kind, Selector | None] = {}
    for scheduler in scheduler_names():
        backend = find_backend(scheduler)
        launched = [(variant.job_object, {labels.LAUNCH: None}) for variant in backend.variants.values()]
        for kind, selector in (*launched, *backend.explaining_kinds):
            # Two schedulers that select objects of one kind by different labels need all of them.
            found[kind] = selector if found.get(kind, selector) == selector else None
    found[POD] = {labels.ORGANIZATION: labels.ORGANIZATION_VALUE}
    found[EVENT] = None
    return [*found.items()]


def watch_permissions() -> list[Permission]:
    """Return the permissions of a process that watches: verbs on each watched kind, and further reads of a run."""
    watched = [Permission(verb=verb, kind=kind) for kind, _ in watch_list() for verb in WATCH_VERBS]
    named = {(one.verb, one.resource) for one in watched}
    return [*watched, *(one for one in READING if (one.verb, one.resource) not in named)]


def forget_permissions() -> list[Permission]:
    """Return the further permissions of a controller that removes old apps, on each kind that a launch creates."""
    variants = [variant for name in scheduler_names() for variant in find_backend(name).variants.values()]
    made = dict.fromkeys(kind for variant in variants for kind in (variant.job_object, *variant.companions))
    watched = {kind for kind, _ in watch_list()}
    seen = [Permission(verb="get", kind=kind) for kind in made if kind not in watched]
    return [*(Permission(verb="delete", kind=kind) for kind in made), *seen]


def rbac_rules(permissions: Iterable[Permission], *, namespaced: bool | None = None) -> list[dict[str, Any]]:
    """Return the rules of a Role or ClusterRole, sorted, and as few as grant exactly these permissions.

    Args:
        permissions: The granted permissions.
        namespaced: True: only what is in namespaces, for a Role. False: only the rest, for a ClusterRole next to Roles.
            None: everything.
    """
    verbs: dict[tuple[str, str], set[str]] = {}
    for one in permissions:
        if namespaced in (None, one.kind.namespaced):
            resource = f"{one.kind.plural}/{one.part}" if one.part else one.kind.plural
            verbs.setdefault((one.kind.group, resource), set()).add(one.verb)
    grouped: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (group, resource), allowed in sorted(verbs.items()):
        grouped.setdefault((group, tuple(sorted(allowed))), []).append(resource)
    return [
        {"apiGroups": [group], "resources": resources, "verbs": [*allowed]}
        for (group, allowed), resources in grouped.items()
    ]
