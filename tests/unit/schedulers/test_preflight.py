"""What a job needs in its cluster is looked for before a launch."""

from __future__ import annotations

import pytest
from torchx_pulumi.schedulers.preflight import preflight
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_QUEUE as QUEUE
from torchx_pulumi.schedulers.volcano.options import VolcanoOptions

from tests.fakes import FakeCluster

NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}


@pytest.mark.parametrize(
    ("queue", "said"),
    [
        ("gold", None),
        ("golden", "'golden' is not in the cluster; did you mean 'gold'?"),
        ("x", "'x' is not in the cluster; there are gold, silver"),
        ("root", "'root' is the root of all queues; a job can only be submitted to a queue below it"),
        ("old", "'old' is Closed; a job can only be submitted to an open queue"),
    ],
)
def test_an_absent_queue_is_a_problem_that_names_those_there_are(queue: str, said: str | None) -> None:
    queues = [
        {"apiVersion": QUEUE.api_version, "kind": QUEUE.kind, "metadata": {"name": name}, "status": {"state": state}}
        for name, state in (("silver", "Open"), ("gold", "Open"), ("old", "Closed"), ("root", "Open"))
    ]
    problems, warnings = preflight(FakeCluster([NAMESPACE, *queues]), VolcanoOptions(queue=queue))
    assert [problem.message for problem in problems] == ([] if said is None else [said])
    assert warnings == []
