"""A job whose pods do not become ready, under a real Kueue that waits for them for a short time only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from torchx_pulumi.model.status import JobState, Reason

from tests.e2e.app_wrappers import AppWrappers
from tests.e2e.kueue_queues import KueueQueues
from tests.e2e.test_kueue_reasons import QUOTA, gpus, reads, waits
from tools.local_cluster import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.kueue]


@pytest.fixture(scope="module")
def kueue_cluster() -> Iterator[Cluster]:
    """A cluster in which pods have 15 s to become ready."""
    found = Cluster.up(f"impatient-{os.getpid()}", features=("appwrapper", "kueue"), pods_ready_s=15)
    yield found
    found.down()


@pytest.fixture
def kubeconfig(kueue_cluster: Cluster) -> Path:
    return Path(kueue_cluster.kubeconfig)


def test_pods_that_do_not_become_ready_are_requeued_and_at_last_given_up(
    queues: KueueQueues, jobs: AppWrappers
) -> None:
    queue = queues.make("team", QUOTA)
    name = jobs.submit(gpus(1, node_selector={"kubernetes.io/hostname": "absent"}), local_queue=queue)
    evicted = reads(queues, name, lambda seen: seen.reason is Reason.EVICTED)
    assert "its pods were not ready in time" in evicted.message
    given_up = waits(queues, name, Reason.SUSPENDED, "its Workload is deactivated in Kueue, as it was requeued")
    assert given_up.state is JobState.PENDING
