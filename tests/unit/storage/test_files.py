from __future__ import annotations

import os
from pathlib import Path

import pytest
from torchx_pulumi.storage.files import share, shared_umask
from torchx_pulumi.storage.stores import FolderStore


@pytest.mark.parametrize(
    ("mode", "umask"), [(0o2770, 0o007), (0o2775, 0o002), (0o770, None), (0o2755, None), (0o1777, None), (0o700, None)]
)
def test_a_folder_that_belongs_to_a_group_decides_the_permissions_of_what_is_written_there(
    tmp_path: Path, mode: int, umask: int | None
) -> None:
    folder = tmp_path / "team"
    folder.mkdir()
    folder.chmod(mode)
    assert shared_umask(folder) == umask
    assert shared_umask(folder / "absent") is None
    assert shared_umask(None) is None


def test_what_is_made_in_a_shared_folder_is_the_groups(tmp_path: Path) -> None:
    folder = tmp_path / "team"
    (folder / "stacks").mkdir(parents=True)
    (folder / "stacks" / "a.json").write_text("{}")
    for path, mode in ((folder, 0o2770), (folder / "stacks", 0o700), (folder / "stacks" / "a.json", 0o600)):
        path.chmod(mode)
    share(folder, folder / "stacks", folder / "stacks" / "a.json")
    assert (folder / "stacks").stat().st_mode & 0o7777 == 0o2770
    assert (folder / "stacks" / "a.json").stat().st_mode & 0o7777 == 0o660
    folder.chmod(0o700)
    (folder / "stacks" / "a.json").chmod(0o600)
    share(folder, folder / "stacks" / "a.json")
    assert (folder / "stacks" / "a.json").stat().st_mode & 0o7777 == 0o600


def test_a_lock_in_a_shared_folder_can_be_read_and_followed_by_another_members(tmp_path: Path) -> None:
    folder = tmp_path / "team"
    (folder / ".pulumi").mkdir(parents=True)
    for path in (folder, folder / ".pulumi"):
        path.chmod(0o2770)
    before = os.umask(0o077)
    try:
        FolderStore(folder).lock(".pulumi/locks/organization/torchx/a/1.json", b"{}")
    finally:
        os.umask(before)
    made = {path.relative_to(folder).as_posix(): path.stat().st_mode & 0o7777 for path in folder.rglob("*")}
    assert set(made.values()) == {0o2770, 0o660}
    assert made[".pulumi/locks/organization/torchx/a/1.json"] == 0o660


@pytest.mark.parametrize("left", ["", "backend"])
def test_a_lock_makes_no_backend_where_none_is_mounted(tmp_path: Path, left: str) -> None:
    (tmp_path / left).mkdir(exist_ok=True)
    with pytest.raises(FileNotFoundError):
        FolderStore(tmp_path / "backend").lock(".pulumi/locks/organization/torchx/a/1.json", b"{}")
    assert [*tmp_path.rglob("*")] == ([tmp_path / left] if left else [])
