import errno
import gzip
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.errors import DeployError
from torchx_pulumi_stacks.automation.state_file import (
    Checkpoint,
    FileStack,
    backend_refused,
    stack_names,
)


@pytest.fixture
def stack(make_order: Callable[..., Any], tmp_path: Path) -> FileStack:
    return FileStack(tmp_path / "backend", make_order().entry.place)


def lock(stack: FileStack, pid: int, host: str = "", when: str = "2026-01-01T00:00:00.123456789Z") -> Path:
    folder = stack.path.parents[2] / "locks/organization/torchx/default.train-1"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{pid}.json"
    value = {"pid": pid, "username": "me", "hostname": host or socket.gethostname(), "timestamp": when}
    path.write_text(json.dumps(value))
    return path


def test_a_seed_is_an_empty_stack_of_the_new_layout(stack: FileStack, tmp_path: Path) -> None:
    assert not stack.exists()
    stack.seed()
    assert stack.exists()
    assert (tmp_path / "backend/.pulumi/meta.yaml").read_text() == "version: 1\n"
    checkpoint = stack.read()
    assert checkpoint is not None
    assert (list(checkpoint.resources), list(checkpoint.objects())) == ([], [])
    assert stack_names(tmp_path / "backend", "torchx") == ["default.train-1"]
    with pytest.raises(FileExistsError):
        stack.seed()
    assert list((tmp_path / "backend").rglob("*.tmp")) == []


def test_a_state_may_be_compressed(stack: FileStack, tmp_path: Path) -> None:
    stack.path.parent.mkdir(parents=True)
    text = json.dumps({"version": 3, "checkpoint": {"latest": {"resources": [{"type": "a"}]}}})
    stack.path.with_name(f"{stack.path.name}.gz").write_bytes(gzip.compress(text.encode()))
    checkpoint = stack.read()
    assert checkpoint is not None
    assert len(checkpoint.resources) == 1
    assert stack_names(tmp_path / "backend", "torchx") == ["default.train-1"]


def test_a_state_that_is_none_is_refused(stack: FileStack) -> None:
    stack.path.parent.mkdir(parents=True)
    stack.path.write_text("{")
    with pytest.raises(DeployError, match="cannot be read"):
        stack.read()


def test_locks_that_are_known_to_be_dead_are_cleared_and_others_stay(stack: FileStack) -> None:
    stack.seed()
    mine, dead = lock(stack, os.getpid()), lock(stack, 2**22 + 1)
    far = lock(stack, 7, host="elsewhere")
    stay = stack.clear_locks(lambda lock: lock.pid == 2**22 + 1)
    assert sorted(str(item.path) for item in stay) == sorted(map(str, [mine, far]))
    assert not dead.exists()
    assert "elsewhere" in " ".join(map(str, stay))


def test_attributes_cut_off_by_a_kill_are_removed(stack: FileStack) -> None:
    stack.seed()
    broken = stack.path.with_name(f"{stack.path.name}.attrs")
    whole = stack.path.with_name(f"{stack.path.name}.bak.attrs")
    broken.write_text("")
    whole.write_text("{}")
    stack.clear_locks(lambda _: False)
    assert (broken.exists(), whole.exists()) == (False, True)


def test_sweeping_keeps_the_state_unless_told_otherwise(stack: FileStack, tmp_path: Path) -> None:
    stack.seed()
    for name in ("history", "backups"):
        folder = tmp_path / "backend/.pulumi" / name / "torchx/default.train-1"
        folder.mkdir(parents=True)
        (folder / "x.json").write_text("{}")
    stack.path.with_name(f"{stack.path.name}.bak").write_text("{}")
    stack.sweep(state=False)
    assert stack.exists()
    stack.sweep(state=True)
    assert list((tmp_path / "backend").rglob("*train-1*")) == []
    stack.sweep(state=True)


def test_objects_are_those_with_pending_operations_too() -> None:
    pending = {"type": "creating", "resource": {"type": "kubernetes:core/v1:Pod", "urn": "u"}}
    checkpoint = Checkpoint({"resources": [{"type": "pulumi:index:Stash"}], "pending_operations": [pending]})
    assert [item["urn"] for item in checkpoint.objects()] == ["u"]


def test_what_every_launch_registers_is_of_no_program_of_the_users() -> None:
    kinds = ["pulumi:pulumi:Stack", "pulumi:providers:pulumi", "pulumi:providers:kubernetes", "kubernetes:core/v1:Pod"]
    own = [{"type": kind, "urn": f"urn:pulumi:s::p::{kind}::default"} for kind in kinds]
    assert list(Checkpoint({"resources": own}).others()) == []
    bucket = {"type": "aws:s3:Bucket", "urn": "u"}
    assert list(Checkpoint({"resources": [*own, bucket]}).others()) == [bucket]


def test_a_stash_is_found_by_the_end_of_its_name() -> None:
    stash = {"type": "pulumi:index:Stash", "urn": "a::train-app", "outputs": {"input": {"version": 1}}}
    assert Checkpoint({"resources": [stash]}).stash("-app") == {"version": 1}
    assert Checkpoint({"resources": [stash]}).stash("-record") is None


@pytest.mark.parametrize(
    ("number", "word"), [(errno.ENOSPC, "disk is full"), (errno.EROFS, "read-only"), (errno.EACCES, "permissions")]
)
def test_a_folder_that_cannot_be_used_is_explained(number: int, word: str) -> None:
    error = backend_refused("file:///b", OSError(number, "x", "/b/c"))
    assert word in str(error)
    assert "/b/c" in str(error)
    assert "PULUMI_BACKEND_URL" in str(error)


def test_a_state_cut_off_by_a_full_disk_is_taken_from_the_one_before(stack: FileStack) -> None:
    stack.seed()
    stack.path.with_name(f"{stack.path.name}.bak").write_text(stack.path.read_text())
    stack.path.write_text('{"version": 3, "check')
    checkpoint = stack.read()
    assert checkpoint is not None
    assert checkpoint.outdated
    stack.restore()
    again = stack.read()
    assert again is not None
    assert not again.outdated


def test_a_disk_that_is_as_good_as_full_is_refused_at_once(stack: FileStack, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    stack.check_room()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000})())
    with pytest.raises(DeployError, match="disk is full"):
        stack.check_room()
