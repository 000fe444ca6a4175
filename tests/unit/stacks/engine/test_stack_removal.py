"""Stacks removed without the engine: all files of a stack and of no other, under the lock, in an order that is safe."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from torchx_pulumi.model.app_entry import StackRef
from torchx_pulumi.runs.driver import Forgotten
from torchx_pulumi.stack_state.stack_locks import OwnedLocks, lock_folder
from torchx_pulumi.storage.stores import FolderStore, ObjectStore, Store
from torchx_pulumi_stacks.engine import AutomationDriver, stack_removal
from torchx_pulumi_stacks.engine.stack_removal import remove_stack

PLACE = StackRef(backend="", project="torchx", stack="default.train-1")
OTHERS = ("torchx/default.train-10", "torchx/default.train-1.json", "torchx/default", "torchx2/default.train-1")
STATE = json.dumps({"version": 3, "checkpoint": {"latest": {"resources": []}}})


def files_of(stack: str, *, state: str = ".json", attrs: bool = False) -> list[str]:
    """Return the files that Pulumi keeps of a stack, the state last."""
    name = stack.rpartition("/")[2]
    found = [
        f".pulumi/history/{stack}/{name}-1.history.json",
        f".pulumi/history/{stack}/{name}-1.checkpoint.json",
        f".pulumi/backups/{stack}/{name}.1.json",
        f".pulumi/stacks/{stack}{state}.bak",
        f".pulumi/stacks/{stack}.pulumi-tags",
        f".pulumi/stacks/{stack}{state}",
    ]
    return [*(f"{path}.attrs" for path in found if attrs), *found]


@pytest.fixture(params=["folder", "objects"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "folder":
        yield FolderStore(tmp_path / "backend")
        return
    files = fsspec.filesystem("memory", skip_instance_cache=True)
    yield ObjectStore(files, "/bucket/team")
    if files.exists("/bucket"):
        files.rm("/bucket", recursive=True)


@pytest.fixture
def locks(tmp_path: Path) -> OwnedLocks:
    return OwnedLocks(tmp_path / "engine/work/k")


def fill(store: Store, tmp_path: Path, *stacks: str, state: str = ".json") -> None:
    for path in (".pulumi/meta.yaml", *(path for one in stacks for path in files_of(one, state=state, attrs=True))):
        if isinstance(store, FolderStore):
            (tmp_path / "backend" / path).parent.mkdir(parents=True, exist_ok=True)
        elif path.endswith(".attrs"):
            continue
        packed = path.endswith(f"{PLACE.stack}.json.gz")
        store.write(path, gzip.compress(STATE.encode()) if packed else STATE.encode())


def all_files(store: Store) -> set[str]:
    return set(store.paths(""))


@pytest.mark.parametrize("state", [".json", ".json.gz"])
def test_all_files_of_a_stack_go_and_none_of_another(
    store: Store, locks: OwnedLocks, tmp_path: Path, state: str
) -> None:
    fill(store, tmp_path, *OTHERS)
    before = all_files(store)
    fill(store, tmp_path, "torchx/default.train-1", state=state)
    assert all_files(store) > before
    seen: list[str] = []
    assert remove_stack(store, PLACE, locks, lambda text: not seen.append(text)) is Forgotten.REMOVED
    assert seen == [STATE]
    assert all_files(store) == before
    if isinstance(store, FolderStore):
        assert list((tmp_path / "backend/.pulumi").rglob("torchx/default.train-1")) == []
        assert list((tmp_path / "backend/.pulumi").rglob("torchx2/default.train-1"))
    assert list((tmp_path / "engine").rglob("*.json")) == []
    assert remove_stack(store, PLACE, locks, lambda _: True) is Forgotten.KEPT


def test_the_decision_is_made_under_the_lock_and_nothing_changes_without_it(
    store: Store, locks: OwnedLocks, tmp_path: Path
) -> None:
    fill(store, tmp_path, "torchx/default.train-1")
    before, held = all_files(store), []

    def refuse(_text: str) -> bool:
        held.extend(store.paths(lock_folder(PLACE)))
        return False

    assert remove_stack(store, PLACE, locks, refuse) is Forgotten.KEPT
    assert len(held) == 1
    assert all_files(store) == before


def test_a_locked_stack_is_not_even_judged(store: Store, locks: OwnedLocks, tmp_path: Path) -> None:
    fill(store, tmp_path, "torchx/default.train-1")
    store.lock(f"{lock_folder(PLACE)}/of-somebody.json", b"{}")
    before, asked = all_files(store), []
    assert remove_stack(store, PLACE, locks, lambda text: not asked.append(text)) is Forgotten.DEFERRED
    assert (asked, all_files(store)) == ([], before)


def test_two_processes_that_lock_at_the_same_moment_remove_nothing(locks: OwnedLocks, tmp_path: Path) -> None:
    class Raced(FolderStore):
        def lock(self, path: str, data: bytes) -> None:
            super().lock(f"{lock_folder(PLACE)}/of-somebody.json", b"{}")
            super().lock(path, data)

    store = Raced(tmp_path / "backend")
    fill(store, tmp_path, "torchx/default.train-1")
    asked: list[str] = []
    assert remove_stack(store, PLACE, locks, lambda text: not asked.append(text)) is Forgotten.DEFERRED
    assert asked == []
    assert store.paths(lock_folder(PLACE)) == ["of-somebody.json"]


class Failing:
    """A store of which only some removals succeed."""

    def __init__(self, store: Store, removals: int) -> None:
        self._store = store
        self.keeps_backups = store.keeps_backups
        self.left = removals

    def remove(self, path: str) -> None:
        if not path.startswith(".pulumi/locks"):
            self.left -= 1
            if self.left < 0:
                raise OSError("the disk is gone")
        self._store.remove(path)

    def remove_below(self, folder: str) -> None:
        for name in self._store.paths(folder):
            self.remove(f"{folder}/{name}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_a_removal_that_stops_anywhere_leaves_the_state_and_is_completed(
    store: Store, locks: OwnedLocks, tmp_path: Path
) -> None:
    fill(store, tmp_path, *OTHERS)
    others = all_files(store)
    for removals in range(40):
        fill(store, tmp_path, "torchx/default.train-1")
        failing: Any = Failing(store, removals)
        outcome = remove_stack(failing, PLACE, locks, lambda _: True)
        if outcome is Forgotten.REMOVED:
            break
        assert outcome is Forgotten.DEFERRED
        assert store.read_bytes(".pulumi/stacks/torchx/default.train-1.json") is not None
        assert store.paths(lock_folder(PLACE)) == []
        assert remove_stack(store, PLACE, locks, lambda text: text == STATE) is Forgotten.REMOVED
        assert all_files(store) == others
    assert removals > 5


@pytest.mark.parametrize("second", [".json.gz", ".json.zst", ".yaml"])
def test_a_stack_with_a_second_state_stays(store: Store, locks: OwnedLocks, tmp_path: Path, second: str) -> None:
    fill(store, tmp_path, "torchx/default.train-1")
    store.write(f".pulumi/stacks/torchx/default.train-1{second}", b"?")
    before = all_files(store)
    assert remove_stack(store, PLACE, locks, lambda _: True) is Forgotten.LEFT
    assert all_files(store) == before


def test_a_state_that_cannot_be_read_stays(store: Store, locks: OwnedLocks, tmp_path: Path) -> None:
    fill(store, tmp_path, "torchx/default.train-1")
    store.write(".pulumi/stacks/torchx/default.train-1.json", b"\xff\xfe")
    before, asked = all_files(store), []
    assert remove_stack(store, PLACE, locks, lambda text: not asked.append(text)) is Forgotten.DEFERRED
    assert (asked, all_files(store)) == ([], before)


def test_without_a_stack_no_lock_is_made(store: Store, locks: OwnedLocks, tmp_path: Path) -> None:
    (tmp_path / "backend").mkdir()
    assert remove_stack(store, PLACE, locks, lambda _: True) is Forgotten.KEPT
    assert all_files(store) == set()
    assert list((tmp_path / "backend").iterdir()) == []


def test_a_decision_that_takes_too_long_removes_nothing(
    store: Store, locks: OwnedLocks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, tmp_path, "torchx/default.train-1")
    before = all_files(store)
    monkeypatch.setattr(stack_removal, "LIMIT_S", 0.0)
    assert remove_stack(store, PLACE, locks, lambda _: True) is Forgotten.DEFERRED
    assert all_files(store) == before


def test_without_permission_it_is_left(locks: OwnedLocks, tmp_path: Path) -> None:
    class Refused(FolderStore):
        def remove_below(self, folder: str) -> None:
            raise PermissionError(folder)

    store = Refused(tmp_path / "backend")
    fill(store, tmp_path, "torchx/default.train-1")
    assert remove_stack(store, PLACE, locks, lambda _: True) is Forgotten.LEFT
    assert store.read_bytes(".pulumi/stacks/torchx/default.train-1.json") is not None


def test_a_stack_of_another_organization_is_left(store: Store, locks: OwnedLocks, tmp_path: Path) -> None:
    fill(store, tmp_path, "torchx/default.train-1")
    other = StackRef(backend="", project="torchx", stack="default.train-1", organization="acme")
    assert remove_stack(store, other, locks, lambda _: True) is Forgotten.LEFT


def test_a_link_in_a_history_is_removed_and_not_what_it_leads_to(locks: OwnedLocks, tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "backend")
    fill(store, tmp_path, "torchx/default.train-1")
    mine = tmp_path / "mine/thesis.txt"
    mine.parent.mkdir()
    mine.write_text("years of work")
    (tmp_path / "backend/.pulumi/history/torchx/default.train-1/link").symlink_to(mine.parent)
    assert remove_stack(store, PLACE, locks, lambda _: True) is Forgotten.REMOVED
    assert mine.read_text() == "years of work"


def test_the_driver_leaves_a_backend_that_it_cannot_write(tmp_path: Path) -> None:
    driver = AutomationDriver(tmp_path / "engine")
    for url in ("postgres://somewhere/db", "https://api.pulumi.com"):
        assert driver.forget_at(StackRef(backend=url, project="p", stack="s"), lambda _: True) is Forgotten.LEFT
