"""Asking a registry: answers, logins, patience, and what is said when it does not work."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.images.oci import DOCKER_MANIFEST, OCI_CONFIG, OCI_MANIFEST, Descriptor, Manifest, sha256_digest
from torchx_pulumi.images.reference import Reference, parse_reference
from torchx_pulumi.images.registry import RegistryClient, is_insecure
from torchx_pulumi.images.registry.authorization import Authorizations
from torchx_pulumi.images.registry.request import RegistryAnswer, RegistryRequest
from torchx_pulumi.model.errors import ImageError

from tests.loopback import NAME, Certificates, closed_port, http_proxy
from tests.unit.images.fake_registry import FakeRegistry

DIGEST = "sha256:" + "d" * 64
SDK = Path(__file__).parents[3] / "sdk"


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


def ask_for_login(registry: FakeRegistry, bearer: bool) -> None:
    if bearer:
        registry.use_tokens().exists = lambda _: True
    else:
        registry.login = ("me", "right")


def test_a_digest_is_found_with_one_request(ask: Callable[[str], str | None], registry: FakeRegistry) -> None:
    assert ask("team/app:1") == DIGEST
    assert registry.asked == ["HEAD /v2/team/app/manifests/1"]


def test_what_the_registry_lacks_is_none(ask: Callable[[str], str | None]) -> None:
    assert ask("team/app:2") is None


@pytest.mark.parametrize("bearer", [False, True], ids=["basic", "bearer"])
def test_credentials_come_from_dockers_configuration(
    ask: Callable[[str], str | None], registry: FakeRegistry, bearer: bool
) -> None:
    ask_for_login(registry, bearer)
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
    ask_for_login(registry, bearer)
    log_in(registry, password="wrong")
    with pytest.raises(ImageError, match=f"docker login {registry.host}") as caught:
        ask("team/app:1")
    assert "wrong" not in str(caught.value)
    assert waits == []


def test_no_credentials_say_how_to_log_in(ask: Callable[[str], str | None], registry: FakeRegistry) -> None:
    registry.login = ("me", "right")
    with pytest.raises(ImageError, match="docker login"):
        ask("team/app:1")


def test_a_token_service_without_a_name_is_asked_without_one_before_a_token_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[RegistryRequest] = []

    def send(request: RegistryRequest) -> RegistryAnswer:
        sent.append(request)
        return RegistryAnswer(status=200, headers={}, content=b'{"token": "t", "expires_in": 100}')

    reference = parse_reference("registry.example.com/app")
    request = RegistryRequest(method="GET", url="/", reference=reference, scopes=("repository:app:pull",), what="app")
    challenge = 'Bearer realm="https://registry.example.com/token",scope="repository:app:pull"'
    authorizations = Authorizations(send)
    assert authorizations.renewed(challenge, None, request) == "Bearer t"
    now_s = time.monotonic()
    for later_s, count in ((70, 1), (90, 2)):
        monkeypatch.setattr(time, "monotonic", lambda later_s=later_s: now_s + later_s)
        assert (authorizations.current(request), len(sent)) == ("Bearer t", count)
    assert sent[0].url == "https://registry.example.com/token?scope=repository%3Aapp%3Apull"


def test_a_failing_credential_helper_is_named(ask: Callable[[str], str | None], registry: FakeRegistry) -> None:
    registry.login = ("me", "right")
    folder = Path(os.environ["DOCKER_CONFIG"])
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"credHelpers": {registry.host: "is-not-there"}}))
    with pytest.raises(ImageError, match=r"credential helper failed.*is-not-there"):
        ask("team/app:1")


@pytest.mark.parametrize(("asked_s", "waited_s"), [(7, 7), (70, 30)])
def test_limits_and_bad_gateways_are_waited_out(
    ask: Callable[[str], str | None], registry: FakeRegistry, waits: list[float], asked_s: int, waited_s: int
) -> None:
    registry.failures = [429, 503, 500]
    registry.retry_after = str(asked_s)
    assert ask("team/app:1") == DIGEST
    assert waits == [waited_s] * 3


def test_patience_ends_with_a_clear_error(
    ask: Callable[[str], str | None], registry: FakeRegistry, waits: list[float]
) -> None:
    registry.failures = [429] * 9
    with pytest.raises(ImageError, match=r"limiting the rate of requests after 5 tries.*team/app:1") as caught:
        ask("team/app:1")
    assert caught.value.retryable
    assert waits == [0.5, 1, 2, 4]


def test_a_registry_that_is_down_is_named(client: RegistryClient, waits: list[float]) -> None:
    with closed_port() as port:
        host = f"127.0.0.1:{port}"
        with pytest.raises(ImageError, match=rf"registry {host}: cannot be reached \(Connection refused\)") as caught:
            client.digest(parse_reference(f"{host}/team/app:1"))
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


def team(registry: FakeRegistry, version: str = "1") -> Reference:
    return parse_reference(f"{registry.host}/team/app:{version}")


def test_a_manifest_that_is_not_what_its_digest_says_is_refused(client: RegistryClient, registry: FakeRegistry) -> None:
    registry.repository("team/app").manifests[DIGEST] = (OCI_MANIFEST, b"{}")
    with pytest.raises(ImageError, match=f"sent a manifest with digest sha256:.* for {DIGEST}"):
        client.manifest(replace(team(registry), digest=DIGEST))


def test_a_manifest_without_a_media_type_is_known_by_its_content(
    client: RegistryClient, registry: FakeRegistry
) -> None:
    content = json.dumps({"mediaType": DOCKER_MANIFEST}).encode()
    registry.repository("team/app").manifests[sha256_digest(content)] = ("text/plain", content)
    found = client.manifest(replace(team(registry), digest=sha256_digest(content)))
    assert found == Manifest(media_type=DOCKER_MANIFEST, content=content)


def test_content_without_end_is_not_read(client: RegistryClient, registry: FakeRegistry) -> None:
    content = b" " * (5 << 20)
    registry.repository("team/app").manifests[sha256_digest(content)] = (OCI_MANIFEST, content)
    with pytest.raises(ImageError, match="sent more than 4194304 bytes"):
        client.manifest(replace(team(registry), digest=sha256_digest(content)))


def blob_in(registry: FakeRegistry, content: bytes) -> Descriptor:
    digest = sha256_digest(content)
    registry.repository("team/app").blobs[digest] = content
    return Descriptor(media_type=OCI_CONFIG, digest=digest, size=len(content))


def test_a_blob_whose_connection_breaks_is_read_again(
    client: RegistryClient, registry: FakeRegistry, waits: list[float]
) -> None:
    wanted = blob_in(registry, b"configuration" * 1000)
    registry.cut_downloads = [0, 100, 5000]
    assert client.read_blob(team(registry), wanted) == b"configuration" * 1000
    assert waits == [0.5, 1, 2]


def test_a_blob_that_always_breaks_is_told(client: RegistryClient, registry: FakeRegistry, waits: list[float]) -> None:
    wanted = blob_in(registry, b"configuration" * 1000)
    registry.cut_downloads = [100] * 9
    with pytest.raises(ImageError, match=r"cannot be reached.*asked for blob sha256") as caught:
        client.read_blob(team(registry), wanted)
    assert caught.value.retryable
    assert waits == [0.5, 1, 2, 4]


def test_a_damaged_blob_is_refused(client: RegistryClient, registry: FakeRegistry) -> None:
    wanted = blob_in(registry, b"configuration")
    registry.repository("team/app").blobs[wanted.digest] = b"another thing"
    with pytest.raises(ImageError, match=r"sent sha256:.*\(13 bytes\), asked for blob.*its copy is damaged"):
        client.read_blob(team(registry), wanted)


def test_redirects_carry_no_credentials_to_another_host(
    client: RegistryClient, registry: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("default login me password of-netrc\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    registry.login = ("me", "right")
    log_in(registry)
    wanted = blob_in(registry, b"configuration")
    with closing(FakeRegistry()) as storage:
        registry.storage, storage.stored = storage, registry.stored
        assert client.read_blob(team(registry), wanted) == b"configuration"
        assert storage.authorizations == [""]
    assert registry.authorizations == ["", registry.basic()]


def test_redirects_end(client: RegistryClient, registry: FakeRegistry) -> None:
    wanted = blob_in(registry, b"configuration")
    registry.storage = registry
    with pytest.raises(ImageError, match="redirects more than 5 times"):
        client.read_blob(team(registry), wanted)


def test_connections_are_kept(client: RegistryClient, registry: FakeRegistry) -> None:
    for _ in range(5):
        assert client.digest(team(registry)) is None
    assert registry.connections == 1


def test_docker_py_is_not_needed_without_credentials(registry: FakeRegistry) -> None:
    """And requests not before the first request."""
    script = f"""
import sys
for name in ("docker", "docker.auth"):
    sys.modules[name] = None
import torchx_pulumi.images as images
from torchx_pulumi.images.reference import Reference, parse_reference
from torchx_pulumi.images.registry import RegistryClient, login_of
assert not {{"requests", "urllib3"}} & set(sys.modules)
client = RegistryClient(tries=1)
assert client.digest(parse_reference("{registry.host}/a:1")) is None
import json, os, pathlib
folder = pathlib.Path(os.environ["DOCKER_CONFIG"])
folder.mkdir()
(folder / "config.json").write_text(json.dumps({{"auths": {{"other": {{"auth": "bWU6eA=="}}}}}}))
try:
    login_of("{registry.host}")
except Exception as error:
    assert "needs the docker package" in str(error), error
else:
    raise SystemExit("no error")
"""
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "PYTHONPATH": str(SDK)})


@pytest.fixture
def secure(tmp_path: Path, registry: FakeRegistry) -> Certificates:
    """Let the registry use TLS, and ask its clients for a certificate."""
    folder = tmp_path / "certificates"
    folder.mkdir()
    made = Certificates(folder)
    made.make("client")
    context = made.context()
    registry.secure(context)
    return made


@pytest.fixture
def insecure_by_name_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is asked over http; with this name, which leads there as well, https is used."""
    found = socket.getaddrinfo

    def lookup(host: str, *rest: Any, **more: Any) -> Any:
        return found("127.0.0.1" if host == NAME else host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)


@pytest.mark.usefixtures("insecure_by_name_only")
@pytest.mark.parametrize("way", ["certs.d", "REQUESTS_CA_BUNDLE", "none"])
def test_authorities_are_found_as_docker_and_requests_find_them(
    secure: Certificates,
    registry: FakeRegistry,
    client: RegistryClient,
    waits: list[float],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    host = f"{NAME}:{registry.host.partition(':')[2]}"
    registry.digests["a:1"] = DIGEST
    if way == "certs.d":
        folder = tmp_path / ".docker" / "certs.d" / host
        folder.mkdir(parents=True)
        (folder / "ca.crt").write_bytes(secure.authority)
        (folder / "client.cert").write_bytes(secure.certificate("client"))
        (folder / "client.key").write_bytes(secure.key("client"))
    elif way == "REQUESTS_CA_BUNDLE":
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "certificates" / "ca.crt"))
    if way == "none":
        with pytest.raises(ImageError, match=r"cannot be reached \(CERTIFICATE_VERIFY_FAILED\)"):
            client.digest(parse_reference(f"{host}/a:1"))
        assert waits == []
        return
    assert client.digest(parse_reference(f"{host}/a:1")) == DIGEST
    assert registry.names == ["client" if way == "certs.d" else None]


def test_proxies_of_the_environment_are_used(
    registry: FakeRegistry, client: RegistryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHX_PULUMI_INSECURE_REGISTRIES", "reg.example.com")
    host, _, port = registry.host.partition(":")
    registry.digests["a:1"] = DIGEST
    with http_proxy((host, int(port))) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        assert client.digest(parse_reference("reg.example.com/a:1")) == DIGEST
        assert proxy.asked == ["HEAD http://reg.example.com/v2/a/manifests/1 HTTP/1.1"]


def test_a_registry_on_loopback_is_asked_without_a_proxy(
    ask: Callable[[str], str | None], registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_for_login(registry, bearer=True)
    log_in(registry)
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://proxy.example.com:3128")
    assert ask("team/app:1") == DIGEST


def test_passwords_are_not_sent_to_a_token_service_over_plain_http(
    registry: FakeRegistry, client: RegistryClient
) -> None:
    registry.use_tokens()
    registry.realm = "http://tokens.example.com/token"
    log_in(registry)
    with pytest.raises(ImageError, match=r"its token service http://tokens.example.com/token uses plain http"):
        client.digest(team(registry))
