"""Retention: what is forgotten, and all that keeps an app from being forgotten."""

from __future__ import annotations

import errno
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.controller import Controller, ControllerParts, ControllerSettings, retention
from torchx_pulumi.controller.archive_rules import ArchiveRules
from torchx_pulumi.controller.checks import check_permissions, check_retention, check_settings
from torchx_pulumi.controller.reporting import Reporter
from torchx_pulumi.controller.settings import RetentionSettings
from torchx_pulumi.kube.kinds import POD, SERVICE, Kind
from torchx_pulumi.model import labels
from torchx_pulumi.model.app_entry import StackRef, Stage
from torchx_pulumi.model.errors import ClusterError, TorchxPulumiError
from torchx_pulumi.runs.driver import Forgotten
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB, VOLCANO_JOB_NAME
from torchx_pulumi.schedulers.volcano.options import GangMode
from torchx_pulumi.stack_state.checkpoint import SECRET
from torchx_pulumi.stack_state.stack_locks import lock_folder
from torchx_pulumi.storage.owners import this_process
from torchx_pulumi.testing import FakeCluster
from torchx_pulumi_stacks.engine import AutomationDriver

from tests.unit.controller.old_apps import NOW, SETTINGS, OldApps, root_of, second_component
from tests.unit.controller.world import App, wait_for

ALL = ["objects", "logs", "entry", "stack"]
FAILED = {"state": "FAILED", "reason": "ExitCode"}
ELSEWHERE = replace(this_process(), host="elsewhere", boot_id="another", lease_until=time.time() + 1e6)
"""A process on another machine that works on an app, however long the tests take."""

GONE = {"state": "UNKNOWN", "reason": "NotFound", "finished_at": None}


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OldApps:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return OldApps(root_of(tmp_path))


def said(old: OldApps, words: str) -> list[str]:
    return [line.partition(" ")[2] for line in old.world.lines if words in line]


def test_an_old_app_goes_with_all_that_is_its_own(old: OldApps) -> None:
    app, other = old.launch("old-1"), old.launch("old-10", end={"finished_at": "2026-05-20T00:00:00Z"})
    goes, stays = old.preview()
    assert (goes, stays) == ({"default:old-1": "Job default/old-1; 1 archived log of 3 bytes"}, {})
    assert (old.left(app), old.left(other)) == (ALL, ALL)
    old.forget()
    assert (old.left(app), old.left(other)) == ([], ALL)
    assert not list((old.world.root / "backend/.pulumi").rglob("*old-1-*"))
    stack = f"torchx/{app.entry.place.stack}"
    assert [line.partition(" ")[2] for line in old.world.lines] == [
        f"default:old-1: deleted Job default/old-1, before stack {stack} is forgotten",
        f"default:old-1: forgotten, with stack {stack} and 1 archived log (SUCCEEDED, ended 2026-01-01T00:01:00Z)",
    ]


def test_a_gang_of_pods_and_an_app_of_mcad_go_with_all_their_objects(old: OldApps) -> None:
    gang = old.launch("gang", gang=GangMode.PODS)
    assert {item["kind"] for item in old.objects(gang)} == {"PodGroup", "Pod", "Service"}
    wrapper = old.launch("wrapper", scheduler="mcad", end=FAILED)
    old.world.cluster.remove(wrapper.kind, "default", "wrapper")
    old.forget()
    assert (old.left(gang), old.left(wrapper)) == ([], [])


@pytest.mark.parametrize(
    ("end", "age"),
    [
        ({}, 30),
        ({"state": "CANCELLED", "reason": "Cancelled"}, 30),
        (FAILED, 60),
        (GONE, 60),
        ({"finished_at": None}, 30),
    ],
)
def test_failed_apps_and_lost_ends_go_later(old: OldApps, end: Mapping[str, Any], age: int) -> None:
    app = old.launch("old-1", end={**end, "observed_at": "2026-03-01T00:00:00Z"})
    old.world.cluster.remove(app.kind, "default", "old-1")
    begin = "2026-03-01T00:00:00" if end.get("finished_at", "") is None else "2026-01-01T00:01:00"
    at = NOW.fromisoformat(f"{begin}+00:00") + timedelta(days=age)
    for early in (timedelta(seconds=-1), timedelta(days=-400)):
        old.forget(now=at + early)
        assert old.left(app) == ["logs", "entry", "stack"]
    old.forget(now=at)
    assert old.left(app) == []


@pytest.mark.parametrize(
    "end",
    [
        {"state": "RUNNING", "reason": "Running", "finished_at": None},
        {"state": "PENDING", "reason": "Starting", "finished_at": None},
        {"state": "UNKNOWN", "reason": "Unreadable"},
        {"uid": "of-another-run"},
        {"finished_at": None, "observed_at": None},
        {"finished_at": "9999-12-31T23:59:59Z"},
        # The clock of its node was wrong, and its end was first seen now.
        {"finished_at": "1970-01-01T00:00:10Z", "queued_at": "2026-05-31T00:00:00Z", "observed_at": str(NOW)},
    ],
)
def test_an_app_that_has_not_ended_for_certain_is_not_considered(old: OldApps, end: Mapping[str, Any]) -> None:
    app = old.launch("old-1", end=end)
    before = old.everything()
    assert old.preview() == ({}, {})
    old.forget()
    assert old.left(app) == ALL
    assert (old.everything(), old.world.lines) == (before, [])


def resources(whole: Any) -> Any:
    return whole["checkpoint"]["latest"]["resources"]


def marked(name: str) -> Callable[[Any, App], object]:
    return lambda whole, _: resources(whole)[-1].update({name: True})


def bucket(whole: Any, _: App) -> None:
    resources(whole).append({"urn": "u::aws:s3/bucket:Bucket::data", "type": "aws:s3/bucket:Bucket"})


def later_release(whole: Any, _: App) -> None:
    resources(whole)[0]["outputs"]["torchx"]["schema_version"] = 2


def config_map(whole: Any, _: App) -> None:
    item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine", "uid": "u", "namespace": "default"}}
    resources(whole).append({"urn": "u::kubernetes::mine", "type": "kubernetes:core/v1:ConfigMap", "outputs": item})


def elsewhere(whole: Any, app: App) -> None:
    item = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "uid": "u", "namespace": "kube-system"}}
    if app.kind.kind == "Job":
        item |= {"apiVersion": VOLCANO_JOB.api_version, "kind": "Job"}
    resources(whole).append({"urn": "u::kubernetes::mine", "type": "kubernetes:x:y", "outputs": item})


def note_of(whole: Any, end: str) -> Any:
    found = next(item for item in resources(whole) if item["urn"].endswith(end))
    return found["inputs"]["input"]


def record_in(whole: Any) -> Any:
    return next(item["outputs"]["record"] for item in resources(whole) if "record" in item.get("outputs", {}))


STACKS: dict[str, tuple[Callable[[Any, App], object], str]] = {
    "bucket": (bucket, "also holds aws:s3/bucket:Bucket 'data'"),
    "later release": (later_release, "a later release wrote its outputs"),
    "config map": (config_map, "no launch of this kind creates"),
    "other namespace": (elsewhere, "another uid, name or namespace"),
    "protected": (marked("protect"), "is protected"),
    "retained": (marked("retainOnDelete"), "stays when its stack is deleted"),
    "read only": (marked("external"), "is not managed by its stack"),
    "to delete": (marked("delete"), "is deleted by the next update"),
    "pending": (
        lambda whole, _: whole["checkpoint"]["latest"].update(
            pending_operations=[{"type": "updating", "resource": resources(whole)[-1]}]
        ),
        "was interrupted",
    ),
    "program": (
        lambda whole, _: resources(whole)[0]["outputs"].update(uid="u"),
        "a Pulumi program took its stack over: it exports uid",
    ),
    "launched again": (lambda whole, _: record_in(whole).update(attempt=2), "launched it again"),
    "imported": (lambda whole, _: record_in(whole).update(imported=True), "created by another program"),
    "two apps": (second_component, "does not have exactly the one app"),
    "format": (lambda whole, _: whole.update(version=5), "version 5"),
    "other app": (lambda whole, _: note_of(whole, "-app").update(app_id="default:other"), "are of another app"),
    "secret": (
        lambda whole, _: resources(whole)[1]["outputs"].update(mine={SECRET: "1b47"}),
        "values of its outputs are secret",
    ),
    "other job object": (
        lambda whole, _: resources(whole)[-1]["outputs"]["metadata"].update(uid="of-another"),
        "another uid, name or namespace",
    ),
    "no uid": (lambda whole, _: resources(whole)[-1]["outputs"]["metadata"].pop("uid"), "without a uid"),
}


@pytest.mark.parametrize("case", STACKS)
def test_a_stack_stays_that_is_not_only_an_app_of_torchx_run(old: OldApps, case: str) -> None:
    change, why = STACKS[case]
    app, other = old.launch("odd-1"), old.launch("old-1")
    old.change(app, lambda whole: change(whole, app))
    stays = old.preview()[1]
    assert why in stays["default:odd-1"]
    old.forget()
    assert old.left(app) == ALL
    assert old.left(other) == [], "one that stays prevents no other"


def test_the_stack_of_a_program_stays(old: OldApps) -> None:
    app = old.launch("mine", program=True, project="mine")
    old.forget()
    assert old.left(app) == ALL
    assert old.preview() == ({}, {})


@pytest.mark.parametrize(
    ("note", "stays"),
    [
        ({"started_by": "cli"}, "a Pulumi program took its stack over"),
        ({"started_by": "auto.local"}, "a Pulumi program took its stack over"),
        ({"started_by": "cli", "kind": "refresh"}, ""),
        ({"text": "{"}, "cannot be read"),
    ],
)
def test_a_stack_on_which_a_program_was_run_stays(old: OldApps, note: dict[str, Any], stays: str) -> None:
    app = old.launch("old-1")
    old.note_update(app, **note)
    assert stays in old.preview()[1].get("default:old-1", "")
    old.forget()
    assert old.left(app) == (ALL if stays else [])


def running(old: OldApps, app: App) -> None:
    old.world.phase(app, "Running", running=1)


def later_run(old: OldApps, app: App) -> None:
    found = old.world.cluster.find(app.kind, "default", app.name)
    assert found is not None
    old.world.cluster.remove(app.kind, "default", app.name)
    meta = {**found["metadata"], "labels": {labels.LAUNCH: app.entry.launch}, "uid": "later"}
    old.world.cluster.put({**found, "metadata": meta})


def orphan(old: OldApps, app: App, *, owner: str | None = None) -> None:
    old.world.cluster.remove(app.kind, "default", app.name)
    owners = [{"kind": "Job", "uid": owner or app.entry.uid, "name": app.name}]
    meta = {"name": "pod-1", "namespace": "default", "labels": {VOLCANO_JOB_NAME: app.name}, "ownerReferences": owners}
    old.world.cluster.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "status": {"phase": "Running"}})


def failed(old: OldApps, app: App) -> None:
    state = {"phase": "Failed", "lastTransitionTime": "2026-04-15T00:00:00Z"}
    old.world.change(app, state=state, failed=1)


CLUSTERS: dict[str, tuple[Callable[[OldApps, App], object], str]] = {
    "it runs": (running, "its cluster says that it is RUNNING"),
    "a later run": (later_run, "a later run of it"),
    "its pod outlived it": (orphan, "its pod pod-1 has not ended"),
    "it failed later": (failed, "not old enough before 2026-06-14"),
    "another cluster": (lambda old, _: setattr(old.world.cluster, "uid", "another"), "is not watched here"),
    "an unknown cluster": (lambda old, _: setattr(old.world.cluster, "uid", ""), ""),
    "no answer": (
        lambda old, _: setattr(old.world.cluster, "error", ClusterError("no answer", retryable=True)),
        "no answer",
    ),
    "no permission to list pods": (lambda old, _: old.world.cluster.denied.add(("list", POD)), "forbids"),
}


@pytest.mark.parametrize("case", CLUSTERS)
def test_an_app_stays_unless_its_cluster_says_that_it_has_ended(old: OldApps, case: str) -> None:
    app = old.launch("old-1")
    change, why = CLUSTERS[case]
    if case == "an unknown cluster":
        old.world.cluster.authority = None
    change(old, app)
    before = old.everything()
    goes, stays = old.preview()
    assert goes == {}
    assert why in stays["default:old-1"]
    old.forget()
    old.world.cluster.error = None
    assert old.everything() == before
    assert old.left(app)[-3:] == ["logs", "entry", "stack"]


def test_a_pod_of_another_job_of_its_name_keeps_nothing(old: OldApps) -> None:
    app = old.launch("old-1")
    orphan(old, app, owner="uid of another job")
    old.forget()
    assert old.left(app) == []
    assert old.world.cluster.find(POD, "default", "pod-1") is not None


def test_another_object_of_its_name_is_not_deleted(old: OldApps) -> None:
    app = old.launch("old-1")
    later_run(old, app)
    found = old.world.cluster.find(app.kind, "default", app.name)
    assert found is not None
    old.world.cluster.put({**found, "metadata": {**found["metadata"], "labels": {labels.LAUNCH: "of-a-colleague"}}})
    old.forget()
    assert old.left(app) == ["objects"]


def test_a_pod_that_its_launch_did_not_create_is_not_deleted(old: OldApps) -> None:
    app, other = (
        old.launch("old-1", gang=GangMode.PODS),
        old.launch("other", gang=GangMode.PODS, end={"state": "RUNNING"}),
    )
    pod = {**old.pods(other)[0], "status": {"phase": "Running"}}
    old.world.cluster.put(pod)
    old.change(app, lambda whole: resources(whole).append({**resources(whole)[-1], "outputs": pod}))
    name = pod["metadata"]["name"]
    assert f"its stack has Pod default/{name}, which its launch did not create" in old.preview()[1]["default:old-1"]
    old.forget()
    assert (old.left(app), old.left(other)) == (ALL, ALL)
    assert old.world.cluster.find(POD, "default", name) is not None


def test_a_namespace_that_is_not_watched_is_left_alone(old: OldApps) -> None:
    app = old.launch("old-1")
    old.forget(namespaces=["team"])
    assert old.left(app) == ALL


def test_two_stacks_that_name_one_job_object_both_stay(old: OldApps) -> None:
    app = old.launch("old-1")
    shutil.copy(app.path, app.path.with_name("copy.json"))
    assert "names the same job object" in old.preview()[1]["default:old-1"]
    old.forget()
    assert old.left(app) == ALL


@pytest.mark.parametrize(
    "entry",
    [
        {"stage": Stage.DELETING},
        {"stage": Stage.LAUNCHED, "owner": ELSEWHERE},
        {"stage": Stage.LAUNCHED, "launched_at": "2026-05-31T00:00:00Z"},
    ],
)
def test_an_app_that_a_process_works_on_or_that_was_launched_again_stays(old: OldApps, entry: dict[str, Any]) -> None:
    app = old.launch("old-1")
    old.index.change(app.entry, lambda now: replace(now, **entry))
    old.forget(timeout_s=0.1)
    assert old.left(app) == ALL


def test_the_entry_of_a_later_launch_of_its_name_is_not_removed(old: OldApps) -> None:
    app = old.launch("old-1")
    old.index.change(app.entry, lambda now: replace(now, launched_at="2026-05-31T00:00:00Z"))
    old.index.forget(app.entry)
    assert old.has_entry(app)


def test_what_this_user_saw_of_a_colleagues_app_goes_too(old: OldApps) -> None:
    app = old.launch("old-1")
    entry = replace(app.entry, stage=Stage.LAUNCHED)
    end = {"state": "SUCCEEDED", "reason": "Completed", "message": "", "uid": entry.uid}
    old.index.observe(entry, lambda _: {**end, "observed_at": "2026-01-01T00:01:00Z"})
    old.index.update(entry, lambda _: None)
    old.index.observe(entry, lambda _: {**end, "observed_at": "2026-01-01T00:02:00Z"})
    assert old.index.observation(entry) is not None
    old.index.forget(replace(entry, uid="of an earlier run"))
    assert old.index.observation(entry) is not None
    old.forget()
    assert (old.index.observation(entry), old.left(app)) == (None, [])


def test_a_locked_stack_stays_until_it_is_free(old: OldApps) -> None:
    app = old.launch("old-1")
    lock = old.world.root / "backend" / lock_folder(app.entry.place) / "of-somebody.json"
    lock.parent.mkdir(parents=True)
    lock.write_text("{}")
    assert "is locked" in old.preview()[1]["default:old-1"]
    with old.retention() as retention:
        for _ in range(8):
            retention.run_pass(threading.Event())
    assert old.left(app) == ALL
    assert len(said(old, "is not forgotten yet: an update holds the lock")) == 1
    old.forget(timeout_s=0.1)
    assert len(said(old, "is not forgotten to its end: an update holds the lock of its stack")) == 1
    lock.unlink()
    old.forget()
    assert old.left(app) == []


def test_an_app_without_objects_whose_stack_is_locked_keeps_its_logs(old: OldApps) -> None:
    app = old.launch("old-1")
    old.world.cluster.remove(app.kind, "default", app.name)
    lock = old.world.root / "backend" / lock_folder(app.entry.place) / "of-somebody.json"
    lock.parent.mkdir(parents=True)
    lock.write_text("{}")
    old.forget(timeout_s=0.1)
    assert old.left(app) == ["logs", "entry", "stack"]
    lock.unlink()
    old.forget()
    assert old.left(app) == []


def test_what_a_dry_run_lists_is_what_goes(old: OldApps, capsys: pytest.CaptureFixture[str]) -> None:
    apps = [old.launch(f"app-{number}", end={**FAILED} if number % 3 == 0 else {}) for number in range(6)]
    running(old, apps[1])
    old.change(apps[2], lambda whole: bucket(whole, apps[2]))
    before = old.everything()
    with old.retention(settings=replace(SETTINGS, failed_after=timedelta(days=1000))) as retention:
        retention.show()
    assert old.everything() == before
    assert old.world.lines == []
    listed = capsys.readouterr().out.split("would stay")[0]
    goes = [app.name for app in apps if f"  default:{app.name}: " in listed]
    assert goes == ["app-4", "app-5"]
    old.forget(settings=replace(SETTINGS, failed_after=timedelta(days=1000)))
    assert [app.name for app in apps if not old.left(app)] == goes


class Interfering(FakeCluster):
    """A cluster in which something happens just before an object is deleted."""

    before: Callable[[], None] = staticmethod(lambda: None)

    def delete(
        self, kind: Kind, namespace: str | None, name: str, *, uid: str | None = None, version: str | None = None
    ) -> bool:
        type(self).before()
        return super().delete(kind, namespace, name, uid=uid, version=version)


def test_a_job_that_is_resumed_at_the_last_moment_runs_on(old: OldApps) -> None:
    old.world.cluster = Interfering()
    app = old.launch("old-1", end={"state": "CANCELLED", "reason": "Cancelled"})
    Interfering.before = staticmethod(lambda: running(old, app))
    try:
        old.forget(timeout_s=0.2)
    finally:
        Interfering.before = staticmethod(lambda: None)
    assert old.left(app) == ALL
    found = old.world.cluster.find(app.kind, "default", app.name)
    assert found is not None
    assert found["status"]["state"]["phase"] == "Running"


class LateChange:
    """A driver before whose n-th lock something happens."""

    def __init__(self, old: OldApps, number: int, change: Callable[[], None]) -> None:
        self._driver = old.world.driver()
        self._left = number
        self._change = change

    def forget_at(self, place: StackRef, may_go: Callable[[str], bool]) -> Forgotten:
        self._left -= 1
        if self._left == 0:
            self._change()
        return self._driver.forget_at(place, may_go)


def test_a_job_that_is_resumed_after_it_was_looked_at_runs_on(old: OldApps) -> None:
    lists = ["before the lock"]

    class Resumed(FakeCluster):
        def list(self, kind: Kind, *words: Any) -> Any:
            found = super().list(kind, *words)
            lists.append(kind.kind)
            if lists == ["Pod", "Pod"]:
                running(old, app)
            return found

    old.world.cluster = Resumed()
    app = old.launch("old-1", end={"state": "CANCELLED", "reason": "Cancelled"})
    # From the lock on: the look lists pods, and then the pods that may outlive their job are listed.
    driver: Any = LateChange(old, 1, lists.clear)
    old.forget(driver=driver, timeout_s=0.2)
    assert lists[:2] == ["Pod", "Pod"]
    assert old.left(app) == ALL


@pytest.mark.parametrize("what", ["uid", "run", "state"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_stack_that_changes_at_the_last_moment_stays(old: OldApps, number: int, what: str) -> None:
    """The stack has a later run, as outputs only or with objects and end, or says that the run is active."""
    app = old.launch("old-1")

    def change(whole: Any) -> None:
        component = resources(whole)[1]["outputs"]
        if what == "uid":
            component["uid"] = "later"
        else:
            resources(whole)[0]["outputs"]["torchx"]["observed"]["state"] = component["observed"]["state"] = "RUNNING"

    def happen() -> None:
        if what == "run":
            app.path.write_text(app.path.read_text().replace(str(app.entry.uid), "later"))
        else:
            old.change(app, change)

    driver: Any = LateChange(old, number, happen)
    old.forget(driver=driver, timeout_s=0.2)
    assert old.has_stack(app)
    assert old.has_entry(app)
    assert old.has_objects(app) is (number == 1)


def test_objects_that_come_back_before_the_stack_goes_keep_it(old: OldApps) -> None:
    app = old.launch("old-1")
    found = old.world.cluster.find(app.kind, "default", app.name)
    assert found is not None
    driver: Any = LateChange(old, 2, lambda: old.world.cluster.put(found))
    with old.retention(driver=driver) as retention:
        for _ in range(2):
            retention.run_pass(threading.Event())
    assert (old.has_stack(app), old.has_entry(app)) == (True, True)


def test_a_standby_changes_nothing_also_if_it_loses_the_lead_at_the_last_moment(old: OldApps) -> None:
    app = old.launch("old-1")
    before, leads = old.everything(), [True]
    driver: Any = LateChange(old, 1, leads.clear)
    old.forget(leading=lambda: False)
    old.forget(leading=lambda: bool(leads), driver=driver, timeout_s=0.1)
    assert old.everything() == before
    assert old.left(app) == ALL
    old.world.cluster.remove(app.kind, "default", app.name)
    leads.append(True)
    old.forget(leading=lambda: bool(leads), driver=LateChange(old, 1, leads.clear), timeout_s=0.1)
    assert old.left(app) == ["entry", "stack"]


class Copying:
    """An archiver that is still copying a log of a job."""

    def __init__(self, uid: str | None) -> None:
        self.uid = uid

    def is_copying(self, uid: str) -> bool:
        return uid == self.uid


def test_logs_that_are_still_copied_are_waited_for(old: OldApps) -> None:
    app = old.launch("old-1")
    copying: Any = Copying(app.entry.uid)
    old.forget(archiver=copying, timeout_s=0.1)
    assert old.left(app) == ["logs", "entry", "stack"]
    assert said(old, "is not forgotten to its end")
    copying.uid = None
    old.forget(archiver=copying)
    assert old.left(app) == []


class Killed(BaseException):
    """The process ends."""


def test_a_process_that_is_killed_at_any_point_leaves_what_the_next_one_completes(tmp_path: Path) -> None:
    """The points are the changes to cluster, archive, index and stack, before and after each."""
    for point in range(1, 40):
        old = OldApps(root_of(tmp_path / str(point)))
        app, other = (
            old.launch("gang", gang=GangMode.PODS),
            old.launch("young", end={"finished_at": "2026-05-31T00:00:00Z"}),
        )
        count = [point]

        def step(count: list[int] = count) -> None:
            count[0] -= 1
            if count[0] == 0:
                raise Killed

        try:
            with killing(old, step) as options:
                old.forget(**options)
        except Killed:
            assert old.has_stack(app), "nothing else of it may be left without its stack"
            assert old.left(other) == ALL
            old.forget()
            assert old.left(app) == []
            assert old.left(other) == ALL
        else:
            assert count[0] > 0
            break
    assert point > 10


class killing:
    """Options of a retention whose process ends at a step."""

    def __init__(self, old: OldApps, step: Callable[[], None]) -> None:
        self._old, self._step = old, step

    def __enter__(self) -> dict[str, Any]:
        step, old = self._step, self._old
        from torchx_pulumi.log_archive import Archive
        from torchx_pulumi.runs.index import RunIndex
        from torchx_pulumi.storage.stores import FolderStore

        class Storage(FolderStore):
            def remove(self, path: str) -> None:
                step()
                super().remove(path)
                step()

        class Index(RunIndex):
            def forget(self, entry: Any) -> None:
                step()
                super().forget(entry)
                step()

        class Driver:
            def forget_at(self, place: StackRef, may_go: Callable[[str], bool]) -> Forgotten:
                failures: list[Killed] = []

                def decide(text: str) -> bool:
                    try:
                        return may_go(text)
                    except Killed as error:
                        failures.append(error)
                        return False

                outcome = old.world.driver().forget_at(place, decide)
                if failures:
                    raise failures[0]
                return outcome

        cluster = old.world.cluster
        real = cluster.delete

        def delete(*args: Any, **options: Any) -> bool:
            step()
            done = real(*args, **options)
            step()
            return done

        self._undo = lambda: cluster.__dict__.pop("delete")
        cluster.__dict__["delete"] = delete
        self._index, old.index = old.index, Index(old.world.root / "runs")
        self._open, retention.open_archive = (
            retention.open_archive,
            lambda url: Archive(lambda: Storage(Path(url)), url),
        )
        return {"driver": Driver()}

    def __exit__(self, *_: object) -> None:
        self._undo()
        self._old.index = self._index
        retention.open_archive = self._open


def test_one_app_that_cannot_be_forgotten_is_said_once_and_prevents_no_other(old: OldApps) -> None:
    odd, fine = old.launch("a-odd"), old.launch("b-fine", scheduler="mcad")
    old.world.cluster.remove(fine.kind, "default", "b-fine")
    old.world.cluster.denied.add(("delete", VOLCANO_JOB))
    with old.retention() as retention:
        for _ in range(5):
            retention.run_pass(threading.Event())
    assert (old.left(odd), old.left(fine)) == (ALL, [])
    assert len(said(old, "is not forgotten yet")) == 1
    assert "docs/permissions.md" in said(old, "is not forgotten yet")[0]


def test_two_processes_that_forget_at_once_are_as_one(old: OldApps) -> None:
    apps = [old.launch(f"app-{number}") for number in range(8)]
    stopped = threading.Event()
    with old.retention() as one, old.retention() as two:
        threads = [threading.Thread(target=each.run, args=(stopped,), daemon=True) for each in (one, two)]
        for thread in threads:
            thread.start()
        try:
            wait_for(lambda: not any(map(old.has_stack, apps)))
        finally:
            stopped.set()
        for thread in threads:
            thread.join(5)
    assert [old.left(app) for app in apps] == [[]] * 8
    assert len(said(old, ": forgotten, with stack")) == 8
    assert said(old, "report") == []


def test_removals_are_spread_over_time(old: OldApps) -> None:
    for number in range(3):
        app = old.launch(f"app-{number}")
        old.world.cluster.remove(app.kind, "default", app.name)
    waits: list[float | None] = []

    class Clock(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout)
            return False

    with old.retention(settings=replace(SETTINGS, pause_s=7.0)) as retention:
        retention.run_pass(Clock())
    assert waits == [7.0, 7.0, 7.0]


def test_one_run_ends_when_its_time_is_over(old: OldApps) -> None:
    apps = [old.launch(f"app-{number}") for number in range(3)]
    for app in apps:
        old.world.cluster.remove(app.kind, "default", app.name)
    passed = 0.0

    class Clock(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            nonlocal passed
            passed += timeout or 0.0
            return False

    with old.retention(settings=replace(SETTINGS, pause_s=7.0), clock=lambda: passed) as retention:
        retention.run_once(Clock(), 10.0)
    assert [old.left(app) for app in apps] == [[], [], ["logs", "entry", "stack"]]
    assert said(old, "is over") == ["the time of this run is over, 1 old app not tried; the next start goes on"]


@pytest.mark.parametrize("allowed", [True, False])
def test_the_archive_that_a_launch_named_is_cleaned_if_it_is_allowed(
    old: OldApps, tmp_path: Path, allowed: bool
) -> None:
    app, named = old.launch("old-1"), tmp_path / ("own" if allowed else "others")
    shutil.copytree(old.logs, named)

    def name(whole: Any) -> None:
        note_of(whole, "-app")["log_options"] = {"log_archive": str(named)}

    old.change(app, name)
    old.forget()
    assert old.left(app) == []
    assert bool(list(named.rglob("*.json"))) is not allowed


def test_a_job_object_that_its_launch_did_not_create_is_not_deleted(old: OldApps) -> None:
    app = old.launch("old-1")
    found = old.world.cluster.find(app.kind, "default", app.name)
    assert found is not None
    old.world.cluster.put({**found, "metadata": {**found["metadata"], "labels": {labels.LAUNCH: "of-a-colleague"}}})
    assert "which its launch did not create" in old.preview()[1]["default:old-1"]
    old.forget()
    assert old.left(app) == ALL


def test_services_are_deleted_by_uid_too(old: OldApps) -> None:
    app = old.launch("gang", gang=GangMode.PODS)
    service = next(item for item in old.objects(app) if item["kind"] == "Service")
    old.world.cluster.remove(SERVICE, "default", service["metadata"]["name"])
    old.world.cluster.put({**service, "metadata": {**service["metadata"], "uid": "of-another"}})
    old.forget()
    assert old.left(app) == ["objects"]
    assert [item["kind"] for item in old.objects(app)] == ["Service"]


def test_options_are_checked_with_all_problems_at_once() -> None:
    def check(after: str | None, failed: str | None = None, **options: bool) -> list[str]:
        given = {"dry_run": False, "once": False, **options}
        problems, settings = check_retention(after, failed, **given)
        assert (settings is None) == (bool(problems) or after is None)
        return [f"{problem}" for problem in problems]

    assert check(None) == []
    assert check("30d") == check("12h", "12h") == check("4w", dry_run=True, once=True) == []
    for text in ("30", "d", "-1d", "30m", "0d", "0h", "1.5d", "", "99999d"):
        (problem,) = check(text)
        assert problem.startswith(f"--forget-after: found {text!r}, allowed is a number with h, d or w, at least 1h")
    assert [each.partition(":")[0] for each in check(None, "3d", dry_run=True)] == [
        "--forget-failed-after",
        "--dry-run",
        "--dry-run",
    ]
    assert "less than --forget-after 3d" in check("3d", "2d")[0]
    assert len(check("x", "y", dry_run=True)) == 3
    settings = check_retention("30d", None, dry_run=False, once=False, archives=ArchiveRules(own="s3://b"))[1]
    assert settings is not None
    assert (settings.after.days, settings.failed_after.days, settings.archives.own) == (30, 60, "s3://b")


def test_missing_delete_verbs_are_a_problem_at_the_start() -> None:
    cluster = FakeCluster(denied=[("delete", VOLCANO_JOB), ("get", SERVICE)])
    (problem,) = check_permissions("here", cluster, ["team"])
    assert "delete jobs.batch.volcano.sh in namespace team" in str(problem)
    assert "get services in namespace team" in str(problem)
    settings = ControllerSettings(backends=[], retention=SETTINGS)
    with pytest.raises(TorchxPulumiError, match=r"no permission in .* to delete jobs.batch.volcano.sh in all namesp"):
        check_settings(settings, lambda *_: cluster)
    dry = replace(settings, retention=replace(SETTINGS, dry_run=True))
    assert list(check_settings(dry, lambda *_: cluster).values()) == [cluster]
    cluster.served.discard(VOLCANO_JOB)
    assert "jobs.batch" not in str(check_permissions("here", cluster, [])[0])
    cluster.error = ClusterError("no answer", retryable=True)
    assert check_permissions("here", cluster, []) == []


def test_a_backend_that_is_away_at_the_start_keeps_its_own_apps_only(old: OldApps, tmp_path: Path) -> None:
    away = OldApps(root_of(tmp_path / "away"))
    away.world.cluster = old.world.cluster
    app, kept = old.launch("old-1"), away.launch("old-2")
    backend, elsewhere = away.world.root / "backend", away.world.root / "not-mounted"
    backend.rename(elsewhere)
    old.forget(further=[away.world.backend])
    elsewhere.rename(backend)
    assert (old.left(app), away.left(kept)) == ([], ALL)


def test_a_controller_starts_without_a_backend_that_is_away_if_another_one_answers(
    old: OldApps, tmp_path: Path, unreadable: Callable[[Path, int], None]
) -> None:
    there, away = old.world.backend, f"file://{tmp_path}/away"
    settings = ControllerSettings(backends=(away, there))
    assert list(check_settings(settings, lambda *_: old.world.cluster).values()) == [old.world.cluster]
    with pytest.raises(TorchxPulumiError, match="is not there, so its stacks are unknown"):
        check_settings(replace(settings, backends=(away,)), lambda *_: old.world.cluster)
    with pytest.raises(TorchxPulumiError, match=r"2 problems:(.|\n)*only the Pulumi CLI(.|\n)*is not there"):
        check_settings(replace(settings, backends=(away, "postgres://db/state")), lambda *_: old.world.cluster)
    unreadable(tmp_path / "away", errno.EACCES)
    with pytest.raises(TorchxPulumiError, match="this user has no permission"):
        check_settings(settings, lambda *_: old.world.cluster)


def controller_of(old: OldApps, retention: RetentionSettings) -> Controller:
    """Return a controller that runs once, at `NOW`."""
    settings = ControllerSettings(backends=(old.world.backend,), once=True, retention=retention)
    reporter = Reporter(old.world.lines.append)
    parts = ControllerParts(settings=settings, driver=old.world.driver(), reporter=reporter, now=lambda: NOW)
    return Controller(parts, {"test": old.world.cluster})


def test_a_controller_that_runs_once_writes_the_end_and_then_forgets(old: OldApps) -> None:
    """An end that no stack has yet counts from when it was, and the dry run knows that."""
    ended = old.launch("ended", end={"state": "RUNNING", "reason": "Running", "finished_at": None})
    active = old.launch("active", end={"state": "RUNNING", "reason": "Running", "finished_at": None})
    running(old, active)
    retention = replace(SETTINGS, archives=ArchiveRules(own=str(old.logs)))
    seen = old.everything()

    def run(settings: RetentionSettings) -> None:
        assert controller_of(old, settings).run(threading.Event())

    run(replace(retention, dry_run=True))
    assert old.everything() == seen
    assert list(old.preview()[0]) == []
    run(retention)
    assert (old.left(ended), old.left(active)) == (["entry"], ALL), "the index of this test is not that of the user"


def test_a_dry_run_knows_ends_that_no_stack_has_yet(
    old: OldApps, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cleared: list[str] = []
    monkeypatch.setattr(AutomationDriver, "clear_dead_locks", lambda _, backend: cleared.append(backend))
    old.launch("ended", end={"state": "RUNNING", "reason": "Running", "finished_at": None})
    settings = replace(SETTINGS, dry_run=True, archives=ArchiveRules(own=str(old.logs)))
    controller_of(old, settings).run(threading.Event())
    assert not any("not current" in line for line in old.world.lines)
    assert cleared == [], "a dry run changes nothing"
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1 app would be forgotten:"
    assert lines[1] == (
        "  default:ended: stack torchx/default.ended-12345678 (SUCCEEDED, ended 2026-01-01T00:01:00Z), "
        "Job default/ended; 1 archived log of 3 bytes"
    )
    assert lines[2:] == ["0 apps would stay, although old enough:"]
