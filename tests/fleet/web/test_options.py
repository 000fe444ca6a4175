"""The options for pages: what is refused before anything starts."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest
from torchx_pulumi.model.errors import Problem
from torchx_pulumi_fleet.web.options import Listening, WebWords, check_web


def check(listen: str | None = None, **more: object) -> tuple[list[Problem], Listening | None]:
    words = {"token_file": None, "no_auth": False, "allowed_hosts": (), "once": False, **more}
    return check_web(WebWords(listen=listen, **words))  # type: ignore[arg-type]


@contextlib.contextmanager
def closing_listener(found: Listening | None):  # type: ignore[no-untyped-def]
    assert found is not None
    with found.listener:
        yield found


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    path = tmp_path / "token"
    path.write_text("0123456789abcdef")
    path.chmod(0o600)
    return str(path)


def test_loopback_with_a_token_in_the_url_is_the_default() -> None:
    problems, found = check("0")
    with closing_listener(found) as listening:
        assert problems == []
        assert listening.listener.getsockname()[0] == "127.0.0.1"
        port, token = listening.access.port, listening.access.token.current().decode()
        assert listening.url == f"http://127.0.0.1:{port}/?token={token}"
        assert listening.serves_logs


def test_a_token_of_a_file_is_not_in_the_url(token_file: str) -> None:
    _, found = check("0.0.0.0:0", token_file=token_file, allowed_hosts=["Torchx.example"])
    with closing_listener(found) as listening:
        assert listening.url == f"http://0.0.0.0:{listening.access.port}/"
        assert "torchx.example" in listening.access.hosts


def test_without_a_token_logs_are_not_served() -> None:
    _, found = check("0", no_auth=True)
    with closing_listener(found) as listening:
        assert not listening.serves_logs
        assert "token" not in listening.url


def test_ipv6_is_in_brackets() -> None:
    _, found = check("[::1]:0")
    with closing_listener(found) as listening:
        assert listening.url.startswith(f"http://[::1]:{listening.access.port}/")


@pytest.mark.parametrize("listen", ["", ":8080", "65536", "http://localhost:80", "::1:8080", "localhost", "a b:1"])
def test_what_is_no_address_is_refused(listen: str) -> None:
    problems, found = check(listen)
    assert found is None
    assert [problem.path for problem in problems] == ["--listen"]
    assert "allowed is [HOST:]PORT" in problems[0].message


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0"])
def test_other_machines_need_a_token_file_or_the_word_that_they_do_not(listen: str, token_file: str) -> None:
    problems, found = check(listen)
    assert found is None
    assert "--token-file FILE" in problems[0].message
    for more in ({"token_file": token_file}, {"no_auth": True}):
        problems, found = check(listen, **more)
        with closing_listener(found):
            assert problems == []


def test_all_problems_are_said_at_once(tmp_path: Path) -> None:
    file = str(tmp_path / "absent")
    problems, found = check(
        "0.0.0.0:99999", token_file=file, no_auth=True, once=True, allowed_hosts=["https://a/b", "a:1"]
    )
    assert found is None
    assert [problem.path for problem in problems] == [
        "--listen", "--no-auth", "--allowed-host", "--allowed-host", "--listen",
    ]  # fmt: skip


def test_a_bad_token_file_is_refused(tmp_path: Path) -> None:
    for file in (str(tmp_path / "absent"), ""):
        problems, _ = check("0", token_file=file)
        assert [problem.path for problem in problems] == ["--token-file"]


def test_options_without_listen_are_refused() -> None:
    problems, found = check(None, token_file="token", no_auth=True, allowed_hosts=["a", "b"])
    assert found is None
    assert [problem.path for problem in problems] == ["--token-file", "--no-auth", "--allowed-host"]


def test_a_port_that_is_in_use_is_a_problem() -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        problems, found = check(str(used.getsockname()[1]))
    assert found is None
    assert "name another port, or 0" in problems[0].message


def test_nothing_is_served_without_the_option() -> None:
    assert check(None) == ([], None)
