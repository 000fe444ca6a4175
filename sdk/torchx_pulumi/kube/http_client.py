"""The wire for kubeconfigs and pods: certificates, tokens, plugins, proxies, impersonation; through urllib3 alone."""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from torchx_pulumi.kube.connections import (
    FIRST_ANSWER,
    IDLE_S,
    NEVER_S,
    SHORT_IDLE_S,
    Lane,
    pools,
    socket_options,
)
from torchx_pulumi.kube.credentials import Held, credentials_of
from torchx_pulumi.kube.impersonation import impersonation, with_headers
from torchx_pulumi.kube.kubeconfig import cluster_and_user
from torchx_pulumi.kube.kubeconfig_fields import check_fields
from torchx_pulumi.kube.proxies import proxy_for
from torchx_pulumi.kube.tls import Stamp, files_of, proxy_context, stamp_of, tls_options
from torchx_pulumi.kube.transport import CONNECT_TIMEOUT_S, CONNECTIONS, READ_TIMEOUT_S, Query, content_type, urllib3
from torchx_pulumi.model.errors import ClusterError

UNAUTHORIZED = 401


class HttpClient:
    """Asks through urllib3."""

    def __init__(self, config: Mapping[str, Any], context: str | None, description: str) -> None:
        """Check what the kubeconfig says; no connection is made, and no plugin is run.

        Raises:
            ClusterError: A field is not of its type, the user to act for is no header, or the way to log in or the
                proxy cannot be used.
        """
        self._cluster, self._user = cluster_and_user(config, context)
        check_fields(self._cluster, self._user, description)
        self._where = description
        self._server = _address(self._cluster, self._user, description)
        self._base = urlsplit(self._server).path.rstrip("/")
        self._impersonation = impersonation(self._user, description)
        self._credentials = credentials_of(self._cluster, self._user, description)
        self._proxy = proxy_for(self._server, self._cluster, os.environ, description)
        self._files = files_of(self._cluster, self._user)
        self._lane = Lane()
        self._lock = threading.Lock()
        self._made: tuple[Stamp, bytes | None] | None = None
        self._pool: Any = None
        if self._cluster.get("insecure-skip-tls-verify"):
            # The kubeconfig says so itself; kubectl keeps silent as well.
            warnings.filterwarnings("ignore", category=urllib3().exceptions.InsecureRequestWarning)

    def ask(
        self,
        method: str,
        path: str,
        query: Query = (),
        *,
        body: Any = None,
        accept: str = "application/json",
        read_timeout_s: float | None = READ_TIMEOUT_S,
    ) -> Any:
        """Send a request; see `Transport`.

        One that the API server answers with 401 is sent once more where there are other credentials by now.
        """
        headers = {"Accept": accept, "User-Agent": "torchx-pulumi"}
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), content_type(method)
        target = f"{self._base}{path}" + (f"?{urlencode(query)}" if query else "")
        held = self._credentials.current()
        try:
            response = self._send(held, method, target, headers, data, read_timeout_s)
            if response.status == UNAUTHORIZED and (renewed := self._credentials.renewed(held)) is not None:
                response.drain_conn()
                response = self._send(renewed, method, target, headers, data, read_timeout_s)
        except urllib3().exceptions.ProxyError as error:
            # Without its cause, whose text may name the proxy with its credentials.
            raise self._not_passed(error) from None
        return response

    def _send(
        self,
        held: Held,
        method: str,
        target: str,
        headers: Mapping[str, str],
        data: bytes | None,
        read_timeout_s: float | None,
    ) -> Any:
        """Send a request, and once more over a new connection where that is safe and an old one was of no use."""
        pool, lane = self._pool_for(held), self._lane
        if held.authorization:
            headers = {**headers, "Authorization": held.authorization}
        # A followed log may be silent for long, and what changes something is not sent twice.
        repeatable = method == "GET" and read_timeout_s is not None
        lane.longest_idle_s = IDLE_S if repeatable else SHORT_IDLE_S
        lane.first_answer_s = read_timeout_s * FIRST_ANSWER if repeatable and read_timeout_s is not None else None
        forwarded = self._proxy is not None and self._server.startswith("http://")
        origin = self._server[: len(self._server) - len(self._base)]

        def once() -> Any:
            # Not `request` of a manager, which puts the headers of one name together.
            return pool.urlopen(
                method,
                f"{origin}{target}" if forwarded else target,
                headers=with_headers(headers, self._impersonation),
                body=data,
                preload_content=False,
                redirect=False,
                retries=False,
                assert_same_host=False,
                timeout=urllib3().Timeout(connect=CONNECT_TIMEOUT_S, read=read_timeout_s),
            )

        try:
            return once()
        except (urllib3().exceptions.HTTPError, OSError):
            if not (repeatable and lane.reused):
                raise
        lane.longest_idle_s = NEVER_S
        return once()

    def _not_passed(self, error: Any) -> ClusterError:
        """Return what is said where the proxy does not let a request through."""
        cause = str(getattr(error, "original_error", None) or error)
        proxy = f"{self._proxy.url} ({self._proxy.source})" if self._proxy else "of the environment"
        return ClusterError(
            f"{self._where} cannot be reached through the proxy {proxy}: {cause.rpartition('>: ')[2]}; "
            "check the proxy, or list the API server in NO_PROXY where it can be reached without one",
            retryable=True,
            reason="Unreachable",
        )

    def _pool_for(self, held: Held) -> Any:
        """Return the pool of connections; it is made again when certificates change.

        Raises:
            ClusterError: A certificate or key cannot be read.
        """
        wanted = (stamp_of(self._files), held.certificate_and_key)
        with self._lock:
            if self._made == wanted:
                return self._pool
            try:
                pool = self._new_pool(held)
            except (OSError, ValueError) as error:
                if self._pool is not None and self._made is not None and self._made[1] == wanted[1]:
                    # Certificate and key are two files: between the writing of both they do not fit.
                    return self._pool
                raise ClusterError(f"{self._where} cannot be used: its certificates: {error}") from error
            # The old one closes its idle connections when no request uses it any more.
            self._pool, self._made = pool, wanted
            return pool

    def _new_pool(self, held: Held) -> Any:
        options: dict[str, Any] = {"maxsize": CONNECTIONS, "socket_options": socket_options()}
        if self._server.startswith("https://"):
            options |= tls_options(self._cluster, self._user, held.certificate_and_key)
        if self._proxy is None:
            manager = urllib3().PoolManager(**options)
        else:
            if self._proxy.url.startswith("https://"):
                options["proxy_ssl_context"] = proxy_context(self._cluster)
            headers = {"Proxy-Authorization": self._proxy.authorization} if self._proxy.authorization else None
            manager = urllib3().ProxyManager(self._proxy.url, proxy_headers=headers, **options)
        manager.pool_classes_by_scheme = pools(self._lane)
        return manager.connection_from_url(self._server)


def _address(cluster: Mapping[str, Any], user: Mapping[str, Any], where: str) -> str:
    """Return the server with its scheme; one without is encrypted where anything is said of certificates."""
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
