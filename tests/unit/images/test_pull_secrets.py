"""Credentials inside a pod: which login of which pull secret is used, and what is said where they cannot be read."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.images.reference import parse_reference
from torchx_pulumi.images.registry import RegistryClient, pull_secrets
from torchx_pulumi.images.registry.credentials import FoundLogin
from torchx_pulumi.images.registry.pull_secrets import login_for, login_of_pod
from torchx_pulumi.model.errors import ClusterError, ImageError

from tests.loopback import ApiServer, Asked, Certificates
from tests.unit.images.fake_registry import FakeRegistry


def encoded(content: Any) -> str:
    return base64.b64encode(json.dumps(content).encode()).decode()


def auth(user: str, password: str = "secret") -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


def token(subject: str) -> str:
    payload = base64.urlsafe_b64encode(json.dumps({"sub": subject}).encode()).decode().rstrip("=")
    return f"e30.{payload}.signature"


class Pod:
    """A pod's files and the objects that its account reads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "token").write_text(token("system:serviceaccount:team:trainer"))
        self.account: dict[str, Any] = {"imagePullSecrets": [{"name": "first"}, {"name": "second"}]}
        self.secrets: dict[str, Any] = {}
        self.forbidden: set[str] = set()

    def get(self, kind: Any, namespace: str | None, name: str) -> Any:
        if kind.plural in self.forbidden:
            raise ClusterError(f"forbids it: {kind.plural}", reason="Forbidden")
        assert namespace == "team"
        return self.account if kind.plural == "serviceaccounts" else self.secrets.get(name)

    def login(self, image: str) -> FoundLogin:
        return login_of_pod(parse_reference(image), folder=str(self.folder), cluster=self)  # type: ignore[arg-type]


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pod:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    return Pod(tmp_path)


def test_outside_a_pod_nothing_is_asked(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    pod.forbidden = {"serviceaccounts"}
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    assert pod.login("reg.example.com/app") == FoundLogin(login=None)


def test_both_kinds_of_pull_secrets_are_read(pod: Pod) -> None:
    pod.secrets = {
        "first": {"data": {".dockerconfigjson": encoded({"auths": {"reg.example.com": auth("one")}})}},
        "second": {"data": {".dockercfg": encoded({"https://old.example.com/v1/": auth("two")})}},
    }
    found = [pod.login(image).login for image in ("reg.example.com/app", "old.example.com/app")]
    assert [(each.user, each.password) for each in found if each] == [("one", "secret"), ("two", "secret")]
    assert "secret" not in repr(found)


def test_the_first_secret_with_an_entry_decides(pod: Pod) -> None:
    pod.secrets = {
        name: {"data": {".dockerconfigjson": encoded({"auths": {"reg.example.com": auth(name)}})}}
        for name in ("first", "second")
    }
    login = pod.login("reg.example.com/app").login
    assert login is not None
    assert login.user == "first"


@pytest.mark.parametrize(
    ("secret", "login"),
    [
        ({}, None),
        ({"data": {}}, None),
        ({"data": {".dockerconfigjson": "no base64!"}}, None),
        ({"data": {".dockerconfigjson": encoded(["a", "list"])}}, None),
        ({"data": {".dockerconfigjson": encoded({"auths": {"reg.example.com": {"auth": "%%%"}}})}}, None),
    ],
)
def test_secrets_that_cannot_be_read_have_no_login(pod: Pod, secret: Any, login: Any) -> None:
    pod.secrets = {"first": secret}
    found = pod.login("reg.example.com/app")
    assert found.login is login
    assert (
        found.note == "no imagePullSecrets of the pod's service account team/trainer have a login for reg.example.com"
    )


@pytest.mark.parametrize(
    ("image", "user"),
    [
        ("reg.example.com/team/app", "team"),
        ("reg.example.com/teams/app", "host"),
        ("eu.reg.example.com/app", "wild"),
        ("a.b.reg.example.com/app", None),
        ("reg.example.com:5000/app", None),
        ("busybox", "hub"),
    ],
)
def test_keys_match_as_for_the_kubelet(image: str, user: str | None) -> None:
    entries = {
        "reg.example.com": auth("host"),
        "reg.example.com/team": auth("team"),
        "*.reg.example.com": auth("wild"),
        "https://index.docker.io/v1/": auth("hub"),
    }
    found = login_for(parse_reference(image), entries)
    assert (found.user if found else None) == user


@pytest.mark.parametrize(
    ("forbidden", "needs"),
    [("serviceaccounts", "`get` of serviceaccounts/trainer"), ("secrets", "`get` of secrets/first")],
)
def test_a_missing_permission_is_named(pod: Pod, forbidden: str, needs: str) -> None:
    pod.forbidden = {forbidden}
    note = pod.login("reg.example.com/app").note
    assert note.endswith(f"has no permission to read its pull secrets: it needs {needs} in namespace team")


def test_an_account_without_pull_secrets_says_so(pod: Pod) -> None:
    pod.account = {}
    assert pod.login("reg.example.com/app").note == "the pod's service account team/trainer has no imagePullSecrets"


@pytest.mark.parametrize("content", ["", "x", "a.b.c", token("user:me"), "a.!!!.c"])
def test_another_token_is_no_error(pod: Pod, content: str) -> None:
    (pod.folder / "token").write_text(content)
    found = pod.login("reg.example.com/app")
    assert found.login is None
    assert "token of the pod's service account" in found.note


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """An API server over TLS, and a pod whose account's files are in a folder."""
    folder = tmp_path / "account"
    folder.mkdir()
    certificates = Certificates(folder)
    (folder / "token").write_text(token("system:serviceaccount:team:trainer"))
    objects: dict[str, Any] = {}

    def answer(asked: Asked) -> tuple[int, Any]:
        assert asked.authorization == f"Bearer {(folder / 'token').read_text()}"
        found = objects.get(asked.path.partition("?")[0])
        return (200, found) if found else (403, {"kind": "Status", "reason": "Forbidden", "message": "no"})

    with ApiServer(answer, certificates.context()).running() as server:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
        monkeypatch.setattr(pull_secrets, "POD_FOLDER", str(folder))
        yield objects


def test_a_registry_is_asked_with_the_login_of_the_pods_account(
    api: dict[str, Any], registry: FakeRegistry, tmp_path: Path
) -> None:
    registry.use_tokens()
    registry.digests["app:1"] = f"sha256:{'d' * 64}"
    where = "/api/v1/namespaces/team"
    api[f"{where}/serviceaccounts/trainer"] = {"imagePullSecrets": [{"name": "pull"}]}
    with closing(RegistryClient(tries=1)) as client:
        with pytest.raises(
            ImageError,
            match=r"docker login.*has no permission to read its pull secrets: it needs `get` of secrets/pull",
        ):
            client.digest(parse_reference(f"{registry.host}/app:1"))
        content = {"auths": {registry.host: auth("me", "right")}}
        api[f"{where}/secrets/pull"] = {"data": {".dockerconfigjson": encoded(content)}}
        assert client.digest(parse_reference(f"{registry.host}/app:1")) == f"sha256:{'d' * 64}"
