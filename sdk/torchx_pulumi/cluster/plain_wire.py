"""A wire for kubeconfigs that hold their credentials: certificate, token, token file, or name and password."""

from __future__ import annotations

import base64
import json
import os
import ssl
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from torchx_pulumi.cluster.impersonation import impersonation, with_headers
from torchx_pulumi.cluster.wire import CONNECT_TIMEOUT_S, CONNECTIONS, READ_TIMEOUT_S, Query, urllib3
from torchx_pulumi.errors import ClusterError
from torchx_pulumi.kubeconfig import cluster_and_user

PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
"""Variables by which the environment sends requests through a proxy."""

PLUGINS = ("auth-provider", "exec")
"""Fields of a user that need more than this wire can do."""


def suffices(config: Mapping[str, Any], context: str | None) -> bool:
    """Tell whether this wire can do what a context needs; whatever looks odd is left to the official client."""
    try:
        cluster, user = cluster_and_user(config, context)
    except ClusterError:
        return False
    if any(os.environ.get(name) for name in PROXIES) or cluster.get("proxy-url"):
        return False
    return str(cluster.get("server", "")).startswith(("https://", "http://")) and not any(user.get(p) for p in PLUGINS)


class PlainWire:
    """Asks through urllib3."""

    def __init__(self, config: Mapping[str, Any], context: str | None, description: str) -> None:
        """Read certificates; no connection is made.

        Raises:
            ClusterError: A certificate or key cannot be read, or the user to act for is no header.
        """
        cluster, self._user = cluster_and_user(config, context)
        self._server = str(cluster["server"]).rstrip("/")
        self._where = description
        self._impersonation = impersonation(self._user, description)
        options: dict[str, Any] = {}
        if self._server.startswith("https://"):
            try:
                options = _tls(cluster, self._user)
            except (OSError, ValueError, ssl.SSLError) as error:
                raise ClusterError(f"{description} cannot be used: its certificates: {error}") from error
        self._pool = urllib3().PoolManager(maxsize=CONNECTIONS, retries=False, **options)
        if cluster.get("insecure-skip-tls-verify"):
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
        """Send a request; see `Wire`."""
        headers = {"Accept": accept, "User-Agent": "torchx-pulumi", **self._authorization()}
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        url = f"{self._server}{path}" + (f"?{urlencode(query)}" if query else "")
        # Not `request`, which puts the headers of one name together.
        return self._pool.urlopen(
            method,
            url,
            headers=with_headers(headers, self._impersonation),
            body=data,
            preload_content=False,
            redirect=False,
            timeout=urllib3().Timeout(connect=CONNECT_TIMEOUT_S, read=read_timeout_s),
        )

    def _authorization(self) -> dict[str, str]:
        """Return the header that says who asks; a token's file is read each time, since tokens are renewed in place."""
        token = self._user.get("token")
        if self._user.get("tokenFile"):
            try:
                token = Path(self._user["tokenFile"]).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise ClusterError(f"{self._where} cannot be used: its token file: {error}") from error
        if token:
            return {"Authorization": f"Bearer {token}"}
        if self._user.get("username") and self._user.get("password"):
            pair = f"{self._user['username']}:{self._user['password']}".encode()
            return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
        return {}


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> dict[str, Any]:
    """Return what urllib3 needs to know to trust the server, and to be trusted."""
    authority = _contents(cluster, "certificate-authority")
    # Made by urllib3, which knows whether Python or it itself compares names and addresses in this release.
    context = urllib3().util.ssl_.create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED)
    if authority:
        context.load_verify_locations(cadata=authority.decode())
    else:
        context.load_default_certs()
    # Authorities that clusters make for themselves lack extensions that this would ask for.
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    options: dict[str, Any] = {"ssl_context": context}
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        options["cert_reqs"] = "CERT_NONE"
    if cluster.get("tls-server-name"):
        options["server_hostname"] = cluster["tls-server-name"]
    certificate, key = _contents(user, "client-certificate"), _contents(user, "client-key")
    if certificate and key:
        _load(context, certificate + b"\n" + key)
    return options


def _contents(section: Mapping[str, Any], name: str) -> bytes | None:
    """Return a certificate or key that a kubeconfig holds or names; what it holds comes first, as with kubectl."""
    if section.get(f"{name}-data"):
        return base64.b64decode(section[f"{name}-data"])
    return Path(section[name]).read_bytes() if section.get(name) else None


def _load(context: ssl.SSLContext, certificate_and_key: bytes) -> None:
    """Load a certificate with its key; Python reads these from a file only, which is gone again at once."""
    descriptor, name = tempfile.mkstemp(prefix="torchx-pulumi-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(certificate_and_key)
        context.load_cert_chain(name)
    finally:
        Path(name).unlink()
