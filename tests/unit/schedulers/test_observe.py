"""A look makes few calls, more only where they can say why a job waits, and none of those may stop it."""

from __future__ import annotations

from typing import Any

import pytest
from torchx_pulumi.kube.kinds import EVENT, NODE, Kind
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.status import JobState, Reason
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_QUEUE

from tests.fakes import FakeCluster
from tests.unit.schedulers.diagnosis.objects import (
    BACKOFF,
    JOB,
    MCAD,
    PODS,
    Manifest,
    ended,
    group,
    job,
    node,
    pod,
    queue,
    waits,
    wrapper,
)


class Counting(FakeCluster):
    """A fake that counts what it is asked, and forbids what it is told to."""

    def __init__(self, *objects: Manifest, forbidden: tuple[Kind, ...] = (), **more: Any) -> None:
        super().__init__([named(each) for each in objects], **more)
        self.asked: list[str] = []
        self._forbidden = forbidden

    def get(self, kind: Kind, namespace: str | None, name: str) -> Manifest | None:
        self._count(f"get {kind.kind}", kind)
        return super().get(kind, namespace, name)

    def list(self, kind: Kind, namespace: str | None, selector: Any = None) -> list[Manifest]:
        self._count(f"list {kind.kind}", kind)
        return super().list(kind, namespace, selector)

    def logs(self, namespace: str, pod: str, *args: Any, **more: Any) -> Any:
        self.asked.append("log")
        return super().logs(namespace, pod, *args, **more)

    def _count(self, what: str, kind: Kind) -> None:
        self.asked.append(what)
        if kind in self._forbidden:
            raise ClusterError("forbidden")


VERSIONS = {
    "Job": "batch.volcano.sh/v1alpha1",
    "PodGroup": "scheduling.volcano.sh/v1beta1",
    "Queue": "scheduling.volcano.sh/v1beta1",
}


def named(each: Manifest) -> Manifest:
    """Return an object as an API server has it."""
    kind = each.get("kind", "Node")
    labels = {"volcano.sh/job-name": "app", "app.kubernetes.io/instance": "app"} if kind == "Pod" else {}
    meta = {"labels": labels, **each["metadata"]}
    return {"apiVersion": each.get("apiVersion") or VERSIONS.get(kind, "v1"), "kind": kind, **each, "metadata": meta}


def test_a_running_job_takes_two_calls() -> None:
    cluster = Counting(job("Running"), pod(0, "Running"), pod(1, "Running"), group("Running"))
    seen = JOB.observe(cluster, "team", "app")
    assert sorted(cluster.asked) == ["get Job", "list Pod"]
    assert JOB.read_status(seen).state is JobState.RUNNING
    assert seen.at is not None


def test_a_failed_job_takes_three_calls_of_which_one_is_for_its_last_lines() -> None:
    cluster = Counting(
        job("Failed", 1),
        pod(phase="Failed", containerStatuses=ended(3)),
        logs={("team", "app-trainer-0-0"): ["a", "ValueError"]},
    )
    seen = JOB.observe(cluster, "team", "app")
    assert sorted(cluster.asked) == ["get Job", "list Pod", "log"]
    assert JOB.read_status(seen).diagnoses[0].detail == "a\nValueError"


@pytest.mark.parametrize(
    "more",
    [
        {"containers": [{"name": "trainer", "env": [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "s"}}}]}]},
        {"containers": [{"name": "trainer", "envFrom": [{"secretRef": {"name": "s"}}]}]},
        {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]},
    ],
)
def test_the_log_of_a_pod_with_secrets_is_left_alone(more: Manifest) -> None:
    cluster = Counting(
        job("Failed", 1),
        pod(phase="Failed", containerStatuses=ended(3), spec=more),
        logs={("team", "app-trainer-0-0"): ["TOKEN=hush"]},
    )
    assert JOB.observe(cluster, "team", "app").last_lines == {}
    assert "log" not in cluster.asked


def test_a_message_that_the_program_left_is_enough_and_a_log_that_is_gone_no_error() -> None:
    cluster = Counting(job("Failed", 1), pod(phase="Failed", containerStatuses=ended(3, message="said")))
    assert JOB.read_status(JOB.observe(cluster, "team", "app")).diagnoses[0].detail == "said"
    assert "log" not in cluster.asked
    cluster = Counting(job("Failed", 1), pod(phase="Failed", containerStatuses=ended(3)))
    assert JOB.read_status(JOB.observe(cluster, "team", "app")).diagnoses[0].detail == ""


def test_what_the_kubelet_says_of_a_log_that_is_gone_is_no_log() -> None:
    cluster = Counting(
        job("Failed", 1),
        pod(phase="Failed", containerStatuses=ended(3)),
        logs={("team", "app-trainer-0-0"): ["unable to retrieve container logs for containerd://c1"]},
    )
    assert JOB.read_status(JOB.observe(cluster, "team", "app")).diagnoses[0].detail == ""


def test_a_job_in_its_queue_is_explained_by_queue_nodes_and_events() -> None:
    cluster = Counting(job(), group(), queue(state="Closed"), node())
    assert JOB.read_status(JOB.observe(cluster, "team", "app")).diagnoses[0].reason is Reason.QUEUE_CLOSED
    assert {"get Queue", "list PodGroup", "list Node", "list Event"} <= set(cluster.asked)


def test_what_may_not_be_read_explains_nothing_and_stops_nothing() -> None:
    hidden = (EVENT, NODE, VOLCANO_QUEUE)
    cluster = Counting(job(), group(), queue(state="Closed"), node(), forbidden=hidden)
    seen = JOB.observe(cluster, "team", "app")
    assert (seen.nodes, seen.queues, seen.events) == (None, None, ())
    assert JOB.read_status(seen).reason is Reason.WAITING_IN_QUEUE


def test_a_cluster_that_does_not_answer_is_an_error() -> None:
    away = ClusterError("no answer", retryable=True)
    with pytest.raises(ClusterError, match="no answer"):
        JOB.observe(FakeCluster(error=away), "team", "app")


def test_an_image_that_says_why_needs_no_events() -> None:
    statuses = waits("ErrImagePull", "not found")
    cluster = Counting(job(replicas=1), pod(containerStatuses=statuses), group("Running"))
    JOB.observe(cluster, "team", "app")
    assert "list Event" not in cluster.asked


def test_pods_of_ones_own_take_two_calls() -> None:
    own = {**group("Running"), "metadata": {**group()["metadata"], "name": "app"}}
    cluster = Counting(own, pod(0, "Running"), pod(1, "Running"))
    assert PODS.read_status(PODS.observe(cluster, "team", "app")).state is JobState.RUNNING
    assert sorted(cluster.asked) == ["get PodGroup", "list Pod"]


def test_a_settled_app_wrapper_takes_two_calls_and_a_waiting_one_looks_at_the_line() -> None:
    settled = {**pod(phase="Running"), "metadata": {"name": "app-trainer-0", "namespace": "team"}}
    cluster = Counting(wrapper("Running"), settled)
    assert MCAD.read_status(MCAD.observe(cluster, "team", "app")).state is JobState.RUNNING
    assert sorted(cluster.asked) == ["get AppWrapper", "list Pod"]
    cluster = Counting(wrapper(status=BACKOFF), wrapper("Running", "other"), node(cpu="1"))
    found = MCAD.read_status(MCAD.observe(cluster, "team", "app")).diagnoses
    assert [one.reason for one in found] == [Reason.NEVER_SCHEDULABLE, Reason.WAITING_IN_QUEUE]
    assert "running: team/other" in found[1].detail


@pytest.mark.parametrize("form", [JOB, PODS, MCAD])
def test_a_job_that_is_gone_has_no_objects(form: Any) -> None:
    seen = form.observe(Counting(), "team", "app")
    assert (seen.job_object, form.read_status(seen).reason) == (None, Reason.NOT_FOUND)


@pytest.mark.parametrize("name", [None, ["app"], {"app": 1}])
def test_a_pod_whose_name_is_no_text_is_none_of_an_app_wrapper(name: Any) -> None:
    class Odd(Counting):
        def list(self, kind: Kind, namespace: str | None, selector: Any = None) -> list[Manifest]:
            found = super().list(kind, namespace, selector)
            return [*found, {"kind": "Pod", "metadata": {"name": name}}] if kind.kind == "Pod" else found

    settled = {**pod(phase="Running"), "metadata": {"name": "app-trainer-0", "namespace": "team"}}
    seen = MCAD.observe(Odd(wrapper("Running"), settled), "team", "app")
    assert [text_at(each, "metadata", "name") for each in seen.pods or ()] == ["app-trainer-0"]
