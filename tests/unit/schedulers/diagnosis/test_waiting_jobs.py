"""A job that waits says for what: nodes, the gang, the queue, or somebody who never looks."""

from __future__ import annotations

import pytest
from torchx_pulumi.model.status import Reason
from torchx_pulumi.schedulers import ObservedObjects
from torchx_pulumi.schedulers.diagnosis.nodes import find_room

from tests.unit.schedulers.diagnosis.objects import (
    BACKOFF,
    JOB,
    LATER,
    MCAD,
    OPERATOR,
    SHORT,
    Manifest,
    first,
    found,
    group,
    job,
    node,
    other,
    pod,
    queue,
    spec,
    unplaced,
    wrapper,
)


def test_what_has_no_room_now_names_the_resource_and_the_nodes_that_could() -> None:
    pods = [pod(index, conditions=unplaced(SHORT)) for index in range(2)]
    one = first(head=job(), pods=pods, pod_groups=[group("Inqueue")], nodes=[node(), node("small", "1")])
    assert one.reason is Reason.UNSCHEDULABLE
    assert one.summary == "no node for it now: not enough cpu; n1 could take it when free"
    assert one.detail == SHORT


@pytest.mark.parametrize(
    ("nodes", "template", "said", "advice"),
    [
        (
            [node(cpu="1")],
            spec(),
            "a replica asks for 2 cpu, the nodes that it may use have at most 1 cpu",
            "add nodes",
        ),
        ([node(cpu="2")], spec(), "2 replicas of 2 cpu and 16 GB memory each: the cluster has room for 1", "add nodes"),
        ([node()], spec(nodeSelector={"disk": "fast"}), "no node has the label disk=fast", "node_selector"),
        (
            [node(spec={"taints": [{"key": "k", "effect": "NoSchedule"}]})],
            spec(),
            "taints that it does not tolerate",
            "tolerations",
        ),
        ([node(spec={"unschedulable": True})], spec(), "cordoned", "tolerations"),
        ([], spec(), "the cluster has no node", "add nodes"),
    ],
)
def test_what_can_never_be_placed_says_so(nodes: list[Manifest], template: Manifest, said: str, advice: str) -> None:
    pods = [pod(index, conditions=unplaced("0/1 nodes are unavailable")) for index in range(2)]
    one = first(head=job(template=template), pods=pods, pod_groups=[group("Inqueue")], nodes=nodes)
    assert one.reason is Reason.NEVER_SCHEDULABLE
    assert said in one.summary
    assert advice in one.resolution


def test_a_tolerated_taint_and_a_wanted_label_are_no_hindrance() -> None:
    taints = {
        "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}, {"key": "s", "effect": "PreferNoSchedule"}]
    }
    pod_spec = spec(nodeSelector={"disk": "fast"}, tolerations=[{"key": "k", "value": "v"}])
    (room,) = find_room([pod_spec, pod_spec], [node(labels={"disk": "fast"}, spec=taints)])
    assert (room.fits, room.could, room.why) == (2, ("n1",), "")


def test_replicas_beyond_the_gangs_minimum_may_lack_a_place() -> None:
    pods = [pod(index, conditions=unplaced(SHORT)) for index in range(2)]
    head = job(spec={"minAvailable": 1})
    assert (
        first(head=head, pods=pods, pod_groups=[group("Inqueue")], nodes=[node(cpu="2")]).reason is Reason.UNSCHEDULABLE
    )


def test_a_gang_says_for_how_many_there_is_room() -> None:
    text = "1/2 tasks in gang unschedulable; Pending: 1 Unschedulable, 1 Schedulable. Origin reason is x: " + SHORT
    bad = {"type": "Unschedulable", "status": "True", "message": text}
    pods = [pod(0, conditions=unplaced(SHORT)), pod(1, conditions=unplaced("Pod a can possibly be assigned to n"))]
    both = found(head=job(), pods=pods, pod_groups=[group("Inqueue", conditions=[bad])], nodes=[node()])
    assert [one.reason for one in both] == [Reason.UNSCHEDULABLE, Reason.GANG_WAITING]
    assert both[0].detail == SHORT
    assert "room for 1 of the 2 replicas" in both[1].summary
    assert both[0].objects[0].kind == "PodGroup"


@pytest.mark.parametrize(
    ("queues", "reason"),
    [
        ([], Reason.QUEUE_MISSING),
        ([queue(state="Closed")], Reason.QUEUE_CLOSED),
        ([queue(state="Open", allocated={"cpu": "1"})], Reason.OVER_QUOTA),
    ],
)
def test_a_queue_that_does_not_take_the_job_says_why(queues: list[Manifest], reason: Reason) -> None:
    neighbours = [other("busy"), other("waiting", "Pending"), group()]
    one = first(head=job(), pods=[], pod_groups=[group()], queues=queues, nodes=[node()], neighbours=neighbours)
    assert one.reason is reason
    assert one.objects[0].kind == "Queue"
    if reason is Reason.OVER_QUOTA:
        assert one.summary.endswith("it asks for 4 cpu, the queue may use 4 cpu and uses 1 cpu")
        assert one.detail == "in it: b/busy"


def test_a_job_that_waits_its_turn_says_what_runs_in_the_queue() -> None:
    open_queue = {**queue(state="Open"), "spec": {}}
    many = [other(f"j{number}") for number in range(7)]
    one = first(head=job(), pods=[], pod_groups=[group()], queues=[open_queue], neighbours=many, nodes=[node()])
    assert one.reason is Reason.WAITING_IN_QUEUE
    assert one.detail == "in it: b/j0, b/j1, b/j2, b/j3, b/j4 and 2 more"


def test_a_gang_too_big_for_the_cluster_is_told_by_the_event_and_the_nodes() -> None:
    event = {
        "message": "resource in cluster is overused: overused cpu",
        "involvedObject": {"kind": "PodGroup", "name": "app-u"},
    }
    seen = {"head": job(), "pods": [], "pod_groups": [group()], "queues": [{**queue(), "spec": {}}], "events": [event]}
    assert first(**seen, nodes=[node(cpu="1")]).reason is Reason.NEVER_SCHEDULABLE
    one = first(**seen, nodes=[node()])
    assert (one.reason, "not enough cpu" in one.summary) == (Reason.UNSCHEDULABLE, True)


def test_nobody_who_looks_for_a_minute_is_told_and_not_before() -> None:
    fresh = {"head": job(None), "pods": []}
    assert found(**fresh) == ()
    assert first(now=LATER, **fresh).reason is Reason.CONTROLLER_ABSENT
    assert first(now=LATER, head=job(), pods=[]).reason is Reason.CONTROLLER_ABSENT
    waiting = {"head": job(replicas=1), "pods": [pod(spec={"schedulerName": "x"})], "pod_groups": [group("Inqueue")]}
    assert found(**waiting) == ()
    one = first(now=LATER, **waiting)
    assert (one.reason, "scheduler 'x'" in one.summary) == (Reason.SCHEDULER_ABSENT, True)
    silent = {
        "head": job(),
        "pods": [],
        "pod_groups": [group()],
        "queues": [{**queue(), "spec": {}}],
        "nodes": [node()],
    }
    assert first(now=LATER, **silent).reason is Reason.SCHEDULER_ABSENT
    assert first(OPERATOR, LATER, head=wrapper(None, version="v1beta2")).reason is Reason.CONTROLLER_ABSENT
    assert first(MCAD, LATER, head=wrapper(None)).reason is Reason.CONTROLLER_ABSENT


def test_a_look_carries_the_time_by_which_it_is_judged() -> None:
    assert JOB.read_status(ObservedObjects(job_object=job(None), at=LATER)).reason is Reason.CONTROLLER_ABSENT


def test_an_app_wrapper_says_who_is_before_it() -> None:
    line = [
        wrapper("Pending", "urgent", priority=9, made="2026-03-01T10:00:09Z"),
        wrapper("Pending", "older", made="2026-03-01T09:00:00Z"),
        wrapper("Pending", "younger", made="2026-03-01T11:00:00Z"),
        wrapper("Running", "going"),
        wrapper("Pending"),
    ]
    one = first(MCAD, head=wrapper(status={"queuejobstate": "HeadOfLine"}), neighbours=line)
    assert one.reason is Reason.WAITING_IN_QUEUE
    assert one.summary == "waiting in MCAD's line: number 3 of 4"
    assert "before it: team/urgent, team/older\nrunning: team/going" in one.detail


def test_an_app_wrapper_that_does_not_fit_says_now_or_never() -> None:
    assert first(MCAD, head=wrapper(status=BACKOFF), nodes=[node()]).reason is Reason.UNSCHEDULABLE
    one = first(MCAD, head=wrapper(status=BACKOFF), nodes=[node(cpu="1")])
    assert one.reason is Reason.NEVER_SCHEDULABLE
    assert "Insufficient resources" in one.detail


def test_a_suspended_app_wrapper_says_so() -> None:
    suspended = wrapper(None, version="v1beta2", spec={"suspend": True})
    suspended["status"] = {"phase": "Suspended"}
    assert first(OPERATOR, head=suspended).reason is Reason.SUSPENDED
