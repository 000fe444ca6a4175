from __future__ import annotations

import dataclasses
import stat
from pathlib import Path

import pytest

from tools.local_cluster.errors import LocalClusterError
from tools.local_cluster.layout import Layout, known_layouts
from tools.local_cluster.settings import Settings, load_settings


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return Layout.of("one")


def settings(**changes: object) -> Settings:
    plain = Settings(ports={"registry": 20001}, pod_subnet="10.213.7.0/24", kwok_nodes=4, parts={"registry": "/p/bin"})
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a/b", "..", "a.b", "a" * 31])
def test_a_name_that_is_no_folder_name_is_refused(name: str) -> None:
    with pytest.raises(LocalClusterError, match="allowed are"):
        Layout.of(name)


def test_clusters_share_no_bridge_and_no_control_group(layout: Layout) -> None:
    other = Layout.of("two")
    assert layout.bridge != other.bridge
    assert layout.cgroup != other.cgroup
    assert len(layout.bridge) <= 15  # the kernel's limit


def test_the_state_is_closed_to_other_users(layout: Layout) -> None:
    layout.create()
    file = layout.write_config("etcd", "x.conf", "a: b")
    for path in (layout.root, layout.secrets, layout.config / "etcd"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_configuration_file_that_says_the_same_is_not_touched(layout: Layout) -> None:
    layout.create()
    before = layout.write_config("x", "file", "text").stat()
    after = layout.write_config("x", "file", "text").stat()
    assert (before.st_mtime_ns, before.st_ctime_ns) == (after.st_mtime_ns, after.st_ctime_ns)
    assert layout.write_config("x", "file", "other").read_text() == "other"


def test_logs_are_not_beside_configuration(layout: Layout) -> None:
    assert layout.config not in (layout.logs, *layout.logs.parents)


def test_settings_come_back_as_written(layout: Layout) -> None:
    layout.create()
    settings(images={"busybox": "localhost:20001/busybox:1"}, why_no_real_node="not root").save(layout)
    assert load_settings(layout) == settings(
        images={"busybox": "localhost:20001/busybox:1"}, why_no_real_node="not root"
    )


@pytest.mark.parametrize("text", ["", "{", '{"of": "another version"}'])
def test_a_record_cut_off_by_a_crash_is_no_record(layout: Layout, text: str) -> None:
    layout.create()
    layout.settings.write_text(text)
    assert load_settings(layout) is None


def test_the_bridge_has_the_first_address_which_is_that_of_the_service_kubernetes() -> None:
    made = settings(pod_subnet="10.213.6.0/23")
    assert made.gateway == "10.213.6.1"
    assert (str(made.service_range), str(made.pod_range)) == ("10.213.6.0/24", "10.213.7.0/24")


def test_without_the_part_there_is_no_registry() -> None:
    assert settings().registry == "localhost:20001"
    assert settings(parts={}).registry is None


def test_only_folders_with_a_cluster_name_are_clusters(layout: Layout) -> None:
    assert list(known_layouts()) == []
    layout.create()
    (layout.root.parent / "one.lock").touch()
    (layout.root.parent / "Not a cluster").mkdir()
    assert list(known_layouts()) == [layout]
