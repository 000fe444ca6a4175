"""The stream of changes, and logs, as clients read them."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from torchx_pulumi.logs.waiting import LogStop
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi_fleet.tracker.live_fleet import FleetChange, LiveApp, LiveFleet
from torchx_pulumi_fleet.web import limits, stream
from torchx_pulumi_fleet.web.logs import LogRequest

from tests.fleet.web.site_server import Served, app, eventually, served


class EventReader:
    """Reads server-sent events from a socket, with no library of the server."""

    def __init__(self, server: Served, query: str = "", *headers: str) -> None:
        head = server.head(f"/api/v1/stream{query}").decode()
        self.socket = server.connect(
            head.replace("\r\n\r\n", "".join(f"\r\n{each}" for each in headers) + "\r\n\r\n").encode()
        )
        self._lines = self.socket.makefile("rb")
        assert b" 200 " in self._lines.readline()
        while self._lines.readline() != b"\r\n":
            pass

    def next(self) -> dict[str, Any]:
        """Return the data of the next event."""
        found: dict[str, str] = {}
        while True:
            line = self._lines.readline().decode().rstrip("\r\n")
            name, sign, value = line.partition(": ")
            if name == "data":
                found["data"] = value
                return {"id": found["id"], **json.loads(value)}
            if sign and name:
                found[name] = value

    def line(self) -> bytes:
        """Return the next line."""
        return self._lines.readline()

    def rest(self) -> bytes:
        """Return all that is received until the connection ends."""
        return self._lines.read()

    def close(self) -> None:
        self._lines.close()
        self.socket.close()


@contextlib.contextmanager
def reading(server: Served, *words: str) -> Iterator[EventReader]:
    reader = EventReader(server, *words)
    try:
        yield reader
    finally:
        reader.close()


def test_a_stream_begins_with_all_apps_and_goes_on_with_changes() -> None:
    with served() as server:
        server.fleet.put_stack(app("one"))
        with reading(server) as stream:
            first = stream.next()
            assert (first["whole"], [each["name"] for each in first["apps"]]) == (True, ["one"])
            assert first["id"] == first["version"]
            server.fleet.put_stack(app("two"))
            second = stream.next()
            assert (second["whole"], [each["name"] for each in second["apps"]]) == (False, ["two"])
            server.fleet.drop(app("one").key)
            third = stream.next()
            assert (third["apps"], third["gone"]) == ([], [first["apps"][0]["id"]])


def test_a_client_that_comes_back_gets_what_it_missed() -> None:
    with served() as server:
        server.fleet.put_stack(app("one"))
        with reading(server) as stream:
            version = stream.next()["version"]
        server.fleet.put_stack(app("two"))
        for words in ((f"?since={version}",), ("?since=other-1", f"Last-Event-ID: {version}")):
            with reading(server, *words) as stream:
                missed = stream.next()
                assert (missed["whole"], [each["name"] for each in missed["apps"]]) == (False, ["two"])
        word = version.partition("-")[0]
        for unknown in ("0000-1", f"{word}-99", f"{word}-x", version.partition("-")[2]):
            with reading(server, f"?since={unknown}") as stream:
                assert stream.next()["whole"]


def test_problems_reach_clients_without_a_change_of_apps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PROBLEMS_S", 0.1)
    with served() as server, reading(server) as stream:
        assert stream.next()["problems"] == []
        server.problems.append("context lab does not answer")
        assert stream.next()["problems"] == ["context lab does not answer"]


class CountingFleet(LiveFleet):
    """Counts for which versions changes were asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int | None] = []

    def changes(self, since: int | None) -> FleetChange:
        self.asked.append(since)
        return super().changes(since)


def test_clients_of_one_version_share_a_frame() -> None:
    fleet = CountingFleet()
    with served(fleet=fleet) as server, contextlib.ExitStack() as stack:
        fleet.put_stack(app("one"))
        readers = [stack.enter_context(reading(server)) for _ in range(10)]
        for reader in readers:
            reader.next()
        fleet.put_stack(app("two"))
        assert [reader.next()["apps"][0]["name"] for reader in readers] == ["two"] * 10
        assert fleet.asked == [None, 1]


def test_a_quiet_stream_has_pings_and_ends_with_its_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PING_S", 0.05)
    with served() as server, reading(server) as stream:
        stream.next()
        assert b"".join(stream.line() for _ in range(12)).count(b": ping") >= 2
        server.generated.text = "another-token-of-the-controller"
        eventually(lambda: stream.line() == b"0\r\n")


def test_a_stop_ends_streams_at_once() -> None:
    begun = 0.0
    with served() as server:
        stream = EventReader(server)
        stream.next()
        begun = time.monotonic()
    assert time.monotonic() - begun < limits.STOP_S
    assert stream.rest().endswith(b"0\r\n\r\n")
    stream.close()


def test_the_server_ends_with_an_event_while_others_end_too() -> None:
    stop = threading.Event()
    with served(stop=stop) as server:
        stream = EventReader(server)
        stream.next()
        stop.set()
        assert stream.rest().endswith(b"0\r\n\r\n")
        stream.close()


def test_more_streams_than_allowed_are_refused_and_probes_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STREAMS", 2)
    with served() as server:
        first, second = EventReader(server), EventReader(server)
        refused = server.ask("/api/v1/stream")
        assert (refused.status, refused.headers["retry-after"]) == (503, str(limits.RETRY_AFTER_S))
        assert "2 streams are open" in refused.message
        assert server.ask("/healthz").status == server.ask("/api/v1/apps").status == 200
        first.close()
        eventually(lambda: server.ask("/api/v1/stream", "HEAD").status == 200 and _opens(server))
        second.close()


def _opens(server: Served) -> bool:
    with contextlib.closing(server.connect(server.head("/api/v1/stream"))) as client:
        return b" 200 " in client.recv(100)


def test_a_client_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SEND_S", 0.3)
    monkeypatch.setattr(limits, "STREAMS", 1)
    with served() as server:
        for number in range(100):
            server.fleet.put_stack(app(f"a{number}", message="x" * 100_000))
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", server.port))
            client.sendall(server.head("/api/v1/stream"))
            assert not _opens(server)
            # Nothing is read, and the only place becomes free.
            eventually(lambda: _opens(server))


class FakeLogs:
    """Logs that a test writes."""

    def __init__(self) -> None:
        self.asked: list[LogRequest] = []
        self.stops: list[LogStop] = []
        self.lines: list[str] = ["# torchx-pulumi: log of pod train-0\n", "one\n"]
        self.given = 0
        self.error: Exception | None = None
        self.endless = False

    def open(self, app: LiveApp, request: LogRequest, stop: LogStop) -> Iterator[str]:
        self.asked.append(request)
        self.stops.append(stop)
        if self.error is not None:
            raise self.error
        return self._read(request, stop)

    def _read(self, request: LogRequest, stop: LogStop) -> Iterator[str]:
        yield from self.lines
        while self.endless and not stop.is_set():
            self.given += 1
            yield "x" * 1000 + "\n"
        if request.follow:
            stop.wait()


@contextlib.contextmanager
def with_logs(**more: Any) -> Iterator[tuple[Served, FakeLogs, str]]:
    logs = FakeLogs()
    with served(logs=logs.open, **more) as server:
        server.fleet.put_stack(app())
        path = f"/api/v1/apps/{server.fleet.apps()[0].id}/logs?role=trainer&replica=0"
        yield server, logs, path


def test_a_log_is_sent_as_it_is_read() -> None:
    with with_logs() as (server, logs, path):
        answer = server.ask(f"{path}&attempt=2&tail=10&follow=false&timestamps=true")
        assert answer.body == b"# torchx-pulumi: log of pod train-0\none\n"
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert logs.asked == [LogRequest(role="trainer", replica=0, attempt=2, tail=10)]


def test_a_followed_log_arrives_line_by_line_and_ends_with_its_reader() -> None:
    with with_logs() as (server, logs, path):
        client = server.connect(server.head(f"{path}&follow=true"))
        received = b""
        while b"one\n" not in received:
            received += client.recv(1000)
        assert not logs.stops[0].is_set()
        client.close()
        assert logs.stops[0].wait(10)


def test_a_stop_ends_followed_logs_and_does_not_say_that_they_are_whole() -> None:
    with with_logs() as (server, logs, path):
        client = server.connect(server.head(f"{path}&follow=true"))
        client.recv(1000)
    assert logs.stops[0].is_set()
    assert not rest_of(client).endswith(b"0\r\n\r\n")
    client.close()
    assert server.reported == []


def test_a_log_whose_reader_may_not_read_any_more_is_not_said_to_be_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PING_S", 0.1)
    with with_logs() as (server, logs, path):
        client = server.connect(server.head(f"{path}&follow=true"))
        client.recv(1000)
        server.generated.text = "another"
        assert not rest_of(client).endswith(b"0\r\n\r\n")
        client.close()
        assert logs.stops[0].wait(10)
        assert server.reported == []


def rest_of(client: socket.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionError):
        while part := client.recv(1000):
            received += part
    return received


def test_a_log_that_is_not_taken_holds_its_reader_up() -> None:
    with with_logs() as (server, logs, path):
        logs.endless = True
        client = server.connect(server.head(f"{path}&follow=true"))
        client.recv(100)
        before = -1
        while before != logs.given:
            before = logs.given
            time.sleep(0.15)
        # Buffers of two sockets, of the connection, and of the pipe.
        assert logs.given < 20_000
        client.close()
        assert logs.stops[0].wait(10)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ClusterError("no pod", reason="NotFound"), 404),
        (ClusterError("not started", reason="NotStarted"), 409),
        (ClusterError("refused", reason="Forbidden"), 403),
        (ClusterError("away", retryable=True), 503),
        (ClusterError("strange"), 502),
    ],
)
def test_a_log_that_cannot_be_read_has_a_status_of_its_own(error: ClusterError, status: int) -> None:
    with with_logs() as (server, logs, path):
        logs.error = error
        answer = server.ask(path)
        assert (answer.status, answer.message) == (status, str(error))
        assert ("retry-after" in answer.headers) is (status == 503)


def test_logs_are_limited_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOGS", 1)
    with with_logs() as (server, logs, path):
        client = server.connect(server.head(f"{path}&follow=true"))
        client.recv(1000)
        assert server.ask(path).status == 503
        client.close()
        eventually(lambda: server.ask(path).status == 200)
        logs.error = ClusterError("no pod", reason="NotFound")
        # A response is read before its place is given back.
        for _ in range(3):
            eventually(lambda: server.ask(path).status == 404)


def test_without_a_token_logs_are_not_served() -> None:
    with served(auth=False) as server:
        server.fleet.put_stack(app())
        path = f"/api/v1/apps/{server.fleet.apps()[0].id}"
        refused = server.ask(f"{path}/logs?role=trainer&replica=0", token=False)
        assert (refused.status, "--no-auth" in refused.message) == (403, True)
        assert server.ask(path, token=False).json["logs"] is False


def test_threads_of_logs_end() -> None:
    with with_logs() as (server, _, path):
        for _ in range(3):
            server.ask(path)
        eventually(lambda: not [one for one in threading.enumerate() if one.name == "web log"])


def test_frames_for_versions_of_many_clients_are_not_all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int | None] = []

    class Fleet(LiveFleet):
        def changes(self, since: int | None) -> FleetChange:
            asked.append(since)
            return super().changes(since)

    monkeypatch.setattr(stream, "MOST_FRAMES", 2)
    with served(fleet=Fleet()) as server:
        names = []
        for number in range(4):
            server.fleet.put_stack(app(f"app-{number}"))
            names.append(server.ask("/api/v1/apps").json["version"])
        with contextlib.ExitStack() as readers:
            for name in (*names[:3], names[0]):
                reader = EventReader(server, f"?since={name}")
                readers.callback(reader.close)
                reader.next()
    # Of the four, the first one's was dropped before it was asked for again.
    assert len(asked) == len({*asked}) + 1
