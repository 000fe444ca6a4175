"""Objects of an app whose state is lost: which of them are ours, and in which order they go."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from torchx_pulumi.kube.kinds import POD, SERVICE, Kind
from torchx_pulumi.model import labels
from torchx_pulumi.model.app_entry import RunEntry
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.runs.registration import plan_registration
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER
from torchx_pulumi.schedulers.manifest_objects import objects_of
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB, VOLCANO_JOB_NAME, VOLCANO_POD_GROUP
from torchx_pulumi_stacks.engine.orphans import delete_objects

from tests.fakes import FakeCluster

PODS = ("train-1-trainer-0-0", "train-1-trainer-1-0")
GANG = {(VOLCANO_POD_GROUP, "train-1"), (SERVICE, "train-1"), *((POD, name) for name in PODS)}


class Lab:
    """A gang of pods in a cluster, as a launch made it."""

    def __init__(self, make_order: Callable[..., Any]) -> None:
        order = make_order("pods", pods={"trainer": list(PODS)})
        self.entry: RunEntry = order.entry
        self.cluster = FakeCluster()
        self.told: list[str] = []
        for manifest in plan_registration(order).objects:
            made = copy.deepcopy(dict(manifest))
            self.cluster.create(objects_of(made)[0][0], "default", made)

    def delete(self) -> None:
        delete_objects(self.entry, lambda: self.cluster, self.told.append)

    def there(self) -> set[tuple[Kind, str]]:
        kinds = (VOLCANO_POD_GROUP, SERVICE, POD)
        return {(kind, item["metadata"]["name"]) for kind in kinds for item in self.cluster.list(kind, None)}

    def change(self, kind: Kind, name: str, **metadata: Any) -> None:
        found = self.cluster.get(kind, "default", name)
        assert found is not None
        self.cluster.put({**found, "metadata": {**found["metadata"], **metadata}})


def test_pods_service_and_pod_group_of_a_gang_go_the_pod_group_last(make_order: Callable[..., Any]) -> None:
    lab = Lab(make_order)
    assert lab.there() == GANG
    lab.delete()
    assert lab.there() == set()
    assert lab.told[-1] == "deleting PodGroup default/train-1"
    lab.delete()
    assert len(lab.told) == 4


def test_what_is_left_of_a_gang_goes_although_its_pod_group_is_gone(make_order: Callable[..., Any]) -> None:
    lab = Lab(make_order)
    lab.cluster.remove(VOLCANO_POD_GROUP, "default", "train-1")
    lab.cluster.remove(POD, "default", PODS[0])
    lab.delete()
    assert lab.there() == set()


def test_a_deletion_that_broke_off_is_finished_by_the_next_one(make_order: Callable[..., Any]) -> None:
    lab = Lab(make_order)
    delete = lab.cluster.delete

    def break_off(kind: Kind, *where: Any, uid: str | None = None) -> bool:
        if kind == SERVICE:
            raise ClusterError("the connection is gone", retryable=True)
        return delete(kind, *where, uid=uid)

    lab.cluster.delete = break_off  # type: ignore[method-assign]
    with pytest.raises(ClusterError, match="the connection is gone"):
        lab.delete()
    assert (VOLCANO_POD_GROUP, "train-1") in lab.there()
    lab.cluster.delete = delete  # type: ignore[method-assign]
    lab.delete()
    assert lab.there() == set()


def test_an_object_that_was_made_again_meanwhile_is_left_alone(make_order: Callable[..., Any]) -> None:
    lab = Lab(make_order)
    delete = lab.cluster.delete

    def late(kind: Kind, namespace: str | None, name: str, *, uid: str | None = None) -> bool:
        if kind == VOLCANO_POD_GROUP:
            lab.change(kind, name, uid="of-the-next-one")
        return delete(kind, namespace, name, uid=uid)

    lab.cluster.delete = late  # type: ignore[assignment, method-assign]
    lab.delete()
    assert lab.there() == {(VOLCANO_POD_GROUP, "train-1")}


def test_another_launchs_gang_of_that_name_is_left_alone(make_order: Callable[..., Any]) -> None:
    lab = Lab(make_order)
    lab.entry = replace(lab.entry, launch="another")
    lab.delete()
    assert lab.there() == GANG


def test_a_job_object_that_the_launch_did_not_create_is_left_alone_although_its_uid_is_known(
    make_order: Callable[..., Any],
) -> None:
    lab = Lab(make_order)
    group = lab.cluster.get(VOLCANO_POD_GROUP, "default", "train-1")
    assert group is not None
    lab.entry = replace(lab.entry, launch="another", uid=group["metadata"]["uid"])
    lab.delete()
    assert lab.there() == GANG


@pytest.mark.parametrize(
    "metadata",
    [
        {"annotations": {labels.LAUNCH: "another"}},
        {"annotations": {labels.GROUP_NAME: "train-1"}},
        {"ownerReferences": [{"kind": "PodGroup", "uid": "u", "name": "train-1"}]},
    ],
    ids=["another launch", "no mark", "of another job object"],
)
def test_a_pod_of_that_name_is_left_alone_that_is_not_known_as_ours(
    make_order: Callable[..., Any], metadata: dict[str, Any]
) -> None:
    lab = Lab(make_order)
    lab.change(POD, PODS[0], **metadata)
    lab.delete()
    assert lab.there() == {(POD, PODS[0])}


def test_a_pod_that_only_has_the_jobs_label_is_left_alone(make_order: Callable[..., Any]) -> None:
    lab = Lab(make_order)
    debug = {"name": "debug", "namespace": "default", "labels": {VOLCANO_JOB_NAME: "train-1"}}
    lab.cluster.create(POD, "default", {"apiVersion": "v1", "kind": "Pod", "metadata": debug})
    lab.delete()
    assert lab.there() == {(POD, "debug")}


@pytest.mark.parametrize(
    ("scheduler", "choice", "kind"), [("volcano", "job", VOLCANO_JOB), ("mcad", "v1beta1", APP_WRAPPER)]
)
def test_a_controller_deletes_the_pods_of_the_object_that_stands_for_the_app(
    make_order: Callable[..., Any], scheduler: str, choice: str, kind: Kind
) -> None:
    entry = make_order(scheduler=scheduler).entry
    entry = replace(entry, choice=choice)
    head = {"name": "train-1", "namespace": "default", "labels": {labels.LAUNCH: entry.launch}}
    cluster = FakeCluster()
    cluster.create(kind, "default", {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": head})
    told: list[str] = []
    delete_objects(entry, lambda: cluster, told.append)
    assert told == [f"deleting {kind.kind} default/train-1"]
    assert cluster.list(kind, None) == []
