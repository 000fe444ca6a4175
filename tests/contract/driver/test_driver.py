"""What every driver does, whatever it is made of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.model import labels
from torchx_pulumi.model.app_entry import RunEntry, Stage
from torchx_pulumi.model.errors import ClusterError, DeployError, TakenOverError, TorchxPulumiError
from torchx_pulumi.runs.driver import Forgotten, Recorded
from torchx_pulumi.schedulers import find_backend
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB, VOLCANO_JOB_NAME
from torchx_pulumi.schedulers.volcano.options import Gang
from torchx_pulumi.stack_state.checkpoint import read_notes
from torchx_pulumi.stack_state.owner import this_process

from .conftest import DriverWorld


def nothing(_line: str) -> None:
    """Take a line of progress."""


def launch(world: DriverWorld, order: Any) -> RunEntry:
    launched = world.driver.launch(order, nothing)
    return replace(order.entry, stage=Stage.LAUNCHED, owner=None, uid=launched.uid)


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
    order.manifest["metadata"].setdefault("annotations", {})["example.com/mine"] = "kept"
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
    order.manifest["metadata"]["namespace"] = "is-not-there"
    if driver_world.backend and hasattr(driver_world.driver, "error"):
        driver_world.driver.error = DeployError("refused")
    with pytest.raises(TorchxPulumiError):
        driver_world.driver.launch(order, nothing)
    assert driver_world.driver.find(order.entry.place) is None


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
    entry = launch(driver_world, driver_world.order(gang=Gang.PODS))
    form = find_backend("volcano").variants[Gang.PODS]
    seen = form.observe(driver_world.cluster, entry.namespace, entry.job_name)
    assert seen.job_object is not None
    assert [pod["metadata"]["name"] for pod in seen.pods or ()] == list(entry.pods["trainer"])
    driver_world.driver.destroy(entry, nothing)
    assert driver_world.cluster.list(POD, entry.namespace, {VOLCANO_JOB_NAME: entry.job_name}) == []


def test_record_writes_what_is_newer_and_of_the_same_run(driver_world: DriverWorld) -> None:
    entry = launch(driver_world, driver_world.order())
    record, end = driver_world.driver.record, {"state": "FAILED", "reason": "ExitCode", "message": "m", "attempt": 1}
    end |= {"observed_at": "2100-01-01T00:00:00Z", "uid": entry.uid, "phase": None}
    try:
        assert record(entry, {**end, "uid": "of-another-run"}) is Recorded.KNOWN
        assert (driver_world.driver.observed(entry) or {}).get("state") != "FAILED"
        assert record(entry, end) is Recorded.WRITTEN
        seen = driver_world.driver.observed(entry) or {}
        assert (seen["state"], seen["uid"], "phase" in seen) == ("FAILED", entry.uid, False)
        assert record(entry, end) is Recorded.KNOWN
        assert record(entry, {**end, "state": "RUNNING", "observed_at": "2100-01-02T00:00:00Z"}) is Recorded.KNOWN
        assert record(entry, {**end, "state": "RUNNING", "attempt": 2}) is Recorded.WRITTEN
    finally:
        driver_world.driver.destroy(entry, nothing)
    assert record(entry, end) is Recorded.LEFT
    assert driver_world.driver.observed(entry) is None


def test_an_observation_replaces_the_one_that_was_read_only(driver_world: DriverWorld) -> None:
    entry = launch(driver_world, driver_world.order())
    write, place = driver_world.driver.record_at, entry.place
    first = {"state": "PENDING", "reason": "Starting", "message": "", "attempt": 1, "uid": entry.uid}
    first |= {"observed_at": "2100-01-01T00:00:00Z"}
    second = {**first, "state": "RUNNING", "reason": "Running", "observed_at": "2100-01-01T00:00:00.001Z"}
    try:
        before = driver_world.driver.observed(entry) or {}
        assert write(place, first, replaces=before) is Recorded.WRITTEN
        assert write(place, second, replaces=before) is Recorded.KNOWN
        assert (driver_world.driver.observed(entry) or {}).get("state") == "PENDING"
        assert write(place, second, replaces=first) is Recorded.WRITTEN
        assert (driver_world.driver.observed(entry) or {}).get("state") == "RUNNING"
        assert write(replace(place, stack="default.none-00000000"), second) is Recorded.LEFT
    finally:
        driver_world.driver.destroy(entry, nothing)


def test_a_stack_is_forgotten_as_decided_on_its_state_and_its_objects_stay(driver_world: DriverWorld) -> None:
    entry = launch(driver_world, driver_world.order())
    forget, asked = driver_world.driver.forget_at, list[str]()

    def decide(text: str) -> bool:
        asked.append(text)
        return len(asked) > 1

    try:
        assert forget(replace(entry.place, stack="default.none-00000000"), decide) is Forgotten.KEPT
        assert asked == []
        assert forget(entry.place, decide) is Forgotten.KEPT
        assert driver_world.driver.find(entry.place) is not None
        entries, _ = read_notes(asked[0])
        assert entries is not None
        assert (entries.app_id, entries.launch) == (entry.app_id, entry.launch)
        assert forget(entry.place, decide) is Forgotten.REMOVED
        assert driver_world.driver.find(entry.place) is None
        assert entry.place not in driver_world.driver.places(driver_world.backend, "torchx")
        assert head(driver_world, entry) is not None
        assert forget(entry.place, decide) is Forgotten.KEPT
        assert len(asked) == 2
    finally:
        driver_world.cluster.delete(VOLCANO_JOB, entry.namespace, entry.job_name, uid=entry.uid)


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
