"""The kinds that a process watches to know the state of all apps, and the labels of their objects."""

from __future__ import annotations

from torchx_pulumi.kube import Selector
from torchx_pulumi.kube.kinds import EVENT, POD, Kind
from torchx_pulumi.model import labels
from torchx_pulumi.schedulers.registry import find_backend, scheduler_names


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
