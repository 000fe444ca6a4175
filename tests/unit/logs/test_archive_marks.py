"""A launch that names an archive is told if no controller copies the logs of its namespace there."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from torchx_pulumi.logs.archive_marks import LASTS, find_no_writer, mark_path
from torchx_pulumi.storage import stores
from torchx_pulumi_fleet.archive import open_archive

NOW = datetime(2026, 6, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("namespaces", "age", "why"),
    [
        (["team"], timedelta(), None),
        (["other", "team"], timedelta(), None),
        ([], timedelta(), None),
        # The clock of the controller's machine is ahead.
        (["team"], -timedelta(minutes=5), None),
        (["team"], LASTS, "no controller copies logs of namespace team there since 2026-05-31T23:45:00Z, so"),
        (["other"], timedelta(), "no controller copies logs of namespace team there, so they go with their pods"),
        (None, timedelta(), "whether a controller copies logs there is not known: there is no folder "),
    ],
)
def test_a_controller_of_the_namespace_has_been_there_lately(
    tmp_path: Path, namespaces: Sequence[str] | None, age: timedelta, why: str | None
) -> None:
    archive = open_archive(str(tmp_path / "logs"))
    if namespaces is not None:
        archive.mark(namespaces, NOW - age)
    found = find_no_writer(str(tmp_path / "logs"), "team", NOW)
    assert (found or "").startswith("" if why is None else f"log_archive '{tmp_path}/logs': {why}")
    assert (found is None) == (why is None)
    assert archive.index() == [], "a mark is no log"


def test_a_launch_that_names_the_archive_in_another_form_is_told_which_counts(tmp_path: Path) -> None:
    url = f"file://{tmp_path}?x=1"
    open_archive(str(tmp_path)).mark(["team"], NOW, [str(tmp_path)])
    assert find_no_writer(f"file://{tmp_path}", "team", NOW) is None
    open_archive(str(tmp_path)).mark(["team"], NOW, ["s3://logs?region=eu"])
    assert "copies logs there allows 's3://logs?region=eu', and the whole URL counts" in str(
        find_no_writer(url, "team", NOW)
    )
    assert "s3" not in str(find_no_writer(url, "team", NOW, secret=True))
    open_archive(str(tmp_path)).mark([], NOW)
    assert find_no_writer(url, "team", NOW) is None, "another controller takes any"


def test_marks_in_a_folder_are_for_all_who_may_enter_the_archive(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        open_archive(str(tmp_path)).mark(["team"], NOW)
    finally:
        os.umask(before)
    file = tmp_path / mark_path("team")
    assert [path.stat().st_mode & 0o777 for path in (file.parent, file)] == [0o755, 0o644]


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"written_at": 1e999}', '{"written_at": "soon"}'])
def test_a_damaged_mark_is_none(tmp_path: Path, content: str) -> None:
    file = tmp_path / mark_path("team")
    file.parent.mkdir()
    file.write_text(content)
    assert "no controller copies logs of namespace team there, so" in str(find_no_writer(str(tmp_path), "team", NOW))


def test_an_archive_that_cannot_be_read_says_nothing_of_controllers(
    tmp_path: Path, unreadable: Callable[[Path, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    unreadable(tmp_path / mark_path("team"), errno.EACCES)
    assert "whether a controller copies logs there is not known: " in str(find_no_writer(str(tmp_path), "team", NOW))
    monkeypatch.setattr(stores.importlib, "import_module", _absent)
    assert find_no_writer("s3://logs", "team", NOW) == (
        "log_archive 's3://logs': whether a controller copies logs there is not known: it cannot be read here without "
        "the package of `torchx-pulumi[s3]`"
    )


def _absent(name: str) -> None:
    raise ImportError(name)
