"""The transport for kubeconfigs and pods: certificates, tokens, plugins, proxies and impersonation, with urllib3."""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

import urllib3

from torchx_pulumi.kube.connections import (
    FIRST_BYTE_SHARE,
    IDLE_S,
    SHORT_IDLE_S,
    ApiConnection,
    Connections,
    socket_options,
)
from torchx_pulumi.kube.credentials import Credentials, credentials_of, impersonation, with_headers
from torchx_pulumi.kube.kubeconfig import cluster_and_user
from torchx_pulumi.kube.kubeconfig_fields import check_fields
from torchx_pulumi.kube.proxies import proxy_for
from torchx_pulumi.kube.tls import FileVersions, files_of, proxy_context, tls_options, versions_of
from torchx_pulumi.kube.transport import READ_TIMEOUT_S, Query, Response, content_type
from torchx_pulumi.model.errors import ClusterError

UNAUTHORIZED = 401


class HttpClient:
    """Transport that uses urllib3."""

    def __init__(self, config: Mapping[str, Any], context: str | None, description: str) -> None:
        """Check the kubeconfig. No connection is made, and no plugin is run.

        Raises:
            ClusterError: A field has a wrong type, an impersonated user does not fit into a header, or the login method
                or the proxy is not supported.
        """
        self._cluster, self._user = cluster_and_user(config, context)
        check_fields(self._cluster, self._user, description)
        self._where = description
        self._server = _address(self._cluster, self._user, description)
        self._impersonation = impersonation(self._user, description)
        self._credentials = credentials_of(self._cluster, self._user, description)
        self._proxy = proxy_for(self._server, self._cluster, os.environ, description)
        self._files = files_of(self._cluster, self._user)
        # A proxy gets the whole address of what it forwards without a tunnel.
        forwarded = self._proxy is not None and self._server.startswith("http://")
        self._origin = self._server if forwarded else urlsplit(self._server).path
        self._lock = threading.Lock()
        self._made: tuple[FileVersions, bytes | None] | None = None
        self._connections: Connections | None = None
        if self._cluster.get("insecure-skip-tls-verify"):
            # The kubeconfig asks for it. kubectl does not warn either.
            warnings.filterwarnings("ignore", category=urllib3.exceptions.InsecureRequestWarning)

    def request(
        self,
        method: str,
        path: str,
        query: Query = (),
        *,
        body: Any = None,
        accept: str = "application/json",
        read_timeout_s: float | None = READ_TIMEOUT_S,
    ) -> Response:
        """Send a request; see `Transport`.

        After a 401, a request is sent once more if there are other credentials by now.
        """
        headers = {"Accept": accept, "User-Agent": "torchx-pulumi"}
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), content_type(method)
        target = f"{self._origin}{path}" + (f"?{urlencode(query)}" if query else "")
        credentials = self._credentials.current()
        try:
            response = self._send(credentials, method, target, headers, data, read_timeout_s)
            if response.status == UNAUTHORIZED and (renewed := self._credentials.renewed(credentials)) is not None:
                response.close()
                response = self._send(renewed, method, target, headers, data, read_timeout_s)
        except urllib3.exceptions.ProxyError as error:
            # The text of the cause may contain the proxy's credentials.
            raise self._not_passed(error) from None
        return response

    def _send(
        self,
        credentials: Credentials,
        method: str,
        target: str,
        headers: Mapping[str, str],
        data: bytes | None,
        read_timeout_s: float | None,
    ) -> Response:
        """Send a request. A GET that fails on a reused connection is sent once more on a new one."""
        connections = self._connections_for(credentials)
        if credentials.authorization:
            headers = {**headers, "Authorization": credentials.authorization}
        headers = with_headers(headers, self._impersonation)
        # A followed log may be silent for long. Requests that change objects must not be sent twice.
        repeatable_s = read_timeout_s if method == "GET" else None
        connection = connections.take(SHORT_IDLE_S if repeatable_s is None else IDLE_S)
        is_reused = connection.idle_since > 0

        def send(connection: ApiConnection, first_byte_s: float | None) -> Response:
            return connection.send(
                method,
                target,
                headers,
                data,
                first_byte_s=first_byte_s,
                read_timeout_s=read_timeout_s,
                released=lambda: connections.give_back(connection),
            )

        if repeatable_s is None or not is_reused:
            return send(connection, read_timeout_s)
        try:
            return send(connection, repeatable_s * FIRST_BYTE_SHARE)
        except (urllib3.exceptions.HTTPError, OSError):
            return send(connections.new(), read_timeout_s)

    def _not_passed(self, error: Any) -> ClusterError:
        """Return the error of a proxy that does not pass on a request."""
        cause = str(getattr(error, "original_error", None) or error)
        proxy = f"{self._proxy.url} ({self._proxy.source})" if self._proxy else "of the environment"
        return ClusterError(
            f"{self._where} cannot be reached through the proxy {proxy}: {cause.rpartition('>: ')[2]}; "
            "check the proxy, or list the API server in NO_PROXY where it can be reached without one",
            retryable=True,
            reason="Unreachable",
        )

    def _connections_for(self, credentials: Credentials) -> Connections:
        """Return the connections. They are replaced when certificates change.

        Raises:
            ClusterError: A certificate or key cannot be read.
        """
        wanted = (versions_of(self._files), credentials.certificate_and_key)
        with self._lock:
            known = self._connections
            if known is not None and self._made == wanted:
                return known
            try:
                self._connections = Connections(self._pools(credentials))
            except (OSError, ValueError) as error:
                if known is not None and self._made is not None and self._made[1] == wanted[1]:
                    # Certificate and key are two files: while they are renewed, they may not match.
                    return known
                raise ClusterError(f"{self._where} cannot be used: its certificates: {error}") from error
            self._made = wanted
            if known is not None:
                known.close()
            return self._connections

    def _pools(self, credentials: Credentials) -> Callable[[], Any]:
        """Return what makes a pool of urllib3 for one connection."""
        options: dict[str, Any] = {"maxsize": 1, "socket_options": socket_options()}
        if self._server.startswith("https://"):
            options |= tls_options(self._cluster, self._user, credentials.certificate_and_key)
        proxy = self._proxy
        if proxy is None:
            return lambda: urllib3.PoolManager(**options).connection_from_url(self._server)
        if proxy.url.startswith("https://"):
            options["proxy_ssl_context"] = proxy_context(self._cluster)
        headers = {"Proxy-Authorization": proxy.authorization} if proxy.authorization else None
        return lambda: urllib3.ProxyManager(proxy.url, proxy_headers=headers, **options).connection_from_url(
            self._server
        )


def _address(cluster: Mapping[str, Any], user: Mapping[str, Any], where: str) -> str:
    """Return the server with its scheme. The default is https if any certificate is configured, else http."""
    server = str(cluster["server"]).rstrip("/")
    if "://" not in server:
        names = ("certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify")
        owned = ("client-certificate", "client-certificate-data")
        encrypted = any(cluster.get(name) for name in names) or any(user.get(name) for name in owned)
        server = f"{'https' if encrypted else 'http'}://{server}"
    if not server.startswith(("https://", "http://")):
        raise ClusterError(
            f"{where} cannot be used: its kubeconfig has the address {server!r}, must begin with https:// or http://"
        )
    return server
