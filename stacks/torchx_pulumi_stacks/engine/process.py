"""Runs of the Pulumi CLI that change a stack, each in its own process group; their events are read while they run.

All engine processes start here; tests count them at this place.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torchx_pulumi.model.errors import DeployError, TakenOverError
from torchx_pulumi.stack_state.backend import backend_folder
from torchx_pulumi.stack_state.cli import INSTALL_PULUMI, PLACE_VARIABLE
from torchx_pulumi.stack_state.stack_locks import OwnedLocks
from torchx_pulumi.storage.files import remove_file, shared_umask
from torchx_pulumi.storage.owners import CheckOwner, lease_s, unowned

from torchx_pulumi_stacks.engine.event_log import EngineNotes

if TYPE_CHECKING:
    import psutil

TAIL_PAUSE_S = 0.03
INTERRUPT_WAIT_S = 30.0
"""Time that an interrupted engine has to write its state before it is killed."""

ORPHAN_WAIT_S = 15.0
"""Time that the engine of a dead owner has to end after each signal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CliResult:
    """Exit code and messages of a run of the CLI."""

    code: int
    stderr: str


class RunningCli:
    """A running CLI process. The caller must call `wait` or `interrupt`."""

    def __init__(
        self,
        cli: str,
        words: Sequence[str],
        folder: Path,
        env: Mapping[str, str],
        notes: EngineNotes | None = None,
        locks: OwnedLocks | None = None,
        check: CheckOwner = unowned,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """Start the process.

        Args:
            cli: Path of the CLI.
            words: Its arguments.
            folder: Its working directory.
            env: Its whole environment.
            notes: Receives its events. None: the command has none.
            locks: Receives a note of the process, which acquires a lock. None: the command acquires none.
            check: Renews the lease while the process runs; if the app is taken over, the process is interrupted.
            on_end: Called when the process has ended, before the remaining events are passed on.

        Raises:
            DeployError: The process cannot be started.
        """
        self._ended: CliResult | None = None
        self._ends = contextlib.ExitStack()
        self._err = self._ends.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  # closed with the rest
        asked = [cli, "--non-interactive", "--color", "never", *words]
        out = folder / f"out-{os.urandom(4).hex()}"
        if notes is not None:
            # Unlike with --event-log, the CLI then keeps no event with its copies of all properties.
            asked.append("--json")
        umask = shared_umask(backend_folder(env.get("PULUMI_BACKEND_URL", "")))
        try:
            self._note: Path | None = None if locks is None else locks.note()
            self._process = subprocess.Popen(
                asked,
                cwd=folder,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=self._ends.enter_context(out.open("ab")),
                stderr=self._err,
                start_new_session=True,
                umask=-1 if umask is None else umask,
            )
        except OSError as error:
            self._ends.close()
            raise DeployError(f"the Pulumi CLI {cli} cannot be started: {error.strerror}; {INSTALL_PULUMI}") from error
        except BaseException:
            self._ends.close()
            raise
        try:
            if locks is not None and self._note is not None:
                locks.note(self._process.pid, replaces=self._note)
            self._ends.enter_context(_tailed(out, notes))
            self._ends.enter_context(_renewing(check, self._process.pid))
            self._ends.callback(on_end)
        except BaseException:
            self.interrupt()
            raise

    def wait(self) -> CliResult:
        """Wait until the process ends; may be called again.

        Ctrl-C interrupts the engine, which then writes its state and ends; a second Ctrl-C kills it.

        Raises:
            KeyboardInterrupt: The user interrupted the process, which has ended.
        """
        if self._ended is None:
            try:
                _wait(self._process)
                self._ended = CliResult(code=self._process.returncode, stderr=_text(self._err))
                if self._note is not None and self._ended.code == 0:
                    # A failed process may have left its lock.
                    remove_file(self._note)
            finally:
                # This reads the remaining events in the log.
                self._ends.close()
        return self._ended

    def interrupt(self) -> None:
        """Interrupt the process if it still runs."""
        if self._process.poll() is None:
            _send_group(self._process.pid, signal.SIGINT)
            _wait(self._process)
        self._ends.close()


def end_orphaned_engines(key: str, locks: OwnedLocks) -> int:
    """End the engine processes of a dead owner of a stack, and return how many there were.

    An engine whose program has ended fails by itself and writes its state, so it is not killed at once.
    """
    import psutil  # 50 ms, and needed only after a kill

    found = left = _processes_of(key, locks)
    for number in (signal.SIGINT, signal.SIGKILL):
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)
        end = time.monotonic() + ORPHAN_WAIT_S
        while (left := [process for process in left if _runs(process)]) and time.monotonic() < end:
            time.sleep(0.05)
    return len(found)


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait()
    except BaseException:
        _send_group(process.pid, signal.SIGINT)
        try:
            process.wait(timeout=INTERRUPT_WAIT_S)
        except (KeyboardInterrupt, subprocess.TimeoutExpired):
            _send_group(process.pid, signal.SIGKILL)
            process.wait()
        raise
    finally:
        # Providers are in the group of the CLI and must not outlive it.
        _send_group(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def _tailed(log: Path, notes: EngineNotes | None) -> Iterator[None]:
    """Read an event log while the block runs, and its remainder at the end."""
    if notes is None:
        yield
        return
    done = threading.Event()
    reader = threading.Thread(target=_tail, args=(log, notes.take, done), daemon=True, name="torchx-pulumi-events")
    reader.start()
    try:
        yield
    finally:
        done.set()
        reader.join()


@contextlib.contextmanager
def _renewing(check: CheckOwner, group: int) -> Iterator[None]:
    """Renew the lease while an engine runs; interrupt the engine if another process takes the app over."""
    if check is unowned:
        yield
        return
    done = threading.Event()

    def renew() -> None:
        while not done.wait(lease_s() / 4):
            try:
                check()
            except TakenOverError:
                _send_group(group, signal.SIGINT)
                return
            except DeployError:
                # The index may be unreadable for a moment; the next step reports a lasting problem.
                continue

    thread = threading.Thread(target=renew, daemon=True, name="torchx-pulumi-lease")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _tail(log: Path, take: Callable[[str], None], done: threading.Event) -> None:
    rest = ""
    with log.open(encoding="utf-8", errors="replace") as file:
        while True:
            last = done.is_set()
            *lines, rest = (rest + file.read()).split("\n")
            for line in lines:
                take(line)
            if last:
                break
            done.wait(TAIL_PAUSE_S)
    if rest:
        take(rest)


def _text(file: object) -> str:
    file.seek(0)  # type: ignore[attr-defined]
    return bytes(file.read()).decode("utf-8", "replace")  # type: ignore[attr-defined]


def _send_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _processes_of(key: str, locks: OwnedLocks) -> list[psutil.Process]:
    """Return the processes of a stack: noted engines, their descendants, and processes whose environment names it.

    The environment of some processes is not readable, on macOS of more than on Linux.
    """
    import psutil  # see above

    found: dict[int, psutil.Process] = {}
    for note in locks.notes():
        with contextlib.suppress(psutil.Error):
            if note.running is not None:
                engine = psutil.Process(note.running)
                found |= {process.pid: process for process in (engine, *engine.children(recursive=True))}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(PLACE_VARIABLE) == key:
                found[process.pid] = process
    found.pop(os.getpid(), None)
    return [process for process in found.values() if _runs(process)]


def _runs(process: psutil.Process) -> bool:
    import psutil  # see above

    try:
        # A zombie has ended, even if its parent never waits for it.
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
