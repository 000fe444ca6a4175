"""Says on stderr what takes long, now and then, with the time so far."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import Final

_FIRST_S: Final = 2.0
_EVERY_S: Final = 15.0


@contextlib.contextmanager
def telling(what: str, expected_s: int) -> Iterator[None]:
    """Tell about `what` as long as the block runs; nothing is said about what is done within 2 seconds."""
    done, begin = threading.Event(), time.monotonic()

    def tell() -> None:
        wait_s = _FIRST_S
        while not done.wait(wait_s):
            passed = time.monotonic() - begin
            print(f"images: {what}: {passed:.0f} s so far, usually {expected_s} s", file=sys.stderr, flush=True)
            wait_s = _EVERY_S

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
