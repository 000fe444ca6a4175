"""The cluster that components read in tests, in place of a connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from torchx_pulumi.kube import Cluster
from torchx_pulumi_components import job_construction
from torchx_pulumi_stacks import owned_objects


@contextmanager
def cluster_for_tests(cluster: Cluster) -> Iterator[None]:
    """Let components created inside read this cluster, for example `torchx_pulumi.testing.FakeCluster`."""

    def connect(*_: object, **__: object) -> tuple[Cluster, str]:
        return cluster, ""

    with patch.object(job_construction, "connect", connect), patch.object(owned_objects, "connect", connect):
        yield
