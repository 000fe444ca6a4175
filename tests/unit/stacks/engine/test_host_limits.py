"""Cores and memory of a process: those of control groups of both versions, seen from a host and from a container."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from torchx_pulumi_stacks.engine import host_limits
from torchx_pulumi_stacks.engine.host_limits import usable_cores, usable_memory_mb

V2 = "0::/user.slice/user-7.slice\n"
V1 = "7:cpu,cpuacct:/docker/a1\n5:memory:/docker/a1\n1:name=systemd:/docker/a1\n"


@pytest.fixture(autouse=True)
def control_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_limits, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(host_limits, "_MOUNT", tmp_path / "mount")


def usable(folder: Path, groups: str, files: dict[str, str]) -> tuple[float, float]:
    """Return cores and memory in MB under control groups with these files."""
    (folder / "groups").write_text(groups)
    for name, text in files.items():
        path = folder / "mount" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return usable_cores(), usable_memory_mb()


@pytest.mark.parametrize(
    ("groups", "files"),
    [
        pytest.param(V2, {"user.slice/user-7.slice/cpu.max": "50000 100000\n", "user.slice/memory.max": "64000000\n"},
                     id="v2, limits of the group and of the one above"),
        pytest.param("0::/\n", {"cpu.max": "50000 100000\n", "memory.max": "64000000\n"}, id="v2 in a container"),
        pytest.param(V1, {"cpu/docker/a1/cpu.cfs_quota_us": "50000", "cpu/docker/a1/cpu.cfs_period_us": "100000",
                          "memory/docker/a1/memory.limit_in_bytes": "64000000"}, id="v1"),
        pytest.param(V1, {"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000",
                          "memory/memory.limit_in_bytes": "64000000"}, id="v1 in a container, with the host's path"),
    ],
)  # fmt: skip
def test_limits_of_control_groups_hold(groups: str, files: dict[str, str], tmp_path: Path) -> None:
    assert usable(tmp_path, groups, files) == (0.5, 64)


@pytest.mark.parametrize(
    ("groups", "files"),
    [
        ("", {}),
        (V2, {"user.slice/cpu.max": "max 100000\n", "user.slice/memory.max": "max\n"}),
        (V1, {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}),
        ("0::/\n", {"cpu.max": "50000 0\n", "memory.max": "much\n"}),
        ("\nnot a group\n", {"cpu.max": "", "memory.max": ""}),
    ],
)
def test_without_a_limit_it_is_the_machine(groups: str, files: dict[str, str], tmp_path: Path) -> None:
    cores, memory_mb = usable(tmp_path, groups, files)
    assert (cores, memory_mb) == usable(tmp_path, "", {})
    assert cores >= 1
    assert 100 < memory_mb < math.inf


def test_without_control_groups_it_is_the_machine() -> None:
    assert usable_cores() >= 1
    assert usable_memory_mb() > 100
