"""A launch into a queue of Kueue that can never admit it is refused; a stopped queue is a warning."""

from __future__ import annotations

from typing import Any

import pytest
from torchx_pulumi.kube.kinds import NAMESPACE
from torchx_pulumi.model.finding import DoctorScope, Verdict
from torchx_pulumi.model.job_spec import JobSpec, ResourceSpec, RoleSpec
from torchx_pulumi.schedulers import find_backend
from torchx_pulumi.schedulers.appwrapper.kueue_checks import (
    check_admission,
    check_change,
    check_local_queue,
)
from torchx_pulumi.schedulers.appwrapper.objects import (
    CLUSTER_QUEUE,
    COHORT,
    KUEUE_PRIORITY,
    KUEUE_QUEUE,
    LOCAL_QUEUE,
    RESOURCE_FLAVOR,
)
from torchx_pulumi.schedulers.appwrapper.options import MCADOptions

from tests.fakes.cluster import FakeCluster
from tests.unit.schedulers.app_wrappers import condition
from tests.unit.schedulers.kueue_objects import GPU, cluster_queue, local_queue, made, quota

Manifest = dict[str, Any]
FLAVOR = made("ResourceFlavor", "a100", {"nodeLabels": {"gpu": "a100"}})


def checked(
    *objects: Manifest,
    cpu: float = 1,
    gpus: int = 4,
    replicas: int = 2,
    denied: Any = (),
    served: Any = None,
    selector: Any = None,
    **options: Any,
) -> tuple[list[str], list[str]]:
    role = RoleSpec(
        name="trainer",
        image="app:1",
        entrypoint="main",
        num_replicas=replicas,
        resource=ResourceSpec(cpu=cpu, gpu=gpus, memory_mb=None),
        node_selector=selector or {},
    )
    values = {"api_version": "v1beta2", "local_queue": "team", "reserved_millicpu": 0, **options}
    plan = find_backend("mcad").plan(JobSpec(name="train", roles=(role,)), MCADOptions(**values), "train-x1")
    problems, warnings = check_admission(FakeCluster(objects, denied=denied, served=served), plan)
    assert all(problem.path == "local_queue" for problem in problems)
    return [problem.message for problem in problems], warnings


def test_a_job_that_fits_has_neither_problems_nor_warnings() -> None:
    assert checked(local_queue(), cluster_queue(used="16"), FLAVOR) == ([], [])
    assert checked(local_queue=None) == ([], [])


@pytest.mark.parametrize(
    ("objects", "more", "said"),
    [
        (
            [cluster_queue(gpus="4")],
            {"gpus": 8},
            "the job: trainer-0: 8 nvidia.com/gpu wanted, at most 4 in flavor 'a100'",
        ),
        (
            [cluster_queue(gpus="4")],
            {},
            "it asks for 8 nvidia.com/gpu in all, ClusterQueue 'research' can have 4 at most",
        ),
        (
            [made("ClusterQueue", "research", {"resourceGroups": []})],
            {},
            "ClusterQueue 'research' has no quota for cpu, nvidia.com/gpu",
        ),
        # Indexed Jobs.
        ([cluster_queue(gpus="16")], {"replicas": 18, "gpus": 1}, "trainer-1: 17 nvidia.com/gpu wanted, at most 16 in"),
        ([cluster_queue()], {"selector": {"gpu": "h100"}}, "flavor 'a100' has not the label gpu=h100"),
        ([cluster_queue(), cluster_queue("other", cohort="b")], {"gpus": 9}, "it asks for 18 nvidia.com/gpu in all"),
        ([cluster_queue(cohort="b", borrowingLimit="1")], {"gpus": 9}, "it asks for 18 nvidia.com/gpu in all"),
    ],
)  # fmt: skip
def test_a_job_that_no_quota_is_for_is_refused_or_warned_of(
    objects: list[Manifest], more: dict[str, Any], said: str
) -> None:
    problems, warnings = checked(local_queue(), *objects, FLAVOR, **more)
    assert warnings == []
    assert said in problems[0]
    assert "on_never_admitted: warn launches it all the same" in problems[0]
    problems, warnings = checked(local_queue(), *objects, FLAVOR, on_never_admitted="warn", **more)
    assert problems == []
    assert said in warnings[0]


def test_a_flavor_with_a_taint_takes_the_pods_that_tolerate_it() -> None:
    taint = {"key": "gpu", "value": "only", "effect": "NoSchedule"}
    tainted = made("ResourceFlavor", "a100", {"nodeTaints": [taint]})
    assert "has the taint gpu=only:NoSchedule" in checked(local_queue(), cluster_queue(), tainted)[0][0]
    tolerant = made(
        "ResourceFlavor", "a100", {"nodeTaints": [taint], "tolerations": [{"key": "gpu", "operator": "Exists"}]}
    )
    assert checked(local_queue(), cluster_queue(), tolerant) == ([], [])
    assert "flavor 'a100' does not exist" in checked(local_queue(), cluster_queue())[0][0]
    # Who may not read flavors is told by Kueue.
    assert checked(local_queue(), cluster_queue(), tainted, denied=[("list", RESOURCE_FLAVOR)]) == ([], [])


def test_a_queue_that_takes_no_jobs_of_the_namespace_is_refused() -> None:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {"team": "a"}}}
    closed = [local_queue(), cluster_queue(), FLAVOR, space]
    said = "ClusterQueue 'research' takes no jobs of namespace 'default' (its namespaceSelector)"
    assert said in checked(*closed)[0][0]
    assert checked(*closed, denied=[("get", NAMESPACE)]) == ([], [])
    for rule, is_taken in (
        ({}, True),
        ({"matchLabels": {"team": "a"}}, True),
        ({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}, False),
        ({"matchExpressions": [{"key": "pool", "operator": "DoesNotExist"}]}, True),
        ({"matchExpressions": [{"key": "pool", "operator": "Exists"}]}, False),
    ):
        queue = cluster_queue()
        queue["spec"]["namespaceSelector"] = rule
        assert (checked(local_queue(), queue, FLAVOR, space) == ([], [])) is is_taken


def test_what_a_cohort_lends_counts_unless_it_may_not_be_read() -> None:
    objects = [
        local_queue(),
        cluster_queue(gpus="4", cohort="all"),
        cluster_queue("other", gpus="4", cohort="all"),
        FLAVOR,
    ]
    assert checked(*objects) == ([], [])
    assert "can have 8 at most" in checked(*objects, gpus=5)[0][0]
    assert checked(*objects, gpus=5, denied=[("list", COHORT)]) == ([], [])


def test_a_job_that_takes_all_of_a_quota_fits_however_fractions_are_summed() -> None:
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "a100", "resources": [quota("cpu", "300m")]}]}
    objects = [local_queue(), made("ClusterQueue", "research", {"resourceGroups": [group]}), FLAVOR]
    assert checked(*objects, cpu=0.1, gpus=0, replicas=3) == ([], [])
    assert "it asks for 0.303 cpu in all" in checked(*objects, cpu=0.101, gpus=0, replicas=3)[0][0]


def test_pods_are_a_resource_where_the_queue_counts_them() -> None:
    resources = [quota("pods", "1"), quota("cpu", "9"), quota(GPU, "9")]
    group = {"coveredResources": ["pods", "cpu", GPU], "flavors": [{"name": "a100", "resources": resources}]}
    problems, _ = checked(local_queue(), made("ClusterQueue", "research", {"resourceGroups": [group]}), FLAVOR)
    assert "it asks for 2 pods in all, ClusterQueue 'research' can have 1 at most" in problems[0]


def test_a_queue_that_is_missing_is_refused_and_one_that_is_stopped_warned_of() -> None:
    other = made("LocalQueue", "teem", {"clusterQueue": "research"})
    assert checked(other)[0] == ["'team' is not in namespace 'default'; there are teem"]
    assert "there are none" in checked()[0][0]
    assert "a queue of Kueue, which is not installed" in checked(served=[])[0][0]
    stopped = local_queue(condition("Active", "False", "Stopped", "LocalQueue is stopped"))
    problems, warnings = checked(stopped, cluster_queue(gpus="1"), FLAVOR)
    assert problems == []
    assert warnings == ["local_queue 'team' is not active (LocalQueue is stopped): the job waits until that is changed"]


def test_what_may_not_be_read_is_not_judged() -> None:
    objects = [local_queue(), cluster_queue(gpus="1"), FLAVOR]
    assert "could not be checked" in checked(*objects, denied=[("get", LOCAL_QUEUE)])[1][0]
    blind = [("list", CLUSTER_QUEUE), ("get", CLUSTER_QUEUE)]
    assert "may not be read, so that its quota is not checked" in checked(*objects, denied=blind)[1][0]
    # Its own ClusterQueue may be read by name.
    assert "trainer-0: 4 nvidia.com/gpu wanted" in checked(*objects, denied=[("list", CLUSTER_QUEUE)])[0][0]


def test_the_priority_class_of_a_job_stays_and_a_job_that_runs_gets_none() -> None:
    def refused(former: str | None, wanted: str | None, *, suspended: bool, queue: str | None = "team") -> list[str]:
        labels = {key: one for key, one in ((KUEUE_QUEUE, queue), (KUEUE_PRIORITY, former)) if one is not None}
        job = {"metadata": {"labels": labels}, "spec": {"suspend": suspended}}
        options = MCADOptions(labels={} if wanted is None else {KUEUE_PRIORITY: wanted})
        return [f"{one.path}: {one.message}" for one in check_change(job, options)]

    assert refused(None, "high", suspended=True) == refused("low", "high", suspended=False) == []
    assert refused(None, None, suspended=False) == refused("low", None, suspended=True, queue=None) == []
    (taken,) = refused("low", None, suspended=True)
    assert taken.startswith("labels: kueue.x-k8s.io/priority-class ('low') cannot be taken from a job")
    (given,) = refused(None, "high", suspended=False)
    assert "cannot be given to a job that runs" in given


def test_the_doctor_says_which_queues_there_are_and_how_much_is_free() -> None:
    objects = [local_queue(), cluster_queue(used="4"), FLAVOR]

    def found(*given: Manifest, **scope: Any) -> Any:
        return check_local_queue(FakeCluster(given), DoctorScope(**scope))

    assert found(*objects).detail == "in namespace default: there are team"
    asked = {"scheduler": "mcad", "queue": "team"}
    assert found(*objects, **asked).detail == (
        "team admits jobs into ClusterQueue 'research': 12 of 16 nvidia.com/gpu free in flavor 'a100', "
        "100 of 100 cpu free in flavor 'a100'"
    )
    assert found(**asked).verdict is Verdict.PROBLEM
    assert found(local_queue(condition("Active", "False", "Stopped")), **asked).verdict is Verdict.PROBLEM
    assert check_local_queue(FakeCluster(served=[]), DoctorScope()).verdict is Verdict.SKIPPED
