import errno
import gzip
import json
import os
import socket
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.model.errors import BackendAbsentError, DeployError
from torchx_pulumi.stack_state.backend import backend_folder, own_backend
from torchx_pulumi.stack_state.checkpoint import Checkpoint
from torchx_pulumi.stack_state.stacks import (
    FolderStack,
    backend_error,
    check_layout,
    list_stacks,
    read_checkpoint,
)
from torchx_pulumi_stacks.engine.stack_lookup import find_renamed


@pytest.fixture
def stack(make_order: Callable[..., Any], tmp_path: Path) -> FolderStack:
    return FolderStack(tmp_path / "backend", make_order().entry.place)


def read(stack: FolderStack) -> Checkpoint | None:
    return read_checkpoint(stack._ref)


def lock(stack: FolderStack, pid: int, host: str = "", when: str = "2026-01-01T00:00:00.123456789Z") -> Path:
    folder = stack.path.parents[2] / "locks/organization/torchx/default.train-1"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{pid}.json"
    value = {"pid": pid, "username": "me", "hostname": host or socket.gethostname(), "timestamp": when}
    path.write_text(json.dumps(value))
    return path


def stack_names(backend: str) -> list[str]:
    return [ref.stack for ref in list_stacks(backend, "torchx")]


def test_a_seed_is_an_empty_stack_of_the_new_layout(stack: FolderStack, tmp_path: Path) -> None:
    assert not stack.exists()
    assert stack.seed()
    assert stack.exists()
    assert (tmp_path / "backend/.pulumi/meta.yaml").read_text() == "version: 1\n"
    checkpoint = read(stack)
    assert checkpoint is not None
    assert (list(checkpoint.resources), list(checkpoint.objects())) == ([], [])
    assert stack_names(f"file://{tmp_path}/backend") == ["default.train-1"]
    with pytest.raises(FileExistsError):
        stack.seed()
    assert list((tmp_path / "backend").rglob("*.tmp")) == []


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o755), (0o002, 0o775)])
def test_a_shared_folder_gets_the_permissions_that_pulumi_would_give(stack: FolderStack, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        stack.seed()
    finally:
        os.umask(before)
    found = [stack.path, stack.path.parent, stack.path.parents[1], stack.path.parents[2] / "meta.yaml"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in found] == [mode & 0o666, mode, mode, mode & 0o666]


def test_the_group_of_a_shared_folder_is_kept(stack: FolderStack, tmp_path: Path) -> None:
    (tmp_path / "backend").mkdir()
    (tmp_path / "backend").chmod(0o2775)
    stack.seed()
    assert stack.path.parent.stat().st_mode & stat.S_ISGID


def test_this_users_own_backend_is_readable_by_its_owner_only(make_order: Callable[..., Any]) -> None:
    place = replace(make_order().entry.place, backend=own_backend())
    folder = backend_folder(own_backend())
    assert folder is not None
    own = FolderStack(folder, place)
    own.seed()
    assert stat.S_IMODE(own.path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK])
def test_without_hard_links_a_stack_is_left_to_the_cli(
    stack: FolderStack, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def link(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", link)
    assert not stack.seed()
    assert [path for path in stack.path.parents[2].rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("name", ["mine.json", "mine.yaml", "mine.json.gz"])
def test_a_folder_of_the_old_layout_is_refused_and_left_as_it_is(stack: FolderStack, name: str) -> None:
    stacks = stack.path.parents[1]
    stacks.mkdir(parents=True)
    (stacks / name).write_text("{}")
    with pytest.raises(DeployError, match=rf"old layout.*\({name}\): run `pulumi state upgrade`"):
        check_layout(stack.path.parents[3], "file:///b")
    assert [path.name for path in stacks.parent.rglob("*")] == ["stacks", name]
    (stacks.parent / "meta.yaml").write_text("version: 1\n")
    check_layout(stack.path.parents[3], "file:///b")


@pytest.mark.parametrize(("version", "word"), [(0, "old layout"), (2, "layout version 2")])
def test_a_layout_that_is_not_known_is_refused(stack: FolderStack, version: int, word: str) -> None:
    stack.path.parents[1].mkdir(parents=True)
    (stack.path.parents[2] / "meta.yaml").write_text(f"version: {version}\n")
    with pytest.raises(DeployError, match=word):
        check_layout(stack.path.parents[3], "file:///b")


def test_a_new_folder_has_the_layout_that_is_needed(stack: FolderStack) -> None:
    check_layout(stack.path.parents[3], "file:///b")
    stack.seed()
    check_layout(stack.path.parents[3], "file:///b")


def test_a_stack_that_was_renamed_is_found_in_its_folder(
    stack: FolderStack, tmp_path: Path, make_order: Callable[..., Any]
) -> None:
    entry = make_order().entry
    stack.seed()
    stash = {"type": "pulumi:index:Stash", "urn": "a::train-app"}
    note = {**stash, "outputs": {"input": {"app_id": entry.app_id, "launch": entry.launch}}}
    other = {**stash, "outputs": {"input": {"app_id": entry.app_id, "launch": "other"}, "mentions": entry.launch}}
    for name, resource in (("new", note), ("another", other)):
        text = json.dumps({"version": 3, "checkpoint": {"latest": {"resources": [resource]}}})
        stack.path.with_name(f"{name}.json").write_text(text)
    stack.path.with_name("broken.json").write_text(entry.launch)
    stack.path.unlink()
    assert find_renamed(tmp_path / "backend", entry) == replace(entry.place, stack="new")
    # The engine does not see a stack of the old layout.
    stack.path.with_name("new.json").rename(stack.path.parents[1] / "old.json")
    assert find_renamed(tmp_path / "backend", entry) is None


def test_a_state_may_be_compressed(stack: FolderStack, tmp_path: Path) -> None:
    stack.path.parent.mkdir(parents=True)
    text = json.dumps({"version": 3, "checkpoint": {"latest": {"resources": [{"type": "a"}]}}})
    stack.path.with_name(f"{stack.path.name}.gz").write_bytes(gzip.compress(text.encode()))
    checkpoint = read(stack)
    assert checkpoint is not None
    assert len(checkpoint.resources) == 1
    assert stack_names(f"file://{tmp_path}/backend") == ["default.train-1"]


def test_a_state_that_is_none_is_refused(stack: FolderStack) -> None:
    stack.path.parent.mkdir(parents=True)
    stack.path.write_text("{")
    with pytest.raises(DeployError, match="cannot be read"):
        read(stack)


def test_locks_that_are_known_to_be_dead_are_cleared_and_others_stay(stack: FolderStack) -> None:
    stack.seed()
    mine, dead = lock(stack, os.getpid()), lock(stack, 2**22 + 1)
    far = lock(stack, 7, host="elsewhere")
    stay = stack.clear_locks(lambda lock: lock.pid == 2**22 + 1)
    assert sorted(Path(str(item.path)).name for item in stay) == sorted([mine.name, far.name])
    assert not dead.exists()
    assert "elsewhere" in " ".join(map(str, stay))


def test_attributes_which_a_kill_may_have_cut_off_are_removed(stack: FolderStack) -> None:
    stack.seed()
    broken = stack.path.with_name(f"{stack.path.name}.attrs")
    broken.write_text("")
    stack.clear_locks(lambda _: False)
    assert not broken.exists()


def test_sweeping_keeps_the_state_unless_told_otherwise(stack: FolderStack, tmp_path: Path) -> None:
    stack.seed()
    for name in ("history", "backups"):
        folder = tmp_path / "backend/.pulumi" / name / "torchx/default.train-1"
        folder.mkdir(parents=True)
        (folder / "x.json").write_text("{}")
    stack.path.with_name(f"{stack.path.name}.bak").write_text("{}")
    locked = lock(stack, 2**22 + 1)
    for killed in (stack.path, stack.path.with_name(f"{stack.path.name}.bak"), locked):
        killed.with_name(f"{killed.name}.18eac572269854bc.tmp").write_text("{")
    locked.unlink()
    stack.sweep(state=False)
    assert stack.exists()
    assert list((tmp_path / "backend").rglob("*.tmp")) == []
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
    error = backend_error("file:///b", OSError(number, "x", "/b/c"))
    assert word in str(error)
    assert "/b/c" in str(error)
    assert "PULUMI_BACKEND_URL" in str(error)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ESTALE])
def test_a_state_that_cannot_be_looked_at_is_not_absent(
    stack: FolderStack, unreadable: Callable[[Path, int], None], number: int
) -> None:
    stack.seed()
    unreadable(stack.path, number)
    for look in (lambda: read(stack), stack.exists, stack.restore):
        with pytest.raises(DeployError, match="cannot be used"):
            look()


def test_locks_that_cannot_be_read_are_not_absent(stack: FolderStack, unreadable: Callable[[Path, int], None]) -> None:
    stack.seed()
    unreadable(lock(stack, 1).parent, errno.EACCES)
    with pytest.raises(DeployError, match="this user has no permission"):
        stack.locks()


def test_stacks_that_cannot_be_listed_are_not_absent(
    stack: FolderStack, unreadable: Callable[[Path, int], None], tmp_path: Path
) -> None:
    stack.seed()
    unreadable(stack.path.parent, errno.EACCES)
    with pytest.raises(DeployError, match="this user has no permission"):
        stack_names(f"file://{tmp_path}/backend")


@pytest.mark.parametrize("mounted", [False, True])
def test_a_shared_folder_that_is_not_mounted_holds_no_answer(stack: FolderStack, tmp_path: Path, mounted: bool) -> None:
    if mounted:
        (tmp_path / "backend").mkdir()
    word = "has no folder .pulumi" if mounted else "is not there"
    with pytest.raises(BackendAbsentError, match=rf"{word}.*Mount it"):
        read(stack)
    with pytest.raises(BackendAbsentError, match=word):
        stack_names(f"file://{tmp_path}/backend")
    (tmp_path / "backend/.pulumi").mkdir(parents=True)
    assert read(stack) is None
    assert stack_names(f"file://{tmp_path}/backend") == []


def test_this_users_own_backend_may_be_absent(make_order: Callable[..., Any]) -> None:
    folder = backend_folder(own_backend())
    assert folder is not None
    assert read_checkpoint(replace(make_order().entry.place, backend=own_backend())) is None
    assert stack_names(own_backend()) == []


def test_a_state_cut_off_by_a_full_disk_is_taken_from_the_one_before(stack: FolderStack) -> None:
    stack.seed()
    stack.path.with_name(f"{stack.path.name}.bak").write_text(stack.path.read_text())
    stack.path.write_text('{"version": 3, "check')
    checkpoint = read(stack)
    assert checkpoint is not None
    assert checkpoint.outdated
    stack.restore()
    again = read(stack)
    assert again is not None
    assert not again.outdated


def test_a_disk_that_is_as_good_as_full_is_refused_at_once(stack: FolderStack, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000})())
    with pytest.raises(DeployError, match="disk is full"):
        stack.seed()


def test_a_file_that_may_not_be_read_is_named_with_its_mode(tmp_path: Path) -> None:
    state = tmp_path / "a.json"
    state.write_text("{}")
    state.chmod(0o600)
    said = str(backend_error("file:///b", PermissionError(errno.EACCES, "x", str(state))))
    assert f"({state}: has mode 0600 and belongs to user {os.getuid()}, group {os.getgid()})" in said
    said = str(backend_error("file:///b", PermissionError(errno.EACCES, "x", str(state / "below"))))
    assert f"{state} has mode 0600" in said
