"""How the demo talks: one line a step with the time since its start, and the lines of others set off from its own."""

from __future__ import annotations

import threading
import time

_STARTED = time.monotonic()
_LOCK = threading.Lock()


def say(text: str) -> None:
    """Print a line about what is going on."""
    show(f"demo [{time.monotonic() - _STARTED:3.0f} s] {text}")


def show(text: str) -> None:
    """Print a line; never in the middle of another thread's."""
    with _LOCK:
        print(text, flush=True)


def quote(source: str, line: str) -> None:
    """Print a line of somebody else."""
    show(f"  {source} | {line}")
