"""News of a run arrives in any order, at readers that forget, and the stack has its true end, or none."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from torchx_pulumi.apps import judge as judging
from torchx_pulumi.apps.answer import Answer, StackChange
from torchx_pulumi.apps.look import Look, Remembered
from torchx_pulumi.model.requested import Requested, RequestedAction
from torchx_pulumi.model.status import read_state
from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects

from tests.unit.apps.simulated_cluster import TRUTH, UID, VARIANTS, Change, Cluster
from tests.unit.schedulers.observed_objects import Manifest

ORDERS = int(os.environ.get("TORCHX_PULUMI_ORDERS", "200"))
"""Orders for all variants together."""


@dataclass(slots=True)
class Evidence:
    """What a reader saw of the end, by the marks of the cluster."""

    marks: set[str] = field(default_factory=set)
    pods: set[str] = field(default_factory=set)
    attempts: set[int] = field(default_factory=set)
    """Attempts in which it saw an AppWrapper v1beta1 run, or a PodGroup."""
    early: set[frozenset[str]] = field(default_factory=set)
    """Pods that it saw ended, all of a run, while it saw the job object live."""

    def add_job(self, cluster: Cluster, found: Manifest) -> None:
        going = "deletionTimestamp" in found["metadata"]
        mark = (found["metadata"].get("annotations") or {}).get(TRUTH)
        if mark is not None and (not going or cluster.kind == "volcano"):
            self.marks.add(mark)
        status = found["status"]
        if cluster.kind == "pods" or (not going and status.get("state") == "Running"):
            self.attempts.add(1 + (status.get("numberOfRequeueings") or 0))

    def add_pod(self, found: Manifest) -> None:
        meta = found["metadata"]
        if "deletionTimestamp" not in meta and TRUTH in (meta.get("annotations") or {}):
            self.pods.add(meta["uid"])

    def add_early(self, cluster: Cluster, job: Manifest | None) -> None:
        """Note the pods that had all ended if the job object, as seen with them, is not being deleted."""
        lives = job is not None and "deletionTimestamp" not in job["metadata"]
        if lives and cluster.truth.early <= self.pods:
            self.early.add(cluster.truth.early)

    def copy(self) -> Evidence:
        return Evidence({*self.marks}, {*self.pods}, {*self.attempts}, {*self.early})

    def shows(self, cluster: Cluster) -> bool:
        """Return whether it has the true end of the run."""
        truth = cluster.truth
        by_pods = bool(truth.pods) and truth.pods <= self.pods and cluster.attempt in self.attempts
        return truth.end is not None and (truth.mark in self.marks or by_pods)


@dataclass(slots=True)
class Pending:
    """A change of the stack on its way."""

    by: object
    change: StackChange
    evidence: Evidence


@dataclass
class World:
    """A cluster, a stack, and who reads the one and writes the other."""

    rng: random.Random
    cluster: Cluster
    answer: Answer = field(default_factory=Answer)
    pending: list[Pending] = field(default_factory=list)
    delivered: list[Evidence] = field(default_factory=list)
    """What the changes that reached the stack had as evidence."""
    story: list[str] = field(default_factory=list)

    @property
    def shown(self) -> bool:
        """Return whether a reader saw the true end and could write it."""
        return any(evidence.shows(self.cluster) for evidence in self.delivered)

    def now(self) -> datetime:
        """Return the time by a clock that may be wrong."""
        return datetime(2026, 3, 1, 11, tzinfo=timezone.utc) + timedelta(seconds=self.rng.randint(-9000, 9000))

    def deliver(self, pending: Pending) -> None:
        before = self.answer
        self.answer = pending.change.apply(before)
        self.delivered.append(pending.evidence)
        if self.answer is not before:
            requested = self.answer.requested
            words = requested.action.value if requested else "-"
            self.story.append(f"stack: {told(self.answer)} attempt {self.answer.observed.get('attempt')}, {words}")

    def read(self, evidence: Evidence, *, pods: bool = True) -> ObservedObjects:
        """Read job object and pods from the API server."""
        cluster = self.cluster
        if cluster.job is None:
            return ObservedObjects(pods=() if cluster.kind == "pods" else None)
        if pods or not cluster.variant.ends_by_pods:
            evidence.add_job(cluster, cluster.job)
        for pod in cluster.pods.values() if pods else ():
            evidence.add_pod(pod)
        evidence.add_early(cluster, cluster.job)
        return ObservedObjects(
            job_object=cluster.job,
            pods=tuple(cluster.pods.values()) if pods else None,
            expected=cluster.expected,
            version=str(cluster.version),
            at=self.now(),
        )

    def look(self, objects: ObservedObjects | None, **more: Any) -> Look:
        changing = self.cluster.launching
        return Look(variant=self.cluster.variant, at=self.now(), uid=UID, objects=objects, changing=changing, **more)


def told(answer: Answer) -> tuple[Any, Any]:
    return answer.observed.get("state"), answer.observed.get("reason")


class Once:
    """A command that reads the cluster once, and writes the stack later."""

    def __init__(self, world: World) -> None:
        self.world = world

    def look(self, *, pods: bool = True) -> None:
        world, evidence = self.world, Evidence()
        if world.cluster.job is None and not world.cluster.job_changes:
            return
        look = world.look(world.read(evidence, pods=pods))
        change = StackChange(uid=UID, look=look)
        if world.rng.random() < 0.3:
            # It is known on this machine, and written by a later command.
            observed = judging.judge(look, world.answer.requested, world.answer.observed or None)
            change = StackChange(uid=UID, observed=observed)
        world.pending.append(Pending(self, change, evidence))


class Controller:
    """A reader with watches, each of which is late or interrupted on its own, and with a memory that a restart ends."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.restart()

    def restart(self) -> None:
        """Begin again: what it knew and what it had not written yet is lost."""
        self.world.pending = [one for one in self.world.pending if one.by is not self]
        self.remembered = Remembered()
        self.evidence = Evidence()
        self.job: Manifest | None = None
        self.pods: dict[str, Manifest] = {}
        self.job_place = self.pod_place = 0
        self.relist_job()
        self.relist_pods()

    def relist_job(self) -> None:
        """Begin the watch of job objects again: what happened in between was not seen."""
        cluster = self.world.cluster
        self.job_place, self.job = len(cluster.job_changes), cluster.job
        if cluster.job is not None:
            self.remembered = self.remembered.with_job_object(cluster.job)
            self.evidence.add_job(cluster, cluster.job)

    def relist_pods(self) -> None:
        cluster = self.world.cluster
        self.pod_place, self.pods = len(cluster.pod_changes), {**cluster.pods}
        for pod in self.pods.values():
            self._saw_pod(pod)

    def _saw_pod(self, pod: Manifest) -> None:
        self.remembered = self.remembered.with_pod(pod)
        self.evidence.add_pod(pod)

    def next_job(self) -> bool:
        changes = self.world.cluster.job_changes
        if self.job_place == len(changes):
            return False
        change = changes[self.job_place]
        self.job_place += 1
        self.remembered = self.remembered.with_job_object(change.found)
        self.evidence.add_job(self.world.cluster, change.found)
        self.job = None if change.gone else change.found
        return True

    def next_pod(self) -> bool:
        changes = self.world.cluster.pod_changes
        if self.pod_place == len(changes):
            return False
        change: Change = changes[self.pod_place]
        self.pod_place += 1
        self._saw_pod(change.found)
        self.pods.pop(change.name, None)
        if not change.gone:
            self.pods[change.name] = change.found
        return True

    def look(self) -> None:
        world = self.world
        if world.cluster.job is None and not world.cluster.job_changes:
            return
        seen = [int(one["metadata"]["resourceVersion"]) for one in (self.job, *self.pods.values()) if one]
        objects = ObservedObjects(
            job_object=self.job,
            pods=tuple(self.pods.values()),
            expected=world.cluster.expected,
            version=str(max(seen, default=0)),
            at=world.now(),
        )
        self.evidence.add_early(world.cluster, self.job)
        look = world.look(objects, confirmed=False, remembered=self.remembered)
        found = judging.judge(look, world.answer.requested, world.answer.observed or None)
        if found is not None and (look.gone or read_state(found.get("state")).terminal):
            fresh = world.read(self.evidence)
            self.remembered = self.remembered.with_objects(fresh)
            look = world.look(fresh, remembered=self.remembered)
        evidence = self.evidence.copy()
        shown = None if look.objects is None else look.objects.job_object
        if world.cluster.kind == "v1beta1" and shown is not None and "deletionTimestamp" not in shown["metadata"]:
            # Pods that go while the AppWrapper lives are started again.
            evidence.pods &= {pod["metadata"]["uid"] for pod in (look.objects and look.objects.pods) or ()}
        world.pending.append(Pending(self, StackChange(uid=UID, look=look), evidence))


def user(world: World, action: RequestedAction, *, asks_first: bool, fails: bool) -> Iterator[None]:
    """Cancel or resume as the commands do; each step at a moment of its own."""
    cluster = world.cluster
    if cluster.job is None:
        return
    seen = world.look(world.read(Evidence()))
    status, control = seen.status, cluster.variant.control
    assert status is not None
    if action is RequestedAction.CANCEL and status.state.terminal:
        return
    if action is RequestedAction.RESUME and (control is None or not control.is_suspended(status.phase)):
        return
    known = world.answer.requested
    yield
    request = Requested(
        action=action,
        at=world.now().isoformat(),
        counter=1 + (known.counter if known else 0),
        uid=UID,
        attempt=status.attempt,
        resource_version=seen.resource_version,
    )
    written = Pending(user, StackChange(uid=UID, request=request), Evidence())
    if asks_first:
        _ask(cluster, action)
        yield
    world.story.append(f"user: {action.value} {'is noted later' if fails else ''}")
    if fails:
        world.pending.append(written)
    else:
        world.deliver(written)
    if asks_first:
        return
    yield
    _ask(cluster, action)
    yield
    if cluster.kind == "pods":
        # The pods are deleted in any case, next to the PodGroup.
        for name in [*cluster.pods]:
            cluster.delete_pod(name)


def _ask(cluster: Cluster, action: RequestedAction) -> None:
    if action is RequestedAction.RESUME:
        cluster.resume()
    elif cluster.variant.control is not None:
        cluster.abort()
    else:
        cluster.requested = True
        cluster.delete_job()


def play(seed: int) -> World:
    """Play one order to its end."""
    rng = random.Random(seed)
    cluster = Cluster(rng, kind=[*VARIANTS][seed % len(VARIANTS)])
    world = World(rng, cluster)
    controller, once = Controller(world), Once(world)
    # Some runs have one reader only.
    readers = rng.choice([[controller], [once], [controller, once], [controller, once]])
    users: list[Iterator[None]] = []
    plans = [[], ["cancel"], ["cancel"], ["cancel", "delete"], ["delete"], ["cancel", "cancel"]]
    if cluster.kind == "volcano":
        plans += [["cancel", "resume"], ["cancel", "resume", "delete"], ["cancel", "resume", "cancel", "delete"]]
    plan = list(rng.choice(plans))
    if "resume" in plan:
        cluster.aborts_to = "Aborted"
    cluster.background = rng.random() < 0.3
    slow = rng.random()
    for _ in range(rng.randint(30, 140)):
        kind = rng.random()
        if kind < 0.4:
            _cluster_step(world)
        elif kind < 0.55:
            step = rng.choice([controller.next_job, controller.next_pod])
            if rng.random() > slow * 0.8:
                step()
        elif kind < 0.65:
            if controller in readers:
                controller.look()
        elif kind < 0.72 and once in readers:
            once.look(pods=rng.random() > 0.2)
        elif kind < 0.84 and world.pending:
            world.deliver(world.pending.pop(rng.randrange(len(world.pending))))
        elif kind < 0.9 and users:
            who = rng.choice(users)
            if next(who, who) is who:
                users.remove(who)
        elif kind < 0.95 and plan and rng.random() < 0.4 and not (plan[0] == "resume" and users):
            _begin(world, plan.pop(0), users)
        elif kind < 0.96:
            rng.choice([controller.restart, controller.relist_job, controller.relist_pods, cluster.take_pod])()
    for who in users:
        for _ in who:
            _cluster_step(world)
    for _ in range(400):
        _cluster_step(world)
    rng.shuffle(world.pending)
    while world.pending:
        world.deliver(world.pending.pop())
    while controller.next_job() or controller.next_pod():
        pass
    for reader in rng.sample(readers, len(readers)):
        reader.look()
        while world.pending:
            world.deliver(world.pending.pop())
    return world


def _cluster_step(world: World) -> None:
    steps = world.cluster.steps()
    if steps:
        before = len(world.cluster.job_changes)
        world.rng.choice(steps)()
        if len(world.cluster.job_changes) > before:
            world.story.append(
                f"cluster: {world.cluster.phase} attempt {world.cluster.attempt}"
                f"{' going' if world.cluster.going else ''}, truth {world.cluster.truth.end}"
            )


def _begin(world: World, what: str, users: list[Iterator[None]]) -> None:
    if what == "delete":
        world.story.append("kubectl delete")
        world.cluster.delete_job()
        return
    action = RequestedAction(what)
    fails = world.rng.random() < 0.1 and action is RequestedAction.CANCEL and world.cluster.aborts_to == "Aborted"
    # A pending request of this user is written first.
    for one in [one for one in world.pending if one.by is user]:
        world.pending.remove(one)
        world.deliver(one)
    first = action is RequestedAction.RESUME and world.rng.random() < 0.5
    users.append(user(world, action, asks_first=first, fails=fails))


def allowed(world: World) -> set[str]:
    """Return the states that the stack may have in the end."""
    cluster, requested = world.cluster, world.answer.requested
    truth, cancelled = cluster.truth, requested is not None and requested.action is RequestedAction.CANCEL
    # By a clock that is ahead, the controller had not acted for a minute.
    saw_early = any(truth.early in one.early for one in world.delivered)
    may = {truth.early_end} if truth.early_end is not None and saw_early else set()
    if world.shown and truth.end is not None:
        may.add(truth.end)
        if truth.end == "CANCELLED" and not cancelled and requested is not None:
            # The request to resume it came when its objects were about to go.
            may.add("UNKNOWN")
        if cancelled and cluster.kind == "v1beta1" and (truth.mark or "").startswith("FAILED"):
            # MCAD gives one state to what failed too often and to what is being deleted.
            may.add("CANCELLED")
        return may
    # A gang that lost pods has failed; one that lost some of its pods and failed otherwise, too.
    may |= {"FAILED"} if truth.pods_taken else set()
    may |= {end for end in (truth.end, truth.possible) if end is not None}
    if cluster.job is not None:
        return may | {"SUBMITTED", "PENDING", "RUNNING"}
    if requested is not None and not cancelled:
        # It was gone as requested before the request to resume it came.
        may.add("CANCELLED")
    return may | ({"CANCELLED"} if cancelled else {"UNKNOWN"})


def check(seed: int) -> str | None:
    """Play one order. Returns what is wrong with its answer. None: nothing."""
    world = play(seed)
    state, reason = told(world.answer)
    may = allowed(world)
    if state in may:
        return None
    return "\n".join([f"order {seed}, {world.cluster.kind}: {state} {reason}, not one of {may}", *world.story])


@pytest.mark.parametrize("part", range(4))
def test_every_order_of_news_gives_the_true_end_or_none(part: int) -> None:
    wrong = [found for seed in range(part * ORDERS // 4, (part + 1) * ORDERS // 4) if (found := check(seed))]
    assert not wrong, f"{len(wrong)} of {ORDERS // 4}\n" + "\n\n".join(wrong[:3])
