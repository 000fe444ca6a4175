"""Fakes of cluster and engine. Each passes the contract tests of the real one (`tests/contract`)."""

from tests.fakes.cluster import KNOWN, FakeCluster
from tests.fakes.driver import FakeDriver

__all__ = ["KNOWN", "FakeCluster", "FakeDriver"]
