"""How a run ended, told from the evidence of a cluster that changes while the controller looks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.model import labels
from torchx_pulumi.schedulers.appwrapper.options import AppWrapperVersion
from torchx_pulumi.schedulers.volcano.options import GangMode
from torchx_pulumi.stack_state.stack_locks import lock_folder
from torchx_pulumi_fleet.tracker.live_fleet import LiveFleet

from tests.fakes import FakeCluster
from tests.fleet.writer.lagging import Lagging
from tests.fleet.writer.requests import cancelled
from tests.fleet.writer.world import FAST, App, World, a_while, wait_for

KINDS: dict[str, dict[str, Any]] = {
    "volcano": {},
    "gang of pods": {"gang": GangMode.PODS},
    "v1beta1": {"scheduler": "mcad"},
    "v1beta2": {"scheduler": "mcad", "api_version": AppWrapperVersion.V1BETA2},
}
CANCELLED, NOT_FOUND = ("CANCELLED", "Cancelled"), ("UNKNOWN", "NotFound")

UNPULLED = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "img:1"'}}}
NEVER_STARTED = {"state": {"terminated": {"reason": "ContainerStatusUnknown", "exitCode": 137}}}
"""What the kubelet says of a container without an image whose pod is deleted."""

RUNS: dict[str, Any] = {"state": {"running": {"startedAt": "2026-01-01T00:00:10Z"}}}
DELETED_AT = "2026-01-01T00:05:00Z"


def put_pod(world: World, app: App, phase: str, container: Mapping[str, Any], *, deleted: bool = False) -> None:
    """Write the pod of an app."""
    (name,) = app.entry.pods["trainer"]
    known = world.cluster.find(POD, "default", name) or {}
    owns = {"volcano.sh/job-name": app.name, labels.UNIQUE_NAME: app.name}
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", **(known.get("metadata") or {})}
    meta["labels"] = {labels.ORGANIZATION: labels.ORGANIZATION_VALUE, **(meta.get("labels") or {}), **owns}
    if app.kind.kind != "PodGroup":
        meta["ownerReferences"] = [{"kind": app.kind.kind, "name": app.name, "uid": app.entry.uid}]
    if deleted:
        meta["deletionTimestamp"] = DELETED_AT
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z"}
    status = {
        "phase": phase,
        "conditions": [scheduled],
        "containerStatuses": [{"name": "trainer", "image": "img:1", "restartCount": 0, **container}],
    }
    spec = {"nodeName": "node-1", "containers": [{"name": "trainer", "image": "img:1"}]}
    world.cluster.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status})


def remove_pod(world: World, app: App) -> None:
    world.cluster.remove(POD, "default", app.entry.pods["trainer"][0])


def begin(world: World, app: App) -> None:
    """Set the job object of an app to a phase in which its pods exist."""
    if app.kind.kind == "Job":
        world.phase(app, "Running", running=1, minAvailable=1)
    elif app.kind.kind == "PodGroup":
        world.change(app, phase="Running", running=1)
    elif app.kind.api_version.endswith("v1beta1"):
        changed = {"lastUpdateMicroTime": "2026-01-01T00:00:20.0Z", "lastTransitionMicroTime": "2026-01-01T00:00:20.0Z"}
        world.change(app, state="Running", conditions=[{"type": "Dispatched", "status": "True", **changed}])
    else:
        deployed = {"type": "ResourcesDeployed", "status": "True", "lastTransitionTime": "2026-01-01T00:00:20Z"}
        world.change(app, phase="Running", conditions=[deployed])


def going(world: World, app: App) -> None:
    """Delete the job object of an app in the foreground: it stays until its pods are gone."""
    found = world.cluster.find(app.kind, "default", app.name)
    assert found is not None
    world.cluster.put({**found, "metadata": {**found["metadata"], "deletionTimestamp": DELETED_AT}})


def ended(exit_code: int, at: str) -> dict[str, Any]:
    terminated = {"reason": "Error" if exit_code else "Completed", "exitCode": exit_code, "finishedAt": at}
    return {"state": {"terminated": {**terminated, "startedAt": "2026-01-01T00:00:10Z"}}}


def requested(app: App) -> list[Any]:
    """Return the request in the component and in the exported object."""
    resources = json.loads(app.path.read_text())["checkpoint"]["latest"]["resources"]
    return [resources[1]["outputs"].get("requested"), resources[0]["outputs"]["torchx"].get("requested")]


def lock(world: World, app: App) -> Path:
    """Lock the stack of an app, as an update does."""
    path = world.root / "backend" / lock_folder(app.entry.place) / "of-somebody.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    return path


@pytest.mark.parametrize("noted", [True, False], ids=["cancelled", "deleted"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_pod_without_an_image_that_is_deleted_with_its_job_is_no_failure(
    world: World, kind: str, noted: bool
) -> None:
    app = world.launch("train-1", **KINDS[kind])
    put_pod(world, app, "Pending", UNPULLED)
    # The next listing, which shows what was requested, is far away.
    with world.controller(timing=replace(FAST, refresh_s=600.0)):
        begin(world, app)
        wait_for(lambda: world.state(app)[1] == "ImageUnavailable")
        if noted:
            cancelled(world, app)
        going(world, app)
        put_pod(world, app, "Failed", NEVER_STARTED, deleted=True)
        a_while()
        assert world.state(app)[0] in ("RUNNING", "PENDING")
        remove_pod(world, app)
        world.cluster.remove(app.kind, "default", app.name)
        wait_for(lambda: world.state(app) == (CANCELLED if noted else NOT_FOUND))
        a_while()
    assert world.state(app) == (CANCELLED if noted else NOT_FOUND)
    assert [None if one is None else one["action"] for one in requested(app)] == 2 * ["cancel" if noted else None]


@pytest.mark.parametrize("kind", ["gang of pods", "v1beta1"])
def test_a_run_that_its_deletion_ended_did_not_fail_though_the_clock_of_its_node_is_behind(
    world: World, kind: str
) -> None:
    app = world.launch("train-1", **KINDS[kind])
    put_pod(world, app, "Running", RUNS)
    with world.controller():
        begin(world, app)
        wait_for(lambda: world.state(app)[0] == "RUNNING")
        going(world, app)
        put_pod(world, app, "Failed", ended(143, "2026-01-01T00:04:56Z"), deleted=True)
        a_while()
        assert world.state(app)[0] == "RUNNING"
        remove_pod(world, app)
        world.cluster.remove(app.kind, "default", app.name)
        wait_for(lambda: world.state(app) == NOT_FOUND)


@pytest.mark.parametrize("noted", [True, False], ids=["cancelled", "deleted"])
def test_pods_that_go_before_the_watch_tells_that_their_group_went_are_no_failure(world: World, noted: bool) -> None:
    app = world.launch("train-1", gang=GangMode.PODS)
    cluster = Lagging(world.cluster, app.kind)
    put_pod(world, app, "Running", RUNS)
    with world.controller(clusters={"test": cluster}):
        begin(world, app)
        wait_for(lambda: world.state(app)[0] == "RUNNING")
        if noted:
            cancelled(world, app)
        cluster.held = True
        world.cluster.remove(app.kind, "default", app.name)
        remove_pod(world, app)
        a_while()
        assert world.state(app)[0] == "RUNNING"
        cluster.held = False
        wait_for(lambda: world.state(app) == (CANCELLED if noted else NOT_FOUND))


@pytest.mark.parametrize("held", ["no", "locked", "pending"])
def test_a_pod_that_is_gone_while_its_group_lives_is_a_failure_unless_a_deployment_changes_the_stack(
    world: World, held: str
) -> None:
    app, fleet = world.launch("train-1", gang=GangMode.PODS), LiveFleet()
    put_pod(world, app, "Running", RUNS)
    with world.controller(fleet=fleet):
        begin(world, app)
        wait_for(lambda: world.state(app)[0] == "RUNNING")
        held_by = lock(world, app) if held == "locked" else None
        if held == "pending":
            whole = json.loads(app.path.read_text())
            operation = {"type": "deleting", "resource": {"urn": "u", "type": "kubernetes:core/v1:Pod"}}
            whole["checkpoint"]["latest"]["pending_operations"] = [operation]
            app.path.write_text(json.dumps(whole))
        remove_pod(world, app)

        def shown() -> str:
            (one,) = fleet.apps()
            return str((one.seen or {}).get("reason"))

        if held == "no":
            wait_for(lambda: world.state(app) == ("FAILED", "PodGone"))
        else:
            wait_for(lambda: shown() == "Stopping")
            assert world.state(app)[0] == "RUNNING"
        if held_by is not None:
            held_by.unlink()
            wait_for(lambda: world.state(app) == ("FAILED", "PodGone"))


@pytest.mark.parametrize("kind", ["gang of pods", "v1beta1"])
@pytest.mark.parametrize(("exit_code", "end"), [(0, "SUCCEEDED"), (3, "FAILED")])
def test_pods_that_ended_before_they_were_deleted_show_the_end_though_nothing_is_left(
    world: World, kind: str, exit_code: int, end: str
) -> None:
    app = world.launch("train-1", **KINDS[kind])
    put_pod(world, app, "Running", RUNS)
    begin(world, app)
    with world.controller():
        wait_for(lambda: world.state(app)[0] == "RUNNING")
        held_by = lock(world, app)
        put_pod(world, app, "Failed" if exit_code else "Succeeded", ended(exit_code, "2026-01-01T00:04:00Z"))
        a_while()
        going(world, app)
        put_pod(world, app, "Failed", ended(exit_code or 137, "2026-01-01T00:04:00Z"), deleted=True)
        remove_pod(world, app)
        world.cluster.remove(app.kind, "default", app.name)
        a_while()
        held_by.unlink()
        wait_for(lambda: world.state(app)[0] == end)


@pytest.mark.parametrize("kind", ["volcano", "v1beta2", "v1beta1", "gang of pods"])
def test_without_permission_to_read_pods_only_phases_that_need_none_show_an_end(world: World, kind: str) -> None:
    world.cluster = FakeCluster(denied=[("list", POD), ("get", POD)])
    app = world.launch("train-1", **KINDS[kind])
    before = world.state(app)
    with world.controller():
        begin(world, app)
        ends: dict[str, Callable[[], None]] = {
            "volcano": lambda: world.phase(app, "Completed", succeeded=1),
            "v1beta2": lambda: world.change(app, phase="Succeeded"),
            "v1beta1": lambda: world.change(app, state="Completed"),
            "gang of pods": lambda: world.change(app, phase="Completed", running=0, succeeded=1),
        }
        a_while()
        ends[kind]()
        if kind in ("volcano", "v1beta2"):
            wait_for(lambda: world.state(app) == ("SUCCEEDED", "Completed"))
        else:
            a_while()
            assert world.state(app) == before
            world.cluster.remove(app.kind, "default", app.name)
            wait_for(lambda: world.state(app) == NOT_FOUND)


def test_outputs_of_a_later_release_are_left_alone_and_shown_as_the_stack_has_them(world: World) -> None:
    app, fleet = world.launch("train-1"), LiveFleet()
    app.path.write_text(app.path.read_text().replace('"schema_version": 1', '"schema_version": 2'))
    before = app.path.read_bytes()
    with world.controller(fleet=fleet):
        world.phase(app, "Running", running=1)
        wait_for(lambda: len([line for line in world.lines if "a later release wrote its outputs" in line]) == 1)
        world.phase(app, "Completed", succeeded=1)
        a_while()
        (shown,) = fleet.apps()
        assert shown.seen is None
        assert shown.app.output["observed"]["state"] == "SUBMITTED"
    assert app.path.read_bytes() == before
    assert len([line for line in world.lines if "a later release wrote its outputs" in line]) == 1
    assert not [line for line in world.lines if "cannot be written" in line]


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ('"choice": "job"', '"choice": "later"', "'later'"),
        ('"launched_at": "2026-01-01T00:00:00Z"', '"launched_at": 7', "it was changed by hand"),
    ],
)
def test_an_app_whose_notes_cannot_be_read_is_left_alone_and_shown_as_the_stack_has_it(
    world: World, before: str, after: str, why: str
) -> None:
    app, fleet = world.launch("train-1"), LiveFleet()
    text = app.path.read_text().replace(before, after)
    app.path.write_text(text)
    with world.controller(fleet=fleet):
        world.phase(app, "Completed", succeeded=1)
        wait_for(lambda: len([line for line in world.lines if "is left alone" in line and why in line]) == 1)
        (shown,) = fleet.apps()
        assert shown.row(datetime.now(timezone.utc)).state.value == "SUBMITTED"
    assert app.path.read_text() == text


@pytest.mark.parametrize(("phase", "end"), [("Completed", "SUCCEEDED"), ("Failed", "FAILED")])
def test_a_cluster_that_was_restored_is_told_once_and_the_end_of_the_run_is_written(
    world: World, phase: str, end: str
) -> None:
    app = world.launch("train-1")
    with world.controller():
        world.phase(app, "Running", running=1, retryCount=2)
        wait_for(lambda: world.observed(app).get("attempt") == 3)
    world.phase(app, "Running", running=1, retryCount=0)
    with world.controller():
        wait_for(lambda: len([line for line in world.lines if "may have been restored" in line]) == 1)
        world.phase(app, "Pending", pending=1, retryCount=0)
        a_while()
        assert (world.state(app), world.observed(app)["attempt"]) == (("RUNNING", "Running"), 3)
        world.phase(app, phase, retryCount=0)
        wait_for(lambda: world.state(app)[0] == end)
        a_while()
    assert len([line for line in world.lines if "may have been restored" in line]) == 1


def test_a_request_that_comes_after_the_objects_are_gone_is_the_end(world: World) -> None:
    app = world.launch("train-1", scheduler="mcad")
    world.change(app, state="Pending")
    with world.controller(timing=replace(FAST, refresh_s=0.1)):
        wait_for(lambda: world.state(app)[0] == "PENDING")
        world.cluster.remove(app.kind, "default", app.name)
        wait_for(lambda: world.state(app) == NOT_FOUND)
        cancelled(world, app)
        wait_for(lambda: world.state(app) == CANCELLED)
