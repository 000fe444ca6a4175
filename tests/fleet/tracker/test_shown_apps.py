"""What a controller shows of its apps: while it writes stacks, while another one does, and where nothing is written."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from torchx_pulumi.apps.app import App as KnownApp
from torchx_pulumi.kube.kinds import EVENT, POD
from torchx_pulumi.model import labels
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB
from torchx_pulumi.stack_state.checkpoint import SECRET
from torchx_pulumi_fleet.tracker.live_fleet import LiveApp, LiveFleet
from torchx_pulumi_fleet.views.row import FleetRow

from tests.fleet.writer.world import App, World, checkpoint, wait_for


def row(fleet: LiveFleet, app: App) -> FleetRow:
    (found,) = [one for one in fleet.apps() if one.app.run.job_name == app.name]
    return found.row(datetime.now(timezone.utc))


def shows(fleet: LiveFleet, app: App, *wanted: str) -> Callable[[], bool]:
    def met() -> bool:
        if not any(one.app.run.job_name == app.name for one in fleet.apps()):
            return False
        found = row(fleet, app)
        return (found.state.value, found.reason) == wanted

    return met


def only(fleet: LiveFleet) -> LiveApp:
    (found,) = fleet.apps()
    return found


def test_an_app_is_shown_as_its_stack_and_then_as_its_cluster_says(world: World) -> None:
    app, fleet = world.launch("train-1"), LiveFleet()
    with world.controller(fleet=fleet) as controller:
        wait_for(lambda: not controller.not_ready())
        found = row(fleet, app)
        assert (found.app_id, found.scheduler, found.queue, found.user) == (
            "default:train-1",
            "volcano",
            "default",
            "tester",
        )
        assert [role["wanted"] for role in found.roles] == [1]
        version = fleet.version
        world.phase(app, "Running", running=1)
        wait_for(shows(fleet, app, "RUNNING", "Running"))
        change = fleet.changes(version)
        assert [one.app.run.job_name for one in change.changed] == [app.name]
        assert not change.whole
        wait_for(lambda: world.state(app)[0] == "RUNNING")
        wait_for(lambda: only(fleet).app.output["observed"]["state"] == "RUNNING")
        app.path.unlink()
        wait_for(lambda: not fleet.apps())


def test_a_program_without_exports_is_shown_from_its_component_and_its_stack_is_not_written(world: World) -> None:
    app, fleet = world.launch_program("mine-1"), LiveFleet()
    whole = checkpoint(app, program=True)
    resources = whole["checkpoint"]["latest"]["resources"]
    resources[0]["outputs"] = {"torchx": "mine"}
    declared = resources[1]["outputs"]["declared"]
    resources[1]["outputs"]["declared"] = {**declared, "created_by": None}
    job_object = app.plan.objects[0]
    token = f"kubernetes:{job_object['apiVersion']}:{job_object['kind']}"
    resources.append({"urn": f"{resources[1]['urn']}${token}::train", "type": token, "inputs": job_object})
    app.path.write_text(json.dumps(whole))
    before = app.path.read_text()
    with world.controller(fleet=fleet):
        world.phase(app, "Running", running=1)
        wait_for(shows(fleet, app, "RUNNING", "Running"))
        found = row(fleet, app)
        assert (found.app_id, found.handle) == ("default:mine-1", "pulumi_volcano://torchx/default:mine-1")
        assert (found.scheduler, found.name, found.replicas_wanted) == ("volcano", "train", 1)
        assert (found.queue, found.user) == ("default", f"{app.entry.place.project}/{app.entry.place.stack}")
        world.phase(app, "Completed", succeeded=1)
        wait_for(shows(fleet, app, "SUCCEEDED", "Completed"))
        world.cluster.remove(app.kind, "default", app.name)
        # The end that was seen stays.
        world.cluster.put(event(app, "later", "2026-01-01T00:00:00Z"))
        wait_for(lambda: only(fleet).cluster == "test")
        assert row(fleet, app).state.value == "SUCCEEDED"
    assert app.path.read_text() == before


def test_an_app_whose_launch_has_not_ended_is_shown(world: World) -> None:
    app, fleet = world.create(world.plan("train-1")), LiveFleet()
    world.write(replace(app, entry=replace(app.entry, uid=None)))
    with world.controller(fleet=fleet):
        world.phase(app, "Running", running=1)
        wait_for(shows(fleet, app, "RUNNING", "Running"))


def test_an_app_that_is_gone_from_its_cluster_is_shown_so_and_asked_for_once(world: World) -> None:
    app, fleet = world.launch_program("mine-1"), LiveFleet()
    world.cluster.remove(app.kind, "default", app.name)
    asked: list[str] = []
    get = world.cluster.get

    def counted(kind: Any, namespace: Any, name: str) -> Any:
        asked.append(name)
        return get(kind, namespace, name)

    world.cluster.get = counted  # type: ignore[method-assign]
    with world.controller(fleet=fleet) as controller:
        wait_for(shows(fleet, app, "UNKNOWN", "NotFound"))
        count, queue = asked.count(app.name), controller._shared.queue_of(only(fleet).app.key)
        for _ in range(3):
            queue.add(only(fleet).app.key)
            wait_for(lambda: not queue.pending())
        assert asked.count(app.name) == count


def test_explanations_of_an_app_with_secret_outputs_are_not_shown(world: World) -> None:
    app, fleet = world.launch("train-1"), LiveFleet()
    whole = checkpoint(app)
    resources = whole["checkpoint"]["latest"]["resources"]
    resources[1]["outputs"]["images"] = {SECRET: "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "sealed"}
    resources[0]["outputs"]["torchx"]["observed"] = {SECRET: "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "sealed"}
    app.path.write_text(json.dumps(whole))
    with world.controller(fleet=fleet) as controller:
        world.phase(app, "Failed", failed=1, conditions=[])
        wait_for(lambda: row(fleet, app).state.value == "FAILED" if fleet.apps() else False)
        found = row(fleet, app)
        assert "secret" in found.message
        assert not found.diagnoses
        assert "sealed" not in str(only(fleet).app.output)
        # It stays so, and is no problem that could be solved by waiting.
        assert controller.problems() == ()
    assert [line for line in world.lines if "values of its outputs are secret" in line]


def test_explanations_that_may_quote_a_secret_are_neither_shown_nor_written(world: World) -> None:
    app, fleet = world.launch("train-1"), LiveFleet()
    whole = checkpoint(app)
    whole["checkpoint"]["latest"]["resources"][1]["outputs"]["record"]["quotes_secrets"] = True
    app.path.write_text(json.dumps(whole))
    with world.controller(fleet=fleet):
        ended = {"phase": "Failed", "message": "no file hunter22", "lastTransitionTime": "2026-01-01T00:01:00Z"}
        world.change(app, state=ended, failed=1, conditions=[])
        wait_for(lambda: world.state(app)[0] == "FAILED")
        wait_for(lambda: row(fleet, app).state.value == "FAILED")
        assert (row(fleet, app).diagnoses, "secret" in row(fleet, app).message) == ([], True)
        assert "hunter22" not in str(only(fleet).seen)
    assert "hunter22" not in app.path.read_text()


def test_a_standby_shows_changes_and_writes_once_it_leads(world: World) -> None:
    app, fleet, leads = world.launch("train-1"), LiveFleet(), threading.Event()
    pods: list[str] = []

    class Archive:
        def summary(self) -> str:
            return "logs are archived here"

        def start(self) -> None:
            pass

        def mark(self, namespaces: Any, now: datetime) -> None:
            pass

        def pod_changed(self, app: KnownApp, cluster: Any, pod: Any, job_object: Any, *, deleted: bool) -> None:
            pods.append(pod["metadata"]["name"])

        def stop(self, timeout_s: float) -> None:
            pass

        def wait_until_idle(self, timeout_s: float) -> bool:
            return True

    world.cluster.put(pod(app))
    with world.controller(fleet=fleet, leading=leads.is_set, archiver=Archive()) as controller:
        assert not controller.is_leading
        world.phase(app, "Completed", succeeded=1)
        world.cluster.put({**pod(app), "status": {"phase": "Succeeded"}})
        wait_for(shows(fleet, app, "SUCCEEDED", "Completed"))
        assert world.state(app)[0] == "SUBMITTED"
        assert not pods
        leads.set()
        controller.lead_changed()
        wait_for(lambda: world.state(app) == ("SUCCEEDED", "Completed"))
        wait_for(lambda: bool(pods))
        assert set(pods) == {"train-1-trainer-0-0"}
        wait_for(lambda: controller.writes == {(world.backend, "written"): 1})
        leads.clear()
        controller.lead_changed()
        other = world.launch("train-2")
        wait_for(lambda: len(fleet.apps()) == 2)
        world.phase(other, "Running", running=1)
        wait_for(shows(fleet, other, "RUNNING", "Running"))
        assert world.state(other)[0] == "SUBMITTED"
        # Containers may have ended meanwhile.
        pods.clear()
        leads.set()
        controller.lead_changed()
        wait_for(lambda: "train-1-trainer-0-0" in pods)


def test_a_standby_shows_what_the_leader_writes(world: World) -> None:
    app, fleet = world.launch("train-1"), LiveFleet()
    with world.controller(), world.controller(fleet=fleet, leading=lambda: False) as controller:
        world.phase(app, "Running", running=1)
        wait_for(lambda: world.state(app)[0] == "RUNNING")
        wait_for(lambda: only(fleet).app.output["observed"]["state"] == "RUNNING")
        assert controller.writes == {}


def test_a_cluster_that_is_away_makes_rows_old_and_pages_stay_ready(world: World) -> None:
    app, fleet, start = world.launch("train-1"), LiveFleet(), datetime.now(timezone.utc)
    clock = [start]
    with world.controller(fleet=fleet, now=lambda: clock[0]) as controller:
        wait_for(lambda: not controller.not_ready())
        wait_for(lambda: only(fleet).seen is not None)
        assert {each.lag_s for each in controller.watches()} == {0.0}
        assert {"pods", "jobs.batch.volcano.sh"} <= {each.kind for each in controller.watches()}
        later = start + timedelta(hours=1)
        assert not only(fleet).row(later).stale, "a watched app is current however long nothing changes"
        world.cluster.error = ClusterError("the cluster cannot be reached", retryable=True, reason="Unreachable")
        world.cluster.end_watches()
        wait_for(lambda: only(fleet).away_since is not None)
        assert only(fleet).row(later).stale
        assert [text for text in controller.problems() if "cannot be reached" in text]
        assert max(each.lag_s for each in controller.watches()) > 0
        version, clock[0] = fleet.version, later
        wait_for(lambda: fleet.version > version)
        assert not controller.not_ready()
        world.cluster.error = None
        for view in controller._shared.views:
            for watch in view.watched.watches:
                watch.retry_now()
        wait_for(lambda: only(fleet).away_since is None)
        wait_for(lambda: not controller.problems())
        assert row(fleet, app).state.value == "SUBMITTED"


def test_pages_are_not_ready_before_a_backend_was_read(world: World) -> None:
    backend = world.root / "backend"
    backend.rename(world.root / "away")
    with world.controller(fleet=LiveFleet()) as controller:
        wait_for(lambda: any("used" in line for line in world.lines))
        assert "not read yet: file://" in controller.not_ready()
        (world.root / "away").rename(backend)
        wait_for(lambda: not controller.not_ready())


def test_pages_are_ready_with_the_backend_that_answers_and_the_other_one_is_reported_and_retried(
    world: World, tmp_path: Path
) -> None:
    other = World(root=tmp_path / "other", cluster=world.cluster, lines=world.lines)
    app, later = world.launch("train-1"), other.launch("train-2")
    (other.root / "backend").rename(other.root / "away")
    fleet = LiveFleet()
    with world.controller(fleet=fleet, backends=(other.backend, world.backend)) as controller:
        wait_for(lambda: not controller.not_ready())
        assert [one.app.run.job_name for one in fleet.apps()] == [app.name]
        (problem,) = controller.problems()
        assert other.backend in problem
        (other.root / "away").rename(other.root / "backend")
        wait_for(lambda: {one.app.run.job_name for one in fleet.apps()} == {app.name, later.name})
        wait_for(lambda: not controller.problems())
        assert not controller.not_ready()


def test_the_cluster_and_the_events_of_an_app_are_found(world: World) -> None:
    app, fleet = world.launch("train-1"), LiveFleet()
    world.cluster.put(pod(app))
    world.cluster.put(event(app, "second", "2026-01-01T00:00:02Z"))
    world.cluster.put(event(app, "first", "2026-01-01T00:00:01Z", name=pod(app)["metadata"]["name"]))
    world.cluster.put(event(app, "other", "2026-01-01T00:00:03Z", name="train-10"))
    with world.controller(fleet=fleet) as controller:
        wait_for(lambda: not controller.not_ready())
        tracked = only(fleet).app
        view = controller.view_of(tracked)
        assert view is not None
        wait_for(lambda: len(view.events_of(tracked)) == 2)
        assert [found["message"] for found in view.events_of(tracked)] == ["first", "second"]
        world.cluster.remove(VOLCANO_JOB, "default", app.name)
        wait_for(shows(fleet, app, "UNKNOWN", "NotFound"))
        assert controller.view_of(only(fleet).app) is view


def pod(app: App) -> Any:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{app.name}-trainer-0-0",
            "namespace": "default",
            "labels": {"volcano.sh/job-name": app.name, labels.ORGANIZATION: labels.ORGANIZATION_VALUE},
            "ownerReferences": [],
        },
        "spec": {"containers": [{"name": "trainer", "image": "img:1"}]},
        "status": {"phase": "Running"},
    }


def event(app: App, message: str, at: str, *, name: str | None = None) -> Any:
    about = {"kind": "Job" if name is None else POD.kind, "namespace": "default", "name": name or app.name}
    return {
        "apiVersion": EVENT.api_version,
        "kind": "Event",
        "metadata": {"name": f"event-{message}", "namespace": "default"},
        "involvedObject": about,
        "reason": "Scheduled",
        "message": message,
        "lastTimestamp": at,
    }
