"""Registries and token services that answer what none should: one message, and no secret in it."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from torchx_pulumi.images.reference import parse_reference
from torchx_pulumi.images.registry import RegistryClient
from torchx_pulumi.model.errors import ImageError

from tests.loopback import LoopbackServer

Answer = tuple[int, dict[str, str], bytes]
DIGEST = f"sha256:{'a' * 64}"


class OddRegistry:
    """Answers what a test says."""

    def __init__(self) -> None:
        self.answer: Callable[[str, str], Answer] = lambda _path, _authorization: (200, {}, b"{}")
        odd = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                status, headers, body = odd.answer(self.path, self.headers.get("Authorization", ""))
                self.send_response_only(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_HEAD = do_POST = do_GET

        self.server = LoopbackServer(Handler)
        self.host = f"127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def odd() -> Iterator[OddRegistry]:
    made = OddRegistry()
    yield made
    made.close()


def ask(odd: OddRegistry) -> str | None:
    client = RegistryClient(tries=2, pause=lambda _s: None)
    try:
        return client.digest(parse_reference(f"{odd.host}/team/app:1"))
    finally:
        client.close()


def message(odd: OddRegistry) -> str:
    with pytest.raises(ImageError) as raised:
        ask(odd)
    return str(raised.value)


@pytest.mark.parametrize(
    ("challenge", "expected"),
    [
        ("", "asks for an unnamed authentication, supported are Basic and Bearer"),
        ("Negotiate", "asks for negotiate authentication"),
        ("Bearer", "sent the address '', must be one of http or https"),
        ('Bearer realm="http://h:abc/"', "sent the address 'http://h:abc/'"),
        ('Bearer realm="http://[::1"', r"sent the address 'http://\[::1'"),
        ('Bearer realm="file:///etc/passwd?secret"', "sent the address 'file:///etc/passwd', must"),
        ('Negotiate, Basic realm="x"', "asks for credentials, and Docker's configuration has none"),
    ],
)
def test_challenges(odd: OddRegistry, challenge: str, expected: str) -> None:
    odd.answer = lambda _path, _authorization: (401, {"WWW-Authenticate": challenge}, b"")
    with pytest.raises(ImageError, match=expected):
        ask(odd)


@pytest.mark.parametrize(
    "body",
    [
        b'{"token": "tok-secret\\nx: y"}',
        '{"token": "tok-secret\u20ac"}'.encode(),
        b'{"token": "tok-secret\\ud800"}',
        b'{"token": "tok-secret", "expires_in": %s}' % (b"9" * 400),
        b"[" * 100_000,
        b"null",
    ],
)
def test_what_is_no_token_is_neither_sent_nor_shown(odd: OddRegistry, body: bytes) -> None:
    bearer = {"WWW-Authenticate": f'Bearer realm="http://{odd.host}/token",service="s"'}
    odd.answer = lambda path, _authorization: (200, {}, body) if path.startswith("/token") else (401, bearer, b"")
    told = message(odd)
    assert "sent no token (it answers 200), asked for" in told
    assert "tok-secret" not in told


def test_a_token_service_that_repeats_the_password_is_not_quoted(odd: OddRegistry, tmp_path: Path) -> None:
    (tmp_path / "docker").mkdir()
    entry = {"auth": base64.b64encode(b"me:hunter2").decode()}
    (tmp_path / "docker" / "config.json").write_text(json.dumps({"auths": {odd.host: entry}}))
    bearer = {"WWW-Authenticate": f'Bearer realm="http://{odd.host}/token",service="s"'}
    odd.answer = lambda path, _authorization: (
        401,
        bearer,
        b"me:hunter2 is wrong" if path.startswith("/token") else b"",
    )
    assert "answers 401 (me:*** is wrong)" in message(odd)


@pytest.mark.parametrize(
    "target", ["http://h:abc/", "http://h:99999/", "http://[::1", "file:///etc/passwd", "/\xe9\xff"]
)
def test_redirects_to_what_is_no_address(odd: OddRegistry, target: str) -> None:
    odd.answer = lambda _path, _authorization: (302, {"Location": target}, b"")
    told = message(odd)
    assert "sent the address" in told or "redirects more than 5 times" in told


def test_a_header_that_is_no_digest_is_not_used(odd: OddRegistry) -> None:
    odd.answer = lambda _path, _authorization: (200, {"Docker-Content-Digest": "sha256:../x"}, b"{}")
    assert ask(odd) == "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


def test_a_time_that_no_calendar_has_is_no_wait(odd: OddRegistry) -> None:
    never = {"Retry-After": "Wed, 21 Oct 99999 07:28:00 GMT"}
    odd.answer = lambda _path, _authorization: (429, never, b"")
    assert "is limiting the rate of requests after 2 tries" in message(odd)


@pytest.mark.parametrize("body", [b"\x1b[31mred\r\n", b'{"errors": [{"message": "\\u001b[31mred"}]}'])
def test_control_characters_do_not_reach_the_terminal(odd: OddRegistry, body: bytes) -> None:
    client = RegistryClient(tries=1)
    odd.answer = lambda _path, _authorization: (400, {}, body)
    with pytest.raises(ImageError, match="red") as raised:
        client.manifest(parse_reference(f"{odd.host}/team/app"))
    client.close()
    assert str(raised.value).isprintable()


def test_errors_that_are_nested_too_deeply_are_not_quoted(odd: OddRegistry) -> None:
    client = RegistryClient(tries=1)
    odd.answer = lambda _path, _authorization: (400, {}, b"[" * 8000)
    with pytest.raises(ImageError, match="answers 400"):
        client.manifest(parse_reference(f"{odd.host}/team/app"))
    client.close()


def test_blobs_are_not_sent_over_plain_http() -> None:
    from torchx_pulumi.images.registry.request import RegistryRequest

    client = RegistryClient(tries=1)
    request = RegistryRequest(
        method="PATCH",
        url="http://storage.example.com/upload",
        reference=parse_reference("registry.example.com/team/app"),
        scopes=(),
        what="an upload",
        body=b"x",
    )
    with pytest.raises(ImageError, match=r"redirects to plain http \(storage\.example\.com\)"):
        client.send(request)
    client.close()


HELPERS = ("[]", '{"Username": "me"}', '{"Username": 5, "Secret": 6}')


@pytest.mark.parametrize("printed", HELPERS)
def test_a_credential_helper_that_prints_other_types_is_named(
    odd: OddRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str
) -> None:
    helper = tmp_path / "docker-credential-odd"
    helper.write_text(f"#!/bin/sh\necho '{printed}'\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "config.json").write_text(json.dumps({"credHelpers": {odd.host: "odd"}}))
    odd.answer = lambda _path, _authorization: (401, {"WWW-Authenticate": "Basic"}, b"")
    assert "Docker's configuration or its credential helper failed" in message(odd)


@pytest.mark.parametrize("config", [[5], {"auths": [1]}, {"auths": {"x": {"auth": 5}}}, {"credHelpers": [1]}])
def test_a_configuration_of_other_types_is_named(odd: OddRegistry, tmp_path: Path, config: object) -> None:
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "config.json").write_text(json.dumps(config))
    odd.answer = lambda _path, _authorization: (401, {"WWW-Authenticate": "Basic"}, b"")
    assert "Docker's configuration or its credential helper failed" in message(odd)


@pytest.mark.parametrize(
    ("proxy", "expected"),
    [
        ("http://u:hunter2@127.0.0.1:1", "its proxy: Connection refused"),
        ("http://u:hunter2@:x", r"its proxy \(HTTPS_PROXY\) is not an address of a proxy"),
    ],
)
def test_a_proxy_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch, proxy: str, expected: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    client = RegistryClient(tries=1)
    with pytest.raises(ImageError, match=expected) as raised:
        client.digest(parse_reference("registry.example.com/app:1"))
    client.close()
    assert "hunter2" not in str(raised.value)


def test_authorities_that_do_not_exist_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nonexistent")
    client = RegistryClient(tries=1)
    with pytest.raises(ImageError, match=r"invalid path: /nonexistent, asked for .*; see REQUESTS_CA_BUNDLE"):
        client.digest(parse_reference("registry.example.com/app:1"))
    client.close()
