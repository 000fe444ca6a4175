"""What a job needs in its cluster is looked for before a launch."""

from __future__ import annotations

import pytest
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.schedulers.preflight import preflight
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_QUEUE as QUEUE
from torchx_pulumi.schedulers.volcano.options import VolcanoOptions
from torchx_pulumi.testing import FakeCluster

NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}


@pytest.mark.parametrize(
    ("queue", "said"),
    [
        ("gold", None),
        ("golden", "'golden' is not in the cluster; did you mean 'gold'?"),
        ("x", "'x' is not in the cluster; there are gold, silver"),
    ],
)
def test_an_absent_queue_is_a_problem_that_names_those_there_are(queue: str, said: str | None) -> None:
    queues = [
        {"apiVersion": QUEUE.api_version, "kind": QUEUE.kind, "metadata": {"name": name}, "status": {"state": "Open"}}
        for name in ("silver", "gold")
    ]
    problems, warnings = preflight(FakeCluster([NAMESPACE, *queues]), VolcanoOptions(queue=queue))
    assert [problem.message for problem in problems] == ([] if said is None else [said])
    assert warnings == []


class HiddenKinds(FakeCluster):
    """A cluster that does not say which kinds it serves."""

    reason = "Forbidden"

    def serves(self, kind: Kind) -> bool:
        raise ClusterError(f"no path of {kind.group}", reason=self.reason)


def test_a_scheduler_that_may_not_be_seen_is_a_warning() -> None:
    cluster, options = HiddenKinds([NAMESPACE]), VolcanoOptions(queue="gold")
    problems, warnings = preflight(cluster, options)
    assert [problem.path for problem in problems] == ["queue"]
    assert warnings == ["whether the scheduler is installed could not be checked: no path of batch.volcano.sh"]
    cluster.reason = "Unauthorized"
    with pytest.raises(ClusterError, match=r"no path of batch\.volcano\.sh"):
        preflight(cluster, options)
