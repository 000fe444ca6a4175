"""Quotas of Kueue: what a ClusterQueue has, what of it is free, and what it can have at most with its cohort.

The rules are those of Kueue (`pkg/cache/scheduler/resource_node.go`): a ClusterQueue lends what it does not use, up to
its `lendingLimit`, and borrows from its cohort, up to its `borrowingLimit`. Cohorts lend and borrow in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torchx_pulumi.model.object_fields import items_at, text_at
from torchx_pulumi.model.options import Observed
from torchx_pulumi.schedulers.diagnosis.nodes import amount

HALF_OF_LEAST = 0.0005
"""Half of the least amount that Kueue counts. Sums of fractions differ by less: 0.1 + 0.2 is more than 0.3 here."""

FlavorResource = tuple[str, str]
"""Name of a ResourceFlavor, and name of a resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The quota of one resource of one flavor in a ClusterQueue."""

    nominal: float
    """Its own."""
    free: float | None
    """What a job could get now, borrowed quota included. None: not known."""
    most: float
    """What a job could get if nothing else ran in its cohort. Infinite: not known."""


@dataclass(slots=True)
class _Node:
    """A ClusterQueue or a cohort."""

    parent: str | None = None
    """Name of its cohort. None: it has none."""
    quotas: Mapping[FlavorResource, Mapping[str, object]] = field(default_factory=dict)
    usage: Mapping[FlavorResource, float] = field(default_factory=dict)
    above: _Node | None = None
    below: list[_Node] = field(default_factory=list)

    def limit(self, of: FlavorResource, name: str) -> float:
        """Return a limit of borrowing or lending; infinite without one."""
        value = self.quotas.get(of, {}).get(name)
        return math.inf if value is None else amount(value)

    def total(self, of: FlavorResource) -> float:
        """Return the quota of this node, with what those below it lend."""
        own = amount(self.quotas.get(of, {}).get("nominalQuota"))
        return own + sum(min(one.total(of), one.limit(of, "lendingLimit")) for one in self.below)

    def kept(self, of: FlavorResource) -> float:
        """Return the part of its total that it never lends."""
        return max(0.0, self.total(of) - self.limit(of, "lendingLimit"))

    def used(self, of: FlavorResource) -> float:
        """Return the part of its total that is taken."""
        return self.usage.get(of, 0.0) + sum(max(0.0, one.used(of) - one.kept(of)) for one in self.below)

    def free(self, of: FlavorResource) -> float:
        total, used, kept = self.total(of), self.used(of), self.kept(of)
        if self.above is None:
            return total - used
        lent = total - kept - max(0.0, used - kept) + self.limit(of, "borrowingLimit")
        return max(0.0, kept - used) + min(lent, self.above.free(of))

    def most(self, of: FlavorResource) -> float:
        if self.above is None:
            return self.total(of)
        return min(self.kept(of) + self.above.most(of), self.total(of) + self.limit(of, "borrowingLimit"))


def exceeds(value: float, most: float) -> bool:
    """Return whether a sum of requests is more than an amount, as Kueue counts it."""
    return value - most > HALF_OF_LEAST


def quotas_of(
    cluster_queue: Observed, queues: Sequence[Observed] | None, cohorts: Sequence[Observed] | None
) -> dict[FlavorResource, Quota]:
    """Return the quotas of a ClusterQueue by flavor and resource, in the order of its spec.

    Args:
        cluster_queue: The ClusterQueue.
        queues: All ClusterQueues, as listed. None: they were not read.
        cohorts: All Cohorts. None: they were not read. Without both lists, a ClusterQueue of a cohort has no known
            free quota, and at most what its `borrowingLimit` allows.
    """
    node, name = _queue(cluster_queue), text_at(cluster_queue, "metadata", "name")
    is_known = node.parent is None or (queues is not None and cohorts is not None)
    if is_known and node.parent is not None:
        others = [_queue(one) for one in queues or () if text_at(one, "metadata", "name") != name]
        _link([node, *others], {text_at(one, "metadata", "name") or "": _cohort(one) for one in cohorts or ()})
    return {
        each: Quota(
            nominal=amount(node.quotas[each].get("nominalQuota")),
            free=max(0.0, node.free(each)) if is_known else None,
            most=node.most(each) if is_known else node.total(each) + node.limit(each, "borrowingLimit"),
        )
        for each in node.quotas
    }


def cohort_of(cluster_queue: Observed) -> str | None:
    """Return the name of the cohort of a ClusterQueue, or None if it has none."""
    return text_at(cluster_queue, "spec", "cohortName")


def _queue(found: Observed) -> _Node:
    return _Node(parent=cohort_of(found), quotas=_quotas(found), usage=_usage(found))


def _cohort(found: Observed) -> _Node:
    return _Node(parent=text_at(found, "spec", "parentName"), quotas=_quotas(found))


def _link(queues: Sequence[_Node], cohorts: dict[str, _Node]) -> None:
    """Link nodes with the cohorts that they name; one without an object has no quota of its own."""
    for node in queues:
        _under(node, cohorts)
    for node in [*cohorts.values()]:
        _under(node, cohorts)


def _under(node: _Node, cohorts: dict[str, _Node]) -> None:
    if node.parent is None:
        return
    above = cohorts.setdefault(node.parent, _Node())
    one: _Node | None = above
    while one is not None and one is not node:
        one = one.above
    # Kueue gives a circle of cohorts no quota; here the link that closes it is left out.
    if one is None:
        node.above = above
        above.below.append(node)


def _quotas(found: Observed) -> dict[FlavorResource, Mapping[str, object]]:
    return {
        (text_at(flavor, "name") or "", text_at(one, "name") or ""): one
        for group in items_at(found, "spec", "resourceGroups")
        for flavor in items_at(group, "flavors")
        for one in items_at(flavor, "resources")
    }


def _usage(found: Observed) -> dict[FlavorResource, float]:
    return {
        (text_at(flavor, "name") or "", text_at(one, "name") or ""): amount(one.get("total"))
        for flavor in items_at(found, "status", "flavorsReservation")
        for one in items_at(flavor, "resources")
    }
