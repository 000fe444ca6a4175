from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tools.bootstrap.bundle import bundle
from tools.bootstrap.cache import PartCache, part_key
from tools.bootstrap.part import DebianLink, DebianSource, GoSource, GoTarget, ModuleFile, Part


def go_part(folder: Path) -> Part:
    target = GoTarget(executable="tool", package="example.com/tool", stamps=("example.com/tool.Version=v1",))
    return Part(name="tool", version="1", expected_s=1, source=GoSource(folder=folder, targets=(target,)))


@pytest.fixture
def module(tmp_path: Path) -> Path:
    folder = tmp_path / "module"
    folder.mkdir()
    (folder / "go.mod").write_text("module example.com/m\n\ngo 1.25.0\n")
    (folder / "go.sum").write_text("")
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> PartCache:
    return PartCache(tmp_path / "cache", say=lambda text: None)


def fill_with(text: str, folder: Path) -> None:
    (folder / "bin").mkdir()
    (folder / "bin" / "tool").write_text(text)


@pytest.mark.parametrize("file", ["go.mod", "go.sum", "main.go", "inner/more.go"])
def test_a_changed_source_file_changes_the_key(module: Path, file: str) -> None:
    before = part_key(go_part(module))
    (module / file).parent.mkdir(exist_ok=True)
    with (module / file).open("a") as content:
        content.write("// changed\n")
    assert part_key(go_part(module)) != before


@pytest.mark.parametrize("file", ["main_test.go", "testdata/golden.yaml", ".hidden", "README.md"])
def test_a_file_that_no_build_reads_keeps_the_key(module: Path, file: str) -> None:
    before = part_key(go_part(module))
    (module / file).parent.mkdir(exist_ok=True)
    (module / file).write_text("changed")
    assert part_key(go_part(module)) == before


def test_version_flags_and_data_files_change_the_key(module: Path) -> None:
    part = go_part(module)
    assert isinstance(part.source, GoSource)
    stamped = replace(part.source.targets[0], stamps=("example.com/tool.Version=v2",))
    data = ModuleFile(module="example.com/m", pattern="*.yaml", to="share")
    others = [
        replace(part, version="2"),
        replace(part, source=replace(part.source, targets=(stamped,))),
        replace(part, source=replace(part.source, files=(data,))),
    ]
    assert len({part_key(each) for each in [part, *others]}) == 4


def test_what_only_the_user_sees_keeps_the_key(module: Path) -> None:
    part = go_part(module)
    assert part_key(replace(part, expected_s=99, note="other")) == part_key(part)


def test_the_key_does_not_depend_on_where_the_checkout_is(module: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for file in ("go.mod", "go.sum"):
        (elsewhere / file).write_text((module / file).read_text())
    assert part_key(go_part(elsewhere)) == part_key(go_part(module))


def test_debian_packages_are_in_the_key() -> None:
    link = DebianLink(executable="etcd", path="usr/bin/etcd")
    one, two = (
        Part(name="etcd", version="debian", expected_s=1, source=DebianSource(packages=(name,), links=(link,)))
        for name in ("etcd-server", "etcd")
    )
    assert isinstance(one.source, DebianSource)
    three = replace(one, source=replace(one.source, self_contained=True))
    assert len({part_key(part) for part in (one, two, three)}) == 3


def test_a_part_is_made_once_for_many_that_ask_at_the_same_time(module: Path, tmp_path: Path) -> None:
    made: list[str] = []
    waited: list[str] = []
    everybody = threading.Barrier(6)

    def ask() -> None:
        everybody.wait()
        # Each with a cache of its own, as separate processes have.
        PartCache(tmp_path / "cache", say=waited.append).make(go_part(module), fill)

    def fill(folder: Path) -> None:
        made.append(folder.name)
        fill_with("x", folder)
        threading.Event().wait(0.2)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert waited == ["waiting for tool, which another process is making"] * 5


def test_an_error_leaves_nothing(module: Path, cache: PartCache) -> None:
    def fail(folder: Path) -> None:
        fill_with("half", folder)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        cache.make(go_part(module), fail)
    assert list((cache.root / "parts").iterdir()) == []
    assert cache.find(go_part(module)) is None


def test_what_a_crash_left_is_not_taken_and_is_cleared(module: Path, cache: PartCache) -> None:
    part = go_part(module)
    left_over = cache.root / "parts" / ".tool.making-abc"
    (left_over / "bin").mkdir(parents=True)
    assert cache.find(part) is None

    folder = cache.make(part, lambda unfinished: fill_with("whole", unfinished))

    assert (folder / "bin" / "tool").read_text() == "whole"
    assert [path.name for path in (cache.root / "parts").iterdir()] == [f"tool-1-{part_key(part)}"]


def test_a_finished_part_is_readable_by_others(module: Path, cache: PartCache) -> None:
    folder = cache.make(go_part(module), lambda unfinished: fill_with("x", unfinished))
    assert folder.stat().st_mode & 0o777 == 0o755


def test_cleaning_keeps_what_is_current(module: Path, cache: PartCache) -> None:
    part = go_part(module)
    old = cache.make(replace(part, version="0"), lambda unfinished: fill_with("old", unfinished))
    new = cache.make(part, lambda unfinished: fill_with("new", unfinished))
    assert cache.clear_outdated([part]) == [old]
    assert cache.find(part) == new
    assert not old.exists()


def test_a_bundle_has_the_programs_of_all_folders_as_real_files(tmp_path: Path) -> None:
    folders = [tmp_path / name / "bin" for name in ("cli", "host")]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / folder.parent.name).write_text(folder.parent.name)
    made = bundle(folders, tmp_path / "bundles")
    assert bundle(folders, tmp_path / "bundles") == made
    assert {path.name: path.read_text() for path in made.iterdir()} == {"cli": "cli", "host": "host"}
    assert [path for path in made.iterdir() if path.is_symlink()] == []
    assert [path.name for path in (tmp_path / "bundles").iterdir()] == [made.parent.name]


def test_a_bundle_is_readable_by_others_also_one_that_was_made_for_its_owner_only(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "pulumi").write_text("x")
    made = bundle([tmp_path / "part"], tmp_path / "bundles")
    assert made.parent.stat().st_mode & 0o777 == 0o755
    made.parent.chmod(0o700)
    assert bundle([tmp_path / "part"], tmp_path / "bundles") == made
    assert made.parent.stat().st_mode & 0o777 == 0o755
