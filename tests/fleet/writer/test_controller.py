"""The controller from end to end: a cluster changes, stack outputs follow."""

from __future__ import annotations

import getpass
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.apps.answer import StackChange
from torchx_pulumi.apps.app import App as KnownApp
from torchx_pulumi.apps.app import AppKey
from torchx_pulumi.kube import Cluster
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.model import labels
from torchx_pulumi.model.app_entry import StackRef
from torchx_pulumi.model.codec import to_json
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.runs.driver import Recorded, Written
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB
from torchx_pulumi.stack_state.stack_locks import lock_folder
from torchx_pulumi.storage.owners import POD_VARIABLE, local_process
from torchx_pulumi_fleet.tracker.live_fleet import LiveFleet
from torchx_pulumi_fleet.tracker.reading import read_fleet
from torchx_pulumi_fleet.tracker.reporting import Reporter
from torchx_pulumi_fleet.writer import Controller, ControllerParts, ControllerSettings
from torchx_pulumi_fleet.writer.settings import ControllerTiming
from torchx_pulumi_fleet.writer.writing import StackWriter

from tests.fakes import FakeCluster
from tests.fleet.writer.lagging import Lagging
from tests.fleet.writer.requests import cancelled
from tests.fleet.writer.world import FAST, App, World, a_while, checkpoint, component, urn_of, wait_for


def states(app: App) -> list[str]:
    """Return the states of all apps of an app's stack."""
    found = json.loads(app.path.read_text())["checkpoint"]["latest"]["resources"]
    return [item["outputs"]["observed"]["state"] for item in found if "torchx:index" in item["type"]]


class Writes:
    """A driver that notes what is written, and may be changed to do something else first."""

    def __init__(self, world: World) -> None:
        self._driver = world.driver()
        self.outcomes: list[tuple[str, Recorded]] = []
        self._locked = 0

    def before(self, place: StackRef) -> Recorded | None:
        """Return an outcome without a write. None: write."""

    def record_at(self, place: StackRef, change: StackChange, **options: Any) -> Written:
        refused = self.before(place)
        written = Written(outcome=refused) if refused else self._driver.record_at(place, change, **options)
        observed = {} if written.answer is None else written.answer.observed
        self.outcomes.append((str(observed.get("state")), written.outcome))
        return written

    def clear_dead_locks(self, backend: str, place: StackRef | None = None) -> bool:
        self._locked += place is not None
        return self._driver.clear_dead_locks(backend, place)

    def wait_for_lock(self) -> None:
        """Wait until the controller has noted that a stack is locked, now."""
        # Its second look comes after it has noted the first one.
        before = self._locked
        wait_for(lambda: self._locked > before + 1)

    @property
    def written(self) -> list[str]:
        return [state for state, outcome in self.outcomes if outcome is Recorded.WRITTEN]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)


def said(world: World, words: str) -> list[str]:
    return [line for line in world.lines if words in line]


def lock_stack(world: World, app: App) -> Path:
    """Lock the stack of an app, as an update of somebody else does, and return the file."""
    lock = world.root / "backend" / lock_folder(app.entry.place) / "of-somebody.json"
    lock.parent.mkdir(parents=True)
    lock.write_text("{}")
    return lock


def write_program(apps: Sequence[App]) -> None:
    """Write the stack of a program that has all of these apps, the stack of the first one."""
    first, *others = apps
    whole = checkpoint(first, program=True)
    resources = whole["checkpoint"]["latest"]["resources"]
    for app in others:
        resources += component(app, urn_of(first.entry.place, "volcano", app.name), program=True)
    first.path.parent.mkdir(parents=True)
    first.path.write_text(json.dumps(whole))


def test_the_states_of_a_job_reach_its_stack(world: World) -> None:
    app = world.launch("train-1")
    with world.controller():
        world.phase(app, "Running", running=1)
        wait_for(lambda: world.state(app) == ("RUNNING", "Running"))
        world.phase(app, "Completed", succeeded=1)
        wait_for(lambda: world.state(app) == ("SUCCEEDED", "Completed"))
    assert "watching test: all namespaces" in world.lines[0]
    assert "1 app in 1 stack" in world.lines[1]
    assert [line.partition(" ")[2] for line in world.lines[-2:]] == [
        f"default:train-1: SUCCEEDED (Completed) is in stack torchx/{app.entry.place.stack}",
        "stopped",
    ]


def test_what_happened_while_no_controller_ran_is_written_by_the_next_start(world: World) -> None:
    apps = [world.launch(f"train-{number}") for number in range(5)]
    for app in apps[:3]:
        world.phase(app, "Completed", succeeded=1)
    with world.controller():
        wait_for(lambda: all(world.state(app)[0] == "SUCCEEDED" for app in apps[:3]))
    for app in apps[3:]:
        world.phase(app, "Running", running=1)
    with world.controller():
        wait_for(lambda: all(world.state(app)[0] == "RUNNING" for app in apps[3:]))


def test_once_ends_by_itself(world: World) -> None:
    app = world.launch("train-1")
    world.phase(app, "Completed", succeeded=1)
    settings = ControllerSettings(backends=(world.backend,), once=True)
    parts = ControllerParts(settings=settings, driver=world.driver(), reporter=Reporter(world.lines.append))
    assert Controller(parts, {"test": world.cluster}).run(threading.Event())
    assert world.state(app) == ("SUCCEEDED", "Completed")


def test_an_app_that_is_launched_later_is_found_by_its_job_object(world: World) -> None:
    with world.controller(timing=ControllerTiming(write_every_s=0.05)):
        app = world.create(world.plan("late"))
        world.phase(app, "Running", running=1)
        a_while()
        # The launch is still running: the component has no uid yet.
        world.write(replace(app, entry=replace(app.entry, uid=None)))
        a_while()
        world.write(app)
        wait_for(lambda: world.state(app) == ("RUNNING", "Running"), 5.0)


def test_program_stacks_are_written_on_request_only(world: World) -> None:
    app = world.launch_program("mine-1")
    with world.controller():
        world.phase(app, "Running", running=1)
        a_while()
        assert world.state(app)[0] == "SUBMITTED"
    with world.controller(program_stacks=True):
        wait_for(lambda: world.state(app) == ("RUNNING", "Running"))


CLI = f"""#!{sys.executable}
import json, sys
from pathlib import Path
(folder,) = Path(__file__).parent.glob("backend/.pulumi/stacks/*")
if "ls" in sys.argv:
    stacks = {{f"organization/{{folder.name}}/{{path.stem}}": path.stat().st_mtime for path in folder.glob("*.json")}}
    print(json.dumps([{{"name": name, "lastUpdate": str(at)}} for name, at in stacks.items()]))
else:
    whole = json.loads((folder / f"{{sys.argv[-1].rpartition('/')[2]}}.json").read_text())
    with Path(__file__).with_name("exports").open("a") as file:
        file.write("one\\n")
    print(json.dumps({{"version": 3, "deployment": whole["checkpoint"]["latest"]}}))
"""
"""The commands of the CLI that list and export the stacks of a world's only project."""


@pytest.mark.parametrize("url", ["https://api.pulumi.com", "postgres://me@db/state"])
def test_apps_of_a_backend_that_only_the_cli_writes_are_shown_and_their_stacks_stay(
    world: World, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (world.root / "pulumi").write_text(CLI)
    (world.root / "pulumi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{world.root}:/usr/bin:/bin")
    world.url = url
    app, fleet = world.launch("train-1"), LiveFleet()
    before = app.path.read_bytes()

    def shown() -> list[str]:
        return [each.row(datetime.now(timezone.utc)).state for each in fleet.apps()]

    with world.controller(fleet=fleet) as running:
        wait_for(lambda: shown() == ["SUBMITTED"], 60)
        world.phase(app, "Running", running=1)
        wait_for(lambda: shown() == ["RUNNING"])
        # A listing without news of a stack exports no stack.
        listed = running.read_at
        wait_for(lambda: running.read_at != listed, 60)
        assert (world.root / "exports").read_text().splitlines() == ["one"]
        world.phase(app, "Completed", succeeded=1)
        wait_for(lambda: shown() == ["SUCCEEDED"])
        world.cluster.remove(app.kind, "default", app.name)
        a_while()
        assert (shown(), running.writes, running.problems()) == (["SUCCEEDED"], {}, ())
    assert app.path.read_bytes() == before
    assert len(said(world, "are read through the Pulumi CLI and not written")) == 1


def test_several_components_in_one_program_stack(world: World) -> None:
    one, two = (world.create(world.plan(name, project="mine")) for name in ("one", "two"))
    two = replace(two, entry=replace(two.entry, place=one.entry.place), path=one.path)
    whole = checkpoint(one, program=True)
    resources = whole["checkpoint"]["latest"]["resources"]
    resources += component(two, urn_of(one.entry.place, "volcano", "second"), program=True)
    outputs = resources[0]["outputs"]
    other = checkpoint(two, program=True)["checkpoint"]["latest"]["resources"][0]["outputs"]
    # A program may export something secret, and each job by a name of its own.
    resources[0]["outputs"] = {
        "password": {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "x"},
        "first": outputs["torchx"],
        "second": other["torchx"],
        "state": "mine",
    }
    one.path.parent.mkdir(parents=True)
    one.path.write_text(json.dumps(whole))

    components = [item for item in resources if "torchx:index" in item["type"]]
    assert len(components) == 2

    def done() -> bool:
        found = json.loads(one.path.read_text())["checkpoint"]["latest"]["resources"]
        seen = [item["outputs"]["observed"]["state"] for item in found if "torchx:index" in item["type"]]
        exported = [found[0]["outputs"][name]["observed"]["state"] for name in ("first", "second")]
        assert found[0]["outputs"]["state"] == "mine"
        return seen == exported == ["RUNNING", "SUCCEEDED"]

    with world.controller(program_stacks=True):
        world.phase(one, "Running", running=1)
        world.phase(two, "Completed", succeeded=1)
        wait_for(done)


def test_an_end_is_kept_while_the_stack_is_locked_and_the_job_goes(world: World) -> None:
    app = world.launch("train-1")
    lock = lock_stack(world, app)
    # An update takes seconds; the delay after other failures grows to half a minute.
    timing = replace(FAST, retry_s=600.0, longest_retry_s=600.0, locked_retry_s=0.1)
    with world.controller(timing=timing):
        world.phase(app, "Completed", succeeded=1)
        a_while()
        world.cluster.remove(app.kind, "default", app.name)
        a_while()
        assert world.state(app)[0] == "SUBMITTED"
        lock.unlink()
        wait_for(lambda: world.state(app) == ("SUCCEEDED", "Completed"))


def test_after_an_update_a_stack_is_left_to_the_next_command_of_its_pipeline(world: World) -> None:
    app = world.launch("train-1")
    lock = lock_stack(world, app)
    driver, passed = Writes(world), [0.0]
    timing = replace(FAST, locked_retry_s=0.05, quiet_s=0.1)
    with world.controller(driver=driver, timing=timing, clock=lambda: passed[0]):
        world.phase(app, "Completed", succeeded=1)
        driver.wait_for_lock()
        lock.unlink()
        a_while()
        lock.write_text("{}")
        passed[0] = 0.08
        driver.wait_for_lock()
        lock.unlink()
        # Longer than the time after the first lock, shorter than that after the second.
        passed[0] = 0.16
        a_while()
        assert world.state(app)[0] == "SUBMITTED"
        passed[0] = 0.2
        wait_for(lambda: world.state(app)[0] == "SUCCEEDED")


def test_a_lock_whose_process_ends_while_the_stack_waits_for_it_is_removed(world: World) -> None:
    app = world.launch("train-1")
    lock = world.root / "backend" / lock_folder(app.entry.place) / "of-ours.json"
    lock.parent.mkdir(parents=True)
    with subprocess.Popen(["sleep", "60"]) as holder:
        owner = local_process(holder.pid)
        taken = {"pid": owner.pid, "username": getpass.getuser(), "hostname": owner.host, "owner": to_json(owner)}
        lock.write_text(json.dumps({**taken, "timestamp": datetime.now().astimezone().isoformat()}))
        driver = Writes(world)
        with world.controller(driver=driver):
            world.phase(app, "Completed", succeeded=1)
            wait_for(lambda: bool(driver.outcomes))
            holder.kill()
            holder.wait()
            wait_for(lambda: world.state(app)[0] == "SUCCEEDED")
    assert not lock.exists()


def test_an_update_that_one_app_met_keeps_all_apps_of_the_stack_from_it_for_a_while(world: World) -> None:
    apps = [world.create(world.plan(f"train-{number}", project="mine")) for number in range(2)]
    first, second = apps
    write_program(apps)
    lock = lock_stack(world, first)
    driver, passed = Writes(world), [0.0]
    with world.controller(driver=driver, clock=lambda: passed[0], program_stacks=True):
        world.phase(first, "Completed", succeeded=1)
        driver.wait_for_lock()
        lock.unlink()
        world.phase(second, "Completed", succeeded=1)
        a_while()
        assert states(first) == ["SUBMITTED"] * 2
        passed[0] = FAST.quiet_s
        wait_for(lambda: states(first) == ["SUCCEEDED"] * 2)


def test_the_last_state_of_a_deleted_job_object_is_its_end(world: World) -> None:
    app = world.launch("train-1")
    with world.controller():
        a_while()
        world.phase(app, "Completed", succeeded=1)
        world.cluster.remove(app.kind, "default", app.name)
        wait_for(lambda: world.state(app) == ("SUCCEEDED", "Completed"))


def test_a_job_that_is_deleted_by_hand_has_no_invented_end(world: World) -> None:
    app = world.launch("train-1")
    with world.controller():
        world.phase(app, "Running", running=1)
        wait_for(lambda: world.state(app)[0] == "RUNNING")
        world.cluster.remove(app.kind, "default", app.name)
        wait_for(lambda: world.state(app) == ("UNKNOWN", "NotFound"))
    assert "last seen RUNNING" in world.observed(app)["message"]


@pytest.mark.parametrize("noted", [True, False])
def test_that_a_job_is_gone_is_written_at_once_and_with_what_its_stack_notes_by_now(world: World, noted: bool) -> None:
    app = world.launch("train-1", scheduler="mcad")
    with world.controller(timing=replace(FAST, write_every_s=600.0, refresh_s=600.0, retry_s=600.0)):
        world.change(app, state="Pending")
        wait_for(lambda: world.state(app) == ("PENDING", "WaitingInQueue"))
        if noted:
            cancelled(world, app)
        world.cluster.remove(app.kind, "default", app.name)
        end = ("CANCELLED", "Cancelled") if noted else ("UNKNOWN", "NotFound")
        wait_for(lambda: world.state(app) == end)


@pytest.mark.parametrize("identity", ["another", "unknown"])
def test_nothing_is_concluded_from_another_cluster(world: World, identity: str) -> None:
    app = world.launch("train-1")
    other = FakeCluster(api_server="https://other.example.com", uid="" if identity == "unknown" else None)
    with world.controller(clusters={"other": other}):
        a_while()
    assert world.state(app)[0] == "SUBMITTED"


def test_an_object_of_the_same_name_with_another_uid_is_another_run(world: World) -> None:
    app = world.launch("train-1")
    found = world.cluster.find(app.kind, "default", app.name)
    assert found is not None
    other = FakeCluster(api_server="https://other.example.com")
    other.put({**found, "metadata": {**found["metadata"], "uid": "other"}, "status": {"state": {"phase": "Completed"}}})
    with world.controller(clusters={"other": other, "test": world.cluster}):
        world.phase(app, "Running", running=1)
        wait_for(lambda: world.state(app) == ("RUNNING", "Running"))


def test_a_cancelled_job_whose_object_was_deleted_is_cancelled(world: World) -> None:
    app = world.launch("wrapped", scheduler="mcad")
    cancelled(world, app)
    with world.controller():
        world.change(app, state="Running")
        wait_for(lambda: world.state(app) == ("RUNNING", "Cancelled"))
        world.cluster.remove(app.kind, "default", app.name)
        wait_for(lambda: world.state(app) == ("CANCELLED", "Cancelled"))
    assert world.observed(app)["message"] == "cancelled at 2026-01-02T12:00:00Z"


def test_a_cancelled_job_that_is_resumed_is_active_again(world: World) -> None:
    app = world.launch("train-1")
    with world.controller():
        cancelled(world, app)
        world.phase(app, "Aborted")
        wait_for(lambda: world.state(app)[0] == "CANCELLED")
        # Volcano counts it as another attempt.
        world.phase(app, "Running", running=1, retryCount=1)
        wait_for(lambda: world.state(app) == ("RUNNING", "Running"))


def test_a_stack_that_is_deleted_is_not_written_again(world: World) -> None:
    app = world.launch("train-1")
    with world.controller():
        world.phase(app, "Running", running=1)
        wait_for(lambda: world.state(app)[0] == "RUNNING")
        app.path.unlink()
        app.path.with_name(f"{app.path.name}.bak").unlink()
        world.phase(app, "Completed", succeeded=1)
        a_while()
        assert [*app.path.parent.iterdir()] == []
    assert said(world, "cannot") == []


def test_a_renamed_stack_is_followed(world: World) -> None:
    app = world.launch("train-1")
    with world.controller():
        moved = app.path.with_name("renamed.json")
        text = app.path.read_text().replace(f":{app.entry.place.stack}::", ":renamed::")
        app.path.unlink()
        moved.write_text(text)
        world.phase(app, "Running", running=1)
        wait_for(lambda: world.state(replace(app, path=moved))[0] == "RUNNING")
    with world.controller():
        world.phase(app, "Completed", succeeded=1)
        wait_for(lambda: world.state(replace(app, path=moved))[0] == "SUCCEEDED")


def test_a_backend_that_takes_no_writes_is_reported_once_and_written_later(world: World) -> None:
    apps = [world.launch(f"train-{number}") for number in range(4)]
    driver, refused = Writes(world), True
    driver.before = lambda place: Recorded.LEFT if refused else None  # type: ignore[method-assign]
    with world.controller(driver=driver):
        for app in apps:
            world.phase(app, "Completed", succeeded=1)
        wait_for(lambda: len(driver.outcomes) >= 8)
        refused = False
        wait_for(lambda: all(world.state(app)[0] == "SUCCEEDED" for app in apps))
    assert len(said(world, "cannot be written")) == 1
    assert len(said(world, "can be written again")) == 1


def test_a_stack_that_stays_locked_is_reported_once(world: World) -> None:
    one, two = world.launch("train-1"), world.launch("train-2")
    driver, locked = Writes(world), True

    def before(place: StackRef) -> Recorded | None:
        return Recorded.DEFERRED if locked and place == one.entry.place else None

    driver.before = before  # type: ignore[method-assign]
    with world.controller(driver=driver):
        world.phase(one, "Completed", succeeded=1)
        a_while()
        world.phase(two, "Completed", succeeded=1)
        wait_for(lambda: len(said(world, "is not written yet")) == 1, 40.0)
        locked = False
        wait_for(lambda: world.state(one)[0] == "SUCCEEDED", 40.0)
    assert len(said(world, "is not written yet")) == len(said(world, "is written again")) == 1


@pytest.mark.parametrize("hours", [-24, 24])
def test_a_clock_that_was_set_does_not_stop_the_writes(world: World, hours: int) -> None:
    app = world.launch("train-1")
    jump = timedelta(0)
    with world.controller(now=lambda: datetime.now(timezone.utc) + jump):
        world.phase(app, "Running", running=1)
        wait_for(lambda: world.state(app)[0] == "RUNNING")
        jump = timedelta(hours=hours)
        world.phase(app, "Pending", running=0, pending=1)
        wait_for(lambda: world.state(app)[0] == "PENDING")
        jump = timedelta(0)
        world.phase(app, "Running", running=1, pending=0)
        wait_for(lambda: world.state(app)[0] == "RUNNING")


def test_an_app_that_changes_all_the_time_is_written_at_intervals(world: World) -> None:
    app = world.launch("train-1")
    driver = Writes(world)
    with world.controller(driver=driver, timing=ControllerTiming(write_every_s=60.0)):
        end = time.monotonic() + 0.6
        while time.monotonic() < end:
            for phase in ("Running", "Pending"):
                world.phase(app, phase, running=int(phase == "Running"))
                time.sleep(0.1)
        assert len(driver.written) <= 1
        world.phase(app, "Completed", succeeded=1)
        wait_for(lambda: world.state(app)[0] == "SUCCEEDED")


def test_what_a_look_waits_for_does_not_delay_the_next_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    app, settle = world.launch("train-1"), StackWriter.settle

    def slow(writer: StackWriter, key: AppKey) -> None:
        time.sleep(0.2)
        settle(writer, key)

    monkeypatch.setattr(StackWriter, "settle", slow)
    with world.controller() as controller:
        world.phase(app, "Running")
        wait_for(lambda: world.state(app)[0] == "RUNNING" and not controller.pending)
        begun = time.monotonic()
        world.phase(app, "Completed")
        wait_for(lambda: world.state(app)[0] == "SUCCEEDED")
    assert time.monotonic() - begun < 1.0


def test_apps_of_one_stack_that_wait_are_written_with_one_lock(world: World) -> None:
    apps = [world.create(world.plan(f"train-{number}", project="mine")) for number in range(6)]
    first = apps[0]
    write_program(apps)
    driver = Writes(world)
    with world.controller(driver=driver, timing=ControllerTiming(write_every_s=0.5), program_stacks=True):
        for phase, state in (("Running", "RUNNING"), ("Pending", "PENDING")):
            for app in apps:
                world.phase(app, phase)
            wait_for(lambda state=state: states(first) == [state] * 6)
        tried = len(driver.outcomes)
        for app in apps:
            world.phase(app, "Running")
        wait_for(lambda: states(first) == ["RUNNING"] * 6)
        assert len(driver.outcomes) - tried <= 2
        assert {outcome for _, outcome in driver.outcomes} == {Recorded.WRITTEN}
    assert all(said(world, f"default:{app.name}: RUNNING") for app in apps)


def test_a_controller_that_is_behind_does_not_undo_what_another_one_wrote(world: World) -> None:
    app, behind = world.launch("train-1"), Lagging(world.cluster)
    slow, fast = Writes(world), Writes(world)
    # In the order of time, whoever writes.
    fast.outcomes = slow.outcomes
    clusters: dict[str, Cluster] = {"slow": behind}
    with world.controller(driver=slow, clusters=clusters), world.controller(driver=fast):
        world.phase(app, "Pending", pending=1)
        wait_for(lambda: world.state(app)[0] == "PENDING")
        behind.held = True
        world.phase(app, "Running", running=1)
        wait_for(lambda: world.state(app)[0] == "RUNNING")
        a_while()
        assert world.state(app)[0] == "RUNNING"
        behind.held = False
        world.phase(app, "Completed", succeeded=1)
        wait_for(lambda: world.state(app)[0] == "SUCCEEDED")
        a_while()
    states = [*dict.fromkeys(slow.written)]
    assert states == sorted(states, key=["SUBMITTED", "PENDING", "RUNNING", "SUCCEEDED"].index)
    assert len(slow.written) <= 5


@pytest.mark.parametrize("noted", [True, False])
@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_the_end_of_pods_that_are_deleted_is_not_that_of_a_job_whose_deletion_is_not_seen_yet(
    world: World, phase: str, noted: bool
) -> None:
    app = world.launch("train-1", scheduler="mcad")
    cluster, replica = Lagging(world.cluster, app.kind), pod(app, app.entry.pods["trainer"][0])
    replica["metadata"]["labels"] |= {labels.UNIQUE_NAME: app.name}
    world.cluster.put(replica)
    world.change(app, state="Running")
    with world.controller(clusters={"test": cluster}, timing=replace(FAST, refresh_s=600.0)):
        wait_for(lambda: world.state(app)[0] == "RUNNING")
        if noted:
            cancelled(world, app)
        cluster.held = True
        world.cluster.remove(app.kind, "default", app.name)
        replica["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
        world.cluster.put({**replica, "status": {"phase": phase}})
        a_while()
        assert world.state(app)[0] == "RUNNING"
        cluster.held = False
        end = ("CANCELLED", "Cancelled") if noted else ("UNKNOWN", "NotFound")
        wait_for(lambda: world.state(app) == end)


def test_what_is_listed_after_the_stacks_were_read_is_written_without_further_requests(world: World) -> None:
    apps = [world.launch(f"train-{number}") for number in range(5)]
    for app in apps:
        world.phase(app, "Running", running=1)
    asked: list[str] = []

    class Counting(Lagging):
        def get(self, kind: Any, *names: Any) -> Any:
            asked.append(kind.kind)
            return world.cluster.get(kind, *names)

    with world.controller(clusters={"test": Counting(world.cluster)}):
        wait_for(lambda: all(world.state(app)[0] == "RUNNING" for app in apps))
        assert asked == []


def test_a_cluster_that_disappears_and_returns(world: World) -> None:
    app = world.launch("train-1")
    with world.controller():
        world.phase(app, "Running", running=1)
        wait_for(lambda: world.state(app)[0] == "RUNNING")
        world.cluster.error = ClusterError("the cluster cannot be reached", retryable=True, reason="Unreachable")
        a_while()
        assert world.state(app)[0] == "RUNNING"
        world.cluster.error = None
        world.phase(app, "Completed", succeeded=1)
        wait_for(lambda: world.state(app)[0] == "SUCCEEDED")


def test_without_permission_to_watch_the_job_object_is_read(world: World) -> None:
    world.cluster = FakeCluster(denied=[("list", VOLCANO_JOB)])
    app = world.launch("train-1")
    with world.controller():
        world.phase(app, "Running", running=1)
        wait_for(lambda: world.state(app)[0] == "RUNNING")
        world.phase(app, "Completed", succeeded=1)
        wait_for(lambda: world.state(app)[0] == "SUCCEEDED")


def test_a_stop_ends_in_time_although_the_backend_does_not_answer(world: World) -> None:
    app = world.launch("train-1")
    world.phase(app, "Completed", succeeded=1)
    driver, entered, stop = Writes(world), threading.Event(), threading.Event()

    def before(place: StackRef) -> Recorded | None:
        del place
        entered.set()
        time.sleep(3)
        return Recorded.DEFERRED

    driver.before = before  # type: ignore[method-assign]
    settings = ControllerSettings(backends=(world.backend,))
    ended: list[bool] = []
    timing = ControllerTiming(flush_s=0.3, stop_s=0.3)
    parts = ControllerParts(settings=settings, driver=driver, reporter=Reporter(world.lines.append), timing=timing)
    running = Controller(parts, {"test": world.cluster})
    thread = threading.Thread(target=lambda: ended.append(running.run(stop)), daemon=True)
    thread.start()
    assert entered.wait(10)
    begun = time.monotonic()
    stop.set()
    thread.join(2.5)
    assert ended == [False]
    assert time.monotonic() - begun < 2.5
    assert len(said(world, "the next start writes them")) == 1


class Archiving:
    """An archiver that notes the pods it is told of."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, bool]] = []

    def summary(self) -> str:
        return "logs go to the test"

    def start(self) -> None:
        self.seen.clear()

    def mark(self, namespaces: Sequence[str], now: datetime) -> None:
        pass

    def pod_changed(
        self, app: KnownApp, cluster: Cluster, pod: Manifest, job_object: Manifest | None, *, deleted: bool
    ) -> None:
        del cluster, job_object
        self.seen.append((app.app_id, pod["metadata"]["name"], deleted))

    def stop(self, timeout_s: float) -> None:
        del timeout_s

    def wait_until_idle(self, timeout_s: float) -> bool:
        del timeout_s
        return True


def pod(app: App, name: str) -> Manifest:
    own = {labels.ORGANIZATION: labels.ORGANIZATION_VALUE, "volcano.sh/job-name": app.name}
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": own}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "status": {"phase": "Running"}}


def test_the_archiver_gets_each_pod_whatever_comes_first(world: World) -> None:
    app, archiver = world.launch("train-1"), Archiving()
    world.cluster.put(pod(app, "early"))
    with world.controller(archiver=archiver):
        wait_for(lambda: ("default:train-1", "early", False) in archiver.seen)
        late = world.create(world.plan("late"))
        world.cluster.put(pod(late, "late-0"))
        a_while()
        world.write(late)
        wait_for(lambda: ("default:late", "late-0", False) in archiver.seen)
        world.cluster.remove(POD, "default", "early")
        wait_for(lambda: ("default:train-1", "early", True) in archiver.seen)
    assert said(world, "logs go to the test")


def test_objects_that_went_while_no_controller_ran_have_no_invented_end(world: World) -> None:
    running, ended = world.launch("train-1"), world.launch("train-2")
    with world.controller():
        world.phase(running, "Running", running=1)
        world.phase(ended, "Completed", succeeded=1)
        wait_for(lambda: (world.state(running)[0], world.state(ended)[0]) == ("RUNNING", "SUCCEEDED"))
    for app in (running, ended):
        world.cluster.remove(app.kind, "default", app.name)
    with world.controller():
        wait_for(lambda: world.state(running) == ("UNKNOWN", "NotFound"))
        a_while()
    assert world.state(ended) == ("SUCCEEDED", "Completed")


def test_a_secret_output_is_said_once_and_not_written(world: World) -> None:
    app = world.launch("train-1")
    text = app.path.read_text().replace('"img:1"', '{"4dabf18193072939515e22adb298388d": "1b47", "ciphertext": "x"}')
    app.path.write_text(text)
    with world.controller():
        world.phase(app, "Running", running=1)
        a_while()
        world.phase(app, "Completed", succeeded=1)
        a_while()
    assert world.state(app)[0] == "SUBMITTED"
    assert len(said(world, "outputs are secret")) == 1


def test_a_stack_that_cannot_be_read_is_said_once_and_its_app_is_kept(world: World) -> None:
    app = world.launch("train-1")
    with world.controller():
        world.phase(app, "Running", running=1)
        wait_for(lambda: world.state(app)[0] == "RUNNING")
        whole = app.path.read_text()
        app.path.write_text(whole[:500])
        world.phase(app, "Completed", succeeded=1)
        wait_for(lambda: len(said(world, "cannot be read:")) == 1)
        app.path.write_text(whole)
        wait_for(lambda: world.state(app)[0] == "SUCCEEDED")
    assert len(said(world, "cannot be read:")) == 1


def test_a_backend_that_is_not_mounted_has_no_deleted_stacks(world: World) -> None:
    app = world.launch("train-1")
    with world.controller():
        world.phase(app, "Running", running=1)
        wait_for(lambda: world.state(app)[0] == "RUNNING")
        (world.root / "backend").rename(world.root / "away")
        world.phase(app, "Completed", succeeded=1)
        wait_for(lambda: len(said(world, "what was last read of its stacks is used")) == 1)
        (world.root / "away").rename(world.root / "backend")
        wait_for(lambda: world.state(app)[0] == "SUCCEEDED")
    assert len(said(world, "what was last read of its stacks is used")) == 1
    assert said(world, "error") == []


def test_an_end_is_kept_while_the_backend_is_not_mounted_which_no_listing_has_noticed(world: World) -> None:
    app, fleet = world.launch("train-1"), LiveFleet()
    with world.controller(fleet=fleet, timing=replace(FAST, refresh_s=600.0)):
        world.phase(app, "Running", running=1)
        wait_for(lambda: world.state(app)[0] == "RUNNING")
        (world.root / "backend").rename(world.root / "away")
        world.phase(app, "Completed", succeeded=1)
        wait_for(lambda: len(said(world, "what was last read of its stacks is used")) == 1)
        assert [one.app.run.job_name for one in fleet.apps()] == [app.name]
        (world.root / "away").rename(world.root / "backend")
        wait_for(lambda: world.state(app)[0] == "SUCCEEDED")
    assert said(world, "no permission") == []


def test_whatever_happens_between_stops_the_stacks_are_right_in_the_end(world: World) -> None:
    """Jobs run, end, are retried and deleted while controllers start and stop; two of them at times."""
    chance = random.Random(7)
    apps = [
        world.launch(f"train-{number}", **({"scheduler": "mcad"} if number % 4 == 3 else {})) for number in range(12)
    ]
    truth = {app.name: "" for app in apps}
    volcano = [app for number, app in enumerate(apps) if number % 4 != 3]

    def step() -> None:
        app = chance.choice(volcano)
        if truth[app.name] in ("SUCCEEDED", "UNKNOWN"):
            return
        what = chance.choice(["Running", "Pending", "Completed", "delete"])
        if what == "delete":
            world.cluster.remove(app.kind, "default", app.name)
            truth[app.name] = "UNKNOWN"
            return
        world.phase(app, what, running=int(what == "Running"), succeeded=int(what == "Completed"))
        truth[app.name] = {"Running": "RUNNING", "Pending": "PENDING", "Completed": "SUCCEEDED"}[what]

    for _ in range(6):
        with world.controller():
            for _ in range(4):
                step()
                time.sleep(chance.random() * 0.1)
            if chance.random() < 0.4:
                with world.controller():
                    step()
                    time.sleep(chance.random() * 0.2)
        step()
    with world.controller():
        wait_for(lambda: all(world.state(app)[0] == truth[app.name] for app in volcano if truth[app.name]))


def test_a_cluster_that_is_away_does_not_hold_up_the_apps_of_another_one(world: World) -> None:
    app = world.launch("train-1")
    away = FakeCluster(api_server="https://away.example.com")
    away.error = ClusterError("the cluster cannot be reached", retryable=True, reason="Unreachable")
    with world.controller(clusters={"away": away, "test": world.cluster}):
        world.phase(app, "Running", running=1)
        wait_for(lambda: world.state(app)[0] == "RUNNING")
        world.cluster.remove(app.kind, "default", app.name)
        wait_for(lambda: world.state(app) == ("UNKNOWN", "NotFound"))


def test_other_namespaces_are_left_alone(world: World) -> None:
    app = world.launch("train-1")
    with world.controller(namespaces=("team",)):
        world.phase(app, "Running", running=1)
        a_while()
    assert world.state(app)[0] == "SUBMITTED"
    with world.controller(namespaces=("team", "default")):
        wait_for(lambda: world.state(app)[0] == "RUNNING")


def test_a_backend_that_does_not_answer_does_not_hold_up_another_one(world: World, tmp_path: Path) -> None:
    other = World(root=tmp_path / "other", cluster=world.cluster, lines=world.lines)
    hanging = [other.launch(f"hangs-{number}") for number in range(12)]
    app = world.launch("train-1")
    driver, answers = Writes(world), threading.Event()

    def before(place: StackRef) -> Recorded | None:
        if place.backend == other.backend:
            answers.wait(30)
        return None

    driver.before = before  # type: ignore[method-assign]
    timing = replace(FAST, listing_s=0.3)
    with world.controller(driver=driver, backends=(other.backend, world.backend), timing=timing):
        for each in hanging:
            other.phase(each, "Running", running=1)
        world.phase(app, "Running", running=1)
        wait_for(lambda: world.state(app) == ("RUNNING", "Running"))
        # Now also its listing hangs.
        fifo = other.root / "backend/.pulumi/stacks/torchx/hangs.json"
        os.mkfifo(fifo)
        wait_for(lambda: len(said(world, "is still being read")) == 1)
        world.phase(app, "Completed", succeeded=1)
        wait_for(lambda: world.state(app) == ("SUCCEEDED", "Completed"))
        late = world.launch("train-2")
        world.phase(late, "Running", running=1)
        wait_for(lambda: world.state(late) == ("RUNNING", "Running"))
        answers.set()
        fifo.write_text("{}")
        fifo.unlink()
        wait_for(lambda: all(other.state(each) == ("RUNNING", "Running") for each in hanging))
    assert len(said(world, "was read")) == 1


def test_a_start_removes_the_lock_of_its_killed_container_from_a_stack_that_is_current(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(POD_VARIABLE, "pod-1")
    app = world.launch("train-1")
    folder = world.root / "backend" / lock_folder(app.entry.place)
    folder.mkdir(parents=True)
    content = {"pid": 1, "username": getpass.getuser(), "hostname": "pod", "timestamp": "2026-01-01T00:00:00Z"}
    for pod_uid in ("pod-1", "pod-2"):
        owner = {"host": "pod", "pid": 1, "started": "earlier", "boot_id": "boot", "pod_uid": pod_uid}
        (folder / f"{pod_uid}.json").write_text(json.dumps({**content, "owner": owner}))
    before = app.path.read_text()
    # A backend that is away is cleared when it is back.
    (world.root / "backend").rename(world.root / "away")
    with world.controller():
        wait_for(lambda: len(said(world, "what was last read of its stacks is used")) == 1)
        (world.root / "away").rename(world.root / "backend")
        wait_for(lambda: [path.name for path in folder.iterdir()] == ["pod-2.json"])
    assert app.path.read_text() == before


def test_a_stack_that_is_nested_too_deeply_stops_no_other_one(world: World) -> None:
    app = world.launch("train-1")
    app.path.with_name("deep.json").write_text("[" * 100_000)
    with world.controller():
        world.phase(app, "Running", running=1)
        wait_for(lambda: world.state(app) == ("RUNNING", "Running"))
    assert len(said(world, "stack torchx/deep of")) == 1
    (broken,) = read_fleet(backend=world.backend, live=False).broken
    assert "not valid JSON" in broken.why
