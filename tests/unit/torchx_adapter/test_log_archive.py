"""Logs of launched apps outlive their pods: they are copied before a deletion, and read from the archive after it."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import kinds
from torchx_pulumi.log_archive import ArchivedCluster, ArchivedJob, open_archive
from torchx_pulumi.logs import LogQuery, read_lines
from torchx_pulumi.model.app_entry import Owner, RunEntry, Stage
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.schedulers import find_backend
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_COMMAND, VOLCANO_JOB
from torchx_pulumi.testing import FakeCluster

from tests.doc_blocks import commands
from tests.unit.log_archive.pods import pod, status

from .conftest import World, app, run


def entry_of(app_id: str, kind: str = "volcano") -> RunEntry:
    entry = RunIndex().find(app_id, kind)
    assert entry is not None
    return entry


def archived(folder: Path, entry: RunEntry, replica: int = 0) -> list[str]:
    job = ArchivedJob(app_id=entry.app_id, scheduler=entry.scheduler, uid=str(entry.uid))
    found = ArchivedCluster(open_archive(str(folder)), job, "trainer", replica)
    query = LogQuery(namespace="default", pod=found.pod, timestamps=False)
    return [*read_lines(found, query)]


def add_pods(cluster: FakeCluster, entry: RunEntry, *, uid: str = "1", **changes: Any) -> None:
    """Give an app pods that have ended, each with two lines of log."""
    for number, name in enumerate(entry.pods["trainer"]):
        made = pod(name, uid=f"9b2c1f0a-0000-4000-8000-{uid:0>11}{number}", replica=number, **changes)
        made["metadata"]["labels"] |= find_backend(entry.scheduler).pod_selector(entry.job_name)
        cluster.put(made)
        cluster._logs[("default", name)] = [f"first of {number}", f"last of {number}"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kept"


@pytest.mark.parametrize("order", ["cancel", "delete"])
def test_logs_are_copied_before_pods_are_deleted(
    world: World, kind: str, submit: Callable[..., str], folder: Path, order: str
) -> None:
    app_id = submit(kind, log_archive=str(folder))
    entry = entry_of(app_id, kind)
    add_pods(world.cluster, entry)
    said: list[str] = []
    getattr(world.scheduler(kind), order)(app_id, progress=said.append)
    for number in (0, 1):
        assert archived(folder, entry, number) == [f"first of {number}\n", f"last of {number}\n"]
    assert f"2 logs copied to {folder}" in said


def test_the_command_of_the_page_names_an_archive(installed: World, folder: Path) -> None:
    (command,) = commands("docs/logs.md", "archive", {"/mnt/logs": str(folder)})
    run(*shlex.split(command)[1:])
    (entry,) = [stack.entry for stack in installed.driver.stacks.values()]
    assert entry.log_archive == str(folder)


def test_a_run_that_is_replaced_is_copied(world: World, submit: Callable[..., str], folder: Path) -> None:
    scheduler = world.scheduler()
    app_id = submit(log_archive=str(folder))
    entry = entry_of(app_id)
    add_pods(world.cluster, entry)
    info = scheduler.submit_dryrun(app(), {"queue": "test", "on_running_change": "replace"})
    info.request.resource["metadata"]["name"] = entry.job_name
    assert scheduler.schedule(info) == app_id
    assert archived(folder, entry) == ["first of 0\n", "last of 0\n"]
    now = entry_of(app_id)
    assert (now.uid != entry.uid, now.log_archive) == (True, None)


def test_an_interrupted_deletion_copies_when_it_is_continued(
    world: World, submit: Callable[..., str], folder: Path
) -> None:
    app_id = submit(log_archive=str(folder))
    entry = entry_of(app_id)
    add_pods(world.cluster, entry)
    dead = Owner(host="here", pid=0, started="", lease_until=0.0)
    RunIndex().update(entry, lambda now: now and replace(now, stage=Stage.DELETING, owner=dead))
    world.scheduler().delete(app_id, take_over=True)
    assert RunIndex().find(app_id, "volcano") is None
    assert archived(folder, entry) == ["first of 0\n", "last of 0\n"]


def test_an_archive_that_cannot_be_written_stops_no_command(
    world: World, submit: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    app_id = submit(log_archive=str(tmp_path / "file"))
    add_pods(world.cluster, entry_of(app_id))
    said: list[str] = []
    world.scheduler().cancel(app_id, progress=said.append)
    assert any("warning: " in line and "file" in line for line in said)
    assert str(world.scheduler().describe(app_id).state) == "CANCELLED"
    world.scheduler().delete(app_id)
    assert RunIndex().find(app_id, "volcano") is None


def test_a_cluster_that_is_given_up_is_no_reason_to_keep_the_app(
    world: World, submit: Callable[..., str], folder: Path
) -> None:
    app_id = submit(log_archive=str(folder))
    world.cluster.error = ClusterError("no route", retryable=True)
    said: list[str] = []
    with pytest.raises(ClusterError):
        world.scheduler().delete(app_id, progress=said.append)
    world.scheduler().delete(app_id, forget_unreachable=True, progress=said.append)
    assert any("its logs are not copied to" in line and "no route" in line for line in said)
    assert RunIndex().find(app_id, "volcano") is None


def test_a_refused_cancellation_waits_for_no_log(world: World, submit: Callable[..., str], folder: Path) -> None:
    app_id = submit(log_archive=str(folder))
    add_pods(world.cluster, entry_of(app_id), statuses=[status(state={"running": {}})])
    orders = [("create", VOLCANO_COMMAND), ("patch", VOLCANO_JOB, "status"), ("update", VOLCANO_JOB, "status")]
    world.cluster.denied.update(orders)
    with pytest.raises(ClusterError):
        world.scheduler().cancel(app_id)
    assert not [*folder.rglob("*.json")]


def test_pods_of_another_run_of_the_name_are_not_copied(world: World, submit: Callable[..., str], folder: Path) -> None:
    app_id = submit(log_archive=str(folder))
    entry = entry_of(app_id)
    add_pods(world.cluster, entry)
    job = world.head(app_id)
    assert job is not None
    job["metadata"] |= {"uid": "another", "labels": {}}
    world.cluster.put(job)
    world.scheduler().delete(app_id)
    assert not [*folder.rglob("*.json")]


def test_without_an_archive_nothing_is_asked(world: World, submit: Callable[..., str]) -> None:
    app_id = submit()
    add_pods(world.cluster, entry_of(app_id))
    world.cluster.denied.add(("get", kinds.POD, "log"))
    said: list[str] = []
    world.scheduler().delete(app_id, progress=said.append)
    assert not [line for line in said if "log" in line]
