"""`torchx-pulumi fleet --watch` as a process: on a terminal, and where its output is a pipe."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doc_blocks import commands
from tests.fleet.tracker.states import checkpoint, output, write_stack

PROGRAM = (
    "import sys; from torchx_pulumi.cli.main import main; from torchx_pulumi_fleet.cli import fleet_watch; "
    "fleet_watch.LIST_EVERY_S = 0.2; sys.exit(main(sys.argv[1:]))"
)
"""The command, which lists the stacks more often."""
PATIENCE_S = 30.0
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
"""Switch to the terminal's second screen and back."""
HOME, CLEAR = "\x1b[H", "\x1b[2J"


def _take_interrupts() -> None:
    """A shell starts its background jobs, and so these tests, with SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _begin_on_terminal() -> None:
    _take_interrupts()
    # Ctrl-C and Ctrl-Z are signals of the controlling terminal.
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """A watch on a terminal of its own."""

    def __init__(self, words: list[str], env: dict[str, str], size: tuple[int, int]) -> None:
        self.master, slave = pty.openpty()
        self.resize(*size)
        self.text = ""
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={"TERM": "xterm", **env},
            start_new_session=True,
            preexec_fn=_begin_on_terminal,
        )
        os.close(slave)

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def press(self, key: str) -> None:
        os.write(self.master, key.encode())

    def wait(self, pattern: str, timeout_s: float = PATIENCE_S) -> str:
        """Wait until a pattern is written, and return the text since the last call."""
        end = time.monotonic() + timeout_s
        while (found := re.search(pattern, self.text, re.DOTALL)) is None:
            assert time.monotonic() < end, f"no {pattern!r} in {self.text!r}"
            self._read(0.1)
        seen, self.text = self.text[: found.end()], self.text[found.end() :]
        return seen

    def ended(self) -> tuple[int, str]:
        """Return the exit code and the text since the last call."""
        end = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < end, self.text
            self._read(0.05)
        while self._read(0.1):
            pass
        return self.process.returncode, self.text

    def _read(self, timeout_s: float) -> bool:
        if not select.select([self.master], [], [], timeout_s)[0]:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:  # the last process of the terminal has ended
            return False
        self.text += data.decode()
        return bool(data)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    dropped = ("PULUMI_BACKEND_URL", "COLUMNS", "LINES", "KUBECONFIG", "TERM")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**kept, "XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path), "TZ": "UTC"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(20):
        write_stack(tmp_path, f"a{number}", checkpoint(output(f"a{number}")))
    return tmp_path


@pytest.fixture
def open_terminal(folder: Path, env: dict[str, str]) -> Iterator[Callable[..., Terminal]]:
    made: list[Terminal] = []

    def start(*words: str, size: tuple[int, int] = (100, 12), **variables: str) -> Terminal:
        command = ["fleet", "--watch", "--offline", "--backend", f"file://{folder}", *words]
        made.append(Terminal(command, {**env, **variables}, size=size))
        return made[-1]

    yield start
    for each in made:
        each.close()


def fail(folder: Path, name: str) -> None:
    write_stack(folder, name, checkpoint(output(name, observed={"state": "FAILED", "reason": "OutOfMemory"})))


def test_a_change_is_drawn_and_the_last_table_stays(folder: Path, open_terminal: Callable[..., Terminal]) -> None:
    terminal = open_terminal()
    first = terminal.wait("Ctrl-C ends the watch")
    assert first.count(ENTER) == 1
    assert "... 12 more" in first
    assert "team:a9 " not in first
    fail(folder, "a12")
    terminal.wait("19 not ended")
    terminal.press("\x03")
    code, rest = terminal.ended()
    assert code == 130
    left, _, stays = rest.partition(LEAVE)
    assert ENTER not in left + stays
    lines = [line for line in stays.splitlines() if line.startswith("team:")]
    assert len(lines) == 20
    assert lines[-1].split()[:3] == ["team:a12", "FAILED", "OutOfMemory"]
    assert max(map(len, stays.splitlines())) <= 100
    assert "Traceback" not in rest


def test_nothing_is_cleared_between_two_drawings(folder: Path, open_terminal: Callable[..., Terminal]) -> None:
    terminal = open_terminal()
    terminal.wait("Ctrl-C ends the watch")
    for name in ("a3", "a4"):
        fail(folder, name)
        drawn = terminal.wait(f"{'19' if name == 'a3' else '18'} not ended")
        assert CLEAR not in drawn


def test_a_table_follows_the_size_of_its_terminal(open_terminal: Callable[..., Terminal]) -> None:
    terminal = open_terminal(size=(100, 8))
    terminal.wait("Ctrl-C ends the watch")
    terminal.resize(40, 30)
    terminal.wait("team:a19 ")
    lines = terminal.wait(r"\x1b\[HAPP[^\x1b]*team:a9 [^\x1b]*\x1b").rpartition(HOME)[2].split("\r\n")
    assert sum(text.startswith("team:") for text in lines) == 20
    assert max(map(len, lines[:-1])) == 40


@pytest.mark.parametrize("variables", [{"COLUMNS": "0", "LINES": "0"}, {"FORCE_COLOR": ""}, {"TTY_COMPATIBLE": "0"}])
def test_variables_about_terminals_do_not_hide_the_table(
    variables: dict[str, str], open_terminal: Callable[..., Terminal]
) -> None:
    assert "team:a0" in open_terminal(**variables).wait("Ctrl-C ends the watch")


def test_a_terminal_that_is_not_known_gets_lines(open_terminal: Callable[..., Terminal]) -> None:
    assert ENTER not in open_terminal(TERM="unknown").wait("team:a19 RUNNING")


def test_sigterm_ends_a_watch_and_restores_the_terminal(open_terminal: Callable[..., Terminal]) -> None:
    terminal = open_terminal()
    terminal.wait("Ctrl-C ends the watch")
    terminal.process.send_signal(signal.SIGTERM)
    code, rest = terminal.ended()
    assert code == 143
    assert LEAVE in rest
    assert rest.count("team:a3") == 1


def test_ctrl_z_shows_the_first_screen_until_the_watch_goes_on(open_terminal: Callable[..., Terminal]) -> None:
    terminal = open_terminal()
    terminal.wait("Ctrl-C ends the watch")
    terminal.press("\x1a")
    terminal.wait(re.escape(LEAVE))
    os.waitid(os.P_PID, terminal.process.pid, os.WSTOPPED | os.WNOWAIT)
    terminal.process.send_signal(signal.SIGCONT)
    assert "team:a0" in terminal.wait(re.escape(ENTER) + ".*?Ctrl-C ends the watch")


def test_a_backend_that_goes_away_is_said_at_the_foot(folder: Path, open_terminal: Callable[..., Terminal]) -> None:
    terminal = open_terminal()
    terminal.wait("Ctrl-C ends the watch")
    (folder / ".pulumi").rename(folder / "away")
    terminal.wait("the stacks are shown as last read: .*20 apps")
    (folder / "away").rename(folder / ".pulumi")
    terminal.wait(re.escape(HOME) + r"(?:(?!the stacks|\x1b\[H).)*Ctrl-C ends")
    terminal.press("\x03")
    assert terminal.ended()[0] == 130


def test_a_selection_holds_while_the_states_change(folder: Path, open_terminal: Callable[..., Terminal]) -> None:
    terminal = open_terminal("--state", "failed", "--user", "ada")
    terminal.wait("no apps in .*0 apps")
    fail(folder, "a7")
    assert "team:a7" in terminal.wait("1 app,")


@pytest.fixture
def pipe(folder: Path, env: dict[str, str]) -> Iterator[Callable[..., Any]]:
    made: list[Any] = []

    def start(*words: str, term: str = "xterm") -> Any:
        made.append(
            subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    PROGRAM,
                    "fleet",
                    "--watch",
                    "--offline",
                    "--backend",
                    f"file://{folder}",
                    *words,
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**env, "TERM": term},
                preexec_fn=_take_interrupts,
            )
        )
        return made[-1]

    yield start
    for each in made:
        if each.poll() is None:
            each.kill()
        each.communicate()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_where_there_is_no_terminal_each_change_is_a_line(
    folder: Path, pipe: Callable[..., Any], number: int, code: int
) -> None:
    process = pipe()
    first = [process.stdout.readline().split()[1:5] for _ in range(20)]
    assert sorted(first)[0] == ["team:a0", "RUNNING", "Running", "1/2"]
    fail(folder, "a5")
    assert process.stdout.readline().split()[1:5] == ["team:a5", "FAILED", "OutOfMemory", "1/2"]
    (folder / ".pulumi/stacks/torchx/a6.json").unlink()
    assert process.stdout.readline().split()[1:] == ["team:a6", "deleted"]
    write_stack(folder, "a7", "cut off")
    assert "stack torchx/a7 cannot be read" in process.stderr.readline()
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code
    assert "\x1b" not in out
    assert "Traceback" not in err


def test_a_reader_that_ends_ends_the_watch(folder: Path, pipe: Callable[..., Any]) -> None:
    process = pipe()
    for _ in range(20):
        process.stdout.readline()
    process.stdout.close()
    fail(folder, "a5")
    assert process.wait(timeout=PATIENCE_S) == 0
    assert process.stderr.read() == ""


@pytest.mark.parametrize("line", commands("docs/fleet.md", "fleet-watch"))
def test_the_commands_of_the_page_run(line: str, folder: Path, env: dict[str, str]) -> None:
    words = shlex.split(line.partition(">>")[0], comments=True)[1:]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words],
        env={**env, "PULUMI_BACKEND_URL": f"file://{folder}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        # No app of the test is in the queue `research`: a message says so.
        (first,), _, _ = select.select([process.stdout, process.stderr], [], [], PATIENCE_S)
        assert first is (process.stderr if "research" in line else process.stdout)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE_S) == 143
    finally:
        process.kill()
        _, err = process.communicate()
    assert err.count("\n") == err.count("none of the 20 apps matches") == ("research" in line)


def test_a_backend_that_is_absent_at_the_start_is_a_message(env: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "fleet", "--watch", "--backend", "file:///absent"],
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 2
    assert "no such folder" in done.stderr


@pytest.mark.parametrize("other", ["--json", "--prometheus", "--html=-"])
def test_a_watch_has_no_other_view(other: str, env: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "fleet", "--watch", other],
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 2
    assert "not allowed with argument" in done.stderr
