"""Asking a registry: answers, logins, patience, and what is said when it does not work."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from torchx_pulumi.images.reference import parse_reference
from torchx_pulumi.images.registry import RegistryClient, is_insecure
from torchx_pulumi.model.errors import ImageError

from tests.unit.images.fake_registry import FakeRegistry

DIGEST = "sha256:" + "d" * 64


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def ask(registry: FakeRegistry, waits: list[float]) -> Callable[[str], str | None]:
    registry.digests["team/app:1"] = DIGEST
    client = RegistryClient(pause=waits.append)
    return lambda name: client.digest(parse_reference(f"{registry.host}/{name}"))


def log_in(registry: FakeRegistry, user: str = "me", password: str = "right") -> None:
    folder = Path(os.environ["DOCKER_CONFIG"])
    folder.mkdir(exist_ok=True)
    secret = base64.b64encode(f"{user}:{password}".encode()).decode()
    (folder / "config.json").write_text(json.dumps({"auths": {registry.host: {"auth": secret}}}))


def test_a_digest_is_found_with_one_request(ask: Callable[[str], str | None], registry: FakeRegistry) -> None:
    assert ask("team/app:1") == DIGEST
    assert registry.asked == ["HEAD /v2/team/app/manifests/1"]


def test_what_the_registry_lacks_is_none(ask: Callable[[str], str | None]) -> None:
    assert ask("team/app:2") is None


@pytest.mark.parametrize("bearer", [False, True], ids=["basic", "bearer"])
def test_credentials_come_from_dockers_configuration(
    ask: Callable[[str], str | None], registry: FakeRegistry, bearer: bool
) -> None:
    registry.login, registry.bearer = ("me", "right"), bearer
    log_in(registry)
    assert ask("team/app:1") == DIGEST


def test_credentials_come_from_a_credential_helper(
    ask: Callable[[str], str | None], registry: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.login = ("helped", "secret")
    program = tmp_path / "docker-credential-fake"
    program.write_text(
        f'#!/bin/sh\necho \'{{"ServerURL": "{registry.host}", "Username": "helped", "Secret": "secret"}}\'\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    folder = Path(os.environ["DOCKER_CONFIG"])
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"credHelpers": {registry.host: "fake"}}))
    assert ask("team/app:1") == DIGEST


@pytest.mark.parametrize("bearer", [False, True], ids=["basic", "bearer"])
def test_wrong_credentials_say_how_to_log_in(
    ask: Callable[[str], str | None], registry: FakeRegistry, waits: list[float], bearer: bool
) -> None:
    registry.login, registry.bearer = ("me", "right"), bearer
    log_in(registry, password="wrong")
    with pytest.raises(ImageError, match=f"docker login {registry.host}") as caught:
        ask("team/app:1")
    assert "wrong" not in str(caught.value)
    assert waits == []


def test_no_credentials_say_how_to_log_in(ask: Callable[[str], str | None], registry: FakeRegistry) -> None:
    registry.login = ("me", "right")
    with pytest.raises(ImageError, match="docker login"):
        ask("team/app:1")


def test_a_failing_credential_helper_is_named(ask: Callable[[str], str | None], registry: FakeRegistry) -> None:
    registry.login = ("me", "right")
    folder = Path(os.environ["DOCKER_CONFIG"])
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"credHelpers": {registry.host: "is-not-there"}}))
    with pytest.raises(ImageError, match=r"credential helper failed.*is-not-there"):
        ask("team/app:1")


def test_limits_and_bad_gateways_are_waited_out(
    ask: Callable[[str], str | None], registry: FakeRegistry, waits: list[float]
) -> None:
    registry.failures = [429, 503, 500]
    registry.retry_after = "7"
    assert ask("team/app:1") == DIGEST
    assert waits == [7, 7, 7]


def test_patience_ends_with_a_clear_error(
    ask: Callable[[str], str | None], registry: FakeRegistry, waits: list[float]
) -> None:
    registry.failures = [429] * 9
    with pytest.raises(ImageError, match=r"limiting the rate of requests after 5 tries.*team/app:1") as caught:
        ask("team/app:1")
    assert caught.value.retryable
    assert waits == [0.5, 1, 2, 4]


def test_a_registry_that_is_down_is_named(
    ask: Callable[[str], str | None], registry: FakeRegistry, waits: list[float]
) -> None:
    registry.close()
    with pytest.raises(
        ImageError, match=rf"registry {registry.host}: cannot be reached \(Connection refused\)"
    ) as caught:
        ask("team/app:1")
    assert caught.value.retryable
    assert len(waits) == 4


def test_a_refusal_is_not_tried_again(
    ask: Callable[[str], str | None], registry: FakeRegistry, waits: list[float]
) -> None:
    registry.failures = [403]
    with pytest.raises(ImageError, match="answers 403"):
        ask("team/app:1")
    assert waits == []


def test_what_is_on_loopback_is_asked_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_PULUMI_INSECURE_REGISTRIES", "lab.example.com:5000, other")
    assert [is_insecure(each) for each in ("127.9.9.9:1", "[::1]:5000", "lab.example.com:5000", "lab.example.com")] == [
        *(True, True, True, False)
    ]
