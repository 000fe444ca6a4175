"""The pods of a run: listed by label, or asked for by name where they may not be listed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from torchx_pulumi.kube import Cluster, run_concurrently
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.schedulers.permissions import GET_PODS, LIST_PODS, if_permitted

AT_ONCE: Final = 16
"""Pods that are asked for by name at the same time."""


def list_pods(cluster: Cluster, namespace: str, selector: Mapping[str, str]) -> list[Manifest] | None:
    """Return the pods that have some labels. None: pods may not be listed."""
    return if_permitted(cluster, LIST_PODS, namespace, lambda: cluster.list(POD, namespace, selector))


def get_pods(cluster: Cluster, namespace: str, names: Sequence[str]) -> tuple[Manifest, ...] | None:
    """Return those of some pods that are there. None: pods may not be read."""
    found: list[Manifest] = []
    for start in range(0, len(names), AT_ONCE):
        read = [lambda name=name: _get(cluster, namespace, name) for name in names[start : start + AT_ONCE]]
        answers = run_concurrently(*read)
        if None in answers:
            return None
        found += [pod for pods in answers for pod in pods]
    return tuple(found)


def _get(cluster: Cluster, namespace: str, name: str) -> tuple[Manifest, ...] | None:
    def read() -> tuple[Manifest, ...]:
        found = cluster.get(POD, namespace, name)
        return () if found is None else (found,)

    return if_permitted(cluster, GET_PODS, namespace, read)
