from __future__ import annotations

from pathlib import Path

from tools.local_cluster import control_groups


def hierarchy(folder: Path, controllers: str | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "cgroup.procs").touch()
    if controllers is not None:
        (folder / "cgroup.controllers").write_text(controllers)
        (folder / "cgroup.subtree_control").write_text("cpu\n")
    return folder


def test_version_1_gets_a_folder_in_every_hierarchy(tmp_path: Path) -> None:
    for name in ("cpu", "memory"):
        hierarchy(tmp_path / name)
    (tmp_path / "cpu,cpuacct").symlink_to("cpu")
    (tmp_path / "empty").mkdir()
    assert control_groups.obstacle(tmp_path) is None
    control_groups.create("/torchx-pulumi/0123abcd", tmp_path)
    assert list(control_groups.folders("/torchx-pulumi/0123abcd", tmp_path)) == [
        tmp_path / "cpu" / "torchx-pulumi" / "0123abcd",
        tmp_path / "memory" / "torchx-pulumi" / "0123abcd",
    ]


def test_version_2_gets_one_folder_that_has_all_controllers(tmp_path: Path) -> None:
    root = hierarchy(tmp_path, "cpu memory\n")
    control_groups.create("/torchx-pulumi/0123abcd", root)
    assert list(control_groups.folders("/torchx-pulumi/0123abcd", root)) == [root / "torchx-pulumi" / "0123abcd"]
    assert (root / "cgroup.subtree_control").read_text() == "+memory"  # the kernel would add it; a file keeps the last


def test_without_control_groups_there_is_an_obstacle(tmp_path: Path) -> None:
    assert control_groups.obstacle(tmp_path) == f"{tmp_path} is read-only or not mounted"


def test_controllers_that_are_not_handed_down_are_an_obstacle(tmp_path: Path) -> None:
    root = hierarchy(tmp_path, "memory\n")
    (root / "cgroup.controllers").unlink()
    found = control_groups.obstacle(root)
    assert found is not None
    assert "does not hand its controllers down" in found
