"""What a cluster has to have for a job on Volcano."""

from __future__ import annotations

import pytest
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.schedulers.preflight import preflight
from torchx_pulumi.schedulers.volcano.options import GangMode, VolcanoOptions

from tests.fakes import FakeCluster


@pytest.mark.parametrize(
    ("gang", "kind"),
    [(GangMode.JOB, "Job of batch.volcano.sh"), (GangMode.PODS, "PodGroup of scheduling.volcano.sh")],
)
def test_a_cluster_without_volcano_is_a_problem(gang: GangMode, kind: str) -> None:
    problems, _ = preflight(FakeCluster(served=[POD]), VolcanoOptions(queue="default", gang=gang))
    assert [problem.message for problem in problems] == [
        f"serves no {kind}: Volcano is not installed; install it, or choose another cluster"
    ]
