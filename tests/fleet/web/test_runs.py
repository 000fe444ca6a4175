"""The history of an app's runs: attempts numbered as logs are, updates of the stack, limits, and unreadable parts."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.logs.waiting import LogStop
from torchx_pulumi.stack_state.stacks import StackName, read_updates
from torchx_pulumi.storage.stores import FolderStore
from torchx_pulumi_fleet.archive import Archive, open_archive
from torchx_pulumi_fleet.archive.archive_rules import ArchiveRules
from torchx_pulumi_fleet.web import attempts
from torchx_pulumi_fleet.web.archives import KnownArchives
from torchx_pulumi_fleet.web.logs import LiveLogs, LogRequest
from torchx_pulumi_fleet.web.runs import RunHistory

from tests.fleet.archive.pods import UID, ended, pod, running, status
from tests.fleet.web.nodes import FastClock, Log, Site
from tests.fleet.web.test_logs import archive
from tests.fleet.writer.live_apps import changed

EARLIER = "11111111-0000-4000-8000-000000000001"
SECOND = "2026-01-01T01:00:00Z"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(backend=f"file://{tmp_path}/backend")
    with made.watched():
        made.put_job()
        yield made


def history(site: Site, url: str | None = None, **options: Any) -> dict[str, Any]:
    return RunHistory(lambda _app: site.view, KnownArchives(ArchiveRules(own=url)), **options).of(site.live)


def numbered(run: dict[str, Any]) -> list[tuple[Any, ...]]:
    names = ("attempt", "container", "exit_code", "running", "archived", "complete")
    return [tuple(item[name] for name in names) for item in run["attempts"]]


def test_attempts_of_pods_and_archive_have_the_numbers_by_which_their_logs_are_read(site: Site, tmp_path: Path) -> None:
    archive(tmp_path, pod(statuses=[status(state=ended("c1", code=1))]), "first")
    second = status(state=running(), container_id="c2", restarts=1, last=ended("c1", code=1))
    url = archive(tmp_path, pod(uid="9b2c1f0a-0000-4000-8000-00000000000f"), "of the earlier run", uid=EARLIER)
    site.put_pod(pod(statuses=[second]), Log("second"))
    present, earlier = history(site, url)["runs"]
    assert numbered(present) == [(2, "main", None, True, False, None), (1, "main", 1, False, True, True)]
    assert numbered(earlier) == [(1, "main", 0, False, True, True)]
    named = {name: present[name] for name in ("uid", "current", "archived", "state", "reason", "attempt", "omitted")}
    assert named == {
        "uid": UID,
        "current": True,
        "archived": True,
        "state": "RUNNING",
        "reason": "Running",
        "attempt": 1,
        "omitted": 0,
    }
    assert (earlier["uid"], earlier["current"], earlier["state"]) == (EARLIER, False, None)
    assert (earlier["started_at"], earlier["finished_at"]) == ("2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z")
    logs = LiveLogs(lambda _app: site.view, site.fleet.find, KnownArchives(ArchiveRules(own=url)), clock=FastClock())
    for run, text in ((present, {2: "second", 1: "first 0"}), (earlier, {1: "of the earlier run 0"})):
        for item in run["attempts"]:
            names = {name: item[name] for name in ("role", "replica", "attempt", "container")}
            lines = logs.open(site.live, LogRequest(**names, run=run["uid"], timestamps=False), LogStop())
            assert [*lines][-1] == f"{text[item['attempt']]}\n"


def test_containers_of_a_pod_are_listed_once_each(site: Site) -> None:
    second = status(state=running(), container_id="c2", restarts=1, last=ended("c1", code=1))
    inits = [status("init", container_id="i1")]
    site.put_pod(pod(statuses=[second, status("side", running())], containers=("main", "side"), inits=inits))
    (run,) = history(site)["runs"]
    assert [(item["attempt"], item["container"], item["init"], item["default"]) for item in run["attempts"]] == [
        (2, "init", True, False),
        (2, "main", False, True),
        (2, "side", False, False),
        (1, "main", False, True),
    ]


def test_a_pod_whose_main_container_has_not_started_has_no_attempt_yet(site: Site) -> None:
    waits = {"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}
    site.put_pod(pod(statuses=[waits], inits=[status("init", running())]))
    assert history(site)["runs"][0]["attempts"] == []


def test_the_newest_attempts_are_listed_with_their_numbers_where_there_are_too_many(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for restarts in range(5):
        found = status(state=ended(f"c{restarts}"), container_id=f"c{restarts}", restarts=restarts)
        url = archive(tmp_path, pod(statuses=[found]), "x")
    archive(tmp_path, pod("train-trainer-0-1", uid="9b2c1f0a-0000-4000-8000-00000000000e", replica=1), "x")
    monkeypatch.setattr(attempts, "MOST_ATTEMPTS", 2)
    (run,) = history(site, url)["runs"]
    assert [(item["replica"], item["attempt"]) for item in run["attempts"]] == [(0, 5), (0, 4)]
    assert run["omitted"] == 4


class Counting(FolderStore):
    """Counts the records that are read."""

    reads = 0

    def read_bytes(self, path: str) -> bytes | None:
        self.reads += 1
        return super().read_bytes(path)


def test_the_record_of_a_complete_copy_is_read_once(site: Site, tmp_path: Path) -> None:
    archive(tmp_path, pod(), "x")
    still = pod(
        "train-trainer-0-1", uid="9b2c1f0a-0000-4000-8000-00000000000e", replica=1, statuses=[status(state=running())]
    )
    archive(tmp_path, still, "x")
    storage = Counting(tmp_path / "logs")
    archives = KnownArchives(ArchiveRules(own="s3://logs"), opened=lambda url: Archive(lambda: storage, url))
    runs = RunHistory(lambda _app: site.view, archives, kept_s=0)
    first = runs.of(site.live)["runs"]
    assert (storage.reads, [item["complete"] for item in first[0]["attempts"]]) == (2, [True, False])
    assert runs.of(site.live)["runs"] == first
    assert storage.reads == 3


class Broken(FolderStore):
    def paths(self, folder: str) -> list[str]:
        raise OSError(5, "input/output error")


def test_an_archive_that_cannot_be_read_is_a_note_and_hides_nothing_else(site: Site, tmp_path: Path) -> None:
    site.put_pod(pod())
    site.fleet.put_stack(changed(site.app, log_archive="ftp://host/logs"))
    archives = KnownArchives(
        ArchiveRules(own="s3://logs", allowed=["ftp://host/logs"]), opened=lambda url: _opened(url, tmp_path)
    )
    found = RunHistory(lambda _app: site.view, archives).of(site.live)
    assert numbered(found["runs"][0]) == [(1, "main", 0, False, False, None)]
    assert "found 'ftp://host/logs'" in found["notes"][0]
    assert found["notes"][1:] == ["the archive s3://logs cannot be read: [Errno 5] input/output error"]


def _opened(url: str, folder: Path) -> Archive:
    return open_archive(url) if url.startswith("ftp:") else Archive(lambda: Broken(folder), url)


def test_pods_that_cannot_be_read_are_a_note_and_hide_nothing_else(tmp_path: Path) -> None:
    site = Site(backend=f"file://{tmp_path}/backend")
    site.cluster.denied.add(("list", POD))
    found = history(site, archive(tmp_path, pod(), "x"))
    assert numbered(found["runs"][0]) == [(1, "main", 0, False, True, True)]
    assert [note.partition(":")[0] for note in found["notes"]] == ["its pods cannot be read"]


def write_update(folder: Path, at: int, *, stack: str = "train", packed: bool = False, **changes: Any) -> None:
    value = {
        "kind": "update",
        "startTime": at,
        "message": "",
        "environment": {"secret": "s3cr3t"},
        "config": {"token": {"secure": "s3cr3t"}},
        "result": "succeeded",
        "endTime": at + 1,
        **changes,
    }
    data = json.dumps(value).encode()
    target = folder / f".pulumi/history/torchx/{stack}/{stack}-{at * 10**9}.history.json{'.gz' if packed else ''}"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(data) if packed else data)


def test_the_updates_of_a_stack_are_those_of_pulumis_history_without_its_values(site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "backend"
    write_update(folder, 1_700_000_000, message="first")
    write_update(folder, 1_700_000_100, kind="refresh", result="failed", packed=True)
    write_update(folder, 1_700_000_200, stack="another")
    found = history(site)["updates"]
    assert found == [
        {
            "kind": "refresh",
            "result": "failed",
            "started_at": "2023-11-14T22:15:00Z",
            "finished_at": "2023-11-14T22:15:01Z",
            "message": "",
        },
        {
            "kind": "update",
            "result": "succeeded",
            "started_at": "2023-11-14T22:13:20Z",
            "finished_at": "2023-11-14T22:13:21Z",
            "message": "first",
        },
    ]


def test_the_last_updates_are_read_and_damaged_ones_are_left_out(tmp_path: Path) -> None:
    for number in range(1, 25):
        write_update(tmp_path, number, stack="a-1", message=str(number))
    folder = tmp_path / ".pulumi/history/torchx/a-1"
    (folder / f"a-1-{30 * 10**9}.history.json").write_text("{")
    (folder / f"a-1-{31 * 10**9}.history.json").write_text("[]")
    (folder / f"a-1-{32 * 10**9}.checkpoint.json").write_text("{}")
    name = StackName(project="torchx", stack="a-1")
    assert [update.message for update in read_updates(FolderStore(tmp_path), name, 12)] == [
        str(number) for number in range(24, 14, -1)
    ]
    assert read_updates(FolderStore(tmp_path / "absent"), name, 12) == []


def test_readers_share_what_was_read_until_the_app_is_launched_again(site: Site, tmp_path: Path) -> None:
    shared = RunHistory(lambda _app: site.view, KnownArchives(ArchiveRules(own=str(tmp_path / "logs"))), kept_s=60)
    assert shared.of(site.live)["runs"][0]["archived"] is False
    archive(tmp_path, pod(), "x")
    assert shared.of(site.live)["runs"][0]["archived"] is False
    site.fleet.put_stack(changed(site.app, uid="another"))
    assert [(run["uid"], run["archived"]) for run in shared.of(site.live)["runs"]] == [
        ("another", False),
        (UID, True),
    ]
