"""The transport for kubeconfigs and pods: certificates, tokens, plugins, proxies and impersonation, with urllib3.

A pool of urllib3 has one connection here, because the request decides which connection it may take: load balancers
drop idle connections without closing them. docs/cluster-access.md has the bounds that detect it.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import urllib3

from torchx_pulumi.kube.credentials import Credentials, credentials_of, impersonation
from torchx_pulumi.kube.kubeconfig import Access, Fields, check_fields, cluster_and_user, contents_of
from torchx_pulumi.kube.proxies import proxy_for
from torchx_pulumi.kube.transport import CONNECT_TIMEOUT_S, ApiRequest, Response
from torchx_pulumi.model.errors import ClusterError

ENCRYPTED = ("certificate-authority", "client-certificate", "insecure-skip-tls-verify")
"""Beginnings of the fields of a cluster and its user that only an encrypted connection needs."""

IDLE_S = 30.0
"""Longest idle time of a connection that is used again."""

SHORT_IDLE_S = 5.0
"""The same for requests that must not be sent twice."""

FIRST_BYTE_SHARE = 1 / 3
"""Share of a request's timeout for the first byte of the response on a reused connection: 10 s of 30 s."""

KEPT = 64
"""Idle connections that are kept for further requests."""


KEEPALIVE = (
    ("TCP_KEEPIDLE", 20),  # seconds of silence after which the system sends probes
    ("TCP_KEEPALIVE", 20),  # the same on macOS
    ("TCP_KEEPINTVL", 5),  # seconds between probes
    ("TCP_KEEPCNT", 3),
    ("TCP_USER_TIMEOUT", 20_000),  # milliseconds; Linux: also while something was sent and not confirmed
)
"""Names and values of the options of TCP keepalive. A system has some of them."""

SOCKET_OPTIONS = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *((socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in KEEPALIVE if hasattr(socket, name)),
]
"""urllib3's default option and those of TCP keepalive."""


class HttpClient:
    """Transport that uses urllib3."""

    def __init__(self, access: Access) -> None:
        """Check the kubeconfig. No connection is made, and no plugin is run.

        Raises:
            ClusterError: A field has a wrong type, an impersonated user does not fit into a header, or the login method
                or the proxy is not supported.
        """
        self._where = access.description
        self._cluster, self._user = cluster_and_user(access)
        check_fields(self._cluster, self._user, self._where)
        self._server = _address(self._cluster, self._user, self._where)
        self._impersonation = impersonation(self._user, self._where)
        self._credentials = credentials_of(self._cluster, self._user, self._where)
        self._proxy = proxy_for(self._server, self._cluster, os.environ, self._where)
        # A proxy gets the whole address of what it forwards without a tunnel.
        forwarded = self._proxy is not None and self._server.startswith("http://")
        self._origin = self._server if forwarded else urlsplit(self._server).path
        self._lock = threading.Lock()
        self._connections: _Connections | None = None
        if self._cluster.get("insecure-skip-tls-verify"):
            # The kubeconfig asks for it. kubectl does not warn either.
            warnings.filterwarnings("ignore", category=urllib3.exceptions.InsecureRequestWarning)

    def request(self, request: ApiRequest) -> Response:
        """Send a request; see `Transport`.

        After a 401, a request is sent once more if there are other credentials by now.
        """
        data = None if request.body is None else json.dumps(request.body).encode()
        target = f"{self._origin}{request.path}" + (f"?{urlencode(request.query)}" if request.query else "")

        def send(credentials: Credentials) -> Response:
            # urllib3 1 has no public name for the class.
            headers = urllib3.response.HTTPHeaderDict({**request.headers, "User-Agent": "torchx-pulumi"})
            if credentials.authorization:
                headers.add("Authorization", credentials.authorization)
            for name, value in self._impersonation:
                headers.add(name, value)
            connections = self._connections_for(credentials)
            return connections.send(request.method, target, headers, data, request.read_timeout_s)

        try:
            credentials = self._credentials(None)
            response = send(credentials)
            if response.status == 401:
                renewed = self._credentials(credentials)
                if renewed != credentials:
                    response.close()
                    response = send(renewed)
        except urllib3.exceptions.ProxyError as error:
            cause = str(getattr(error, "original_error", None) or error).rpartition(">: ")[2]
            proxy = f"{self._proxy.url} ({self._proxy.source})" if self._proxy else "of the environment"
            # The text of the cause may contain the proxy's credentials.
            raise ClusterError(
                f"{self._where} cannot be reached through the proxy {proxy}: {cause}; "
                "check the proxy, or list the API server in NO_PROXY where it can be reached without one",
                retryable=True,
                reason="Unreachable",
            ) from None
        return response

    def _connections_for(self, credentials: Credentials) -> _Connections:
        """Return the connections. They are replaced when certificates change.

        Raises:
            ClusterError: A certificate or key cannot be read.
        """
        of_plugin = credentials.certificate_and_key
        with self._lock:
            known = self._connections
            try:
                certificates = self._certificates(of_plugin)
                if known is not None and known.certificates == certificates:
                    return known
                made = self._connections = _Connections(self._pools(*certificates), certificates, of_plugin)
            except (OSError, ValueError) as error:
                if known is None or known.of_plugin != of_plugin:
                    raise ClusterError(f"{self._where} cannot be used: its certificates: {error}") from error
                # Certificate and key are two files: while they are renewed, they may not match.
                return known
            if known is not None:
                known.close()
            return made

    def _certificates(self, of_plugin: bytes | None) -> tuple[bytes | None, bytes | None]:
        """Return the authority, and the client's certificate with its key, each as PEM or None.

        Files are read each time, because they are renewed in place.
        """
        if self._server.startswith("http://"):
            return None, None
        certificate, key = contents_of(self._user, "client-certificate"), contents_of(self._user, "client-key")
        own = certificate + b"\n" + key if certificate and key else None
        return contents_of(self._cluster, "certificate-authority"), of_plugin or own

    def _pools(self, authority: bytes | None, certificate_and_key: bytes | None) -> Callable[[], Any]:
        """Return the factory of a pool of urllib3 for one connection."""
        options: dict[str, Any] = {"maxsize": 1, "socket_options": SOCKET_OPTIONS}
        if self._server.startswith("https://"):
            context = options["ssl_context"] = _trusting(authority)
            if self._cluster.get("insecure-skip-tls-verify"):
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
                options["cert_reqs"] = "CERT_NONE"
            if self._cluster.get("tls-server-name"):
                options["server_hostname"] = self._cluster["tls-server-name"]
            if certificate_and_key is not None:
                _load(context, certificate_and_key)
        proxy = self._proxy
        if proxy is None:
            return lambda: urllib3.connection_from_url(self._server, **options)
        if proxy.url.startswith("https://"):
            options["proxy_ssl_context"] = _trusting(contents_of(self._cluster, "certificate-authority"))
            options["proxy_ssl_context"].load_default_certs()
        headers = {"Proxy-Authorization": proxy.authorization} if proxy.authorization else None
        return lambda: urllib3.ProxyManager(proxy.url, proxy_headers=headers, **options).connection_from_url(
            self._server
        )


class _Connections:
    """The connections with the same certificates. Many threads may use them."""

    def __init__(
        self, new_pool: Callable[[], Any], certificates: tuple[bytes | None, bytes | None], of_plugin: bytes | None
    ) -> None:
        self.certificates = certificates
        """The authority, and the client's certificate with its key."""
        self.of_plugin = of_plugin
        """Certificate with key of a plugin. None: the plugin gave none."""
        self._new_pool = new_pool
        """Returns a new pool of urllib3 for one connection."""
        self._guard = threading.Lock()
        self._idle: list[tuple[float, Any, Any]] = []
        """When a response was read, in seconds of the wall clock; pool and socket. Those used last are at the end."""
        self._kept = KEPT

    def send(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, read_timeout_s: float | None
    ) -> Response:
        """Send a request. A GET that fails on a reused connection is sent once more on a new one."""

        def request(pool: Any, first_byte_s: float | None) -> Response:
            pool.ConnectionCls = HTTPSConnection if pool.scheme == "https" else HTTPConnection
            # `request` of a manager would join headers of the same name.
            raw = pool.urlopen(
                method,
                target,
                headers=headers,
                body=body,
                preload_content=False,
                redirect=False,
                retries=False,
                assert_same_host=False,
                timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=first_byte_s),
            )
            connection = getattr(raw.connection, "noted", None)
            response = Response(raw, connection, lambda: self._keep(pool, connection))
            if first_byte_s != read_timeout_s:
                response.set_silence(read_timeout_s)
            return response

        # A followed log may be silent for long. Requests that change objects must not be sent twice.
        if method != "GET" or read_timeout_s is None:
            return request(self._take(SHORT_IDLE_S) or self._new_pool(), read_timeout_s)
        reused = self._take(IDLE_S)
        if reused is not None:
            with suppress(urllib3.exceptions.HTTPError, OSError):
                return request(reused, read_timeout_s * FIRST_BYTE_SHARE)
        return request(self._new_pool(), read_timeout_s)

    def _take(self, longest_idle_s: float) -> Any:
        """Return the pool of the connection that was used last, unless it is closed or has been idle for longer."""
        # The wall clock also counts the time in which a machine is suspended.
        now = time.time()
        dropped: list[tuple[float, Any, Any]] = []
        found = None
        with self._guard:
            idle_s = now - self._idle[-1][0] if self._idle else 0.0
            if not 0 <= idle_s <= IDLE_S:
                # The others were used before. After the clock was set back, no idle time is known.
                dropped, self._idle = self._idle, []
            elif self._idle and idle_s <= longest_idle_s:
                _, found, connection = self._idle.pop()
        for _, pool, _ in dropped:
            pool.close()
        if found is not None and not _is_open(connection):
            # urllib3 would reopen it, and it would not be a reused one.
            found.close()
            return None
        return found

    def _keep(self, pool: Any, connection: Any) -> None:
        """Keep a connection whose response was read to its end."""
        with self._guard:
            if len(self._idle) < self._kept:
                self._idle.append((time.time(), pool, connection))
                return
        pool.close()

    def close(self) -> None:
        """Close the idle connections, and each other one when its response was read."""
        with self._guard:
            idle, self._idle, self._kept = self._idle, [], 0
        for _, pool, _ in idle:
            pool.close()


def _is_open(connection: Any) -> bool:
    """Return whether the server has not closed a connection, as far as the system knows."""
    try:
        return not urllib3.util.wait_for_read(connection, 0)
    except ValueError:
        # It is closed on this side.
        return False


class _NotesSocket:
    """Keeps the socket, which urllib3 gives away if the server announces that it closes the connection."""

    noted: Any = None

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]
        self.noted = self.sock  # type: ignore[attr-defined]


# Messages of urllib3 begin with the names of the classes.
class HTTPConnection(_NotesSocket, urllib3.connection.HTTPConnection):  # type: ignore[misc]
    """A connection of urllib3 that keeps its socket."""


class HTTPSConnection(_NotesSocket, urllib3.connection.HTTPSConnection):  # type: ignore[misc]
    """A connection of urllib3 that keeps its socket."""


def _address(cluster: Fields, user: Fields, where: str) -> str:
    """Return the server with its scheme. The default is https if any certificate is configured, else http."""
    server = str(cluster["server"]).rstrip("/")
    if "://" not in server:
        is_encrypted = any(value and name.startswith(ENCRYPTED) for name, value in (*user.items(), *cluster.items()))
        server = f"{'https' if is_encrypted else 'http'}://{server}"
    if not server.startswith(("https://", "http://")):
        raise ClusterError(
            f"{where} cannot be used: its kubeconfig has the address {server!r}, must begin with https:// or http://"
        )
    return server


def _trusting(authority: bytes | None) -> ssl.SSLContext:
    """Return a context that trusts an authority, or for None those of the system."""
    # Depending on its release, urllib3 or Python verifies host names: urllib3 sets the context up accordingly.
    context: ssl.SSLContext = urllib3.util.ssl_.create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED)
    if authority:
        context.load_verify_locations(cadata=authority.decode())
    else:
        context.load_default_certs()
    # Self-signed authorities of clusters lack extensions that strict verification requires.
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    return context


def _load(context: ssl.SSLContext, certificate_and_key: bytes) -> None:
    """Load a certificate with its key. Python reads them from a file only, which is removed at once."""

    def no_password() -> str:
        raise ValueError("the key has a password, which kubeconfigs cannot hold; store it without one")

    descriptor, name = tempfile.mkstemp(prefix="torchx-pulumi-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(certificate_and_key)
        # Without the callback, OpenSSL would ask for a password at the terminal.
        context.load_cert_chain(name, password=no_password)
    finally:
        Path(name).unlink()
