"""Archived logs on a real S3 server: large ones in parts, 1,000 runs in few requests, errors as OSError."""

from __future__ import annotations

import random
from typing import Any

import pytest
from aiobotocore.httpsession import AIOHTTPSession
from torchx_pulumi.logs.query import LogQuery
from torchx_pulumi.logs.reading import read_source
from torchx_pulumi.storage.stores import UPLOAD_BYTES
from torchx_pulumi_fleet.archive import Archive, ArchivedLog, LogCopy, open_archive
from torchx_pulumi_fleet.archive.archive import newest_copies

from tests.fleet.archive.clusters import PodCluster, only_run
from tests.fleet.archive.pods import FOLDER, JOB, UID, pod
from tests.s3_server import S3Backend

pytestmark = pytest.mark.e2e

S = 10**9
RUNS = 1000


@pytest.fixture
def archive(s3_backend: S3Backend, monkeypatch: pytest.MonkeyPatch) -> Archive:
    for name, value in s3_backend.env.items():
        monkeypatch.setenv(name, value)
    return open_archive(s3_backend.url.replace("s3://state?", "s3://state/team/logs?"))


def test_logs_are_written_listed_and_read(archive: Archive, s3_backend: S3Backend) -> None:
    archive.check_writable()
    lines = [(number * S // 10, f"line {number}") for number in range(100)]
    LogCopy(PodCluster(lines=lines, pod=pod()), archive, JOB, only_run(pod())).make()
    found = ArchivedLog(archive, JOB.app_id, UID, "trainer", 0)
    query = LogQuery(namespace="default", pod=found.pod, timestamps=False, tail_lines=2)
    assert [*read_source(found, query)] == ["line 98\n", "line 99\n"]
    paths = [path.relative_to(s3_backend.bucket).as_posix() for path in s3_backend.bucket.rglob("*") if path.is_file()]
    assert [path.partition(UID)[0] for path in paths] == ["team/logs/default/train/"] * 2


@pytest.mark.extended
def test_a_large_log_is_uploaded_in_parts(archive: Archive, s3_backend: S3Backend) -> None:
    made = random.Random(1)
    lines = [(number * 10**6, made.randbytes(1000).hex()) for number in range(20_000)]
    LogCopy(PodCluster(lines=lines, pod=pod()), archive, JOB, only_run(pod())).make()
    (key,) = newest_copies(archive.index(FOLDER))
    assert (s3_backend.bucket / "team/logs" / key.log).stat().st_size > 2 * UPLOAD_BYTES
    assert [line.split()[1] for line in archive.lines(key)] == [text for _, text in lines]


def test_1000_runs_are_listed_in_few_requests(
    archive: Archive, s3_backend: S3Backend, monkeypatch: pytest.MonkeyPatch, record_property: Any
) -> None:
    first = only_run(pod())
    LogCopy(PodCluster(lines=[(S, "a")], pod=pod()), archive, JOB, first).make()
    (key,) = archive.index()
    folder = s3_backend.bucket / "team/logs"
    for number in range(1, RUNS):
        for path in (folder / key.log, folder / key.record):
            (path.parent / path.name.replace("-0-main", f"-{number}-main")).write_bytes(path.read_bytes())
    asked: list[str] = []
    original = AIOHTTPSession.send

    async def count(self: Any, request: Any) -> Any:
        asked.append(f"{request.method} {request.url}")
        return await original(self, request)

    monkeypatch.setattr(AIOHTTPSession, "send", count)
    assert len(archive.index(FOLDER)) == RUNS
    record_property("requests", len(asked))
    assert len(asked) <= 5


def test_a_server_that_is_gone_is_an_os_error(
    s3_backend: S3Backend, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = open_archive(s3_backend.url.replace(s3_backend.endpoint, "http://127.0.0.1:9"))
    with pytest.raises(OSError, match=r"127\.0\.0\.1:9"):
        gone.check_writable()
    absent = open_archive(s3_backend.url.replace("s3://state", "s3://absent"))
    with pytest.raises(OSError, match=r"(?i)bucket"):
        absent.check_writable()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    denied = open_archive(s3_backend.url)
    with pytest.raises(PermissionError):
        denied.check_writable()
