"""Keeps Ctrl-C from cutting short what has to be finished."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Final

REQUESTS: Final = (signal.SIGINT, signal.SIGTERM)
"""Signals that ask the process to end."""


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore requests to end as long as the block runs, which must be short.

    Other threads than the main one are never interrupted, so there it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {request: signal.signal(request, signal.SIG_IGN) for request in REQUESTS}
    try:
        yield
    finally:
        for request, handler in before.items():
            signal.signal(request, handler)
