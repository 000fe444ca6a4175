"""A lock is held by one, with `flock` and without it, and no fork keeps it."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.storage import owners as locks
from torchx_pulumi.storage.owners import held, locked

# Python 3.12 and later warn of a fork in a process with threads, which is what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

WITHOUT = [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL]


@pytest.fixture
def flock_says(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let `flock` fail as it does on a file system without locks."""

    def let(number: int) -> None:
        def flock(*_: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(fcntl, "flock", flock)

    return let


@pytest.fixture
def waiting_child() -> Iterator[Callable[[], int]]:
    """Fork children that do nothing until the test has ended."""
    reader, writer = os.pipe()
    begun, begins = os.pipe()
    children = []

    def fork() -> int:
        child = os.fork()
        if child == 0:
            os.close(writer)
            os.write(begins, b".")
            os.read(reader, 1)
            os._exit(0)
        children.append(child)
        os.read(begun, 1)
        return child

    yield fork
    for end in (writer, reader, begun, begins):
        os.close(end)
    for child in children:
        os.waitpid(child, 0)


@pytest.mark.parametrize("number", [0, *WITHOUT])
def test_one_holds_a_lock_at_a_time(tmp_path: Path, flock_says: Callable[[int], None], number: int) -> None:
    if number:
        flock_says(number)
    inside: list[int] = []
    most: list[int] = []

    def work(index: int) -> None:
        with locked(tmp_path / "runs"):
            inside.append(index)
            most.append(len(inside))
            time.sleep(0.001)
            inside.remove(index)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(24)))
    assert (len(most), max(most)) == (24, 1)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [".lock"]


@pytest.mark.parametrize("number", [0, errno.ENOSYS])
def test_processes_exclude_each_other_though_some_die(
    tmp_path: Path, flock_says: Callable[[int], None], number: int
) -> None:
    if number:
        flock_says(number)
    count = tmp_path / "count"
    count.write_text("0")
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            try:
                for turn in range(10):
                    if turn == 5:
                        grandchild = os.fork()
                        if grandchild == 0:
                            with locked(tmp_path / "runs"):
                                os._exit(0)
                        os.waitpid(grandchild, 0)
                    with locked(tmp_path / "runs"):
                        now = int(count.read_text())
                        time.sleep(0.001)
                        count.write_text(str(now + 1))
            finally:
                os._exit(0)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0, 0]
    assert count.read_text() == "40"


def test_a_fork_does_not_keep_a_lock(tmp_path: Path, waiting_child: Callable[[], int]) -> None:
    taken, go = threading.Event(), threading.Event()

    def hold() -> None:
        with held(tmp_path / "lock"):
            taken.set()
            go.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait(30)
    waiting_child()
    go.set()
    thread.join()
    with held(tmp_path / "lock", wait=False) as free:
        assert free


def test_a_fork_leaves_the_lock_with_its_parent(tmp_path: Path) -> None:
    with held(tmp_path / "lock"):
        child = os.fork()
        if child == 0:
            with held(tmp_path / "lock", wait=False) as free:
                os._exit(int(free))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("number", [0, errno.ENOSYS])
def test_a_fork_that_ends_its_copy_of_the_block_gives_nothing_back(
    tmp_path: Path, flock_says: Callable[[int], None], number: int
) -> None:
    if number:
        flock_says(number)
    with held(tmp_path / "lock"):
        child = -1
        with held(tmp_path / "other"):
            child = os.fork()
        if child == 0:
            with held(tmp_path / "lock", wait=False) as free:
                os._exit(2 if free else 0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_an_owner_that_died_leaves_no_lock(tmp_path: Path, flock_says: Callable[[int], None]) -> None:
    flock_says(errno.ENOSYS)
    child = os.fork()
    if child == 0:
        with held(tmp_path / "lock"):
            os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / "lock.held").exists()
    with held(tmp_path / "lock") as free:
        assert free


def test_an_owner_elsewhere_is_named_when_it_does_not_end(
    tmp_path: Path, flock_says: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    flock_says(errno.ENOLCK)
    monkeypatch.setattr(locks, "LIMIT_S", 0.1)
    (tmp_path / ".lock.held").write_text("7\nelsewhere?pidns-f0000001\n12\n")
    words = (
        r"\.lock cannot be locked: process 7 on elsewhere has held it for 0 s; end that process, or remove .*held if"
    )
    with pytest.raises(DeployError, match=words), locked(tmp_path):
        pass
    (tmp_path / ".lock.held").write_text("")
    with pytest.raises(DeployError, match="another process has held it"), locked(tmp_path):
        pass


def test_any_other_error_is_told(tmp_path: Path, flock_says: Callable[[int], None]) -> None:
    flock_says(errno.EIO)
    with pytest.raises(DeployError, match=r"\.lock cannot be locked"), locked(tmp_path):
        pass


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with held(tmp_path / "lock"), held(tmp_path / "lock", wait=False) as second:
            assert not second
    after: Any = len(list(Path("/proc/self/fd").iterdir()))
    assert after == before
