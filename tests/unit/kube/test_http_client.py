"""Which credentials are sent without the official client, and how."""

from __future__ import annotations

import base64
import http.server
import json
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster, kinds
from torchx_pulumi.model.errors import ClusterError

from tests.loopback import LoopbackServer

Config = dict[str, Any]
Heard = tuple[int, list[Message]]


def config(server: str = "https://127.0.0.1:1", user: Config | None = None, **cluster: Any) -> Config:
    return {
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user or {"token": "hush"}}],
        "contexts": [{"name": "lab", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "lab",
    }


@pytest.fixture
def heard() -> Iterator[Heard]:
    headers: list[Message] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            headers.append(self.headers)
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        do_POST = do_DELETE = do_GET

        def log_message(self, *args: Any) -> None:
            """Stay silent."""

    server = LoopbackServer(Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield server.server_port, headers
    server.shutdown()
    server.server_close()


def test_tokens_and_passwords_are_sent(heard: Heard, tmp_path: Path) -> None:
    port, headers = heard
    file = tmp_path / "token"
    file.write_text("one\n")
    users: list[Config] = [
        {"token": "hush"},
        {"tokenFile": str(file), "token": "old"},
        {"username": "u", "password": "p"},
        {"client-certificate": "unused without TLS", "client-key": "as well"},
    ]
    for user in users:
        KubernetesCluster.connect(json.dumps(config(f"http://127.0.0.1:{port}", user))).get(kinds.POD, "n", "x")
    basic = base64.b64encode(b"u:p").decode()
    assert [sent.get("Authorization") for sent in headers] == ["Bearer hush", "Bearer one", f"Basic {basic}", None]


ACTING: Config = {
    "token": "hush",
    "as": "ann",
    "as-uid": "7",
    "as-groups": ["team a", "töam,b"],
    "as-user-extra": {"example.com/Reason": ["one", "two"]},
}


def test_a_user_to_act_for_is_named_in_every_request(heard: Heard) -> None:
    port, headers = heard
    cluster = KubernetesCluster.connect(json.dumps(config(f"http://127.0.0.1:{port}", ACTING)))
    cluster.get(kinds.POD, "n", "x")
    cluster.list(kinds.POD, "n")
    cluster.create(kinds.POD, "n", {"metadata": {"name": "x"}}, dry_run=True)
    cluster.delete(kinds.POD, "n", "x")
    assert len(headers) == 4
    for sent in headers:
        said = [(name, value.encode("latin-1").decode()) for name, value in sent.items() if name[:3] == "Imp"]
        assert sorted(said) == [
            ("Impersonate-Extra-example.com%2FReason", "one"),
            ("Impersonate-Extra-example.com%2FReason", "two"),
            ("Impersonate-Group", "team a"),
            ("Impersonate-Group", "töam,b"),
            ("Impersonate-Uid", "7"),
            ("Impersonate-User", "ann"),
        ]
        assert sent["Authorization"] == "Bearer hush"


@pytest.mark.parametrize(
    ("user", "word"), [({"as-groups": ["a"]}, "without `as`"), ({"as": "a\nX-Other: b"}, "control character")]
)
def test_a_user_to_act_for_that_no_request_can_name_is_refused(user: Config, word: str) -> None:
    with pytest.raises(ClusterError, match=word):
        KubernetesCluster.connect(json.dumps(config(user={"token": "hush", **user}))).get(kinds.POD, "n", "x")


def test_a_renewed_token_is_read_again(heard: Heard, tmp_path: Path) -> None:
    port, headers = heard
    file = tmp_path / "token"
    cluster = KubernetesCluster.connect(json.dumps(config(f"http://127.0.0.1:{port}", {"tokenFile": str(file)})))
    for token in ("one", "two"):
        file.write_text(token)
        cluster.get(kinds.POD, "n", "x")
    assert [sent["Authorization"] for sent in headers] == ["Bearer one", "Bearer two"]
    file.unlink()
    with pytest.raises(ClusterError, match=r"'lab' cannot be used: its token file: .*No such file"):
        cluster.get(kinds.POD, "n", "x")


def test_a_broken_certificate_is_named_and_nothing_of_it_is_shown() -> None:
    secret = base64.b64encode(b"nonsense").decode()
    user = {"client-certificate-data": secret, "client-key-data": secret}
    with pytest.raises(ClusterError, match="'lab' cannot be used: its certificates") as caught:
        KubernetesCluster.connect(json.dumps(config(user=user))).get(kinds.POD, "n", "x")
    assert "nonsense" not in str(caught.value)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
def test_a_client_certificate_is_shown_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = tmp_path / "pair.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=me", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    certificate, key = (tmp_path / "cert.pem").read_bytes(), (tmp_path / "key.pem").read_bytes()
    pair.write_bytes(certificate + key)
    names: list[Any] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            names.append(self.connection.getpeercert()["subject"])  # type: ignore[attr-defined]
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *args: Any) -> None:
            """Stay silent."""

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=certificate.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(pair)
    server = LoopbackServer(Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    data = {name: base64.b64encode(value).decode() for name, value in (("certificate", certificate), ("key", key))}
    user = {f"client-{name}-data": value for name, value in data.items()}
    given = config(
        f"https://127.0.0.1:{server.server_port}", user, **{"certificate-authority-data": data["certificate"]}
    )
    try:
        KubernetesCluster.connect(json.dumps(given)).get(kinds.POD, "n", "x")
    finally:
        server.shutdown()
        server.server_close()
    assert names == [((("commonName", "me"),),)]
    assert not list(scratch.iterdir())
