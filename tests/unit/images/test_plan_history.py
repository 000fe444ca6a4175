from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.images.plan import ImagePlan
from torchx_pulumi.images.plan_history import changes_of, note_plan
from torchx_pulumi.images.planning import plan_patch

from tests.unit.images.fake_registry import FakeRegistry

BASE = "busybox@sha256:" + "b" * 64


@pytest.fixture
def folder(workspace: Path) -> Path:
    (workspace / "lib").mkdir()
    (workspace / "lib" / "a.py").write_text("a\n")
    (workspace / "link").symlink_to("train.py")
    return workspace


def planned(folder: Path, base: str = BASE, **options: Any) -> ImagePlan:
    plan = plan_patch(base, str(folder), "127.0.0.1:1/team/app", builder="docker", **options)
    note_plan(plan, str(folder))
    return plan


def caches(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "torchx-pulumi" / "plans").iterdir())


def test_the_first_plan_is_compared_with_nothing(folder: Path) -> None:
    assert changes_of(planned(folder), str(folder)) is None


def test_files_that_changed_the_tag_are_named_and_again_after_more_plans(folder: Path) -> None:
    first = planned(folder)
    (folder / "train.py").write_text("print('two')\n")
    (folder / "lib" / "a.py").chmod(0o755)
    (folder / "new.py").write_text("")
    (folder / "link").unlink()
    for _ in range(3):
        changes = changes_of(planned(folder), str(folder))
        assert changes is not None
        assert changes.tag == first.tag
        assert (changes.added, changes.changed, changes.removed) == (["new.py"], ["lib/a.py", "train.py"], ["link"])
        assert (changes.bases, changes.dockerfile, changes.build_args, changes.platform) == (None, False, [], None)


def test_an_undone_change_is_compared_with_what_was_undone(folder: Path) -> None:
    first = planned(folder)
    (folder / "train.py").write_text("print('two')\n")
    second = planned(folder)
    (folder / "train.py").write_text("print('one')\n")
    third = planned(folder)
    changes = changes_of(third, str(folder))
    assert third.tag == first.tag
    assert changes is not None
    assert (changes.tag, changes.changed) == (second.tag, ["train.py"])


def test_a_plan_that_was_not_noted_is_compared_with_the_last_one(folder: Path) -> None:
    planned(folder)
    before = caches(folder.parent)[0].read_text()
    plan = plan_patch(BASE, str(folder), "127.0.0.1:1/team/app", builder="docker", platform="linux/s390x")
    caches(folder.parent)[0].write_text(before)
    changes = changes_of(plan, str(folder))
    assert changes is not None
    assert changes.platform is not None
    assert changes.platform[1] == "linux/s390x"


def test_arguments_are_named_and_their_values_are_in_no_file(folder: Path) -> None:
    planned(folder, build_args={"TOKEN": "s3cr3t-one", "KEPT": "x", "GONE": "y"})
    plan = planned(folder, build_args={"TOKEN": "s3cr3t-two", "KEPT": "x", "NEW": "z"})
    changes = changes_of(plan, str(folder))
    assert changes is not None
    assert changes.build_args == ["GONE", "NEW", "TOKEN"]
    assert not changes.changed
    for file in caches(folder.parent):
        assert "s3cr3t" not in file.read_text()
        assert file.stat().st_mode & 0o077 == 0


def test_the_dockerfile_labels_and_base_are_told(folder: Path, registry: FakeRegistry) -> None:
    registry.digests["base:1"] = "sha256:" + "1" * 64
    base = f"{registry.host}/base:1"
    planned(folder, base)
    registry.digests["base:1"] = "sha256:" + "2" * 64
    (folder / "Dockerfile.torchx").write_text("ARG IMAGE\nFROM $IMAGE\nCOPY . /app/\n")
    plan = planned(folder, base, labels={"team": "a"})
    changes = changes_of(plan, str(folder))
    assert changes is not None
    assert changes.bases == {base: ("sha256:" + "1" * 64, "sha256:" + "2" * 64)}
    assert changes.dockerfile
    assert changes.labels
    assert changes.added == ["Dockerfile.torchx"]


def test_other_bases_repositories_and_folders_are_not_compared(folder: Path) -> None:
    planned(folder)
    (folder / "train.py").write_text("print('two')\n")
    assert changes_of(planned(folder, "busybox@sha256:" + "c" * 64), str(folder)) is None


def test_an_unchanged_workspace_writes_nothing(folder: Path, tmp_path: Path) -> None:
    planned(folder)
    (file,) = caches(tmp_path)
    os.utime(file, ns=(1, 1))
    planned(folder)
    assert file.stat().st_mtime_ns == 1
    assert caches(tmp_path) == [file]


@pytest.mark.parametrize("text", ["", "[]", "{}\n{}", '{"version": 9}\n{}', '{"version": 1}\n', "\xff"])
def test_a_damaged_file_is_as_none(folder: Path, tmp_path: Path, text: str) -> None:
    plan = planned(folder)
    (file,) = caches(tmp_path)
    file.write_bytes(text.encode("latin-1"))
    (folder / "train.py").write_text("print('two')\n")
    other = plan_patch(BASE, str(folder), plan.repository, builder="docker")
    file.write_bytes(text.encode("latin-1"))
    assert changes_of(other, str(folder)) is None


def test_names_of_any_encoding_are_compared(folder: Path, tmp_path: Path) -> None:
    planned(folder)
    (Path(os.fsdecode(os.fsencode(folder) + b"/\xff.py"))).write_text("")
    changes = changes_of(planned(folder), str(folder))
    assert changes is not None
    assert list(map(os.fsencode, changes.added)) == [b"\xff.py"]
    assert all(json.loads(line) is not None for file in caches(tmp_path) for line in file.read_text().splitlines())


def test_a_cache_that_cannot_be_written_is_no_error(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "cache" / "torchx-pulumi").mkdir(parents=True)
    (tmp_path / "cache" / "torchx-pulumi" / "plans").write_text("a file")
    assert changes_of(planned(folder), str(folder)) is None
