"""Archived logs are read by the queries of `logs`, attempt by attempt."""

from __future__ import annotations

import gzip
import io
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.logs.query import LogQuery, runs_of_pod
from torchx_pulumi.logs.reading import read_source
from torchx_pulumi.logs.resuming import StreamOptions
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.timestamps import format_time
from torchx_pulumi_fleet.archive import Archive, ArchivedLog, LogCopy

from tests.fleet.archive.clusters import PodCluster, archive_in, until_first_wait
from tests.fleet.archive.pods import FOLDER, JOB, UID, ended, pod, running, status
from tests.unit.logs.scripted import START, shown

S = 10**9
RETRY = "2026-01-01T01:00:00Z"


def lines(*texts: str) -> list[tuple[int, str]]:
    return [(number * S, text) for number, text in enumerate(texts)]


def archived(archive: Archive, found: dict[str, Any], *texts: str, previous: tuple[str, ...] = ()) -> None:
    """Archive all runs of a pod; each line gets the name of its container."""
    for ref in runs_of_pod(found):
        given = [f"{ref.container}: {text}" for text in (previous if ref.previous else texts)]
        cluster = PodCluster(lines=lines(*given), previous_lines=lines(*given), pod=found)
        LogCopy(cluster, archive, JOB, ref).make()


def read(archive: Archive, attempt: int | None = None, **options: Any) -> list[str]:
    log = ArchivedLog(archive, JOB.app_id, UID, "trainer", 0, attempt=attempt)
    query = LogQuery(namespace="default", pod=log.pod, **{"timestamps": False, **options})
    return [line.rstrip("\n") for line in read_source(log, query)]


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """Three attempts: a container that was restarted once, and then a second pod."""
    found = archive_in(tmp_path)
    restarted = status(
        state=ended("c2", code=1, started=RETRY), container_id="c2", restarts=1, last=ended("c1", code=1)
    )
    first = pod(
        statuses=[restarted, status("side", container_id="s1")],
        containers=("main", "side"),
        inits=[status("init", container_id="i1")],
    )
    archived(found, first, "second", previous=("first",))
    second = pod("train-trainer-0-0", uid="9b2c1f0a-0000-4000-8000-00000000000b", created=RETRY)
    archived(found, second, "third", "a", "b", "c", "d")
    return found


def test_the_last_attempt_is_read(archive: Archive) -> None:
    assert read(archive) == ["main: third", *(f"main: {text}" for text in "abcd")]


@pytest.mark.parametrize(("attempt", "found"), [(1, "main: first"), (2, "main: second"), (3, "main: third")])
def test_attempts_are_numbered_in_their_order(archive: Archive, attempt: int, found: str) -> None:
    assert read(archive, attempt)[0] == found


@pytest.mark.parametrize("attempt", [0, 4, -1])
def test_an_attempt_that_there_is_not_is_refused(archive: Archive, attempt: int) -> None:
    with pytest.raises(ClusterError, match=f"has 3 attempts of trainer/0 .* found {attempt}; allowed are 1 to 3"):
        read(archive, attempt)


def test_several_containers_are_merged(archive: Archive) -> None:
    assert read(archive, 2, containers="all") == [
        "[init] init: second",
        "[main] main: second",
        "[side] side: second",
    ]
    assert read(archive, 2, containers="main") == ["[main] main: second", "[side] side: second"]
    assert read(archive, 2, containers=("side",)) == ["side: second"]
    with pytest.raises(ClusterError, match="has no container 'none'"):
        read(archive, 2, containers=("none",))


def test_all_limits_of_a_query_apply(archive: Archive) -> None:
    assert read(archive, tail_lines=2) == ["main: c", "main: d"]
    assert read(archive, tail_lines=0) == []
    assert read(archive, tail_lines=10**20)[-1] == "main: d"
    assert read(archive, since=START + timedelta(seconds=3)) == ["main: c", "main: d"]
    assert read(archive, until=START + timedelta(seconds=1)) == ["main: third", "main: a"]
    assert read(archive, regex="[bc]$") == ["main: b", "main: c"]
    assert read(archive, timestamps=True, regex="third") == [shown((0, "main: third")).rstrip("\n")]


def test_a_replica_without_a_log_is_an_error_that_names_the_archive(archive: Archive) -> None:
    with pytest.raises(ClusterError, match=r"has no log of trainer/1 of app default:train") as raised:
        ArchivedLog(archive, JOB.app_id, UID, "trainer", 1)
    assert raised.value.reason == "NotFound"
    assert archive.name in str(raised.value)


def test_a_role_is_found_by_its_name_as_the_user_wrote_it(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    archived(archive, pod(role="my.role"), "a")
    assert ArchivedLog(archive, JOB.app_id, UID, "my/role", 0).attempt == 1


def test_the_note_says_which_attempt_and_what_is_missing(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    found = pod(statuses=[status(state=running())])
    (ref,) = runs_of_pod(found)
    cluster = PodCluster(lines=lines(*(["x" * 50] * 100)), pod=found)
    run = LogCopy(cluster, archive, JOB, ref, limit_bytes=1000, stop=until_first_wait()).make()
    assert ArchivedLog(archive, JOB.app_id, UID, "trainer", 0).note == (
        f"read from the archive {archive.name}: copied at {format_time(run.copied_at)}; container main: copied "
        "before its end, which is missing, and 7,216 of its 8,200 bytes were left out, at the line that says so"
    )


def test_a_line_of_100_mb_is_returned_in_parts(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    archived(archive, pod(), "a")
    (key,) = archive.index()
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb") as file:
        file.write(shown((0, "")).encode().rstrip(b"\n"))
        for _ in range(100):
            file.write(b"x" * 2**20)
        file.write(b"\nlast\n")
    packed.seek(0)
    archive._store.upload(key.log, packed)
    cluster = ArchivedLog(archive, JOB.app_id, UID, "trainer", 0)
    parts = [len(part) for part in cluster.open("main", StreamOptions())]
    assert max(parts) <= 2**20
    assert sum(parts) == len(shown((0, ""))) + 100 * 2**20 + 5
    assert [*cluster.open("main", StreamOptions(tail_lines=1))] == ["last\n"]


def test_the_note_says_that_the_node_may_have_removed_the_first_lines(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    late = [(number * S + 5 * S, "x" * 1000) for number in range(100)]
    LogCopy(PodCluster(lines=late, pod=pod()), archive, JOB, runs_of_pod(pod())[0]).make()
    cluster = ArchivedLog(archive, JOB.app_id, UID, "trainer", 0)
    assert "; container main: its first line is 5 s younger than the container, whose node may have" in cluster.note
    archived(archive, pod(uid="9b2c1f0a-0000-4000-8000-00000000000b", created=RETRY), *("x" * 1000 for _ in range(100)))
    assert "younger" not in ArchivedLog(archive, JOB.app_id, UID, "trainer", 0).note


def test_a_replica_is_read_without_a_listing_of_the_whole_job(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, listed = archive.index, list[str]()
    monkeypatch.setattr(archive, "index", lambda folder: listed.append(folder) or index(folder))
    archived(archive, pod("other", role="trainer-1", uid="9b2c1f0a-0000-4000-8000-00000000000c"), "other")
    archived(archive, pod("other", replica=10, uid="9b2c1f0a-0000-4000-8000-00000000000d"), "other")
    assert read(archive)[0] == "main: third"
    assert listed == [f"{FOLDER}/trainer/0"]
