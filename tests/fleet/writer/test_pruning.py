"""Pruning: what goes with an old app, and all that keeps an app."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube.kinds import POD, SERVICE
from torchx_pulumi.model import labels
from torchx_pulumi.model.app_entry import RunEntry, Stage
from torchx_pulumi.model.errors import ClusterError, DeployError
from torchx_pulumi.model.status import JobState
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB, VOLCANO_JOB_NAME
from torchx_pulumi.schedulers.volcano.options import GangMode
from torchx_pulumi.storage.owners import this_process
from torchx_pulumi_fleet.writer.pruning import Fate, Outcome

from tests.fleet.writer.old_apps import ALL, OldApps, resources
from tests.fleet.writer.world import App, component, urn_of

ELSEWHERE = replace(this_process(), host="elsewhere", boot_id="another", lease_until=time.time() + 1e6)
"""A process on another machine that works on an app, however long the tests take."""


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OldApps:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return OldApps(tmp_path)


def test_an_old_app_goes_with_all_that_is_its_own(old: OldApps) -> None:
    app, other = old.launch("old-1"), old.launch("old-10", end={"finished_at": "2026-05-20T00:00:00Z"})
    before = old.everything()
    assert str(old.prune_one(app, dry_run=True)) == (
        "would be pruned: default:old-1: SUCCEEDED since 2026-01-01T00:01:00Z, Job default/old-1, 1 archived log"
    )
    assert (old.everything(), old.left(app)) == (before, ALL)
    found = old.prune()
    assert [str(found[f"default:{name}"]) for name in ("old-1", "old-10")] == [
        "pruned: default:old-1: SUCCEEDED since 2026-01-01T00:01:00Z, Job default/old-1, 1 archived log",
        "left alone: default:old-10: it is SUCCEEDED since 2026-05-20T00:00:00Z, which is later than the limit",
    ]
    assert (old.left(app), old.left(other)) == ([], ALL)


def test_logs_stay_unless_they_are_asked_for(old: OldApps) -> None:
    app = old.launch("old-1")
    assert old.prune_one(app, archives=None).why == "SUCCEEDED since 2026-01-01T00:01:00Z, Job default/old-1"
    assert old.left(app) == ["logs"]


def test_the_archive_that_a_launch_named_is_cleaned(old: OldApps, tmp_path: Path) -> None:
    app = old.launch("old-1")
    shutil.copytree(old.logs, tmp_path / "own")
    old.change(app, lambda whole: note_of(whole).update(log_options={"log_archive": str(tmp_path / "own")}))
    assert old.prune_one(app, archives=[]).why.endswith("1 archived log")
    assert old.left(app) == ["logs"]
    assert [path for path in (tmp_path / "own").rglob("*") if path.is_file()] == []


def test_logs_that_cannot_be_deleted_are_named_after_the_app_is_gone(
    old: OldApps, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError("no answer")

    app = old.launch("old-1")
    monkeypatch.setattr("torchx_pulumi_fleet.archive.Archive.remove", fail)
    found = old.prune_one(app)
    assert (found.fate, old.left(app)) == (Fate.FAILED, ["logs"])
    folder = f"default/old-1/{app.entry.uid}"
    assert f"its logs are left in archive {old.logs}: no answer; remove folder {folder} there" in found.why


def test_an_app_stays_whose_archive_is_not_on_this_machine(old: OldApps, tmp_path: Path) -> None:
    app = old.launch("old-1")
    found = old.prune_one(app, archives=[str(tmp_path / "absent")])
    assert (found.fate, old.left(app)) == (Fate.FAILED, ALL)
    assert f"there is no folder {tmp_path / 'absent'} on this machine" in found.why


def test_a_gang_of_pods_and_an_app_of_mcad_go_with_all_their_objects(old: OldApps) -> None:
    gang = old.launch("gang", gang=GangMode.PODS)
    assert {item["kind"] for item in old.objects(gang)} == {"PodGroup", "Pod", "Service"}
    wrapper = old.launch("wrapper", scheduler="mcad", end={"state": "FAILED", "reason": "ExitCode"})
    old.world.cluster.remove(wrapper.kind, "default", "wrapper")
    found = old.prune()
    assert {outcome.fate for outcome in found.values()} == {Fate.PRUNED}
    assert found["default:wrapper"].why == "FAILED since 2026-01-01T00:01:00Z, no object is left, 1 archived log"
    assert (old.left(gang), old.left(wrapper)) == ([], [])


GONE = {"state": "UNKNOWN", "reason": "NotFound", "finished_at": None}


def test_only_apps_in_the_states_that_are_asked_for_go(old: OldApps) -> None:
    apps = {
        JobState.SUCCEEDED: old.launch("good"),
        JobState.FAILED: old.launch("bad", end={"state": "FAILED", "reason": "ExitCode"}),
        JobState.CANCELLED: old.launch("stopped", end={"state": "CANCELLED", "reason": "Cancelled"}),
        JobState.UNKNOWN: old.launch("gone", end=GONE),
    }
    for app in apps.values():
        old.world.cluster.remove(app.kind, "default", app.name)
    for state in (JobState.UNKNOWN, JobState.FAILED):
        assert [outcome.app_id for outcome in old.prune(state).values()] == [apps.pop(state).entry.app_id]
    assert {outcome.fate for outcome in old.prune().values()} == {Fate.PRUNED}
    assert [old.left(app) for app in apps.values()] == [[], []]


@pytest.mark.parametrize(
    ("end", "why"),
    [
        ({"state": "RUNNING", "reason": "Running", "finished_at": None}, "it is RUNNING"),
        ({"state": "PENDING", "reason": "Starting", "finished_at": None}, "it is PENDING"),
        ({"state": "UNKNOWN", "reason": "Unreadable"}, "it is UNKNOWN"),
        ({"uid": "of-another-run"}, "it was launched again"),
        ({"finished_at": "9999-12-31T23:59:59Z"}, "later than the limit"),
        # The clock of its node was wrong, and its end was first seen now.
        (
            {
                "finished_at": "2025-01-01T00:00:00Z",
                "queued_at": "2026-01-01T00:00:00Z",
                "observed_at": "2026-06-01T00:00:00Z",
            },
            "later than the limit",
        ),
    ],
)
def test_an_app_that_has_not_ended_for_certain_is_left_alone(old: OldApps, end: Mapping[str, Any], why: str) -> None:
    app = old.launch("old-1", end=end)
    before = old.everything()
    found = old.prune_one(app)
    assert (found.fate, old.left(app), old.everything()) == (Fate.LEFT, ALL, before)
    assert why in found.why


def test_an_app_that_was_launched_after_the_limit_is_not_considered(old: OldApps) -> None:
    old.launch("new-1", end={"queued_at": "2026-05-20T00:00:00Z", "state": "RUNNING"})
    assert old.prune() == {}


def marked(name: str) -> Callable[[Any, App], object]:
    return lambda whole, _: resources(whole)[-1].update({name: True})


def bucket(whole: Any, _: App) -> None:
    resources(whole).append({"urn": "u::aws:s3/bucket:Bucket::data", "type": "aws:s3/bucket:Bucket"})


def config_map(whole: Any, _: App) -> None:
    item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine", "uid": "u", "namespace": "default"}}
    resources(whole).append({"urn": "u::kubernetes::mine", "type": "kubernetes:core/v1:ConfigMap", "outputs": item})


def elsewhere(whole: Any, _: App) -> None:
    meta = {"name": "a", "uid": "u", "namespace": "kube-system"}
    item = {"apiVersion": VOLCANO_JOB.api_version, "kind": "Job", "metadata": meta}
    resources(whole).append({"urn": "u::kubernetes::mine", "type": "kubernetes:x:y", "outputs": item})


def note_of(whole: Any) -> Any:
    return next(item for item in resources(whole) if item["urn"].endswith("-app"))["inputs"]["input"]


def record_in(whole: Any) -> Any:
    return next(item["outputs"]["record"] for item in resources(whole) if "record" in item.get("outputs", {}))


def second_component(whole: Any, app: App) -> None:
    other = urn_of(app.entry.place, app.entry.scheduler, "second")
    resources(whole).extend(component(app, other, program=True))


STACKS: dict[str, tuple[Callable[[Any, App], object], str]] = {
    "bucket": (bucket, "also holds aws:s3/bucket:Bucket 'data'"),
    "config map": (config_map, "no launch of this kind creates"),
    "other namespace": (elsewhere, "another uid, name or namespace"),
    "protected": (marked("protect"), "'train' is protected (`pulumi state unprotect`)"),
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
    "launched again": (lambda whole, _: record_in(whole).update(attempt=2), "a Pulumi program has launched it again"),
    "imported": (lambda whole, _: record_in(whole).update(imported=True), "created by another program"),
    "two apps": (second_component, "does not have exactly the one app"),
    "other app": (lambda whole, _: note_of(whole).update(app_id="default:other"), "are of another app"),
    "other job object": (
        lambda whole, _: resources(whole)[-1]["outputs"]["metadata"].update(uid="of-another"),
        "another uid, name or namespace",
    ),
    "no uid": (lambda whole, _: resources(whole)[-1]["outputs"]["metadata"].pop("uid"), "without a uid"),
}


@pytest.mark.parametrize("case", STACKS)
def test_a_stack_that_is_not_only_an_app_of_torchx_run_is_left_alone(old: OldApps, case: str) -> None:
    change, why = STACKS[case]
    app, other = old.launch("odd-1"), old.launch("old-1")
    old.change(app, lambda whole: change(whole, app))
    found = old.prune()["default:odd-1"]
    assert (found.fate, old.left(app)) == (Fate.LEFT, ALL)
    assert why in found.why
    assert old.left(other) == [], "one that stays prevents no other"


def test_the_stack_of_a_program_is_left_alone(old: OldApps) -> None:
    app = old.launch("mine", program=True, project="mine")
    found = old.prune_one(app)
    assert (found.fate, old.left(app)) == (Fate.LEFT, ALL)
    assert "is that of a Pulumi program; `pulumi destroy` in its folder removes it" in found.why


@pytest.mark.parametrize(
    ("note", "stays"),
    [
        ({"started_by": "cli"}, "a Pulumi program took its stack over"),
        ({"started_by": "auto.local"}, "a Pulumi program took its stack over"),
        ({"started_by": "cli", "kind": "refresh"}, None),
        ({"text": "{"}, "cannot be read"),
    ],
)
def test_a_stack_on_which_a_program_was_run_is_left_alone(
    old: OldApps, note: dict[str, Any], stays: str | None
) -> None:
    app = old.launch("old-1")
    old.note_update(app, **note)
    found = old.prune_one(app)
    assert (found.fate, old.left(app)) == ((Fate.PRUNED, []) if stays is None else (Fate.LEFT, ALL))
    assert (stays or "") in found.why


def running(old: OldApps, app: App) -> None:
    old.world.phase(app, "Running", running=1)


def put_again(old: OldApps, app: App, launch: str) -> None:
    """Put another object of its name into the cluster."""
    found = old.world.cluster.find(app.kind, "default", app.name)
    assert found is not None
    old.world.cluster.remove(app.kind, "default", app.name)
    old.world.cluster.put({**found, "metadata": {**found["metadata"], "labels": {labels.LAUNCH: launch}, "uid": "x"}})


def orphan(old: OldApps, app: App, *, owner: str | None = None) -> None:
    old.world.cluster.remove(app.kind, "default", app.name)
    owners = [{"kind": "Job", "uid": owner or app.entry.uid, "name": app.name}]
    meta = {"name": "pod-1", "namespace": "default", "labels": {VOLCANO_JOB_NAME: app.name}, "ownerReferences": owners}
    old.world.cluster.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "status": {"phase": "Running"}})


def failed(old: OldApps, app: App) -> None:
    old.world.change(app, state={"phase": "Failed", "lastTransitionTime": "2026-05-15T00:00:00Z"}, failed=1)


def away(old: OldApps, _: App) -> None:
    old.world.cluster.error = ClusterError("no answer", retryable=True)


CLUSTERS: dict[str, tuple[Callable[[OldApps, App], object], str, Fate]] = {
    "it runs": (running, "its cluster says that it is RUNNING", Fate.LEFT),
    "a later run": (
        lambda old, app: put_again(old, app, app.entry.launch),
        "it was launched again: its cluster has a later run of it",
        Fate.LEFT,
    ),
    "of a colleague": (
        lambda old, app: put_again(old, app, "of a colleague"),
        "its cluster has Job default/old-1, which its launch did not create",
        Fate.LEFT,
    ),
    "its pod outlived it": (orphan, "its pod pod-1 has not ended", Fate.LEFT),
    "it failed later": (failed, "it is FAILED since 2026-05-15T00:00:00Z, which is later than the limit", Fate.LEFT),
    "another cluster": (
        lambda old, app: (
            old.world.cluster.remove(app.kind, "default", app.name),
            setattr(old.world.cluster, "uid", "another"),
        ),
        "it may have been launched in another cluster than ",
        Fate.LEFT,
    ),
    "no answer": (away, "no answer", Fate.FAILED),
    "no permission to list pods": (
        lambda old, _: old.world.cluster.denied.add(("list", POD)),
        "forbids",
        Fate.FAILED,
    ),
}


@pytest.mark.parametrize("case", CLUSTERS)
@pytest.mark.parametrize("dry_run", [True, False])
def test_an_app_stays_unless_its_cluster_says_that_it_has_ended(old: OldApps, case: str, dry_run: bool) -> None:
    app = old.launch("old-1")
    change, why, fate = CLUSTERS[case]
    change(old, app)
    before = old.everything()
    found = old.prune_one(app, dry_run=dry_run)
    old.world.cluster.error = None
    assert (found.fate, old.everything()) == (fate, before)
    assert why in found.why
    assert old.left(app)[-3:] == ["logs", "entry", "stack"]


def test_an_end_that_no_stack_has_is_read_from_the_cluster(old: OldApps) -> None:
    app = old.launch("old-1", end={"state": "FAILED", "reason": "ExitCode", "finished_at": "2026-02-01T00:00:00Z"})
    assert old.prune_one(app).why.startswith("SUCCEEDED since 2026-02-01T00:00:00Z, Job default/old-1")


def test_a_pod_of_another_job_of_its_name_keeps_nothing(old: OldApps) -> None:
    app = old.launch("old-1")
    orphan(old, app, owner="uid of another job")
    assert old.prune_one(app).fate is Fate.PRUNED
    assert old.left(app) == []
    assert old.world.cluster.find(POD, "default", "pod-1") is not None


def test_a_pod_that_its_launch_did_not_create_is_not_deleted(old: OldApps) -> None:
    app, other = old.launch("old-1", gang=GangMode.PODS), old.launch("other", gang=GangMode.PODS)
    mine = next(item for item in old.objects(other) if item["kind"] == "Pod")
    old.change(app, lambda whole: resources(whole).append({**resources(whole)[-1], "outputs": mine}))
    name = mine["metadata"]["name"]
    found = old.prune(dry_run=True)["default:old-1"]
    assert (found.fate, f"its cluster has Pod default/{name}, which its launch did not create") == (
        Fate.LEFT,
        found.why,
    )


def test_a_service_of_another_launch_keeps_its_app(old: OldApps) -> None:
    app = old.launch("gang", gang=GangMode.PODS)
    service = next(item for item in old.objects(app) if item["kind"] == "Service")
    old.world.cluster.remove(SERVICE, "default", service["metadata"]["name"])
    old.world.cluster.put({**service, "metadata": {**service["metadata"], "uid": "of-another"}})
    assert old.prune_one(app).fate is Fate.LEFT
    assert old.left(app) == ALL


def test_two_stacks_that_name_one_job_object_both_stay(old: OldApps) -> None:
    app = old.launch("old-1")
    shutil.copy(app.path, app.path.with_name("copy.json"))
    found = old.prune_one(app)
    assert (found.fate, old.left(app)) == (Fate.LEFT, ALL)
    assert "names the same job object" in found.why


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"stage": Stage.LAUNCHING}, "a process launches, changes or deletes it, or was killed"),
        ({"stage": Stage.LAUNCHED, "owner": ELSEWHERE}, "a process launches, changes or deletes it"),
        ({"launched_at": "2026-05-31T00:00:00Z"}, "this user's index of apps has a later launch of its name"),
    ],
)
def test_an_app_that_a_process_works_on_or_that_was_launched_again_stays(
    old: OldApps, entry: dict[str, Any], why: str
) -> None:
    app = old.launch("old-1")
    old.index.change(app.entry, lambda now: replace(now, **entry))
    before = old.everything()
    found = old.prune_one(app)
    assert (found.fate, old.everything()) == (Fate.LEFT, before)
    assert why in found.why


def test_a_deletion_that_was_killed_is_finished(old: OldApps) -> None:
    app = old.launch("old-1")
    old.index.change(app.entry, lambda now: replace(now, stage=Stage.DELETING, owner=None))
    assert old.prune_one(app).fate is Fate.PRUNED
    assert old.left(app) == []


def test_an_app_of_a_colleague_goes_and_one_that_stays_does_not_come_into_the_index(old: OldApps) -> None:
    app, stays = old.launch("old-1"), old.launch("old-2")
    for one in (app, stays):
        old.index.update(one.entry, lambda _: None)
    running(old, stays)
    assert old.prune_one(app).fate is Fate.PRUNED
    assert (old.left(app), old.left(stays)) == ([], ["objects", "logs", "stack"])


def test_a_locked_stack_is_left_alone(old: OldApps) -> None:
    app = old.launch("old-1")
    old.engine.locked[app.entry.place] = ["me@here (pid 7)"]
    assert "its stack is locked by me@here (pid 7): an update runs" in old.prune_one(app).why
    assert old.left(app) == ALL


def test_what_fails_is_named_keeps_its_logs_and_stops_no_other(old: OldApps) -> None:
    app = old.launch("old-1")
    old.engine.failure = DeployError("no passphrase")
    found = old.prune_one(app)
    assert (found.fate, found.why) == (Fate.FAILED, "no passphrase")
    entry = old.index.get(app.entry)
    assert entry is not None
    assert (old.left(app), entry.stage, entry.owner) == (ALL, Stage.LAUNCHED, None)
    damaged = old.launch("damaged")
    damaged.path.write_text(damaged.path.read_text().replace('"entry"', '"x"')[:-3])
    old.engine.failure = None
    assert old.prune_one(app).fate is Fate.PRUNED


def test_the_app_is_claimed_while_it_is_deleted(old: OldApps) -> None:
    app, seen = old.launch("old-1"), list[Outcome]()
    old.engine.begins = lambda: seen.append(old.prune_one(app))
    assert old.prune_one(app).fate is Fate.PRUNED
    assert [outcome.fate for outcome in seen] == [Fate.LEFT]
    assert "a process launches, changes or deletes it" in seen[0].why


def test_what_changes_after_the_table_was_read_counts(old: OldApps, monkeypatch: pytest.MonkeyPatch) -> None:
    app = old.launch("old-1")
    update = RunIndex.update

    def late(self: RunIndex, entry: RunEntry, decide: Any) -> Any:
        old.change(app, lambda whole: note_of(whole).update(launched_at="2026-05-31T00:00:00Z"))
        return update(self, entry, decide)

    monkeypatch.setattr(RunIndex, "update", late)
    found = old.prune_one(app)
    assert (found.fate, found.why, old.left(app)) == (Fate.LEFT, "it was launched again", ALL)
