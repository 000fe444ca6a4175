"""Connections that were dropped without a word, certificates that were renewed, and the account of a pod."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster, kinds
from torchx_pulumi.kube.http_client import HttpClient
from torchx_pulumi.kube.kubeconfig import Access, find_access, pod_config
from torchx_pulumi.kube.kubernetes_cluster import transport_of
from torchx_pulumi.kube.transport import ApiRequest, Response, Transport
from torchx_pulumi.model.errors import ClusterError
from urllib3.exceptions import HTTPError

from tests.loopback import ApiServer, Certificates, Config, http_proxy

POST_IDLE_S, GET_IDLE_S = 5, 30


def connect(config: Config) -> KubernetesCluster:
    return KubernetesCluster.connect(json.dumps(config))


def transport_for(config: Config) -> Transport:
    return transport_of(find_access(json.dumps(config)))


def status(answer: Any) -> int:
    assert answer.data == b"{}"
    return int(answer.status)


def test_only_the_thread_that_reads_gives_a_connection_back() -> None:
    """A second one at the same moment would make urllib3 warn of a full pool."""
    given: list[str] = []
    raw = SimpleNamespace(
        status=200, data=b"", close=lambda: given.append("closed"), release_conn=lambda: given.append("given back")
    )
    Response(raw, None).close()
    assert given == ["closed"]
    assert Response(raw, None).data == b""
    assert given == ["closed", "given back"]


@pytest.mark.parametrize("proxied", [False, True])
def test_a_get_on_a_connection_that_was_dropped_silently_is_sent_again(
    tls_api: ApiServer, certificates: Certificates, proxied: bool
) -> None:
    cluster = {"certificate-authority": str(certificates.folder / "ca.crt")}
    with http_proxy(("127.0.0.1", tls_api.port)) as proxy:
        through = {"proxy-url": f"http://127.0.0.1:{proxy.port}"} if proxied else {}
        transport = transport_for(tls_api.config(**cluster, **through))
        assert status(transport.request(ApiRequest("GET", "/one"))) == 200
        tls_api.forget()
        assert status(transport.request(ApiRequest("GET", "/two", read_timeout_s=1.5))) == 200
        assert [asked.path for asked in tls_api.asked] == ["/one", "/two", "/two"]
        assert (tls_api.connections, len(proxy.asked)) == (2, 2 if proxied else 0)


def test_what_changes_something_is_not_sent_twice(api: ApiServer) -> None:
    transport = transport_for(api.config())
    assert status(transport.request(ApiRequest("GET", "/one"))) == 200
    api.forget()
    with pytest.raises(HTTPError, match="timed out"):
        transport.request(ApiRequest("POST", "/two", body={}, read_timeout_s=0.3))
    assert [asked.path for asked in api.asked] == ["/one", "/two"]


def test_a_get_that_no_connection_answers_ends(api: ApiServer) -> None:
    transport = transport_for(api.config())
    assert status(transport.request(ApiRequest("GET", "/one"))) == 200
    api.forget()

    def dead(_: Any) -> Any:
        api.forget()
        time.sleep(2)
        return 200, {}

    api.answer = dead
    with pytest.raises(HTTPError, match="timed out"):
        transport.request(ApiRequest("GET", "/two", read_timeout_s=0.3))
    assert [asked.path for asked in api.asked] == ["/one", "/two", "/two"]


def test_a_slow_body_has_the_whole_time_on_a_connection_that_was_used_before(api: ApiServer) -> None:
    transport = transport_for(api.config())
    for _ in range(2):
        response = transport.request(ApiRequest("GET", "/one", read_timeout_s=60))
        assert response.socket.gettimeout() == 60
        assert response.data == b"{}"
    assert api.connections == 1


@pytest.mark.parametrize(("method", "longest_s"), [("GET", GET_IDLE_S), ("POST", POST_IDLE_S), ("DELETE", POST_IDLE_S)])
def test_a_connection_that_was_idle_for_long_is_not_used_again(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch, method: str, longest_s: float
) -> None:
    transport = transport_for(api.config())
    now = time.time()
    for passed, connections in ((0, 1), (longest_s - 1, 1), (longest_s + 1, 2), (-1, 3)):
        now += passed
        moment = now
        monkeypatch.setattr("time.time", lambda moment=moment: moment)
        assert status(transport.request(ApiRequest(method, "/one", body={} if method == "POST" else None))) == 200
        assert api.connections == connections


def test_a_followed_log_does_not_begin_on_a_connection_that_was_idle(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = transport_for(api.config())
    assert status(transport.request(ApiRequest("GET", "/one"))) == 200
    later = time.time() + POST_IDLE_S + 1
    monkeypatch.setattr("time.time", lambda: later)
    assert status(transport.request(ApiRequest("GET", "/log", read_timeout_s=None))) == 200
    assert api.connections == 2


@pytest.mark.parametrize("proxied", [False, True])
def test_the_system_looks_after_silent_connections(api: ApiServer, proxied: bool) -> None:
    import socket

    with http_proxy(("127.0.0.1", api.port)) as proxy:
        through = {"proxy-url": f"http://127.0.0.1:{proxy.port}"} if proxied else {}
        response = transport_for(api.config(**through)).request(ApiRequest("GET", "/one"))
        end = response.socket
        assert end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 20_000
            assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 20
        assert response.data == b"{}"


def test_renewed_certificate_files_are_read_again(
    tls_api: ApiServer, certificates: Certificates, tmp_path: Path
) -> None:
    def write(name: str, *fields: str) -> None:
        certificates.make(name)
        for field in fields:
            suffix = {"client-certificate": "crt", "client-key": "key"}[field]
            new = tmp_path / "new"
            shutil.copy(certificates.folder / f"{name}.{suffix}", new)
            new.replace(tmp_path / field)

    both = ("client-certificate", "client-key")
    write("ann", *both)
    user = {field: str(tmp_path / field) for field in both}
    cluster = connect(tls_api.config(user, **{"certificate-authority": str(certificates.folder / "ca.crt")}))
    cluster.get(kinds.POD, "n", "x")
    write("bob", "client-certificate")
    # Between the two writes they do not fit, and the old pair is used.
    cluster.get(kinds.POD, "n", "x")
    shutil.copy(certificates.folder / "bob.key", tmp_path / "client-key")
    cluster.get(kinds.POD, "n", "x")
    cluster.get(kinds.POD, "n", "x")
    assert [asked.name for asked in tls_api.asked] == ["ann", "ann", "bob", "bob"]
    assert tls_api.connections == 2


def test_a_renewed_authority_is_read_again(tls_api: ApiServer, certificates: Certificates, tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    (tmp_path / "other").mkdir()
    file.write_bytes(Certificates(tmp_path / "other").authority)
    cluster = connect(tls_api.config(**{"certificate-authority": str(file)}))
    with pytest.raises(ClusterError, match="does not trust"):
        cluster.get(kinds.POD, "n", "x")
    file.write_bytes(certificates.authority + b"\n")
    assert cluster.get(kinds.POD, "n", "x") is not None


def test_the_account_of_a_pod_needs_no_kubeconfig(
    tls_api: ApiServer, certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca.crt").write_bytes(certificates.authority)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(tls_api.port))
    transport = HttpClient(Access(json.dumps(pod_config(str(tmp_path))), None, "the cluster of this pod"))
    for token in ("one", "two"):
        (tmp_path / "token").write_text(token)
        assert status(transport.request(ApiRequest("GET", "/version"))) == 200
    assert [asked.authorization for asked in tls_api.asked] == ["Bearer one", "Bearer two"]


def test_an_address_without_a_scheme_is_encrypted_where_certificates_are_named(
    api: ApiServer, tls_api: ApiServer, certificates: Certificates
) -> None:
    authority = {"certificate-authority": str(certificates.folder / "ca.crt")}
    for server, more in ((api, {}), (tls_api, authority)):
        given = server.config(**more)
        given["clusters"][0]["cluster"]["server"] = f"127.0.0.1:{server.port}"
        assert connect(given).get(kinds.POD, "n", "x") is not None
    with pytest.raises(ClusterError, match=r"'ftp://a', must begin with https:// or http://"):
        connect(api.config(server="ftp://a")).get(kinds.POD, "n", "x")
