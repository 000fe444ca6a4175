"""What a deletion says that it waits for, and when."""

from __future__ import annotations

import itertools
import types
from typing import Any

import pytest
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.runs.deletion import DeletionNotes, deletion_waits
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.fakes import FakeCluster

JOB = {"metadata": {"name": "train", "deletionTimestamp": "2026-01-01T10:00:00Z"}}


def pod(name: str, grace_s: int | None = 30) -> dict[str, Any]:
    grace = {} if grace_s is None else {"deletionGracePeriodSeconds": grace_s}
    meta = {"name": name, "namespace": "ml", "labels": {"job": "train"}, **grace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta}


@pytest.mark.parametrize(
    ("pods", "finalizers", "waits"),
    [
        ([pod("a")], [], "1 pod to end (grace period 30 s): a"),
        ([pod("a", 5), pod("b", 60)], [], "2 pods to end (grace period 60 s): a, b"),
        ([pod(str(number), None) for number in range(7)], [], "7 pods to end: 0, 1, 2, 3, 4 and 2 more"),
        ([], ["foregroundDeletion"], "its finalizers to be removed: foregroundDeletion"),
        ([], [], "the API server to remove it"),
        (None, ["x"], "its pods, which may not be listed"),
    ],
)
def test_a_deletion_waits_for_pods_then_finalizers_then_the_server(pods: Any, finalizers: Any, waits: str) -> None:
    assert deletion_waits({"metadata": {"finalizers": finalizers}}, pods) == waits


def test_a_line_comes_within_two_seconds_and_then_every_ten() -> None:
    now, told = [0.0], list[tuple[float, str]]()
    clock = types.SimpleNamespace(monotonic=lambda: now[0], sleep=None)
    cluster = FakeCluster([pod("a"), {**pod("b"), "metadata": {"name": "b", "namespace": "ml"}}])
    notes = DeletionNotes(cluster, "ml", {"job": "train"}, lambda line: told.append((now[0], line)), clock)
    for tenths in range(0, 250, 2):
        now[0] = tenths / 10
        cluster.error = ClusterError("away", retryable=True) if 1 < now[0] < 15 else None
        notes.tell(VOLCANO_JOB, JOB)
    times, lines = zip(*told, strict=True)
    assert times[0] <= 2
    assert [round(later - before) for before, later in itertools.pairwise(times)] == [20]
    assert lines[0] == "deleting Job ml/train, 1 s so far: waiting for 1 pod to end (grace period 30 s): a"
    assert POD.kind not in lines[0]
