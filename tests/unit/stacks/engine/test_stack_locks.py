"""Only locks of processes that we noted ourselves, and that have ended, are ours to remove."""

import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.model.app_entry import Stage
from torchx_pulumi.model.errors import DeployError, TakenOverError
from torchx_pulumi.stack_state.stack_locks import Lock, LockNote, OwnedLocks, read_locked_message
from torchx_pulumi.storage import owners as owner_module
from torchx_pulumi.storage.owners import this_process
from torchx_pulumi_stacks.engine import app_stack, process
from torchx_pulumi_stacks.engine.app_stack import AppStack
from torchx_pulumi_stacks.engine.process import RunningCli, end_orphaned_engines
from torchx_pulumi_stacks.engine.recovery import recover_stack
from torchx_pulumi_stacks.engine.work_dir import WorkDir

GONE = 2**22 + 1
"""No process has this number."""


def at(seconds_from_now: float = 0.0) -> str:
    return datetime.fromtimestamp(time.time() + seconds_from_now, timezone.utc).isoformat()


def lock(pid: int, host: str = "", when: str = "") -> Lock:
    return Lock(path=None, host=host or socket.gethostname(), pid=pid, user="me", timestamp=when or at())


@pytest.fixture
def locks(tmp_path: Path) -> OwnedLocks:
    return OwnedLocks(tmp_path / "work")


def test_a_lock_is_dead_where_its_process_was_noted_and_has_ended(locks: OwnedLocks) -> None:
    locks.note(GONE)
    assert locks.is_dead(lock(GONE))


def test_a_lock_of_a_process_that_was_not_noted_is_not_ours(locks: OwnedLocks) -> None:
    assert not locks.is_dead(lock(GONE))
    locks.note(GONE + 1)
    assert not locks.is_dead(lock(GONE))


def test_a_lock_of_a_running_process_is_alive(locks: OwnedLocks) -> None:
    locks.note(os.getpid())
    assert not locks.is_dead(lock(os.getpid()))


def test_a_number_that_was_given_out_again_is_not_the_noted_process(locks: OwnedLocks) -> None:
    path = locks.note(os.getpid())
    note = json.loads(path.read_text())
    path.write_text(json.dumps({**note, "holder": {**note["holder"], "started": "another boot:1"}}))
    assert locks.is_dead(lock(os.getpid()))


@pytest.mark.parametrize("elsewhere", [{"pid_namespace": 1}, {"boot_id": "another"}])
def test_a_note_of_another_namespace_or_boot_proves_nothing(locks: OwnedLocks, elsewhere: dict[str, Any]) -> None:
    path = locks.note(GONE)
    note = json.loads(path.read_text())
    path.write_text(json.dumps({**note, "holder": {**note["holder"], **elsewhere}}))
    assert not locks.is_dead(lock(GONE))


def test_a_lock_of_another_host_or_time_is_not_the_noted_one(locks: OwnedLocks) -> None:
    locks.note(GONE)
    assert not locks.is_dead(lock(GONE, host="elsewhere"))
    assert not locks.is_dead(lock(GONE, when=at(-60)))
    assert not locks.is_dead(lock(GONE, when=at(3600)))
    assert not locks.is_dead(lock(GONE, when="soon"))
    assert not locks.is_dead(lock(0))


def test_an_engine_whose_starter_was_killed_before_it_noted_the_number(locks: OwnedLocks) -> None:
    path = locks.note()
    assert not locks.is_dead(lock(GONE))  # the starter is this process, which lives
    note = json.loads(path.read_text())
    path.write_text(json.dumps({**note, "holder": {**note["holder"], "pid": GONE}}))
    assert locks.is_dead(lock(GONE))
    assert not locks.is_dead(lock(os.getpid()))


def test_a_damaged_note_is_left_out(locks: OwnedLocks) -> None:
    locks.note(GONE).write_text("{")
    assert locks.notes() == []


@pytest.mark.parametrize("user", ["Jane Doe", "jane", "CORP\\jane doe", "jane@corp"])
def test_locks_are_read_from_the_words_of_the_cli(user: str) -> None:
    text = (
        "error: the stack is currently locked by 2 lock(s). Either wait for the other process(es) to end or delete the "
        "lock file with `pulumi cancel`.\n"
        f"  s3://b/.pulumi/locks/organization/p/s/1.json: created by {user}@box-1 (pid 12) at 2026-01-01T00:00:00Z\n"
        f"  s3://b/.pulumi/locks/organization/p/s/2.json: created by me@box-2 (pid 13) at 2026-01-01T00:00:01Z\n"
    )
    first, second = read_locked_message(text)
    assert (first.user, first.host, first.pid) == (user, "box-1", 12)
    assert (second.user, second.host, second.pid) == ("me", "box-2", 13)


def test_locks_that_cannot_all_be_read_are_none() -> None:
    assert read_locked_message("the stack is currently locked by 2 lock(s)\n x: created by a@b (pid 1) at t") == []
    assert read_locked_message("odd") == []


def fake_cli(tmp_path: Path, script: str) -> str:
    path = tmp_path / "pulumi"
    path.write_text(f"#!{sys.executable}\n{script}")
    path.chmod(0o755)
    return str(path)


def test_an_engine_is_noted_while_it_runs_and_forgotten_where_it_ended_well(locks: OwnedLocks, tmp_path: Path) -> None:
    script = (
        "import pathlib, json, sys, time\n"
        f"folder = pathlib.Path({str(tmp_path / 'work' / 'locks')!r})\n"
        "while True:\n"
        "    text = [p.read_text() for p in folder.glob('*.json')]\n"
        "    if text and not json.loads(text[0])['starts']:\n"
        "        break\n"
        "print(text[0], file=sys.stderr)\n"
        "sys.exit(3 if 'fail' in sys.argv else 0)\n"
    )
    cli = fake_cli(tmp_path, script)
    ended = RunningCli(cli, ["up"], tmp_path, dict(os.environ), locks=locks).wait()
    assert json.loads(ended.stderr)["starts"] is False
    assert locks.notes() == []
    assert RunningCli(cli, ["fail"], tmp_path, dict(os.environ), locks=locks).wait().code == 3
    assert len(locks.notes()) == 1  # an engine that fails may leave its lock


SLEEP = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint(flush=True)\ntime.sleep(100)"


def sleeper(env: dict[str, str]) -> "subprocess.Popen[bytes]":
    """Start a process that ignores an interrupt, and wait until it does."""
    process = subprocess.Popen([sys.executable, "-c", SLEEP], env=env, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


@pytest.mark.parametrize("environ", [True, False])
def test_engines_of_the_dead_are_ended_by_note_or_environment_without_proc(
    locks: OwnedLocks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: bool
) -> None:
    monkeypatch.setattr(owner_module, "_PROC", tmp_path / "no-proc")
    monkeypatch.setattr(process, "ORPHAN_WAIT_S", 0.3)
    env = {**os.environ, **({"TORCHX_PULUMI_PLACE": "this-key"} if environ else {})}
    child, other = sleeper(env), sleeper({**os.environ, "TORCHX_PULUMI_PLACE": "another"})
    try:
        if not environ:
            locks.note(child.pid)
        assert end_orphaned_engines("this-key", locks) == 1
        assert child.wait(30) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        for started in (child, other):
            with started:
                started.kill()


def folder_lock(backend: Path, value: Lock) -> Path:
    folder = backend / ".pulumi/locks/organization/torchx/default.train-1"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{value.pid}-{value.host}.json"
    written = {"pid": value.pid, "username": value.user, "hostname": value.host, "timestamp": value.timestamp}
    path.write_text(json.dumps(written))
    return path


@pytest.fixture
def stack(make_order: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AppStack:
    monkeypatch.setattr(app_stack, "LOCK_WAIT_S", 0.1)
    made = AppStack(make_order().entry, tmp_path / "engine", lambda _: None)
    made._files.seed()  # type: ignore[union-attr]
    return made


def test_b8_a_lock_of_the_same_host_name_in_another_namespace_stays(stack: AppStack, tmp_path: Path) -> None:
    path = folder_lock(tmp_path / "backend", lock(GONE))
    with pytest.raises(DeployError, match=r"process 4194305, since .*--take-over"):
        stack.clear_dead_locks()
    assert path.exists()
    assert len(stack.locks()) == 1
    stack.clear_dead_locks(take_over=True)
    assert not path.exists()


def test_a_lock_of_our_own_dead_engine_is_cleared(stack: AppStack, tmp_path: Path) -> None:
    stack.work_dir.locks.note(GONE)
    path = folder_lock(tmp_path / "backend", lock(GONE))
    assert stack.locks() == []
    stack.clear_dead_locks()
    assert not path.exists()


def test_a_half_written_lock_is_taken_to_be_alive(stack: AppStack, tmp_path: Path) -> None:
    path = folder_lock(tmp_path / "backend", lock(GONE))
    path.write_text("")
    with pytest.raises(DeployError, match="an unknown machine"):
        stack.clear_dead_locks()


def s3_stack(
    make_order: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: str
) -> tuple[AppStack, Path]:
    """Return a stack in a bucket whose CLI says what it is locked by, until it was asked to cancel."""
    calls = tmp_path / "calls"
    script = (
        "import pathlib, sys\n"
        f"calls = pathlib.Path({str(calls)!r})\n"
        "before = calls.read_text() if calls.exists() else ''\n"
        "calls.write_text(before + sys.argv[4] + '\\n')\n"
        "if sys.argv[4] == 'destroy' and 'cancel' not in before:\n"
        f"    sys.exit({held!r})\n"
    )
    fake_cli(tmp_path, script)
    monkeypatch.setenv("PATH", str(tmp_path))
    place = replace(make_order().entry.place, backend="s3://bucket")
    return AppStack(make_order(place=place).entry, tmp_path / "engine", lambda _: None), calls


def held_by(*locks: Lock) -> str:
    lines = "\n".join(f"  s3://x: created by {one.user}@{one.host} (pid {one.pid}) at {one.timestamp}" for one in locks)
    return f"error: the stack is currently locked by {len(locks)} lock(s). Either wait\n{lines}"


def test_b8_a_dead_lock_of_ours_does_not_cancel_a_live_one_of_a_user_with_a_space(
    make_order: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive = replace(lock(4711, host="elsewhere"), user="Jane Doe")
    stack, calls = s3_stack(make_order, tmp_path, monkeypatch, held_by(lock(GONE), alive))
    stack.work_dir.locks.note(GONE)
    with pytest.raises(DeployError, match="Jane Doe@elsewhere, process 4711"):
        stack._run(["destroy"])
    # It may be held for a moment only, so that the CLI is started again; nothing is cancelled.
    assert set(calls.read_text().split()) == {"destroy"}


def test_locks_in_a_bucket_are_cancelled_where_all_are_of_our_dead_engines(
    make_order: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The note follows after several runs of the CLI, which take seconds on a busy machine.
    stack, calls = s3_stack(make_order, tmp_path, monkeypatch, held_by(lock(GONE, when=at(60))))
    with pytest.raises(DeployError, match="--take-over"):
        stack._run(["destroy"])
    assert set(calls.read_text().split()) == {"destroy"}
    calls.unlink()
    stack.work_dir.locks.note(GONE)
    assert stack._run(["destroy"]).code == 0
    assert calls.read_text().split() == ["destroy", "cancel", "destroy"]
    stack.clear_dead_locks(take_over=True)
    assert calls.read_text().split()[-1] == "cancel"


def taken() -> None:
    raise TakenOverError("taken")


def test_an_owner_that_lost_the_app_touches_nothing(make_order: Callable[..., Any], tmp_path: Path) -> None:
    order = make_order()
    stack = AppStack(order.entry, tmp_path / "engine", lambda _: None, check=taken)
    for step in (
        lambda: stack.create(seed=True),
        stack.remove,
        stack.forget,
        stack.end_orphaned_engines,
        lambda: recover_stack(replace(order.entry, stage=Stage.DELETING), stack, print),
    ):
        with pytest.raises(TakenOverError):
            step()
    assert not (tmp_path / "engine").exists()
    assert not (tmp_path / "backend").exists()


def test_a_note_survives_being_written_and_read(locks: OwnedLocks) -> None:
    path = locks.note()
    locks.note(os.getpid(), replaces=path)
    (note,) = locks.notes()
    assert (note.holder.pid, note.running) == (os.getpid(), os.getpid())
    assert dataclasses.replace(note.holder, claim="", seen_at=None, lease_until=None) == dataclasses.replace(
        this_process(), claim="", seen_at=None, lease_until=None
    )
    assert LockNote(starts=True, holder=note.holder).running is None


def test_the_workplace_keeps_the_notes(make_order: Callable[..., Any], tmp_path: Path) -> None:
    place = WorkDir(tmp_path, make_order().entry)
    place.locks.note(GONE)
    place.clear()
    assert list((tmp_path / "work").iterdir()) == []
