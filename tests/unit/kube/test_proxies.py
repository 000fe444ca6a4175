"""Which proxy requests go through, with the rules of Go; and what a real one sees, and is said of it."""

from __future__ import annotations

import base64
import json
import socket
import threading
from pathlib import Path

import pytest
from torchx_pulumi.kube import KubernetesCluster, kinds
from torchx_pulumi.kube.proxies import proxy_for
from torchx_pulumi.model.errors import ClusterError

from tests.loopback import NAME, ApiServer, Certificates, Config, closed_port, http_proxy

P = "http://proxy:3128"

CHOICES: list[tuple[str, dict[str, str], str | None]] = [
    ("https://api.lab", {"HTTPS_PROXY": P}, P),
    ("https://api.lab", {"https_proxy": P}, P),
    ("https://api.lab", {"HTTPS_PROXY": P, "https_proxy": "http://other"}, P),
    ("https://api.lab", {"HTTPS_PROXY": "", "https_proxy": P}, P),
    ("https://api.lab", {"HTTP_PROXY": P}, None),
    ("http://api.lab", {"HTTP_PROXY": P, "HTTPS_PROXY": "http://other"}, P),
    ("http://api.lab", {"HTTPS_PROXY": P}, None),
    ("https://api.lab", {"ALL_PROXY": P}, P),
    ("http://api.lab", {"all_proxy": P}, P),
    ("https://api.lab", {"ALL_PROXY": "http://other", "https_proxy": P}, P),
    ("https://api.lab", {"ALL_PROXY": "socks5://proxy"}, None),
    ("https://api.lab", {"ALL_PROXY": "SOCKS5H://proxy"}, None),
    ("https://api.lab", {"ALL_PROXY": "socks5://proxy", "all_proxy": P}, P),
    ("https://api.lab", {"HTTPS_PROXY": "proxy:3128"}, P),
    ("https://api.lab", {"HTTPS_PROXY": "http://proxy"}, "http://proxy:80"),
    ("https://api.lab", {"HTTPS_PROXY": "https://proxy"}, "https://proxy:443"),
    ("https://api.lab", {"HTTPS_PROXY": "http://[fd00::1]:3128/"}, "http://[fd00::1]:3128"),
    ("https://api.lab", {"HTTPS_PROXY": "http://me:pa%20ss@proxy:3128"}, P),
    *((f"https://{host}:6443", {"HTTPS_PROXY": P}, None) for host in ("localhost", "127.0.0.1", "127.9.9.9", "[::1]")),
]
EXCEPTIONS: list[tuple[str, str, bool]] = [
    ("api.lab", "*", True),
    ("10.1.2.3", "x,*", True),
    ("api.lab", "", False),
    ("api.lab", "lab", True),
    ("api.lab", ".lab", True),
    ("api.lab", "*.lab", True),
    ("api.lab", "*lab", False),
    ("lab", "lab", True),
    ("lab", ".lab", False),
    ("api.lab", " x , API.LAB ", True),
    ("apilab", "lab", False),
    ("api.lab.org", "lab", False),
    ("api.lab", "api.lab:6443", True),
    ("api.lab", "api.lab:443", False),
    ("API.lab", "api.LAB", True),
    ("10.1.2.3", "10.0.0.0/8", True),
    ("10.1.2.3", "10.1.2.4/24", True),
    ("11.1.2.3", "10.0.0.0/8", False),
    ("10.1.2.3", "10.1.2.3", True),
    ("10.1.2.3", "10.1.2.3:6443", True),
    ("10.1.2.3", "10.1.2.3:443", False),
    ("10.1.2.3", "2.3", False),
    ("10.1.2.3", "10.1.2.3/33", False),
    ("[fd00::1]", "fd00::/8", True),
    ("[fd00::1]", "fd00::1", True),
    ("[fd00::1]", "[fd00::1]", False),
    ("[fd00::1]", "[fd00::1]:6443", True),
    ("[fd00::1]", "[fd00::1]:443", False),
    ("[fd00::1]", "10.0.0.0/8", False),
    ("api.lab", ":6443", False),
    ("api.lab", "10.0.0.0/8,,.lab", True),
]


@pytest.mark.parametrize(("server", "environment", "wanted"), CHOICES)
def test_the_environment_names_the_proxy(server: str, environment: dict[str, str], wanted: str | None) -> None:
    found = proxy_for(server, {}, environment, "it")
    assert (found.url if found else None) == wanted


@pytest.mark.parametrize(("host", "exceptions", "direct"), EXCEPTIONS)
@pytest.mark.parametrize("name", ["NO_PROXY", "no_proxy"])
def test_some_hosts_are_reached_without_it(host: str, exceptions: str, direct: bool, name: str) -> None:
    environment = {"HTTPS_PROXY": P, name: exceptions}
    assert (proxy_for(f"https://{host}:6443", {}, environment, "it") is None) is direct


def test_the_kubeconfig_wins_and_knows_no_exceptions() -> None:
    environment = {"HTTPS_PROXY": "http://other", "NO_PROXY": "*"}
    found = proxy_for("https://127.0.0.1", {"proxy-url": P}, environment, "it")
    assert found is not None
    assert (found.url, found.source) == (P, "proxy-url")


UNUSABLE = [
    "http://me:hu/sh@proxy",
    "ftp://me:hush@proxy",
    "http://",
    "http://me:hush@",
    "http://proxy:hush",
    "//hush@p",
]


@pytest.mark.parametrize("value", UNUSABLE)
@pytest.mark.parametrize("source", ["proxy-url", "HTTPS_PROXY"])
def test_what_is_no_proxy_is_refused_and_not_shown(value: str, source: str) -> None:
    cluster, environment = ({source: value}, {}) if source == "proxy-url" else ({}, {source: value})
    with pytest.raises(ClusterError, match=rf"^it cannot be used: its proxy \({source}\) is not an address") as caught:
        proxy_for("https://api.lab", cluster, environment, "it")
    assert "hu" not in str(caught.value).replace("http", "")


def test_a_proxy_that_speaks_socks_is_refused_with_the_ways_out() -> None:
    address = "socks5://me:hush@proxy"
    with pytest.raises(ClusterError, match=r"its proxy \(https_proxy\) speaks SOCKS, .*HTTPS_PROXY, or .*NO_PROXY"):
        proxy_for("https://api.lab", {}, {"https_proxy": address}, "it")
    with pytest.raises(ClusterError, match=r"its proxy \(proxy-url\) speaks SOCKS"):
        proxy_for("https://api.lab", {"proxy-url": address}, {}, "it")


def connect(config: Config) -> KubernetesCluster:
    return KubernetesCluster.connect(json.dumps(config))


def look(config: Config) -> None:
    connect(config).get(kinds.POD, "n", "x")


def trusting(certificates: Certificates) -> Config:
    return {"certificate-authority-data": base64.b64encode(certificates.authority).decode()}


def test_requests_go_through_one_tunnel_that_the_environment_names(
    tls_api: ApiServer, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    with http_proxy(("127.0.0.1", tls_api.port)) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        cluster = connect(tls_api.config(host=NAME, **trusting(certificates)))
        cluster.get(kinds.POD, "n", "x")
        cluster.create(kinds.POD, "n", {"metadata": {"name": "x"}}, dry_run=True)
        look(tls_api.config(**trusting(certificates)))
        assert [line.split()[:2] for line in proxy.asked] == [["CONNECT", f"{NAME}:{tls_api.port}"]]
        assert len(tls_api.asked) == 3


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_proxy_of_the_kubeconfig_gets_its_password_and_the_api_server_does_not(
    tls_api: ApiServer, certificates: Certificates, encrypted: bool
) -> None:
    context = certificates.context(clients=False) if encrypted else None
    with http_proxy(("127.0.0.1", tls_api.port), password="p/w ä", context=context) as proxy:
        scheme = "https" if encrypted else "http"
        address = f"{scheme}://me:p%2Fw%20%C3%A4@127.0.0.1:{proxy.port}"
        look(tls_api.config(**trusting(certificates), **{"proxy-url": address}))
        wrong = f"{scheme}://me:planted@127.0.0.1:{proxy.port}"
        with pytest.raises(ClusterError, match="407 Proxy Authentication Required; check the proxy") as caught:
            look(tls_api.config(**trusting(certificates), **{"proxy-url": wrong}))
    assert f"through the proxy {scheme}://127.0.0.1:{proxy.port} (proxy-url): " in str(caught.value)
    assert "planted" not in repr(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.retryable
    assert len(tls_api.asked) == 1
    assert "Proxy-Authorization" not in tls_api.asked[0].headers


def test_a_log_through_an_encrypted_proxy_can_be_closed(certificates: Certificates) -> None:
    line = threading.Event()

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            plain, _ = listener.accept()
            with certificates.context().wrap_socket(plain, server_side=True) as connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")
                connection.recv(1)
                line.set()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        target = ("127.0.0.1", listener.getsockname()[1])
        with http_proxy(target, context=certificates.context(clients=False)) as proxy:
            api = ApiServer(context=certificates.context(), port=target[1])
            address = f"https://127.0.0.1:{proxy.port}"
            lines = connect(api.config(**trusting(certificates), **{"proxy-url": address})).logs("n", "p", follow=True)
            assert next(lines) == "one"
            lines.close()
            assert line.wait(10)
            thread.join(10)


def test_an_api_server_without_tls_is_asked_by_the_proxy(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    user: Config = {"token": "hush", "as": "ann", "as-groups": ["a", "b"]}
    with http_proxy(("127.0.0.1", api.port)) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"127.0.0.1:{proxy.port}")
        look(api.config(user, host=NAME))
        assert [line.split()[0] for line in proxy.asked] == ["GET"]
    assert api.asked[0].path == "/api/v1/namespaces/n/pods/x"
    assert api.asked[0].headers.get_all("Impersonate-Group") == ["a", "b"]


def test_a_proxy_that_is_not_there_is_named_without_its_password(
    tls_api: ApiServer, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closed_port() as port:
        monkeypatch.setenv("https_proxy", f"http://me:planted@127.0.0.1:{port}")
        with pytest.raises(ClusterError, match=rf"proxy http://127.0.0.1:{port} \(https_proxy\): .*refused") as caught:
            look(tls_api.config(host=NAME, **trusting(certificates)))
    assert "planted" not in repr(caught.value)
    assert caught.value.retryable


def test_a_certificate_that_is_not_trusted_is_so_behind_a_proxy_too(
    tls_api: ApiServer, certificates: Certificates, tmp_path: Path
) -> None:
    other = base64.b64encode(Certificates(tmp_path).authority).decode()
    with http_proxy(("127.0.0.1", tls_api.port)) as proxy:
        address = f"http://127.0.0.1:{proxy.port}"
        given = tls_api.config(**{"certificate-authority-data": other, "proxy-url": address})
        with pytest.raises(ClusterError, match="certificate that the kubeconfig does not trust"):
            look(given)
    assert not tls_api.asked
