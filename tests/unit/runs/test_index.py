from __future__ import annotations

import errno
import json
import multiprocessing
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.apps.judge import latest
from torchx_pulumi.model.app_entry import RunEntry, StackRef, Stage
from torchx_pulumi.model.cluster_identity import ClusterIdentity
from torchx_pulumi.model.errors import DeployError, InvalidJobError
from torchx_pulumi.model.requested import Requested, RequestedAction
from torchx_pulumi.model.status import JobState, Reason
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.runs.observation import Noted, status_of
from torchx_pulumi.stack_state.backend import (
    backend_url,
    choose_backend,
    own_backend,
    stack_name,
    state_folder,
    without_credentials,
)
from torchx_pulumi.storage import files
from torchx_pulumi.storage.owners import this_process

from tests.unit.builders import run_entry


def entry(name: str = "train-1", **changes: Any) -> RunEntry:
    fields = {"app_id": f"default:{name}", "cluster": "c0ffee", "queue": "q", "pods": {"z": ["z-0"], "a": ["a-0"]}}
    return run_entry(**{**fields, **changes})


def seen(state: JobState, at: str = "2026-01-01T00:00:00Z", **changes: Any) -> Mapping[str, Any]:
    fields = {"state": state.value, "reason": Reason.RUNNING.value, "message": "m", "observed_at": at}
    return {**fields, **changes}


def observe(index: RunIndex, given: RunEntry, observed: Mapping[str, Any]) -> Noted:
    """Keep what says more."""
    noted = index.observe(given, lambda last: observed if last is None else latest(last, observed))
    assert noted is not None
    return noted


@pytest.fixture
def index(tmp_path: Path) -> RunIndex:
    return RunIndex(tmp_path / "state" / "runs")


def test_what_is_added_is_found_again(index: RunIndex) -> None:
    assert index.find("default:train-1", "volcano") is None
    assert index.all() == []
    identity = ClusterIdentity(uid="k", ca="c", address="a")
    given = entry(stage=Stage.LAUNCHING, owner=this_process(), cluster_identity=identity)
    index.add(given)
    assert index.find("default:train-1", "volcano") == given
    assert list(index.find("default:train-1", "volcano").pods) == ["z", "a"]  # type: ignore[union-attr]
    assert index.find("default:train-1", "mcad") is None
    assert index.all("volcano") == [given]
    with pytest.raises(DeployError, match="already"):
        index.add(given)
    index.update(given, lambda _: None)
    index.update(given, lambda _: None)
    assert index.all() == []


def test_files_and_folders_are_the_users_own(index: RunIndex, tmp_path: Path) -> None:
    index.add(entry())
    made = list((tmp_path / "state").rglob("*"))
    assert all(path.stat().st_mode & 0o077 == 0 for path in made)
    assert not [path for path in made if path.name.endswith(".tmp")]


def test_an_id_of_two_clusters_is_asked_about(index: RunIndex) -> None:
    index.add(entry())
    index.add(entry(cluster="beef", kubeconfig="/kube/b", kube_context="b"))
    with pytest.raises(InvalidJobError, match=r"2 clusters: .*context 'b' of kubeconfig .*/kube/b"):
        index.find("default:train-1", "volcano")
    found = index.find("default:train-1", "volcano", cluster=lambda: ClusterIdentity(address="beef"))
    assert found is not None
    assert found.cluster == "beef"


@pytest.mark.parametrize("app_id", ["", "a", "../../etc:x", "a:b/../c", "A:b", "a:*", "a:b:c"])
def test_ids_that_cannot_be_are_not_found(index: RunIndex, app_id: str) -> None:
    index.add(entry())
    assert index.find(app_id, "volcano") is None


def test_a_damaged_entry_is_named(index: RunIndex) -> None:
    index.add(entry())
    (path,) = index.folder.glob("volcano/*.json")
    path.write_text("{")
    with pytest.raises(DeployError, match="is not valid JSON"):
        index.find("default:train-1", "volcano")
    path.write_text('{"version": 99}')
    problems: list[str] = []
    index.add(entry("train-2"))
    assert index.all(problem=problems.append) == [entry("train-2")]
    assert "install the release that wrote it" in problems[0]


def test_the_last_observation_is_kept_as_it_was_decided(index: RunIndex) -> None:
    index.add(entry())
    assert index.observation(entry()) is None
    assert index.observe(entry(), lambda last: last) is None
    first = seen(JobState.RUNNING)
    assert observe(index, entry(), first).observed == first
    (path,) = index.folder.glob("observed/*/*.json")
    written = path.stat().st_mtime_ns
    asked: list[Any] = []
    assert index.observe(entry(), lambda last: asked.append(last) or last) == index.noted(entry())
    assert (asked, path.stat().st_mtime_ns) == ([first], written)
    replica = {"id": 0, "pod": "p", "state": "FAILED", "reason": "ExitCode", "message": ""}
    ended = seen(JobState.FAILED, reason="ExitCode", roles=[{"name": "a", "replicas": [replica]}])
    observe(index, entry(), ended)
    assert observe(index, entry(), seen(JobState.RUNNING, "2026-01-04T00:00:00Z")).observed == ended
    assert index.observation(entry()) == ended


def test_that_objects_are_gone_is_not_kept(index: RunIndex) -> None:
    index.add(entry())
    running, gone = seen(JobState.RUNNING), seen(JobState.UNKNOWN, reason="NotFound")
    observe(index, entry(), running)
    assert observe(index, entry(), gone).observed == gone
    assert index.observation(entry()) == running


def test_of_two_that_observe_at_once_the_second_sees_the_first(index: RunIndex) -> None:
    index.add(entry())
    ended, lasts = seen(JobState.SUCCEEDED, reason="Completed"), list[Any]()

    def decide(last: Mapping[str, Any] | None) -> Mapping[str, Any]:
        lasts.append(last)
        if len(lasts) == 1:
            observe(index, entry(), ended)
            return seen(JobState.RUNNING)
        assert last is not None
        return last

    noted = index.observe(entry(), decide)
    assert noted is not None
    assert (noted.observed, lasts) == (ended, [None, ended])


def test_nothing_is_noted_of_an_app_that_is_gone(index: RunIndex) -> None:
    observe(index, entry(), seen(JobState.RUNNING))
    assert index.observation(entry()) is None


def test_the_end_of_a_colleagues_app_is_noted(index: RunIndex) -> None:
    ended = seen(JobState.SUCCEEDED)
    observe(index, entry(), ended)
    assert index.observation(entry()) == ended


def test_what_was_seen_of_another_run_is_not_taken_for_this_one(index: RunIndex) -> None:
    index.add(entry())
    observe(index, entry(), seen(JobState.FAILED, uid="u-1"))
    assert index.observation(replace(entry(), uid="u-2")) is None
    running = seen(JobState.RUNNING, uid="u-2")
    assert observe(index, replace(entry(), uid="u-2"), running).observed == running


def test_what_came_of_writing_an_end_stays_with_that_end(index: RunIndex) -> None:
    index.add(entry())
    ended = observe(index, entry(), seen(JobState.FAILED))
    index.note_recorded(entry(), ended, "written", "2026-01-02T00:00:00Z")
    other = seen(JobState.FAILED, "2026-01-03T00:00:00Z", message="other words")
    again = index.observe(entry(), lambda _: other)
    assert again is not None
    assert (again.recorded, again.observed["message"]) == ("written", "other words")
    assert observe(index, entry(), seen(JobState.RUNNING, attempt=2)).recorded is None


def test_a_change_sees_the_entry_as_it_is_now(index: RunIndex) -> None:
    given = entry()
    index.add(given)
    index.change(given, lambda now: replace(now, uid="u"))
    asked = Requested(action=RequestedAction.CANCEL, at="2026-01-01T00:00:00Z", by="me", uid="u")
    after = index.change(given, lambda now: replace(now, requested=asked))
    assert after is not None
    assert (after.uid, after.requested) == ("u", asked)
    assert index.get(given) == after


def test_a_change_does_not_bring_back_an_app_that_is_gone(index: RunIndex) -> None:
    assert index.change(entry(), lambda now: replace(now, uid="u")) is None
    assert index.all() == []


def test_many_threads_and_processes_write_at_once(index: RunIndex) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_write_ten, args=(str(index.folder), number)) for number in range(2)]
    for worker in workers:
        worker.start()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: index.add(entry(f"thread-{number}")), range(32)))
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert len(index.all()) == 52


def _write_ten(folder: str, number: int) -> None:
    for item in range(10):
        RunIndex(Path(folder)).add(entry(f"process-{number}-{item}"))


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EROFS, "read-only; set XDG_STATE_HOME"),
        (errno.EACCES, "this user has no permission"),
        (errno.EIO, "set XDG_STATE_HOME to another folder"),
    ],
)
def test_what_cannot_be_written_says_why(
    index: RunIndex, monkeypatch: pytest.MonkeyPatch, code: int, said: str
) -> None:
    def full(_handle: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(DeployError, match=said):
        index.add(entry())
    monkeypatch.undo()
    assert index.all() == []
    assert [path.name for path in index.folder.rglob("*") if path.is_file()] == [".lock"]


def test_a_folder_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DeployError, match="the record of launched apps"):
        RunIndex(tmp_path / "file" / "runs").add(entry())
    assert RunIndex(tmp_path / "file" / "runs").all() == []
    assert RunIndex(tmp_path / "file" / "runs").find("default:a", "volcano") is None


def test_state_lies_where_xdg_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)
    assert state_folder() == tmp_path / "torchx-pulumi"
    assert choose_backend() == own_backend() == f"file://{tmp_path}/torchx-pulumi/backend"
    monkeypatch.setenv("PULUMI_BACKEND_URL", "s3://b")
    assert choose_backend() == "s3://b"
    assert choose_backend("gs://c") == "gs://c"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert state_folder().is_absolute()


def test_the_index_has_no_password_and_the_engine_gets_it_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("PGPASSWORD", "PGPASSFILE", "PULUMI_BACKEND_URL"):
        monkeypatch.delenv(name, raising=False)
    stored = "postgres://me:***@db-1/state?sslmode=off&sslpassword=***"
    with pytest.raises(DeployError, match="without its credentials") as caught:
        backend_url(stored)
    assert "PULUMI_BACKEND_URL" in str(caught.value)
    whole = "postgres://me:p/w@hunter22@db-1/state?sslmode=off&sslpassword=hunter23"
    monkeypatch.setenv("PULUMI_BACKEND_URL", whole)
    index = RunIndex(tmp_path / "runs")
    mine = entry(place=StackRef(backend=choose_backend(), project="torchx", stack="s"))
    index.add(mine)
    assert mine.place.backend == stored
    assert "hunter" not in (index.folder / "volcano" / f"{mine.app_id}@{mine.cluster}.json").read_text()
    assert backend_url(stored) == whole
    assert "hunter" not in without_credentials('invalid port ":hunter22" after host, hunter23')


def test_postgresql_takes_the_password_from_its_own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_BACKEND_URL", "s3://b")
    monkeypatch.setenv("PGPASSWORD", "x")
    assert backend_url("postgres://me:***@db-2/s?sslmode=off&password=***") == "postgres://me@db-2/s?sslmode=off"
    assert backend_url("postgres://me:***@db-2/s?password=***&a=b") == "postgres://me@db-2/s?a=b"
    assert backend_url("s3://b") == "s3://b"


def test_stacks_of_different_apps_have_different_names() -> None:
    names = {
        stack_name(namespace, name, scheduler, cluster)
        for namespace in ("n" * 63, "a")
        for name in ("t" * 62 + "1", "t" * 62 + "2")
        for scheduler in ("volcano", "mcad")
        for cluster in ("1", "2")
    }
    assert len(names) == 16
    assert all(len(name) <= 100 for name in names)


OWNER = {"host": "h", "pid": 1, "started": ""}


@pytest.mark.parametrize(
    "damage",
    [
        {"owner": "x"},
        {"owner": {**OWNER, "lease_until": "soon"}},
        {"version": float("inf")},
        {"version": float("nan")},
        {"app_id": 5},
        {"app": None},
        {"pods": None},
        {"pods": {"a": 1}},
    ],
)
def test_an_entry_of_another_shape_is_named_and_leaves_the_other_apps_listed(
    index: RunIndex, damage: dict[str, Any]
) -> None:
    index.add(entry())
    index.add(entry("train-2"))
    path = index.folder / "volcano" / "default:train-1@c0ffee.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **damage}))
    with pytest.raises(DeployError, match=path.name):
        index.find("default:train-1", "volcano")
    assert index.all(problem=lambda _: None) == [entry("train-2")]


REPLICA = {"id": 0, "pod": "p", "state": "PREEMPTED", "reason": "new", "message": ""}


def test_a_replica_state_of_a_newer_release_is_unknown(index: RunIndex) -> None:
    index.add(entry())
    noted = observe(index, entry(), seen(JobState.RUNNING, roles=[{"name": "a", "replicas": [REPLICA]}]))
    assert index.noted(entry()) == noted
    assert status_of(noted.observed).roles[0].replicas[0].state is JobState.UNKNOWN


@pytest.mark.parametrize("replica", [5, {"id": 0}])
def test_a_damaged_replica_is_named_by_its_file(index: RunIndex, replica: Any) -> None:
    index.add(entry())
    observe(index, entry(), seen(JobState.RUNNING))
    (path,) = index.folder.glob("observed/*/*.json")
    path.write_text(
        json.dumps({"version": 1, "observed": seen(JobState.RUNNING, roles=[{"name": "a", "replicas": [replica]}])})
    )
    with pytest.raises(DeployError, match=path.name):
        index.observation(entry())


@pytest.mark.parametrize("where", ["volcano", "volcano/default:train-1@c0ffee.json"])
def test_an_index_that_cannot_be_read_is_not_empty(
    index: RunIndex, unreadable: Callable[[Path, int], None], where: str
) -> None:
    index.add(entry())
    unreadable(index.folder / where, errno.EACCES)
    with pytest.raises(DeployError, match="this user has no permission"):
        index.find("default:train-1", "volcano")
    with pytest.raises(DeployError, match="this user has no permission"):
        index.all()


def test_an_index_whose_folder_cannot_be_read_is_not_empty(
    index: RunIndex, unreadable: Callable[[Path, int], None]
) -> None:
    index.add(entry())
    unreadable(index.folder, errno.EIO)
    with pytest.raises(DeployError, match="cannot be read"):
        index.all()
