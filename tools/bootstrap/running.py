"""Run a program while the progress line goes on; keep its last lines for the error.

Nothing here knows about parts.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tools.bootstrap.errors import BootstrapError

LAST_LINES: Final = 12
"""Lines of a failed program's output that go into the error."""


def run(
    command: Sequence[str | Path],
    *,
    what: str,
    next_step: str,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    tick: Callable[[], None] = lambda: None,
) -> str:
    """Run `command` to its end and return what it printed.

    Args:
        command: The program and its arguments.
        what: What fails if it fails, for example "building kwok".
        next_step: What the user can do then.
        environment: The whole environment. None: this process's own.
        folder: Where to run it. None: here.
        tick: Called about once a second meanwhile.

    Raises:
        BootstrapError: The program is not there, or ended with another code than 0.
    """
    words = [str(word) for word in command]
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        try:
            process = subprocess.Popen(
                words,
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise BootstrapError(f"{what}: cannot run {words[0]}: {error.strerror}; {next_step}") from error
        try:
            while _still_running(process):
                tick()
        finally:
            if process.poll() is None:
                # The whole session: compilers that it started would go on otherwise.
                os.killpg(process.pid, signal.SIGTERM)
                process.wait()
        output.seek(0)
        text = output.read()
    if process.returncode:
        last = "\n".join(f"    {line}" for line in text.strip().splitlines()[-LAST_LINES:])
        command_line = " ".join(words)
        raise BootstrapError(f"{what}: `{command_line}` ended with {process.returncode}:\n{last}\n  {next_step}")
    return text


def _still_running(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(timeout=1)
    except subprocess.TimeoutExpired:
        return True
    return False
