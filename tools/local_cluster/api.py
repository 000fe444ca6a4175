"""A thin client of the API server: requests and answers, no rules. Standard library only."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tools.local_cluster.certificates import Credentials
from tools.local_cluster.errors import ApiError
from tools.local_cluster.layout import Layout
from tools.local_cluster.settings import Settings

Json = dict[str, Any]


class Api:
    """The API server, as the administrator sees it."""

    def __init__(self, server: str, token: str, ca: Path) -> None:
        self.server = server
        """Address, for example `https://127.0.0.1:20443`."""
        self._token = token
        self._context = ssl.create_default_context(cafile=str(ca))
        # No proxy: the server is on this machine.
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self._context)
        )

    @classmethod
    def of(cls, layout: Layout, settings: Settings) -> Api:
        """Return a client of a cluster's server."""
        made = Credentials.of(layout)
        return cls(server_address(settings), made.token.read_text("utf-8"), made.ca)

    def request(
        self, method: str, path: str, body: Json | bytes | None = None, *, kind: str = "json", timeout_s: float = 15
    ) -> Json:
        """Send one request and return the answer.

        Args:
            method: HTTP method.
            path: path and query.
            body: an object, or bytes that are sent as they are.
            kind: content type below `application/`.
            timeout_s: seconds to wait for the server.

        Raises:
            ApiError: the server refused.
            OSError: the server cannot be reached.
        """
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        request = urllib.request.Request(self.server + path, data=data, method=method)  # noqa: S310  https only
        request.add_header("Authorization", f"Bearer {self._token}")
        request.add_header("Accept", "application/json")
        request.add_header("Content-Type", f"application/{kind}")
        try:
            with self._opener.open(request, timeout=timeout_s) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise ApiError(error.code, _message(error.read())) from None
        try:
            answered = json.loads(text)
        except ValueError:
            return {"text": text.decode(errors="replace")}
        return answered if isinstance(answered, dict) else {"text": answered}

    def get(self, path: str) -> Json | None:
        """Return the object at `path`. None: there is none."""
        try:
            return self.request("GET", path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def create(self, path: str, body: Json | bytes, *, kind: str = "json") -> None:
        """Create an object; one that is there already is left as it is."""
        try:
            self.request("POST", path, body, kind=kind)
        except ApiError as error:
            if error.status != 409:
                raise

    def create_all(self, path: str, bodies: Iterable[Json | bytes], *, kind: str = "json") -> None:
        """Create many objects, some at the same time."""
        with ThreadPoolExecutor(max_workers=6) as pool:
            for done in [pool.submit(self.create, path, body, kind=kind) for body in bodies]:
                done.result()

    def ready(self) -> bool:
        """Whether the server says that it is ready."""
        return self.request("GET", "/readyz", timeout_s=3).get("text") == "ok"


def server_address(settings: Settings) -> str:
    """Return the API server's address."""
    return f"https://127.0.0.1:{settings.ports['kube-apiserver']}"


def _message(answer: bytes) -> str:
    try:
        return str(json.loads(answer)["message"])
    except (ValueError, KeyError, TypeError):
        return answer.decode(errors="replace").strip()[:500]
