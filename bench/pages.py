"""The controller's page and metrics with 1,000 apps, the page next to the offline page of `torchx-pulumi fleet --html`.

Real: the command `torchx-pulumi controller --listen` over a folder of stacks (those of `bench.fleet`; its cluster does
not answer), Chromium for the time until the table is shown, and 100 open pages: clients that load the page and follow
the stream while stacks change. Wants: see `WANTED`.
"""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench import verdict

PAGES = 100
CHANGES = 50
"""Stacks that change while the pages are open."""
PAINTS = 5
"""Openings of the page; the median counts."""
TIMEOUT_S = 120.0
WANTED = {"packed_kb": 200.0, "scrape_s": 1.0, "paint_ratio": 2.0, "pages_mb": 50.0}
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
"""


def main() -> int:
    """Measure, print a line per figure and one at the end; 1 where a want is missed."""
    from bench.fleet import STACKS, write_backend

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_backend(folder / "backend")
        offline = folder / "offline.html"
        subprocess.run(
            [command(), "fleet", "--offline", "--backend", f"file://{folder / 'backend'}", "--html", str(offline)],
            check=True, capture_output=True,
        )  # fmt: skip
        with Running(folder) as controller:
            controller.wait_for(STACKS)
            page = controller.ask("/")
            packed = len(gzip.compress(page, 6))
            before_mb = controller.memory_mb()
            took_s = [timed(controller, "/") for _ in range(PAINTS)]
            found = {"packed_kb": packed / 1e3}
            print(
                f"pages: {STACKS} apps: {len(page) / 1e3:.0f} kB, {packed / 1e3:.0f} kB packed, rendered in "
                f"{1e3 * statistics.median(took_s):.0f} ms; offline page: {offline.stat().st_size / 1e3:.0f} kB, "
                f"{len(gzip.compress(offline.read_bytes(), 6)) / 1e3:.0f} kB packed"
            )
            metrics = controller.ask("/metrics")
            packed = len(gzip.compress(metrics, 6))
            found["scrape_s"] = statistics.median(timed(controller, "/metrics") for _ in range(PAINTS))
            print(
                f"pages: metrics: {len(metrics) / 1e3:.0f} kB, {packed / 1e3:.0f} kB packed, in "
                f"{1e3 * found['scrape_s']:.0f} ms"
            )
            live_ms, offline_ms = paints(controller.url, offline)
            found["paint_ratio"] = live_ms / offline_ms
            print(f"pages: table after {live_ms:.0f} ms (median of {PAINTS}); offline page: {offline_ms:.0f} ms")
            found["pages_mb"], delay_s = open_pages(controller, folder / "backend")
            print(
                f"pages: {before_mb:.0f} MB before, {found['pages_mb']:.1f} MB more with {PAGES} open pages and "
                f"{CHANGES} changes, which all pages had {delay_s:.1f} s after the last one"
            )
    return verdict("pages", found, WANTED)


def command() -> Path:
    """Return the command under test."""
    return Path(sys.prefix) / "bin" / "torchx-pulumi"


class Running:
    """A controller process with its page."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "config").write_text(KUBECONFIG)
        backend = f"file://{folder / 'backend'}"
        words = [command(), "controller", "--backend", backend, "--kubeconfig", folder / "config", "--listen", "0"]
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env={**os.environ, "XDG_STATE_HOME": str(folder)},
            )  # fmt: skip
        self.url = ""

    def __enter__(self) -> Running:
        end = time.monotonic() + TIMEOUT_S
        while not self.url:
            said = (self._folder / "log").read_text()
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(said)
            found = re.search(r"the page: (\S+)", said)
            self.url = found[1] if found else ""
            time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(timeout=30)

    @property
    def _place(self) -> tuple[int, str]:
        found = re.search(r":(\d+)/\?token=(\S+)", self.url)
        if found is None:
            raise RuntimeError(self.url)
        return int(found[1]), found[2]

    def head(self, path: str) -> bytes:
        """Return the bytes of a request with the token."""
        return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self._place[1]}\r\n\r\n".encode()

    def connect(self) -> socket.socket:
        """Connect."""
        return socket.create_connection(("127.0.0.1", self._place[0]), timeout=TIMEOUT_S)

    def ask(self, path: str) -> bytes:
        """Return the body of an answer."""
        port, token = self._place
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)) as connection:
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            return connection.getresponse().read()

    def wait_for(self, count: int) -> None:
        """Wait until so many apps are shown."""
        end = time.monotonic() + TIMEOUT_S
        while (found := json.loads(self.ask("/api/v1/apps?limit=1"))["total"]) != count:
            if time.monotonic() > end:
                raise RuntimeError(f"{found} apps of {count}")
            time.sleep(0.2)

    def memory_mb(self) -> float:
        """Return its resident memory."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("VmRSS:"))) / 1024


def timed(controller: Running, path: str) -> float:
    """Return the seconds that an answer takes which is not one that others have asked for."""
    from torchx_pulumi_fleet.web import limits

    time.sleep(1.1 * limits.SHARED_S)
    began = time.perf_counter()
    controller.ask(path)
    return time.perf_counter() - began


def paints(url: str, offline: Path) -> tuple[float, float]:
    """Return the milliseconds until the table of the live page and of the offline page is shown in Chromium."""
    from tests.e2e.fleet.test_fleet_page import started_browser

    with started_browser() as browser:
        context = browser.new_context()
        page = context.new_page()
        page.goto(url)
        page.wait_for_selector("#apps tbody tr")
        root = url.partition("?")[0]
        found: dict[str, list[float]] = {root: [], offline.as_uri(): []}
        for _ in range(PAINTS):
            for address, times in found.items():
                page.goto("about:blank")
                page.goto(address)
                # The table is what is looked for: the heading is painted before the script has drawn it.
                page.locator("#rows tr").first.wait_for()
                times.append(float(page.evaluate("performance.now()")))
    live, other = found.values()
    return statistics.median(live), statistics.median(other)


class OpenPage:
    """What a browser does for an open page: it loads the page, and follows the stream."""

    def __init__(self, controller: Running) -> None:
        version = re.search(rb'"version":"([\w-]+)"', controller.ask("/"))
        if version is None:
            raise RuntimeError("the page has no version")
        self._client = controller.connect()
        self._client.sendall(controller.head(f"/api/v1/stream?since={version[1].decode()}"))
        self._lines = self._client.makefile("rb")
        self.changed: set[str] = set()

    def read(self, count: int) -> None:
        """Read until so many apps have changed."""
        while len(self.changed) < count:
            line = self._lines.readline()
            if not line:
                raise RuntimeError("the stream has ended")
            if line.startswith(b"data: "):
                self.changed |= {app["id"] for app in json.loads(line[6:])["apps"]}

    def close(self) -> None:
        """Close the page."""
        self._lines.close()
        self._client.close()


@contextlib.contextmanager
def opened(controller: Running) -> Iterator[list[OpenPage]]:
    """Open the pages."""
    with contextlib.ExitStack() as stack:
        made = [OpenPage(controller) for _ in range(PAGES)]
        for page in made:
            stack.callback(page.close)
        yield made


def open_pages(controller: Running, backend: Path) -> tuple[float, float]:
    """Return the memory of open pages, and the seconds from the last change to the last page."""
    before_mb = controller.memory_mb()
    with opened(controller) as pages:
        for path in sorted((backend / ".pulumi" / "stacks" / "torchx").glob("*.json"))[:CHANGES]:
            text = path.read_text().replace('"RUNNING"', '"FAILED"').replace('"SUCCEEDED"', '"CANCELLED"')
            path.with_suffix(".new").write_text(text)
            path.with_suffix(".new").rename(path)
        changed_at = time.monotonic()
        for page in pages:
            page.read(CHANGES)
        return controller.memory_mb() - before_mb, time.monotonic() - changed_at
