"""Requests that the server refuses, limits or lets in, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import threading
import time
import tracemalloc
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jsonschema
import pytest
import uvicorn
from starlette.types import Message
from torchx_pulumi_fleet.web import limits
from torchx_pulumi_fleet.web.bounds import HEADERS, bounded_send

from tests.fleet.tracker.states import ODD_NUMBERS, odd_output
from tests.fleet.web.site_server import Answer, app, eventually, served

FORM = {"Content_Type": "application/x-www-form-urlencoded"}
SECRET_PATHS = ("/api/v1/apps", "/api/v1/stream", "/api/v1/openapi.json", "/metrics", "/nothing", "/api/v1/apps/x/logs")


def cookie_of(answer: Answer) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


@pytest.mark.parametrize("path", SECRET_PATHS)
def test_nothing_but_probes_answers_without_a_token(path: str) -> None:
    with served() as server:
        refused = server.ask(path, token=False)
        assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
        wrong = server.ask(path, token=False, Authorization="Bearer wrong", Cookie=f"torchx-pulumi-{server.port}=1.2")
        assert (wrong.status, server.token in wrong.body.decode()) == (401, False)


def test_the_page_asks_for_the_token_and_shows_nothing_else() -> None:
    with served() as server:
        server.fleet.put_stack(app("secret-project"))
        asked = server.ask("/", token=False)
        assert (asked.status, asked.headers["content-type"]) == (401, "text/html; charset=utf-8")
        assert b'action="login"' in asked.body
        assert b"secret-project" not in asked.body
        assert server.ask("/?token=wrong", token=False).status == 401


def test_the_url_that_is_printed_gives_a_cookie() -> None:
    with served() as server:
        server.fleet.put_stack(app("my-app"))
        entered = server.ask(f"/?token={server.token}", token=False)
        assert (entered.status, server.token in entered.body.decode()) == (200, False)
        assert entered.headers["referrer-policy"] == "no-referrer"
        page = server.ask("/", token=False, Cookie=cookie_of(entered))
        assert page.status == 200
        assert b"my-app" in page.body
        assert "script-src 'sha256-" in page.headers["content-security-policy"]
        assert page.headers["content-security-policy"].endswith("frame-ancestors 'none'")
        assert server.ask("/api/v1/apps", token=False, Cookie=cookie_of(entered)).status == 200
        # The URL does not stay in the address bar, also of a browser that is logged in.
        again = server.ask(f"/?token={server.token}", token=False, Cookie=cookie_of(entered))
        assert (b"my-app" in again.body, "set-cookie" in again.headers) == (False, True)
        assert server.ask("/?token=old", token=False, Cookie=cookie_of(entered)).status == 200


def test_the_form_gives_a_cookie() -> None:
    with served() as server:
        form = server.ask("/login", token=False)
        # Under "no-referrer", browsers send forms with the origin "null", which is refused.
        assert (form.status, form.headers["referrer-policy"]) == (401, "same-origin")
        body = urlencode({"token": f" {server.token} "}).encode()
        origin = {"Origin": f"http://127.0.0.1:{server.port}", "X_Forwarded_Proto": "https"}
        done = server.ask("/login", "POST", token=False, body=body, **FORM, **origin)
        assert (done.status, done.headers["location"]) == (303, "./")
        assert done.headers["set-cookie"].endswith("; Secure")
        assert server.ask("/", token=False, Cookie=cookie_of(done)).status == 200
        assert server.ask("/login", token=False, Cookie=cookie_of(done)).status == 303
        wrong = server.ask("/login", "POST", token=False, body=b"token=wrong", **FORM)
        assert (wrong.status, "set-cookie" in wrong.headers) == (401, False)


def test_requests_of_other_origins_and_names_are_refused_with_a_valid_cookie_too() -> None:
    with served() as server:
        cookie = cookie_of(server.ask(f"/?token={server.token}", token=False))
        for headers, status in (
            ({"Origin": "https://evil.example"}, 403),
            ({"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "cors", "Sec_Fetch_Dest": "empty"}, 403),
            ({"Host": "rebound.example"}, 421),
        ):
            refused = server.ask("/api/v1/apps", token=False, Cookie=cookie, **headers)
            assert refused.status == status
            assert not [name for name in refused.headers if name.startswith("access-control")]
        page = server.ask("/", token=False, Host="rebound.example")
        assert (page.status, b"--allowed-host" in page.body) == (421, True)
        assert server.ask("/healthz", token=False, Host="10.0.0.1:1").status == 200


def test_a_preflight_is_refused() -> None:
    with served() as server:
        asked = server.ask("/api/v1/apps", "OPTIONS", token=False, Origin="https://evil.example")
        assert (asked.status, "access-control-allow-origin" in asked.headers) == (403, False)


@pytest.mark.parametrize("path", ["/", "/login", "/healthz", "/metrics", "/nothing", "/api/v1/apps"])
def test_every_answer_has_the_headers(path: str) -> None:
    with served() as server:
        for token in (True, False):
            answer = server.ask(path, token=token)
            own = {"Content-Security-Policy", "Referrer-Policy"}
            assert {name: answer.headers[name.lower()] for name in HEADERS if name not in own} == {
                name: value for name, value in HEADERS.items() if name not in own
            }
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            assert "server" not in answer.headers
            made = parsedate_to_datetime(answer.headers["date"])
            assert abs((datetime.now(timezone.utc) - made).total_seconds()) < 10


def test_a_quiet_server_does_not_look_for_its_end_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    async def look(_: uvicorn.Server, counter: int) -> bool:
        looks.append(counter)
        return False

    monkeypatch.setattr(uvicorn.Server, "on_tick", look)
    with served() as server:
        assert server.ask("/healthz").status == 200
        time.sleep(0.1)
    assert looks == []


def test_without_a_token_everything_is_open_and_the_login_leads_to_the_page() -> None:
    with served(auth=False) as server:
        assert server.ask("/api/v1/apps", token=False).status == 200
        page = server.ask("/", token=False)
        assert (page.status, b"with --no-auth" in page.body, b'id="log-form"' in page.body) == (200, True, False)
        assert server.ask("/login", token=False).status == 303
        assert "set-cookie" not in server.ask("/?token=any", token=False).headers
        assert server.ask("/", token=False, Host="rebound.example").status == 421


def test_metrics_have_their_content_type() -> None:
    with served() as server:
        answer = server.ask("/metrics")
        assert (answer.body, answer.headers["content-type"]) == (
            b"metric 1\n",
            "text/plain; version=1.0.0; charset=utf-8",
        )


def test_answers_are_packed_on_request() -> None:
    with served() as server:
        for number in range(50):
            server.fleet.put_stack(app(f"a{number}"))
        for path in ("/", "/api/v1/apps"):
            packed, plain = server.ask(path, Accept_Encoding="gzip"), server.ask(path)
            assert packed.headers["content-encoding"] == "gzip"
            assert len(packed.body) < len(plain.body) / 3


def test_a_defect_is_an_answer_and_one_line() -> None:
    def broken() -> tuple[bytes, str]:
        raise RuntimeError("out of order")

    with served(metrics=broken) as server:
        answer = server.ask("/metrics")
        assert (answer.status, "out of order" in answer.body.decode()) == (500, False)
        # Said after the answer was sent.
        eventually(lambda: server.reported)
        assert server.reported == ["a request of /metrics failed: RuntimeError: out of order; please report this error"]
        assert server.ask("/api/v1/apps").status == 200


def test_answers_are_as_the_document_says() -> None:
    with served() as server:
        server.fleet.put_stack(app())
        document = server.ask("/api/v1/openapi.json").json
        name = server.fleet.apps()[0].id
        for path in ("/api/v1/apps", "/api/v1/apps/{id}"):
            schema = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
            check(server.ask(path.replace("{id}", name)).json, schema, document)
        refused = document["paths"]["/api/v1/apps"]["get"]["responses"]["401"]["content"]["application/json"]
        check(server.ask("/api/v1/apps", token=False).json, refused["schema"], document)
        assert document["security"] == [{"token": []}]
        assert document["paths"]["/healthz"]["get"]["security"] == []
        names = [each["get"]["operationId"] for each in document["paths"].values()]
        assert len(set(names)) == len(names)


def check(values: Any, schema: Mapping[str, Any], document: Mapping[str, Any]) -> None:
    jsonschema.Draft202012Validator({**schema, "components": document["components"]}).validate(values)


def test_every_schema_of_the_document_is_one_and_is_used() -> None:
    with served() as server:
        document = server.ask("/api/v1/openapi.json").json
    text = json.dumps(document)
    for name, schema in document["components"]["schemas"].items():
        jsonschema.Draft202012Validator.check_schema(schema)
        # The stream has no media type of JSON, and says the name in words.
        assert f'"#/components/schemas/{name}"' in text or name == "Fleet"


def test_requests_with_bodies_are_refused() -> None:
    with served() as server:
        assert server.ask("/api/v1/apps", body=b"x" * 10).status == 413
        assert server.ask("/login", "POST", token=False, body=b"token=" + b"x" * 5000, **FORM).status == 413
        assert server.ask("/login", "POST", token=False, body=b"{}", Content_Type="application/json").status == 415


def test_a_head_that_is_too_large_is_refused() -> None:
    with served() as server, server.connect(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n") as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(b"X: " + b"x" * (limits.HEAD_BYTES + 1000))
        assert b" 400 " in client.recv(100)


def test_a_request_that_does_not_come_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEAD_S", 0.2)
    with served() as server:
        for head in (b"", b"GET /healthz HTTP/1.1\r\n"):
            with server.connect(head) as client:
                begun = time.monotonic()
                # Another byte does not prolong it.
                with contextlib.suppress(ConnectionError):
                    while time.monotonic() < begun + 5:
                        client.settimeout(0.05)
                        with contextlib.suppress(TimeoutError):
                            assert client.recv(10) == b""
                            break
                        client.sendall(b"X")
                assert time.monotonic() - begun < 3


def test_a_form_that_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BODY_S", 0.2)
    head = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
    with (
        served() as server,
        server.connect(head + b"Content-Type: application/x-www-form-urlencoded\r\n\r\nt") as client,
    ):
        assert b" 408 " in client.recv(1000)


def test_idle_connections_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    # As many connections may wait to be accepted.
    monkeypatch.setattr(limits, "CONNECTIONS", 16)
    with served() as server, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(server.connect()) for _ in range(20)]
        assert server.ask("/healthz").status == 200
        assert ended(idle[0])
        assert not ended(idle[-1])


def ended(client: socket.socket) -> bool:
    client.settimeout(0.2)
    try:
        return client.recv(10) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_more_requests_than_allowed_are_refused_and_probes_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REQUESTS", 2)
    inside, leave = threading.Semaphore(0), threading.Event()

    def slow(_: object) -> list[dict[str, str]]:
        inside.release()
        leave.wait(10)
        return []

    with served(events=slow) as server:
        server.fleet.put_stack(app())
        path = f"/api/v1/apps/{server.fleet.apps()[0].id}/events"
        clients = [server.connect(server.head(path)) for _ in range(2)]
        for _ in clients:
            assert inside.acquire(timeout=10)
        refused = server.ask("/api/v1/apps")
        assert (refused.status, refused.headers["retry-after"]) == (503, str(limits.RETRY_AFTER_S))
        assert server.ask("/healthz").status == server.ask("/readyz").status == 200
        leave.set()
        assert all(b" 200 " in client.recv(100) for client in clients)
        for client in clients:
            client.close()


def test_a_client_that_leaves_within_the_form_is_no_defect() -> None:
    head = f"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\nContent-Type: {FORM['Content_Type']}\r\n"
    with served() as server:
        for _ in range(limits.LOGINS):
            with server.connect(f"{head}\r\nt".encode()):
                pass
        # Its requests are over: there is room again.
        eventually(lambda: server.ask("/login", token=False).status == 401)
        assert server.reported == []


def test_a_large_head_that_arrives_at_once_is_refused() -> None:
    with served() as server:
        assert server.ask("/healthz", X=("x" * (limits.HEAD_BYTES - 1000))).status == 200
        assert server.ask("/healthz", X=("x" * limits.HEAD_BYTES)).status == 431


def test_a_path_with_a_last_slash_is_another_path() -> None:
    with served() as server:
        assert [server.ask(path).status for path in ("/api/v1/apps/", "/metrics/", "/login/")] == [404, 404, 404]


def test_a_foreign_cookie_of_the_name_does_not_log_out() -> None:
    with served() as server:
        own = cookie_of(server.ask(f"/?token={server.token}", token=False))
        foreign = own.partition("=")[0]
        assert server.ask("/", token=False, Cookie=f"{foreign}=1.2; {own}").status == 200
        assert server.ask("/", token=False, Cookie=f"{foreign}=1.2").status == 401


def test_clients_share_the_metrics_that_are_made() -> None:
    made, leave = threading.Semaphore(0), threading.Event()

    def slow() -> tuple[bytes, str]:
        made.release()
        leave.wait(10)
        return b"metric 1\n", "text/plain"

    with served(metrics=slow) as server, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.connect(server.head("/metrics"))) for _ in range(5)]
        assert made.acquire(timeout=10)
        # Asked for before the answer is there, or within a second.
        leave.set()
        assert all(b" 200 " in client.recv(100) for client in clients)
        assert not made.acquire(blocking=False)


def test_a_change_is_on_the_next_page() -> None:
    with served() as server:
        for name in ("one", "two"):
            server.fleet.put_stack(app(name))
            assert name.encode() in server.ask("/").body


def test_metrics_that_failed_are_made_again() -> None:
    answers = iter([RuntimeError("once"), (b"metric 1\n", "text/plain")])

    def made() -> tuple[bytes, str]:
        found = next(answers)
        if isinstance(found, Exception):
            raise found
        return found

    with served(metrics=made) as server:
        assert [server.ask("/metrics").status for _ in range(2)] == [500, 200]


def test_connections_are_used_again() -> None:
    with (
        served() as server,
        contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)) as connection,
    ):
        connection.connect()
        first = connection.sock
        for _ in range(3):
            connection.request("GET", "/healthz")
            assert (connection.getresponse().read(), connection.sock is first) == (b"ok\n", True)


DOCUMENTED = {
    "connections;": [f"{limits.CONNECTIONS}"],
    "requests at a time": [f"{limits.REQUESTS}; {limits.LOGINS}"],
    "open streams": [f"{limits.STREAMS}"],
    "logs that are read": [f"{limits.LOGS}"],
    "first line and headers": [f"{limits.HEAD_BYTES >> 10} KiB"],
    "form of the login, ": [f"{limits.BODY_BYTES >> 10} KiB"],
    "time for a request,": [f"{limits.HEAD_S:g} s"],
    "time for the form": [f"{limits.BODY_S:g} s"],
    "time in which a client has to take": [f"{limits.PART_BYTES >> 10} KiB", f"{limits.SEND_S:g} s"],
    "memory for a client": [f"{limits.PART_BYTES >> 10} KiB each", f"{limits.SOCKET_BYTES >> 10} KiB"],
    "time after which a stream": [f"{limits.PING_S:g} s"],
}


def test_the_limits_are_those_of_the_documentation() -> None:
    text = (Path(__file__).parents[3] / "docs" / "controller-access.md").read_text()
    rows = [line for line in text.partition("## Limits")[2].partition("##")[0].splitlines() if line.startswith("| ")]
    assert len(rows) == len(DOCUMENTED) + 1
    for name, values in DOCUMENTED.items():
        (row,) = [line for line in rows if line.startswith(f"| {name}")]
        assert all(value in row for value in values), row


def test_a_large_answer_is_not_copied_for_a_client_that_does_not_read() -> None:
    body, most = bytes(64 * limits.PART_BYTES), []

    async def send(_: Message) -> None:
        most.append(tracemalloc.get_traced_memory()[0])

    tracemalloc.start()
    try:
        asyncio.run(bounded_send({}, send)({"type": "http.response.body", "body": body}))
    finally:
        tracemalloc.stop()
    assert len(most) == 64
    assert max(most) - most[0] < 2 * limits.PART_BYTES
    assert most[0] < 8 * limits.PART_BYTES


def test_odd_numbers_of_apps_take_neither_the_page_nor_the_others_away() -> None:
    with served() as server:
        server.fleet.put_stack(app("good"))
        for place, number in enumerate(ODD_NUMBERS):
            odd = odd_output(f"odd-{place}", number)
            server.fleet.put_stack(replace(app(f"odd-{place}"), output=odd))
        assert b"default:good" in server.ask("/").body
        listed = json.loads(server.ask("/api/v1/apps").body, parse_constant=pytest.fail)["apps"]
        assert len(listed) == 1 + len(ODD_NUMBERS)
        for one in listed:
            answer = server.ask(f"/api/v1/apps/{one['id']}")
            assert answer.status == 200, answer.body
            json.loads(answer.body, parse_constant=pytest.fail)
