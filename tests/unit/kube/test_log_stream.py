"""A followed log over a real connection: broken, silent, closed from elsewhere, interrupted."""

from __future__ import annotations

import gc
import json
import signal
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster, kubernetes_cluster
from torchx_pulumi.kube.streams import GROW_S, LONGEST_PART, LogStream
from torchx_pulumi.logs.query import LogQuery
from torchx_pulumi.model.errors import ClusterError

from tests.unit.logs.scripted import read_lines

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
POD = {
    "metadata": {"name": "p", "uid": "u"},
    "spec": {"containers": [{"name": "main"}, {"name": "side"}]},
    "status": {
        "containerStatuses": [
            {"name": name, "containerID": name, "state": {"running": {}}} for name in ("main", "side")
        ]
    },
}


def chunk(text: str) -> bytes:
    data = text.encode()
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


class SlowServer:
    """Sends each log what a test says, and holds the connection until the other side gives it up."""

    def __init__(self, log: bytes, *, hold: bool = True) -> None:
        self._log = log
        self._hold = hold
        self.given_up = threading.Semaphore(0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._threads.append(threading.Thread(target=self._serve, args=(connection,), daemon=True))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while request := connection.recv(65536):
                    if b"/log" not in request:
                        body = json.dumps(POD).encode()
                        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                        continue
                    connection.sendall(self._log)
                    if not self._hold:
                        return
                    connection.recv(1)
                    self.given_up.release()
                    return
            except OSError:
                self.given_up.release()

    def cluster(self) -> KubernetesCluster:
        port = self._listener.getsockname()[1]
        config = {
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "contexts": [{"name": "lab", "context": {"cluster": "c"}}],
            "current-context": "lab",
        }
        return KubernetesCluster.connect(json.dumps(config))

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)


Serve = Callable[..., SlowServer]


@pytest.fixture
def grow_s(monkeypatch: pytest.MonkeyPatch) -> float:
    """Time after which a part of a line is returned, shortened."""
    monkeypatch.setattr(kubernetes_cluster, "GROW_S", 0.2)
    return 0.2


@pytest.fixture
def serve() -> Iterator[Serve]:
    made: list[SlowServer] = []

    def start(log: bytes, **options: Any) -> SlowServer:
        made.append(SlowServer(log, **options))
        return made[-1]

    yield start
    for server in made:
        server.close()


def test_lines_come_before_the_stream_breaks_and_a_begun_one_does_not(serve: Serve) -> None:
    lines = serve(HEAD + chunk("one\ntw") + chunk("o\nthr"), hold=False).cluster().logs("n", "p", follow=True)
    assert [next(lines), next(lines)] == ["one", "two"]
    with pytest.raises(ClusterError, match="was interrupted") as caught:
        next(lines)
    assert caught.value.retryable
    assert list(lines) == []


@pytest.mark.usefixtures("grow_s")
def test_a_line_without_newline_is_given_while_it_grows(serve: Serve) -> None:
    log = HEAD + chunk("2026-01-01T00:00:00.000000000Z \r10%\r20%")
    query = LogQuery(namespace="n", pod="p", containers=("main",), follow=True)
    lines = read_lines(serve(log).cluster(), query)
    assert next(lines) == "2026-01-01T00:00:00.000000000Z \r10%\r20%\n"
    lines.close()  # type: ignore[attr-defined]


def test_the_time_of_a_line_is_not_cut_where_the_connection_stalls_in_it(serve: Serve, grow_s: float) -> None:
    log = HEAD + chunk("2026-01-01T00:00:00.000000000Z one\n2026-01-01T0")
    stream = serve(log).cluster().logs("n", "p", follow=True, keep_ends=True, timestamps=True)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.extend(stream))
    reader.start()
    reader.join(grow_s + 0.3)
    stream.close()
    reader.join()
    assert got == ["2026-01-01T00:00:00.000000000Z one\n"]


def test_lines_that_came_in_one_piece_are_not_taken_for_growing_ones(serve: Serve) -> None:
    # The second chunk waits in the reader of the connection, while nothing more comes over it.
    long = "x" * 20_000
    stream = serve(HEAD + chunk(long) + chunk("y\nz\n")).cluster().logs("n", "p", follow=True, keep_ends=True)
    begun = time.monotonic()
    assert [next(stream), next(stream)] == [f"{long}y\n", "z\n"]
    assert time.monotonic() - begun < GROW_S
    stream.close()


class Blocks:
    """A response that is there already."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self.given = 0
        self._blocks = blocks

    def blocks(self) -> Iterator[bytes]:
        for block in self._blocks:
            self.given += len(block)
            yield block

    def close(self) -> None: ...


@pytest.mark.parametrize("word", ["\rstep", "....."])
def test_a_line_without_end_takes_no_more_memory_however_long_it_is(word: str) -> None:
    block = word.encode() * 6553
    response = Blocks(iter([block] * 300))
    stream = LogStream(response, "here", keep_ends=True)
    read = 0
    for part in stream:
        read += len(part)
        assert len(part) <= LONGEST_PART + len(block)
        assert response.given - read <= LONGEST_PART + 2 * len(block)
        assert part.startswith("\r") == word.startswith("\r")
    assert read == 300 * len(block)


def test_silence_is_told_from_a_break(serve: Serve) -> None:
    lines = serve(HEAD + chunk("one\n")).cluster().logs("n", "p", follow=True, silence_s=0.05)
    assert next(lines) == "one"
    with pytest.raises(ClusterError) as caught:
        next(lines)
    assert caught.value.reason == "Silent"


def test_silence_before_the_first_word_is_told_as_well(serve: Serve) -> None:
    with pytest.raises(ClusterError) as caught:
        serve(b"").cluster().logs("n", "p", follow=True, silence_s=0.05)
    assert caught.value.reason == "Silent"


def test_closing_releases_a_thread_that_waits(serve: Serve) -> None:
    server = serve(HEAD + chunk("one\n"))
    lines = server.cluster().logs("n", "p", follow=True)
    assert next(lines) == "one"
    rest: list[str] = []
    reader = threading.Thread(target=lambda: rest.extend(lines), daemon=True)
    reader.start()
    time.sleep(0.05)
    lines.close()
    reader.join(5)
    assert not reader.is_alive()
    assert rest == []
    assert server.given_up.acquire(timeout=5)


@pytest.mark.parametrize("in_circle", [False, True])
def test_a_stream_that_is_not_read_any_more_closes_its_connection(serve: Serve, *, in_circle: bool) -> None:
    server = serve(HEAD + chunk("one\n"))
    lines: Any = server.cluster().logs("n", "p", follow=True)
    assert next(lines) == "one"
    if in_circle:
        lines.itself = lines
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del lines
        gc.collect(1)  # what this test made is young
    assert not caught
    assert server.given_up.acquire(timeout=5)


@pytest.mark.parametrize("containers", [None, "all"])
def test_an_interrupt_ends_following_at_once(serve: Serve, containers: str | None) -> None:
    server = serve(HEAD + chunk("2026-01-01T00:00:00.000000000Z one\n"))
    lines = read_lines(server.cluster(), LogQuery(namespace="n", pod="p", containers=containers, follow=True))

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    count = 1 if containers is None else 2
    assert all(next(lines).endswith(" one\n") for _ in range(count))
    old = signal.signal(signal.SIGALRM, interrupt)
    try:
        started = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            next(lines)
        took = time.monotonic() - started
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert took < 5
    assert all(server.given_up.acquire(timeout=5) for _ in range(count))
    assert not [thread for thread in threading.enumerate() if "(read)" in thread.name]


def test_a_log_that_was_read_to_its_end_keeps_its_connection(serve: Serve) -> None:
    log = HEAD + chunk("one\n") + b"0\r\n\r\n"
    server = serve(log, hold=True)
    cluster = server.cluster()
    assert list(cluster.logs("n", "p")) == ["one"]
    assert not server.given_up.acquire(blocking=False)
