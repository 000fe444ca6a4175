"""Locks of containers: process ids, and in one pod also host names, are the same in each of them."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.apps.answer import StackChange
from torchx_pulumi.model.app_entry import StackRef
from torchx_pulumi.runs.driver import Recorded
from torchx_pulumi.stack_state.stack_locks import lock_folder, stack_lock
from torchx_pulumi.storage import owners as owner_module
from torchx_pulumi.storage.stores import FolderStore
from torchx_pulumi_stacks.engine import AutomationDriver

from tests.unit.stacks.engine.test_status_writer import END, PATH, checkpoint

POD = "torchx-controller-6d5f-x2x9k"


class Containers:
    """Containers that one after the other are this process, with process id 1; the file system of a pod is its own."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self._folder = tmp_path
        (tmp_path / "backend/.pulumi/stacks/torchx").mkdir(parents=True)
        self.place = StackRef(backend=f"file://{tmp_path}/backend", project="torchx", stack="default.train-1")
        self.store = FolderStore(tmp_path / "backend")
        self.store.write(PATH, json.dumps(checkpoint()).encode())
        self.left: list[Any] = []

    def enter(
        self, pod_uid: str | None, started: int, *, host: str = POD, boot: str = "boot-1", pid: int = 1
    ) -> AutomationDriver:
        """Become a process of a container, and return its driver.

        Args:
            pod_uid: Uid of its pod, as the Deployment passes it. None: it is not passed.
            started: When its first process began, in clock ticks since the boot.
            host: Its host name.
            boot: The boot of its node.
            pid: Its process id. 1: the first process.
        """
        proc = self._folder / f"proc-{pod_uid}-{started}-{host}-{boot}"
        for path in ("1", str(pid), "self/ns", "sys/kernel/random"):
            (proc / path).mkdir(parents=True, exist_ok=True)
        # The inode of this file is that of the PID namespace.
        (proc / "self/ns/pid").touch()
        for path in ("1/stat", f"{pid}/stat", "self/stat"):
            (proc / path).write_text(f"1 (torchx-pulumi) S {' '.join(['0'] * 18)} {started} 0")
        (proc / "sys/kernel/random/boot_id").write_text(boot)
        self._patch.setattr(owner_module, "_PROC", proc)
        self._patch.setattr(os, "getpid", lambda: pid)
        self._patch.setattr(socket, "gethostname", lambda: host)
        if pod_uid is None:
            self._patch.delenv("TORCHX_PULUMI_POD_UID", raising=False)
        else:
            self._patch.setenv("TORCHX_PULUMI_POD_UID", pod_uid)
        # As in a process that has just begun.
        self._patch.setattr(owner_module, "_held", set())
        return AutomationDriver(self._folder / f"home-{pod_uid}")

    def lock(self, driver: AutomationDriver) -> None:
        """Take the lock of the stack, and do not release it."""
        held = stack_lock(self.store, self.place, driver._owned(self.place))
        assert held.__enter__() is not None
        self.left.append(held)

    @property
    def locks(self) -> list[str]:
        return self.store.paths(lock_folder(self.place))

    def write(self, driver: AutomationDriver) -> Recorded:
        return driver.record_at(self.place, StackChange(uid=str(END["uid"]), observed=END)).outcome


@pytest.fixture
def containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Containers:
    return Containers(tmp_path, monkeypatch)


RESTARTS = {
    "on the same node": {"started": 200},
    "after a boot of the node": {"started": 100, "boot": "boot-2"},
    "with another host name": {"started": 200, "host": "other"},
}


@pytest.mark.parametrize("again", RESTARTS.values(), ids=RESTARTS)
def test_a_container_that_is_killed_under_a_lock_and_restarted_removes_it(
    containers: Containers, again: dict[str, Any]
) -> None:
    containers.lock(containers.enter("pod-1", 100))
    assert len(containers.locks) == 1
    restarted = containers.enter("pod-1", **again)
    assert containers.write(restarted) is Recorded.WRITTEN
    assert containers.locks == []


def test_locks_of_the_killed_container_go_where_nothing_is_left_to_write(containers: Containers) -> None:
    killed = containers.enter("pod-1", 100)
    assert containers.write(killed) is Recorded.WRITTEN
    containers.lock(killed)
    restarted = containers.enter("pod-1", 200)
    assert containers.write(restarted) is Recorded.KNOWN
    assert len(containers.locks) == 1
    assert restarted.clear_dead_locks(containers.place.backend)
    assert containers.locks == []


OTHERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "of another pod": ({"pod_uid": "pod-1", "started": 100}, {"pod_uid": "pod-2", "started": 200, "host": "other"}),
    "of another pod of the same host name": (
        {"pod_uid": "pod-1", "started": 100},
        {"pod_uid": "pod-2", "started": 200},
    ),
    "of another pod that began at the same moment": (
        {"pod_uid": "pod-1", "started": 100},
        {"pod_uid": "pod-2", "started": 100, "boot": "boot-2"},
    ),
    "of a pod that passes no uid": ({"pod_uid": None, "started": 100}, {"pod_uid": "pod-1", "started": 200}),
    "seen without a uid": ({"pod_uid": "pod-1", "started": 100}, {"pod_uid": None, "started": 200}),
    "without uids": ({"pod_uid": None, "started": 100}, {"pod_uid": None, "started": 200}),
    "of another process of the container": (
        {"pod_uid": "pod-1", "started": 100},
        {"pod_uid": "pod-1", "started": 100, "pid": os.getpid()},
    ),
}


@pytest.mark.parametrize(("holder", "other"), OTHERS.values(), ids=OTHERS)
def test_the_lock_of_a_living_container_is_never_taken(
    containers: Containers, holder: dict[str, Any], other: dict[str, Any]
) -> None:
    containers.lock(containers.enter(**holder))
    before = containers.locks
    second = containers.enter(**other)
    assert containers.write(second) is Recorded.DEFERRED
    assert second.clear_dead_locks(containers.place.backend)
    assert containers.locks == before


@pytest.mark.parametrize("owner", [None, "pod-1", {}, {"pod_uid": "pod-1"}, {"pod_uid": ["x"]}])
def test_a_lock_with_an_odd_owner_is_that_of_somebody_else(containers: Containers, owner: Any) -> None:
    driver = containers.enter("pod-1", 200)
    content = {"pid": 1, "username": "me", "hostname": POD, "timestamp": "2026-01-01T00:00:00Z", "owner": owner}
    containers.store.lock(f"{lock_folder(containers.place)}/odd.json", json.dumps(content).encode())
    assert containers.write(driver) is Recorded.DEFERRED
    assert containers.locks == ["odd.json"]


def test_a_lock_has_pulumis_own_fields_and_its_owner(containers: Containers) -> None:
    with stack_lock(containers.store, containers.place, containers.enter("pod-1", 100)._owned(containers.place)):
        (name,) = containers.locks
        stored = containers.store.read(f"{lock_folder(containers.place)}/{name}")
        assert stored is not None
        content = json.loads(stored.data)
        assert content.keys() == {"pid", "username", "hostname", "timestamp", "owner"}
        assert content["owner"]["pod_uid"] == "pod-1"


def test_a_backend_that_cannot_be_read_is_cleared_later(
    containers: Containers, unreadable: Callable[[Path, int], None]
) -> None:
    driver = containers.enter("pod-1", 200)
    unreadable(containers.store._root / ".pulumi/locks/organization", 5)
    assert not driver.clear_dead_locks(containers.place.backend)
    assert driver.clear_dead_locks("https://api.pulumi.com")
