"""How questions go to an API server: the shape of a wire, and the one wire that each access has.

urllib3 is enough for all that a kubeconfig may hold. The official client, whose import takes longer than all that a
command asks, is only used where a caller brings one.
"""

from __future__ import annotations

import importlib
import json
import os
import threading
from collections.abc import Sequence
from typing import Any, Protocol

from torchx_pulumi.kube.kubeconfig import Access, api_server, pod_config
from torchx_pulumi.model.errors import ClusterError

CONNECT_TIMEOUT_S = 5.0
"""Longest wait for a connection."""

READ_TIMEOUT_S = 30.0
"""Longest silence while an answer is read; following a log has no such limit."""

CONNECTIONS = 64
"""Connections to one API server that are kept for the next question."""

Query = Sequence[tuple[str, str]]


def content_type(method: str) -> str:
    """Return the media type of a request's body."""
    return "application/merge-patch+json" if method == "PATCH" else "application/json"


class Transport(Protocol):
    """A way to ask one API server, safe to use from many threads."""

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
        """Send a request and return urllib3's response with its body not read yet, or whatever refuses as such.

        Args:
            method: GET, POST, PUT, PATCH (a merge patch) or DELETE.
            path: Path on the server, quoted.
            query: Parameters.
            body: Sent as JSON. None: nothing.
            accept: Type of the answer.
            read_timeout_s: Longest silence. None: no limit.

        Raises:
            ClusterError: Credentials cannot be read.
            OSError: No connection; or one of urllib3's own errors.
        """
        ...


class LazyTransport:
    """A wire that is made when somebody asks first."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._wire: Transport | None = None
        self._process = 0
        self._lock = threading.Lock()

    def get(self) -> Transport:
        """Return the wire.

        Raises:
            ClusterError: The kubeconfig cannot be used, or a package is missing.
        """
        with self._lock:
            # Two processes must not talk over one connection.
            if self._wire is None or self._process != os.getpid():
                self._wire, self._process = make_wire(self._access), os.getpid()
            return self._wire


_wires: dict[Access, LazyTransport] = {}
"""One wire, and so one pool of connections, for each access that was ever asked for."""


def wire_of(access: Access) -> LazyTransport:
    """Return the wire of an access."""
    return _wires.setdefault(access, LazyTransport(access))


def make_wire(access: Access) -> Transport:
    """Make the wire of an access.

    Raises:
        ClusterError: The kubeconfig cannot be used, or urllib3 is missing.
    """
    try:
        urllib3()
    except ImportError as error:
        raise ClusterError(
            f"reading {access.description} needs the Python package `urllib3`, which is not installed; "
            "install `torchx-pulumi[kubernetes]`"
        ) from error
    from torchx_pulumi.kube import http_client

    config = pod_config(api_server(access)) if access.config is None else json.loads(access.config)
    return http_client.HttpClient(config, access.context, access.description)


def urllib3() -> Any:
    """Load urllib3, which is not loaded before something is asked."""
    return importlib.import_module("urllib3")
