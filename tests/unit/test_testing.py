"""The cluster for unit tests of programs, beyond the contract that it shares with the real one."""

from __future__ import annotations

import re
from typing import Any

import pytest
from torchx_pulumi.kube import Reader, kinds
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.fakes import FakeCluster

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


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        ({"apiVersion": "v1", "kind": "Pod"}, "a text at metadata.name; found the fields apiVersion, kind"),
        ({"metadata": {"name": 3}}, "a text at apiVersion and kind and metadata.name; found the fields metadata"),
        ([SPACE], "apiVersion and kind and metadata.name; found [{"),
        (None, "apiVersion and kind and metadata.name; found None"),
    ],
)
def test_an_object_without_what_names_it_is_refused(manifest: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        FakeCluster([manifest])
