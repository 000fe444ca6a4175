"""The fake cluster, beyond the contract that it shares with the real one."""

from __future__ import annotations

import pytest
from torchx_pulumi.kube import Reader, kinds
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB
from torchx_pulumi.testing import FakeCluster

SPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}


def test_it_is_a_cluster() -> None:
    cluster: Reader = FakeCluster()
    assert cluster.list(kinds.POD, None) == []


def test_it_can_be_out_of_reach() -> None:
    cluster = FakeCluster([SPACE], error=ClusterError("down", retryable=True))
    for ask in (
        lambda: cluster.get(kinds.NAMESPACE, None, "a"),
        lambda: cluster.list(kinds.POD, None),
        lambda: cluster.serves(kinds.POD),
        lambda: cluster.logs("a", "b"),
    ):
        with pytest.raises(ClusterError, match="down"):
            ask()
    cluster.error = None
    assert cluster.get(kinds.NAMESPACE, None, "a") is not None


def test_it_can_lack_kinds() -> None:
    cluster = FakeCluster(served=[kinds.POD])
    assert not cluster.serves(VOLCANO_JOB)
    with pytest.raises(ClusterError, match="does not serve Job"):
        cluster.get(VOLCANO_JOB, "default", "x")


def test_a_removed_object_is_absent() -> None:
    cluster = FakeCluster([SPACE])
    cluster.remove(kinds.NAMESPACE, None, "a")
    assert cluster.get(kinds.NAMESPACE, None, "a") is None
