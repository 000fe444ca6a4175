"""Request the pods of a run: all of them, or for many a row of each and the pods that can explain a status."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from torchx_pulumi.kube import PodReader
from torchx_pulumi.kube.pod_list import PodRow
from torchx_pulumi.kube.trimming import trim
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.status import JobState
from torchx_pulumi.schedulers.permissions import LIST_PODS, if_permitted
from torchx_pulumi.schedulers.pods.observe import get_pods
from torchx_pulumi.schedulers.pods.status import state_of_row

MOST_WHOLE: Final = 500
"""Pods of a run up to which each is read as a whole."""

MOST_FAILED: Final = 200
"""Failed pods that are read as a whole if a run has more pods."""

OF_EACH: Final = 8
"""Other pods that are read as a whole, of those with the same word in the column STATUS."""

MOST_OTHERS: Final = 48
"""Such pods of all words together."""


def read_many(
    cluster: PodReader, namespace: str, selector: Mapping[str, str], *, many: bool
) -> tuple[Sequence[Manifest], Mapping[str, PodRow] | None] | None:
    """Return the pods that match a selector, and the rows of all if they are more than `MOST_WHOLE`.

    Args:
        cluster: The cluster.
        namespace: Namespace of the pods.
        selector: The labels.
        many: There are more, as far as is known.

    Returns:
        The pods, and rows by name. Rows None: the pods are all. None: pods may not be listed.
    """
    found = if_permitted(
        cluster,
        LIST_PODS,
        namespace,
        lambda: cluster.list_pods(namespace, selector, whole=0 if many else MOST_WHOLE),
    )
    if found is None or found.rows is None:
        return None if found is None else (found.pods, None)
    if len(found.rows) <= MOST_WHOLE:
        return cluster.list_pods(namespace, selector).pods, None
    rows = {row.name: row for row in found.rows}
    whole: dict[str, Manifest] = {}
    if any(map(_may_have_failed, found.rows)):
        failed = cluster.list_pods(namespace, selector, whole=MOST_FAILED, phase="Failed")
        whole = {pod["metadata"]["name"]: pod for pod in failed.pods}
        for name in [*whole, *(row.name for row in failed.rows or ())]:
            if name in rows:
                rows[name] = replace(rows[name], phase="Failed")
    by_word: dict[str, list[str]] = defaultdict(list)
    for row in rows.values():
        if row.phase != "Failed" and len(by_word[row.status]) < OF_EACH:
            by_word[row.status].append(row.name)
    chosen = [name for names in by_word.values() for name in names][:MOST_OTHERS]
    others = get_pods(cluster, namespace, chosen) or ()
    return [*whole.values(), *map(trim, others)], rows


def _may_have_failed(row: PodRow) -> bool:
    state = state_of_row(row)
    if row.phase is None and state is JobState.SUCCEEDED:
        # The first container did; the pod fails with any.
        return row.containers != 1
    return state in (None, JobState.FAILED) or row.status.startswith("Init:")
