"""What is wrong with pods and their containers is told by its cause, with what to do."""

from __future__ import annotations

from typing import Any

import pytest
from torchx_pulumi.kube.pod_list import PodRow
from torchx_pulumi.model.status import JobState, Reason
from torchx_pulumi.outputs.building import build_observed, same
from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects
from torchx_pulumi.schedulers.diagnosis.pods import explain_row

from tests.unit.schedulers.diagnosis.objects import (
    JOB,
    MCAD,
    NOW,
    OPERATOR,
    PODS,
    Manifest,
    ended,
    first,
    found,
    group,
    job,
    pod,
    waits,
    wrapper,
)

BACK_OFF = 'Back-off pulling image "img:1": ErrImagePull: '


@pytest.mark.parametrize(
    ("word", "said", "cause"),
    [
        ("ErrImagePull", "img:1: not found", "it is not in the registry"),
        ("ErrImagePull", "manifest unknown", "it is not in the registry"),
        ("ErrImagePull", "401 Unauthorized", "the registry refuses the credentials, or wants some"),
        (
            "ErrImagePull",
            "pull access denied, repository does not exist or may require authorization: server message: "
            "insufficient_scope: authorization failed",
            "the registry refuses the credentials, or wants some",
        ),
        (
            "ErrImagePull",
            "toomanyrequests: You have reached your pull rate limit",
            "the registry limits how often it may be asked",
        ),
        ("ErrImagePull", "dial tcp: lookup reg: no such host", "the registry cannot be reached"),
        ("ErrImagePull", "no match for platform in manifest", "it is not made for the node's processor"),
        ("InvalidImageName", "couldn't parse", "its name is not one of an image"),
        ("ErrImageNeverPull", "", "it is not on the node, and imagePullPolicy Never forbids pulling it"),
        ("ErrImagePull", "strange", "the registry did not say why"),
    ],
)
def test_an_image_says_why_it_cannot_be_pulled_in_words_that_stay(word: str, said: str, cause: str) -> None:
    pods = [pod(index, containerStatuses=waits(word, said)) for index in range(2)]
    one = first(head=job(), pods=pods, pod_groups=[group("Running")])
    assert one.reason is Reason.IMAGE_UNAVAILABLE
    assert f"image 'img:1' cannot be pulled: {cause} (2 of 2 replicas; pod " in one.summary
    assert [thing.name for thing in one.objects] == ["app-trainer-0-0", "app-trainer-1-0"]
    if word == "ErrImagePull":
        other = [pod(0, containerStatuses=waits("ImagePullBackOff", BACK_OFF + said)), pods[1]]
        looks = [ObservedObjects(job_object=job(), pods=each, pod_groups=[group("Running")]) for each in (pods, other)]
        seen = [build_observed(JOB.read_status(look, NOW), observed_at=NOW) for look in looks]
        assert same(*seen)


def test_an_older_kubelets_silence_is_filled_by_its_events() -> None:
    event = {
        "reason": "Failed",
        "message": 'Failed to pull image "img:1": 401 Unauthorized',
        "involvedObject": {"name": "app-trainer-0-0"},
    }
    one = first(
        head=job(replicas=1),
        pods=[pod(containerStatuses=waits("ImagePullBackOff", 'Back-off pulling image "img:1"'))],
        events=[event],
    )
    assert "refuses the credentials" in one.summary
    assert "pull secret" in one.resolution


@pytest.mark.parametrize(
    ("statuses", "reason", "said"),
    [
        (ended(137, "OOMKilled"), Reason.OUT_OF_MEMORY, "more memory than its limit of 16G (exit code 137)"),
        (ended(3, message="a\nb\n"), Reason.EXIT_CODE, "exited with code 3"),
        (ended(139), Reason.EXIT_CODE, "exited with code 139 (SIGSEGV)"),
        (ended(127, message="sh: x: not found"), Reason.EXIT_CODE, "exited with code 127"),
        (ended(128, "StartError", 'exec: "x": executable file not found'), Reason.CONTAINER_REFUSED, "cannot be made"),
    ],
)
def test_an_end_is_told_with_code_signal_and_last_lines(statuses: Any, reason: Reason, said: str) -> None:
    one = first(head=job("Failed", 1), pods=[pod(phase="Failed", node="n1", containerStatuses=statuses)])
    assert one.reason is reason
    assert said in one.summary
    assert one.summary.endswith(" (pod app-trainer-0-0 on node n1)")
    assert one.resolution


def test_the_log_stands_in_for_a_message_that_nobody_wrote() -> None:
    pods = [pod(phase="Failed", containerStatuses=ended(3))]
    log = "\n".join(f"line {number}" for number in range(40))
    one = first(head=job("Failed", 1), pods=pods, last_lines={"app-trainer-0-0": log})
    assert one.detail.splitlines() == [f"line {number}" for number in range(28, 40)]


def test_what_ended_first_is_the_cause_and_what_was_stopped_a_consequence() -> None:
    pods = [
        pod(0, "Failed", containerStatuses=ended(143, at="10:00:05")),
        pod(1, "Failed", containerStatuses=ended(1, at="10:00:15")),
        pod(2, "Failed", containerStatuses=ended(2, at="10:00:10")),
    ]
    codes = [one.summary.split(" (")[0].rpartition(" ")[2] for one in found(head=job("Failed", 3), pods=pods)]
    assert codes == ["2", "1", "143"]


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"reason": "Evicted", "message": "The node was low on memory"}, Reason.EVICTED),
        (
            {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]},
            Reason.PREEMPTED,
        ),
        (
            {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}]},
            Reason.NODE_LOST,
        ),
        (
            {"conditions": [{"type": "Ready", "status": "False", "reason": "Evict", "message": "preempt"}]},
            Reason.PREEMPTED,
        ),
        ({"reason": "NodeLost"}, Reason.NODE_LOST),
        ({"reason": "DeadlineExceeded"}, Reason.FAILED),
        ({"message": "odd"}, Reason.FAILED),
    ],
)
def test_a_pod_that_was_taken_away_says_by_whom(status: Manifest, reason: Reason) -> None:
    assert first(head=job("Failed", 1), pods=[pod(phase="Failed", **status)]).reason is reason


COVERED = "once the job has ended, launch it again; max_retries does that for you"
LOSSES = {"drained": "EvictionByEvictionAPI", "tainted": "DeletionByTaintManager", "lost node": "DeletionByPodGC"}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    ("form", "head", "advice"),
    [
        (JOB, job("Failed", 1), COVERED),
        (PODS, group("Running") | {"spec": {"minMember": 1}}, "gang=pods has no retries, gang=job has"),
        (MCAD, wrapper("Failed"), COVERED),
        (OPERATOR, wrapper(None, version="v1beta2") | {"status": {"phase": "Failed"}}, "does not cover a deleted pod"),
    ],
    ids=["job", "pods", "mcad", "operator"],
)
def test_advice_about_a_deleted_pod_says_whether_retries_cover_it(
    form: Any, head: Manifest, advice: str, loss: str
) -> None:
    target = {"type": "DisruptionTarget", "status": "True", "reason": LOSSES[loss]}
    lost = pod(phase="Failed", conditions=[target], containerStatuses=ended(143))
    if head["kind"] == "AppWrapper":
        lost["metadata"]["name"] = "app-trainer-0"
    one = first(form, head=head, pods=[lost])
    assert one.reason is (Reason.EVICTED if loss == "drained" else Reason.NODE_LOST)
    assert advice in one.resolution
    # A crash is what retries of every variant are for, where there are any.
    lost["status"] = {"phase": "Failed", "containerStatuses": ended(1)}
    assert "max_retries" not in first(form, head=head, pods=[lost]).resolution


def test_a_node_that_does_not_answer_is_told_while_the_job_runs() -> None:
    lost = [{"type": "Ready", "status": "False", "reason": "NodeStatusUnknown"}]
    one = first(head=job("Running", 1), pods=[pod(phase="Running", node="n1", conditions=lost)])
    assert one.reason is Reason.NODE_LOST


def test_init_and_sidecar_containers_are_told_apart() -> None:
    init = {"spec": {"initContainers": [{"name": "prep"}, {"name": "proxy", "restartPolicy": "Always"}]}}
    one = first(
        head=job("Failed", 1),
        pods=[pod(phase="Failed", initContainerStatuses=[{**ended(1)[0], "name": "prep"}], **init)],
    )
    assert (one.reason, "container 'prep'" in one.summary) == (Reason.INIT_FAILED, True)
    beside = [{**ended(1)[0], "name": "proxy"}]
    assert first(head=job("Failed", 1), pods=[pod(phase="Failed", initContainerStatuses=beside, **init)]).reason is (
        Reason.SIDECAR_FAILED
    )
    other = [{**ended(1)[0], "name": "logger"}]
    assert (
        first(head=job("Failed", 1), pods=[pod(phase="Failed", containerStatuses=other)]).reason
        is Reason.SIDECAR_FAILED
    )


def test_a_crash_loop_counts_attempts_and_tells_the_last_end() -> None:
    status = {
        "name": "trainer",
        "restartCount": 4,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
        "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
    }
    one = first(head=job("Running", 1), pods=[pod(phase="Running", containerStatuses=[status])])
    assert one.reason is Reason.CRASH_LOOP
    assert "4 times" in one.summary
    assert "more memory" in one.summary


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ('secret "token" not found', "create secret 'token'"),
        ('exec: "x": executable file not found in $PATH', "correct the entrypoint"),
        ("odd", "correct what the message names"),
    ],
)
def test_a_container_that_is_refused_says_what_is_missing(said: str, advice: str) -> None:
    one = first(head=job(replicas=1), pods=[pod(node="n", containerStatuses=waits("CreateContainerConfigError", said))])
    assert one.reason is Reason.CONTAINER_REFUSED
    assert advice in one.resolution


def test_a_volume_that_cannot_be_mounted_is_told_by_its_event() -> None:
    event = {
        "type": "Warning",
        "reason": "FailedMount",
        "message": 'configmap "c" not found',
        "involvedObject": {"name": "app-trainer-0-0"},
    }
    one = first(head=job(replicas=1), pods=[pod(node="n")], events=[event])
    assert (one.reason, one.detail) == (Reason.CONTAINER_REFUSED, 'configmap "c" not found')


@pytest.mark.parametrize(
    ("status", "state", "reason", "said"),
    [
        ("Running", JobState.RUNNING, Reason.RUNNING, "running"),
        ("CrashLoopBackOff", JobState.RUNNING, Reason.CRASH_LOOP, "CrashLoopBackOff"),
        ("Completed", JobState.SUCCEEDED, Reason.COMPLETED, "exited with code 0"),
        ("Init:ErrImagePull", JobState.PENDING, Reason.IMAGE_UNAVAILABLE, "ErrImagePull"),
        ("Evicted", JobState.FAILED, Reason.EVICTED, "was evicted by its node"),
        ("OOMKilled", JobState.FAILED, Reason.OUT_OF_MEMORY, "OOMKilled"),
        ("Error", JobState.FAILED, Reason.EXIT_CODE, "Error"),
        ("Pending", JobState.PENDING, Reason.WAITING_FOR_PODS, ""),
    ],
)
def test_a_pod_that_was_read_in_short_is_explained_by_its_status(
    status: str, state: JobState, reason: Reason, said: str
) -> None:
    row = PodRow(name="app-0", status=status, ready=0, containers=1, restarts=0, address=None, node=None)
    found, message = explain_row(row, state)
    assert found is reason
    assert said in message
