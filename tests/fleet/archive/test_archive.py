"""Archives in folders: files, concurrent writers, damage, full disks."""

from __future__ import annotations

import errno
import gzip
import io
import os
import threading
import time
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.storage.stores import FolderStore
from torchx_pulumi_fleet.archive import Archive, ArchivedRun, LogCopy
from torchx_pulumi_fleet.archive.archive import job_folder, key_of_run, newest_copies

from tests.fleet.archive.clusters import PodCluster, archive_in, archived_text, only_run
from tests.fleet.archive.pods import FOLDER, JOB, UID, archived_run, pod

REF = only_run(pod())
KEY = key_of_run(FOLDER, REF)
REPLICA = f"{FOLDER}/{REF.role}/{REF.replica}"


def record(*, restarts: int = 0, **values: Any) -> ArchivedRun:
    return archived_run(replace(REF, restarts=restarts), datetime(2026, 1, 1, tzinfo=timezone.utc), **values)


def packed(text: str) -> io.BytesIO:
    return io.BytesIO(gzip.compress(text.encode()))


def test_files_and_folders_are_for_their_owner_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        archive_in(tmp_path).write(record(), packed("a\n"))
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_dir()}
    assert modes == {0o700}
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert sorted(path.suffix for path in files) == [".gz", ".json"]


def test_an_incomplete_copy_never_replaces_a_complete_one(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    archive.write(record(), packed("whole\n"))
    archive.write(record(complete=False, size=10**6), packed("part\n"))
    assert archived_text(archive) == "whole\n"
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 2


def test_concurrent_writers_of_one_run_leave_the_complete_copy(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)

    def write(number: int) -> None:
        complete = number % 2 == 0
        archive.write(record(complete=complete, size=number), packed("whole\n" if complete else f"part {number}\n"))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert archived_text(archive) == "whole\n"
    assert [*tmp_path.rglob("*.tmp")] == []


def test_a_log_without_its_record_does_not_count(tmp_path: Path) -> None:
    class Killed(FolderStore):
        def upload(self, path: str, source: Any) -> None:
            if path.endswith(".json"):
                raise KeyboardInterrupt
            super().upload(path, source)

    with pytest.raises(KeyboardInterrupt):
        Archive(lambda: Killed(tmp_path), "logs").write(record(), packed("a\n"))
    archive = Archive(lambda: FolderStore(tmp_path), "logs")
    assert archive.index(FOLDER) == []
    archive.write(record(), packed("b\n"))
    assert archived_text(archive) == "b\n"


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b"[" * 200_000, b'{"version": 99}', b'{"version": 1}', b"\xff\xfe"]
)
def test_a_damaged_record_is_left_out_and_the_others_are_read(
    tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    archive = archive_in(tmp_path)
    archive.write(record(), packed("a\n"))
    bad = replace(KEY, restarts=1)
    (tmp_path / "logs" / bad.record).write_bytes(damage)
    found = archive.read(archive.index(FOLDER))
    assert [run.key for run in found] == [KEY]
    assert bad.record in caplog.text
    # It is not archived, so that a copy replaces it.
    LogCopy(PodCluster(pod=pod()), archive, JOB, replace(REF, restarts=1, container_id=None)).make()
    assert len(archive.read(archive.index(FOLDER))) == 2


def test_a_damaged_log_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    archive.write(record(), io.BytesIO(packed("a\n" * 10**5).getvalue()[:-20]))
    with pytest.raises(ClusterError, match=rf"{KEY.log} is damaged"):
        [*archive.lines(KEY)]
    (tmp_path / "logs" / KEY.log).unlink()
    with pytest.raises(ClusterError, match="does not exist, although its record does"):
        [*archive.lines(KEY)]


def test_a_full_disk_is_an_error_with_its_number_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as raised:
        LogCopy(PodCluster(pod=pod()), archive := archive_in(tmp_path), JOB, REF).make()
    assert raised.value.errno == errno.ENOSPC
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    monkeypatch.undo()
    LogCopy(PodCluster(pod=pod()), archive, JOB, REF).make()
    assert len(archive.index()) == 1


def test_a_read_only_folder_is_a_permission_error(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file")
    with pytest.raises(OSError, match=r"Not a directory|File exists"):
        archive_in(tmp_path).check_writable()
    assert archive_in(tmp_path).index() == []


def test_temporary_files_of_killed_writers_are_removed_later(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    archive.write(record(), packed("a\n"))
    old, young = (tmp_path / "logs" / REPLICA / name for name in (".old.tmp", ".young.tmp"))
    for path in (old, young):
        path.write_text("")
    os.utime(old, (time.time() - 7200,) * 2)
    archive.write(record(restarts=1), packed("a\n"))
    assert (old.exists(), young.exists()) == (False, True)
    assert len(newest_copies(archive.index())) == 2


def archived(archive: Archive, *, app_id: str = JOB.app_id, uid: str = UID) -> str:
    """Archive a complete and an incomplete run of a job, and return its folder."""
    for number, complete in ((0, True), (1, False)):
        archive.write(record(app_id=app_id, uid=uid, restarts=number, complete=complete), packed("x\n"))
    return job_folder(app_id, uid)


def files_in(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def test_all_logs_of_a_job_are_removed_and_none_of_another(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    others = [{"uid": f"{UID}0"}, {"uid": "other"}, {"app_id": "team-2:app"}, {"app_id": f"{JOB.app_id}-2"}]
    folders = [archived(archive, **other) for other in others]
    before = files_in(tmp_path)
    mine = archived(archive)
    assert archive.remove(mine) == 2
    assert files_in(tmp_path) == before
    assert not (tmp_path / "logs" / mine).exists()
    assert archive.remove(mine) == 0
    assert [archive.remove(folder) for folder in folders] == [2] * len(others)
    assert list((tmp_path / "logs").iterdir()) == []


def test_a_file_that_no_archive_writes_stays(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    mine = archived(archive)
    notes = tmp_path / "logs" / REPLICA / "notes.json"
    notes.write_text("{}")
    (tmp_path / "logs" / mine / "thesis.log.gz").write_text("years of work")
    assert archive.remove(mine) == 2
    assert files_in(tmp_path) == {notes, tmp_path / "logs" / mine / "thesis.log.gz"}


def test_a_removal_that_stops_anywhere_shows_no_record_without_its_log_and_is_completed(tmp_path: Path) -> None:
    class Stopping(FolderStore):
        left = 0

        def remove(self, path: str) -> None:
            self.left -= 1
            if self.left < 0:
                raise OSError(errno.EIO, "the disk is gone")
            super().remove(path)

    for removals in range(4):
        storage = Stopping(tmp_path)
        storage.left = 10
        archive = Archive(lambda storage=storage: storage, "archive")
        mine = archived(archive)
        storage.left = removals
        with pytest.raises(OSError, match="disk"):
            archive.remove(mine)
        storage.left = 100
        assert all("".join(archive.lines(key)) for key in archive.index(mine))
        archive.remove(mine)
        assert files_in(tmp_path) == set()
