"""What every driver does, whatever it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest
from torchx_pulumi.apps.answer import StackChange
from torchx_pulumi.apps.look import Look
from torchx_pulumi.apps.variants import find_variant
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.model import labels
from torchx_pulumi.model.app_entry import RunEntry, Stage
from torchx_pulumi.model.errors import ClusterError, DeployError, TakenOverError, TorchxPulumiError
from torchx_pulumi.model.requested import Requested, RequestedAction
from torchx_pulumi.runs.driver import Recorded, Written
from torchx_pulumi.schedulers import find_backend
from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB, VOLCANO_JOB_NAME
from torchx_pulumi.schedulers.volcano.options import GangMode
from torchx_pulumi.storage.owners import this_process

from .conftest import DriverWorld


def nothing(_line: str) -> None:
    """Take a line of progress."""


def launch(world: DriverWorld, order: Any) -> RunEntry:
    uid = world.driver.launch(order, nothing)
    return replace(order.entry, stage=Stage.LAUNCHED, owner=None, uid=uid)


def head(world: DriverWorld, entry: RunEntry) -> dict[str, Any] | None:
    return world.cluster.get(VOLCANO_JOB, entry.namespace, entry.job_name)


def wait_gone(world: DriverWorld, entry: RunEntry) -> bool:
    import time

    for _ in range(240):
        if head(world, entry) is None:
            return True
        time.sleep(0.5)
    return False


def test_launch_makes_the_object_as_given_with_our_labels(driver_world: DriverWorld) -> None:
    order = driver_world.order()
    order.given[0]["metadata"].setdefault("annotations", {})["example.com/mine"] = "kept"
    entry = launch(driver_world, order)
    try:
        made = head(driver_world, entry)
        assert made is not None
        assert made["metadata"]["uid"] == entry.uid
        assert made["metadata"]["labels"][labels.LAUNCH] == entry.launch
        assert made["metadata"]["annotations"][labels.RUN] == entry.run
        assert made["metadata"]["annotations"]["example.com/mine"] == "kept"
        assert len(made["spec"]["tasks"]) == 2
    finally:
        driver_world.driver.destroy(entry, nothing)


def test_a_colleague_finds_the_app_by_its_place(driver_world: DriverWorld) -> None:
    entry = launch(driver_world, driver_world.order())
    try:
        found = driver_world.driver.find(entry.place)
        assert found is not None
        assert (found.app_id, found.scheduler, found.launch) == (entry.app_id, "volcano", entry.launch)
        stacks = {place.stack for place in driver_world.driver.places(driver_world.backend, "torchx")}
        assert entry.place.stack in stacks
        assert driver_world.driver.find(replace(entry.place, stack="default.none-00000000")) is None
    finally:
        driver_world.driver.destroy(entry, nothing)


def test_destroy_removes_object_and_stack_and_may_be_called_again(driver_world: DriverWorld) -> None:
    entry = launch(driver_world, driver_world.order())
    driver_world.driver.destroy(entry, nothing)
    assert wait_gone(driver_world, entry)
    assert driver_world.driver.find(entry.place) is None
    driver_world.driver.destroy(entry, nothing)


def test_destroy_is_fine_where_the_object_is_gone(driver_world: DriverWorld) -> None:
    entry = launch(driver_world, driver_world.order())
    driver_world.cluster.delete(VOLCANO_JOB, entry.namespace, entry.job_name)
    assert wait_gone(driver_world, entry)
    driver_world.driver.destroy(entry, nothing)
    assert driver_world.driver.find(entry.place) is None


def test_a_refused_launch_leaves_neither_object_nor_stack(driver_world: DriverWorld) -> None:
    order = driver_world.order()
    # Volcano's webhook refuses it at once; for a namespace, the provider would wait.
    order.given[0]["spec"]["queue"] = "is-not-there"
    if driver_world.backend and hasattr(driver_world.driver, "error"):
        driver_world.driver.error = DeployError("refused")
    with pytest.raises(TorchxPulumiError):
        driver_world.driver.launch(order, nothing)
    assert driver_world.driver.find(order.entry.place) is None


def test_a_launch_that_was_begun_has_made_nothing_and_goes_on(driver_world: DriverWorld) -> None:
    order = driver_world.order()
    driver_world.driver.begin(order, nothing)
    assert head(driver_world, order.entry) is None
    assert driver_world.driver.find(order.entry.place) is None
    with pytest.raises(DeployError):
        driver_world.driver.begin(order, nothing)
    entry = launch(driver_world, order)
    try:
        assert (head(driver_world, entry) or {})["metadata"]["uid"] == entry.uid
    finally:
        driver_world.driver.destroy(entry, nothing)


def test_a_launch_that_was_abandoned_leaves_nothing(driver_world: DriverWorld) -> None:
    order = driver_world.order()
    driver_world.driver.begin(order, nothing)
    driver_world.driver.abandon(order)
    assert driver_world.driver.find(order.entry.place) is None
    assert driver_world.driver.recover(replace(order.entry, owner=driver_world.dead_owner()), nothing) is None
    driver_world.driver.destroy(launch(driver_world, order), nothing)


def test_recover_of_nothing_is_nothing(driver_world: DriverWorld) -> None:
    entry = replace(driver_world.order().entry, owner=driver_world.dead_owner())
    assert driver_world.driver.recover(entry, nothing) is None
    assert driver_world.driver.find(entry.place) is None


def test_recover_of_a_launch_whose_object_is_there_keeps_it(driver_world: DriverWorld) -> None:
    order = driver_world.order()
    entry = launch(driver_world, order)
    try:
        interrupted = replace(order.entry, owner=driver_world.dead_owner())
        settled = driver_world.driver.recover(interrupted, nothing)
        assert settled is not None
        assert settled.uid == entry.uid
        assert (head(driver_world, entry) or {})["metadata"]["uid"] == entry.uid
    finally:
        driver_world.driver.destroy(entry, nothing)


def test_recover_of_a_deletion_finishes_it(driver_world: DriverWorld) -> None:
    entry = launch(driver_world, driver_world.order())
    interrupted = replace(entry, stage=Stage.DELETING, owner=driver_world.dead_owner())
    assert driver_world.driver.recover(interrupted, nothing) is None
    assert wait_gone(driver_world, entry)
    assert driver_world.driver.find(entry.place) is None


def test_an_unreachable_cluster_is_forgotten_only_when_asked_for(driver_world: DriverWorld) -> None:
    entry = launch(driver_world, driver_world.order())
    driver_world.break_cluster()
    with pytest.raises((ClusterError, DeployError)):
        driver_world.driver.destroy(entry, nothing)
    assert driver_world.driver.find(entry.place) is not None
    driver_world.driver.destroy(entry, nothing, forget_unreachable=True)
    assert driver_world.driver.find(entry.place) is None


def test_a_gang_of_pods_is_made_and_removed_whole(driver_world: DriverWorld) -> None:
    entry = launch(driver_world, driver_world.order(gang=GangMode.PODS))
    form = find_backend("volcano").variants[GangMode.PODS]
    seen = form.observe(driver_world.cluster, entry.namespace, entry.job_name)
    assert seen.job_object is not None
    assert [pod["metadata"]["name"] for pod in seen.pods or ()] == list(entry.pods["trainer"])
    driver_world.driver.destroy(entry, nothing)
    assert driver_world.cluster.list(POD, entry.namespace, {VOLCANO_JOB_NAME: entry.job_name}) == []


def test_record_writes_what_says_more_of_the_same_run(driver_world: DriverWorld) -> None:
    entry = launch(driver_world, driver_world.order())
    end = {"state": "FAILED", "reason": "ExitCode", "message": "m", "attempt": 1, "phase": None}
    end |= {"observed_at": "2100-01-01T00:00:00Z", "uid": entry.uid}

    def record(observed: Mapping[str, Any], uid: str | None = entry.uid) -> Written:
        return driver_world.driver.record(entry, StackChange(uid=str(uid), observed=observed))

    def present() -> Mapping[str, Any]:
        answer = driver_world.driver.answer(entry)
        return {} if answer is None else answer.observed

    try:
        assert record({**end, "uid": "of-another-run"}, "of-another-run") == Written(outcome=Recorded.KNOWN)
        assert present().get("state") != "FAILED"
        written = record(end)
        assert (written.outcome, written.answer and written.answer.observed["state"]) == (Recorded.WRITTEN, "FAILED")
        assert (present()["state"], present()["uid"], "phase" in present()) == ("FAILED", entry.uid, False)
        assert record(end).outcome is Recorded.KNOWN
        written = record({**end, "state": "RUNNING", "reason": "Running", "observed_at": "2100-01-02T00:00:00Z"})
        assert (written.outcome, written.answer and written.answer.observed["state"]) == (Recorded.KNOWN, "FAILED")
        assert record({**end, "state": "RUNNING", "reason": "Running", "attempt": 2}).outcome is Recorded.WRITTEN
    finally:
        driver_world.driver.destroy(entry, nothing)
    assert record(end) == Written(outcome=Recorded.LEFT)
    assert driver_world.driver.answer(entry) is None


def test_a_request_stays_whatever_is_observed_and_decides_an_end_that_was_not_seen(driver_world: DriverWorld) -> None:
    entry = launch(driver_world, driver_world.order())
    write, place, uid = driver_world.driver.record_at, entry.place, str(entry.uid)
    cancel = Requested(action=RequestedAction.CANCEL, at="2100-01-01T00:00:00Z", by="ada", uid=uid)
    variant = find_variant(entry.scheduler, entry.choice)
    gone = Look(variant=variant, at=datetime.now(timezone.utc), uid=uid, objects=ObservedObjects(pods=()))
    try:
        written = write(place, StackChange(uid=uid, request=cancel))
        assert (written.outcome, written.answer and written.answer.requested) == (Recorded.WRITTEN, cancel)
        # Of two users who did not know of each other, one is first.
        written = write(place, StackChange(uid=uid, request=replace(cancel, by="bob")))
        assert (written.outcome, written.answer and written.answer.requested) == (Recorded.KNOWN, cancel)
        assert write(place, StackChange(uid=uid, look=gone)).outcome is Recorded.WRITTEN
        answer = driver_world.driver.answer(entry)
        assert answer is not None
        assert (answer.observed["state"], answer.requested) == ("CANCELLED", cancel)
        assert write(place, StackChange(uid=uid, look=gone)).outcome is Recorded.KNOWN
        absent = replace(place, stack="default.none-00000000")
        assert write(absent, StackChange(uid=uid, look=gone)).outcome is Recorded.LEFT
    finally:
        driver_world.driver.destroy(entry, nothing)


def test_close_may_be_called_twice(driver_world: DriverWorld) -> None:
    driver_world.driver.close()
    driver_world.driver.close()


def taken_over() -> None:
    raise TakenOverError("the app was taken over")


def test_a_driver_whose_caller_lost_the_app_changes_nothing(driver_world: DriverWorld) -> None:
    order = driver_world.order()
    with pytest.raises(TakenOverError):
        driver_world.driver.launch(order, nothing, check=taken_over)
    assert head(driver_world, order.entry) is None
    assert driver_world.driver.find(order.entry.place) is None
    entry = launch(driver_world, order)
    try:
        with pytest.raises(TakenOverError):
            driver_world.driver.destroy(entry, nothing, check=taken_over)
        interrupted = replace(entry, stage=Stage.DELETING, owner=driver_world.dead_owner())
        with pytest.raises(TakenOverError):
            driver_world.driver.recover(interrupted, nothing, check=taken_over)
        assert (head(driver_world, entry) or {})["metadata"]["uid"] == entry.uid
        assert driver_world.driver.find(entry.place) is not None
    finally:
        driver_world.driver.destroy(entry, nothing)


def test_recover_refuses_an_owner_that_works_unless_told_to_take_over(driver_world: DriverWorld) -> None:
    entry = launch(driver_world, driver_world.order())
    far = replace(this_process(), pid_namespace=1)
    deleting = replace(entry, stage=Stage.DELETING, owner=far)
    with pytest.raises(DeployError):
        driver_world.driver.recover(deleting, nothing)
    assert head(driver_world, entry) is not None
    assert driver_world.driver.recover(deleting, nothing, take_over=True) is None
    assert wait_gone(driver_world, entry)


def test_a_stack_that_is_not_worked_on_has_no_locks(driver_world: DriverWorld) -> None:
    entry = launch(driver_world, driver_world.order())
    try:
        assert list(driver_world.driver.locks(entry)) == []
    finally:
        driver_world.driver.destroy(entry, nothing)
