"""A job that waits says for what: nodes, the gang, the queue, or somebody who never looks."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from torchx_pulumi.model.status import Reason
from torchx_pulumi.schedulers.diagnosis.evidence import FIRST_LOOK, ObservedObjects
from torchx_pulumi.schedulers.diagnosis.nodes import find_room

from tests.unit.schedulers.diagnosis.objects import (
    BACKOFF,
    CREATED,
    JOB,
    LATER,
    MCAD,
    OPERATOR,
    SHORT,
    Manifest,
    ended,
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
        ([node(spec={"unschedulable": True})], spec(), "cordoned", "kubectl uncordon"),
        (
            [node(spec={"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]})],
            spec(),
            "the only node that it may use: closed by taints that it does not tolerate (team=a:NoSchedule)",
            "add tolerations",
        ),
        (
            [node(), node("n2", spec={"unschedulable": True})],
            spec(hostNetwork=True, containers=[{"name": "t", "ports": [{"containerPort": 80}]}]),
            "2 replicas of host port 80 each: the cluster has room for 1 of them",
            "add nodes",
        ),
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
    assert (room.fits, room.could, room.why) == (2, ("n1",), None)


EARLY = "2026-03-01T09:00:00Z"
NEVER, NOW = Reason.NEVER_SCHEDULABLE, Reason.UNSCHEDULABLE

STATEMENTS = [
    ('persistentvolumeclaim "data" not found', NEVER, "PersistentVolumeClaim 'data' does not exist", "create it in"),
    ('persistentvolumeclaim "data" is being deleted', NEVER, "'data' is being deleted", "name another claim"),
    ('persistentvolumeclaim "a" bound to non-existent persistentvolume "v"', NEVER, "does not exist any more", "claim"),
    ("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)", NEVER, "any more", "restored"),
    ('failed to find storage class "fast"', NEVER, "StorageClass 'fast' of its claim", "create the StorageClass"),
    ('storageclass.storage.k8s.io "fast" not found', NEVER, "StorageClass 'fast' of its claim", "create the Storage"),
    ("PersistentVolumeClaim had no pv name and storageClass name", NEVER, "nor a StorageClass", "create a Persistent"),
    ('persistentvolume "v" not found', NEVER, "does not exist any more", "restored"),
    ('waiting for ephemeral volume controller to create the persistentvolumeclaim "a"', NOW, "not created yet", "wait"),
    ("pod has unbound immediate PersistentVolumeClaims", NOW, "has no volume yet", "kubectl describe pvc"),
    ('binding volumes: provisioning failed for PVC "a"', NOW, "the provisioner of its claim", "kubectl describe pvc"),
    ("binding volumes: context deadline exceeded", NOW, "the provisioner of its claim", "kubectl describe pvc"),
    ("node(s) didn't find available persistent volumes to bind", NEVER, "no PersistentVolume fits", "provisioner"),
    ("node(s) didn't match PersistentVolume's node affinity", NEVER, "on other nodes only", "the nodes of the volume"),
    ("node(s) had volume node affinity conflict", NEVER, "on other nodes only", "the nodes of the volume"),
    ("node(s) had no available volume zone", NEVER, "on other nodes only", "the nodes of the volume"),
    ("node(s) did not have enough free storage", NOW, "enough free storage", "smaller ones"),
    ("node(s) exceed max volume count", NOW, "as many volumes as they can attach", "fewer volumes"),
    ("node(s) had no available disk", NOW, "another pod uses its volume", "wait until that pod ends"),
    (
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another "
        "pod",
        NOW,
        "another pod uses its volume",
        "ReadWriteMany",
    ),
    ("node(s) didn't have free ports for the requested pod ports", NOW, "host ports are in use", "other host ports"),
    ("node(s) didn't satisfy existing pods anti-affinity rules", NOW, "must not be next to", "podAntiAffinity"),
    ("node(s) didn't match pod anti-affinity rules", NOW, "must not be next to", "podAntiAffinity"),
    ("node(s) didn't match pod affinity rules", NOW, "must be next to (podAffinity)", "start the pods"),
    ("node(s) didn't match pod topology spread constraints", NOW, "topologySpreadConstraints leave", "maxSkew"),
    (
        "node(s) didn't match pod topology spread constraints (missing required label)",
        NEVER,
        "no node has the topologyKey",
        "correct topologyKey",
    ),
    ("node(s) didn't match Pod's node affinity/selector", NEVER, "node selector or node affinity", "label a node"),
    ("node(s) didn't match scheduler-enforced node affinity", NEVER, "node selector or node affinity", "label a node"),
    ("node(s) didn't satisfy plugin(s) [NodeAffinity]", NEVER, "node selector or node affinity", "label a node"),
    ("node(s) had untolerated taint(s)", NEVER, "taints that it does not tolerate", "add tolerations"),
    ("node(s) had untolerated taint {team: a}", NEVER, "taints that it does not tolerate", "add tolerations"),
    ("node(s) had untolerated taint {node.kubernetes.io/not-ready: }", NOW, "not ready (taint node.", "see why"),
    ("node(s) were unschedulable", NEVER, "the nodes are cordoned", "kubectl uncordon"),
    ("node does not satisfy the node group affinity", NEVER, "may not use these nodes", "use a queue that may"),
    ("Insufficient nvidia.com/gpu", NOW, "not enough nvidia.com/gpu; n1 could take it when free", "ask for less"),
    ("Too many pods", NOW, "as many pods as they take; n1 could take it when free", "wait until there is room"),
    ("node(s) pod number exceeded", NOW, "as many pods as they take; n1 could take it", "wait until there is room"),
    ("request r: device class gpu does not exist", NEVER, "DeviceClass 'gpu' does not exist", "device class"),
    ('resourceclaim "c" not found', NEVER, "ResourceClaim 'c' does not exist", "create it"),
    ("cannot allocate all claims", NOW, "devices that it claims are in use", "wait until there is room"),
    ("waiting for the preemption for this pod to be finished", NOW, "make room for it", "wait"),
    ("the moon is in the wrong phase", NOW, "no node for it now: the moon is in the wrong phase", "see what"),
]
BY_NODES = {
    "Insufficient nvidia.com/gpu",
    "Too many pods",
    "node(s) pod number exceeded",
    "node(s) had untolerated taint {node.kubernetes.io/not-ready: }",
}
PREEMPTION = ". no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful."
FORMS = {
    "kube-scheduler, all nodes": f"0/1 nodes are available: {{}}{PREEMPTION}",
    "kube-scheduler, each node": f"0/1 nodes are available: 1 {{}}{PREEMPTION}",
    "Volcano, before nodes": "0/1 nodes are unavailable: 1 plugin Some pre-predicates failed {}.",
    "Volcano, each node": "In hyperNode s1: 0/1 nodes are unavailable: 1 {}.",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("statement", "reason", "said", "advice"), STATEMENTS, ids=[row[0] for row in STATEMENTS])
def test_each_statement_of_a_scheduler_says_what_to_do_and_whether_room_ends_the_wait(
    form: str, statement: str, reason: Reason, said: str, advice: str
) -> None:
    if "the moon" in statement and "before" in form:
        said = "pre-predicates failed the moon"
    pods = [pod(index, conditions=unplaced(FORMS[form].format(statement))) for index in range(2)]
    one = first(head=job(), pods=pods, pod_groups=[group("Inqueue")], nodes=[node()])
    assert (one.reason, said in one.summary, advice in one.resolution) == (reason, True, True), one
    assert statement in one.detail
    assert "preemption" not in one.summary
    # Nodes are named for what they were judged by.
    assert ("could take it when free" in one.summary) is (statement in BY_NODES)
    assert "ask for less" not in one.resolution or reason is NOW


def test_a_wait_that_room_ends_on_one_node_is_no_wait_for_ever() -> None:
    both = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had volume node affinity conflict."
    seen = {"head": job(), "pod_groups": [group("Inqueue")], "nodes": [node(), node("n2")]}
    one = first(pods=[pod(0, conditions=unplaced(both))], **seen)
    assert (one.reason, one.summary) == (Reason.UNSCHEDULABLE, "no node for it now: not enough cpu")
    gone = '0/2 nodes are available: persistentvolumeclaim "data" not found.'
    pods = [pod(0, conditions=unplaced(both)), pod(1, conditions=unplaced(gone))]
    assert first(pods=pods, **seen).reason is Reason.NEVER_SCHEDULABLE
    # A job that starts with one replica does not need the other.
    head = job(spec={"minAvailable": 1})
    assert first(pods=pods, **seen | {"head": head}).reason is Reason.UNSCHEDULABLE


def test_a_node_that_is_not_ready_is_no_wait_for_ever_and_gets_no_toleration() -> None:
    taints = {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]}
    text = "0/1 nodes are available: 1 node(s) had untolerated taint(s)."
    pods = [pod(0, conditions=unplaced(text))]
    one = first(head=job(), pods=pods, pod_groups=[group("Inqueue")], nodes=[node(spec=taints)])
    assert (one.reason, one.summary) == (NOW, "no node for it now: the only node that it may use: not ready")
    assert "tolerat" not in one.resolution


def claim_event(reason: str, message: str, at: str = CREATED, name: str = "data") -> Manifest:
    about = {"kind": "PersistentVolumeClaim", "name": name, "namespace": "team"}
    return {"type": "Normal", "reason": reason, "message": message, "involvedObject": about, "lastTimestamp": at}


NO_CLASS = claim_event("ProvisioningFailed", 'storageclass.storage.k8s.io "fast" not found')
EXTERNAL = claim_event(
    "ExternalProvisioning",
    "Waiting for a volume to be created either by the external provisioner 'csi.x' or manually by the administrator",
)


def test_a_scheduler_that_only_counts_pods_leaves_the_word_to_the_events_of_the_claim() -> None:
    text = "pod group is not ready, 1 Pending, 1 minAvailable; Pending: 1 Unschedulable"
    mounts = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}
    said = group("Inqueue", conditions=unplaced(f"1/1 tasks in gang unschedulable: {text}"))
    late = claim_event("WaitForPodScheduled", "waiting for pod app-trainer-0-0 to be scheduled")
    for event, reason, words in (
        (EXTERNAL, NOW, "no node for it now: PersistentVolumeClaim 'data' waits for its provisioner 'csi.x'"),
        (NO_CLASS, NEVER, "it can never be placed: StorageClass 'fast' of PersistentVolumeClaim 'data' does not exist"),
        (late, NOW, "no node for it now: PersistentVolumeClaim 'data' gets its volume only on the node of its pod"),
    ):
        pods = [pod(0, conditions=unplaced(text), spec=mounts)]
        one = first(head=job(replicas=1), pods=pods, pod_groups=[said], nodes=[node()], events=[event])
        assert (one.reason, one.summary) == (reason, words)
    # Every claim of that kind waits so for a moment.
    assert found(head=job(replicas=1), pods=[pod(0, spec=mounts)], pod_groups=[group("Inqueue")], events=[late]) == ()


@pytest.mark.parametrize(
    ("event", "reason", "said", "advice"),
    [
        (NO_CLASS, NEVER, "StorageClass 'fast' of PersistentVolumeClaim 'data' does not exist", "create the Storage"),
        (
            claim_event("FailedBinding", "no persistent volumes available for this claim and no storage class is set"),
            NEVER,
            "no PersistentVolume fits PersistentVolumeClaim 'data', and it has no StorageClass",
            "create a PersistentVolume that fits",
        ),
        (
            claim_event("ProvisioningFailed", "no volume plugin matched name: kubernetes.io/no-provisioner"),
            NEVER,
            "its StorageClass has no provisioner",
            "create a PersistentVolume that fits",
        ),
        (
            claim_event("VolumeMismatch", 'Cannot bind to requested volume "v": requested PV is too small'),
            NEVER,
            "'data' cannot have the PersistentVolume that it asks for",
            "correct what its event says",
        ),
        (
            claim_event("ProvisioningFailed", "failed to provision volume: rpc error: quota of 3 TiB is used up"),
            NOW,
            "the provisioner of PersistentVolumeClaim 'data' fails",
            "it tries again",
        ),
        (EXTERNAL, NOW, "'data' waits for its provisioner 'csi.x'", "check that the provisioner runs"),
    ],
)
@pytest.mark.parametrize(
    "statement", ["pod has unbound immediate PersistentVolumeClaims", 'storageclass.storage.k8s.io "fast" not found']
)
def test_a_claim_without_a_volume_says_why_by_its_events(
    event: Manifest, reason: Reason, said: str, advice: str, statement: str
) -> None:
    text = f"0/1 nodes are available: {statement}."
    mounts = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}
    others = [claim_event("ProvisioningFailed", "of another", name="other"), {**NO_CLASS, "lastTimestamp": EARLY}]
    seen = {"head": job(replicas=1), "pod_groups": [group("Inqueue")], "nodes": [node()], "events": [*others, event]}
    one = first(pods=[pod(0, conditions=unplaced(text), spec=mounts)], **seen)
    assert (one.reason, said in one.summary, advice in one.resolution) == (reason, True, True), one
    assert (one.objects[0].kind, one.objects[0].name) == ("PersistentVolumeClaim", "data")
    assert event["message"] in one.detail
    # A scheduler that has chosen a node says nothing while it waits for the volume.
    silent = first(now=LATER, pods=[pod(0, spec=mounts)], **seen)
    assert (silent.reason, said in silent.summary, advice in silent.resolution) == (reason, True, True), silent


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


def test_a_job_that_the_scheduler_has_not_looked_at_yet_says_so_for_its_first_seconds() -> None:
    open_queue = {**queue(state="Open"), "spec": {}}
    seen = {"head": job(), "pods": [], "pod_groups": [group()], "queues": [open_queue], "nodes": [node()]}
    born = datetime.fromisoformat(CREATED.replace("Z", "+00:00"))
    not_yet, others = "Volcano's scheduler has not looked at it yet", "in it: b/busy"
    ages = {timedelta(0): not_yet, FIRST_LOOK - timedelta(seconds=1): not_yet, FIRST_LOOK: others}
    for age, said in ages.items():
        one = first(now=born + age, neighbours=[other("busy")], **seen)
        assert (one.reason, one.detail) == (Reason.WAITING_IN_QUEUE, said)
    event = {"message": "queue resource quota insufficient", "involvedObject": {"kind": "PodGroup", "name": "app-u"}}
    looked = first(now=born, neighbours=[other("busy")], events=[event], **seen)
    assert looked.detail == f"{event['message']}\n{others}"


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


GOING = {
    "metadata": {"name": "team", "deletionTimestamp": "2026-03-01T10:00:10Z"},
    "status": {"conditions": [{"status": "True", "message": "Some content has finalizers remaining: x in 1 instance"}]},
}
UNKNOWN = (
    "Error creating pods: [failed to create pod app-trainer-0-0, err: &errors.StatusError{ErrStatus:v1.Status{"
    'Status:"Failure", Message:"pods \\"app-trainer-0-0\\" is forbidden: no PriorityClass with name high was found"'
)
OVER = pod(0, "Succeeded", node="n", containerStatuses=ended(0))


def failed(message: str) -> Manifest:
    return {"events": [{"reason": "FailedCreate", "type": "Warning", "message": message}]}


@pytest.mark.parametrize(
    ("what", "reason", "said", "state"),
    [
        ({"head": job(None, 1), "pods": [], "queues": []}, Reason.QUEUE_MISSING, "queue 'q' does", "SUBMITTED"),
        ({"head": job("Pending", 1), "pods": [pod()], "queues": []}, Reason.QUEUE_MISSING, "queue 'q' does", "PENDING"),
        (
            {"head": job("Running", 2), "pods": [OVER], "queues": []},
            Reason.QUEUE_MISSING,
            "queue 'q' does",
            "RUNNING",
        ),
        ({"head": job("Restarting", 1), "pods": [], "queues": []}, Reason.QUEUE_MISSING, "queue 'q' does", "RUNNING"),
        (
            {"head": job("Pending", 1), "pods": [], **failed(UNKNOWN)},
            Reason.REFUSED,
            "class 'high' does",
            "PENDING",
        ),
        (
            {"head": job("Running", 2), "pods": [OVER], **failed(UNKNOWN)},
            Reason.REFUSED,
            "class 'high' d",
            "RUNNING",
        ),
        (
            {"head": job("Running", 2), "pods": [OVER], **failed("odd")},
            Reason.REFUSED,
            "cannot be made",
            "RUNNING",
        ),
        (
            {"head": job("Restarting", 1), "pods": [], "namespace": GOING},
            Reason.REFUSED,
            "namespace 'team'",
            "RUNNING",
        ),
        (
            {"head": job("Pending", 1), "pods": [], "namespace": GOING},
            Reason.REFUSED,
            "namespace 'team'",
            "PENDING",
        ),
        (
            {"head": job("Pending", 1), "pods": [pod()], "lacks_group": True},
            Reason.CONTROLLER_ABSENT,
            "PodGr",
            "PENDING",
        ),
        ({"head": job("Pending", 1), "pods": []}, Reason.CONTROLLER_ABSENT, "job controller has not", "PENDING"),
        ({"head": job("Running", 1), "pods": [OVER]}, None, "job controller has not looked at it", "SUCCEEDED"),
        ({"head": job("Running", 1), "pods": [OVER], "queues": []}, None, "as queue 'q' is gone", "SUCCEEDED"),
    ],
)
def test_each_object_whose_absence_stops_a_controller_is_named(
    what: Manifest, reason: Reason | None, said: str, state: str
) -> None:
    given = {"job_object": what["head"], **{key: value for key, value in what.items() if key != "head"}}
    status = JOB.read_status(ObservedObjects(at=LATER, **given))
    assert status.state.value == state
    assert said in status.message
    assert [one.reason for one in status.diagnoses][:1] == [reason] * (reason is not None)


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
