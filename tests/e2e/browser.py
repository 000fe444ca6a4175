"""Chromium without a screen, driven over a pipe by its DevTools protocol."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ANSWER_S = 120.0
"""A loaded machine may take long to start a browser; a good one is done in a second."""

_LAUNCH = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)
"""Chromium reads commands from descriptor 3 and writes answers to 4."""


class RefusedError(Exception):
    """The browser refused a command."""


class Browser:
    """One browser with one page."""

    def __init__(self, program: Path, profile: Path) -> None:
        theirs_in, self._out = self._pipe(theirs=0)
        theirs_out, self._in = self._pipe(theirs=1)
        words = [
            str(program), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, str(theirs_in), str(theirs_out), *words],
            pass_fds=(theirs_in, theirs_out),
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        """What the page told, without being asked."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    @staticmethod
    def _pipe(*, theirs: int) -> tuple[int, int]:
        """Return their end and ours; theirs is none of those that the launcher fills."""
        ends = os.pipe()
        high = fcntl.fcntl(ends[theirs], fcntl.F_DUPFD, 10)
        os.close(ends[theirs])
        return high, ends[1 - theirs]

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RefusedError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        ends_at = time.monotonic() + ANSWER_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(ends_at - time.monotonic(), 0))
            read = os.read(self._in, 1 << 16) if ready else b""
            assert read, f"the browser says nothing any more; exit code {self._process.poll()}"
            self._buffer += read
        message, _, self._buffer = self._buffer.partition(b"\0")
        told: dict[str, Any] = json.loads(message)
        return told

    def open(self, address: str, *, width: int = 1280, height: int = 800, phone: bool = False) -> None:
        """Open a page and wait until it has loaded."""
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone
        )  # fmt: skip
        self.ask("Page.navigate", url="about:blank")
        self.until("location.href === 'about:blank'")
        self.ask("Page.navigate", url=address)
        self.until(f"document.readyState === 'complete' && location.protocol === {address.partition('//')[0]!r}")

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression is true in the page."""
        ends_at = time.monotonic() + ANSWER_S
        while True:
            # Between two pages there is nothing to evaluate in.
            with contextlib.suppress(RefusedError):
                if self.evaluate(f"Boolean({expression})"):
                    return
            assert time.monotonic() < ends_at, f"never came true: {expression}"
            time.sleep(0.02)

    def press(self, key: str, code: int) -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def prefer(self, scheme: str) -> None:
        """Prefer light or dark colours."""
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, path: Path) -> None:
        """Write what is seen as PNG."""
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))

    def told(self, method: str) -> list[dict[str, Any]]:
        """Return the parameters of all events of a kind so far."""
        return [event["params"] for event in self.events if event.get("method") == method]

    def close(self) -> None:
        """End the browser with all its processes."""
        for end in (self._in, self._out):
            os.close(end)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
