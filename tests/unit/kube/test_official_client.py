"""A caller's own `ApiClient`, of the version of `kubernetes` that is installed."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.client import ApiClient, Configuration
from torchx_pulumi.kube.official_client import OfficialTransport
from torchx_pulumi.kube.transport import ApiRequest

from tests.loopback import LoopbackServer


class Server(LoopbackServer):
    """Keeps requests; the path `/absent` is not there."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str], str]] = []
        requests = self.requests

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                requests.append(
                    (self.command, self.path, {name.lower(): text for name, text in self.headers.items()}, body)
                )
                self.send_response(404 if self.path == "/absent" else 200)
                self.send_header("Content-Length", "15")
                self.end_headers()
                self.wfile.write(b'{"kind": "Pod"}')

            do_POST = do_PATCH = do_DELETE = do_GET

            def log_message(self, *args: Any) -> None:
                """Stay silent."""

        super().__init__(Handler)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def transport(server: Server) -> Iterator[OfficialTransport]:
    configuration = Configuration(host=f"http://127.0.0.1:{server.server_port}")
    configuration.api_key = {"BearerToken": "Bearer hush"}
    configuration.api_key["authorization"] = "Bearer hush"
    with ApiClient(configuration) as client:
        yield OfficialTransport(client)
        client.rest_client.pool_manager.clear()


@pytest.mark.parametrize(
    ("method", "body", "sent"),
    [
        ("GET", None, None),
        ("DELETE", {"propagationPolicy": "Foreground"}, "application/json"),
        ("POST", {}, "application/json"),
        ("PATCH", {"spec": None}, "application/merge-patch+json"),
    ],
)
def test_requests_have_query_body_and_credentials(
    server: Server, transport: OfficialTransport, method: str, body: Any, sent: str | None
) -> None:
    query = (("labelSelector", "a=b,c"), ("limit", "5"))
    response = transport.request(
        ApiRequest(method, "/api/v1/pods", query, body=body, accept="application/json;as=Table")
    )
    assert (response.status, json.loads(response.data)) == (200, {"kind": "Pod"})
    ((asked, path, headers, text),) = server.requests
    assert (asked, path) == (method, "/api/v1/pods?labelSelector=a%3Db%2Cc&limit=5")
    assert headers["authorization"] == "Bearer hush"
    assert headers["accept"] == "application/json;as=Table"
    if sent is not None:
        assert (headers["content-type"], json.loads(text)) == (sent, body)


def test_an_error_status_is_a_response(transport: OfficialTransport) -> None:
    response = transport.request(ApiRequest("GET", "/absent"))
    assert (response.status, json.loads(response.data)) == (404, {"kind": "Pod"})


def test_a_body_is_read_as_a_stream(transport: OfficialTransport) -> None:
    response = transport.request(ApiRequest("GET", "/log", read_timeout_s=None))
    assert b"".join(response.blocks()) == b'{"kind": "Pod"}'
