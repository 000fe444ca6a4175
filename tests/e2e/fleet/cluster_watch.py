"""What happens in a namespace, seen by a watch of the tests' own: it uses no code of the product.

Each object is noted with the time at which its event came, so that a test can say what was to be known when.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Manifest = dict[str, Any]

PATHS: Mapping[str, str] = {
    "pods": "/api/v1/namespaces/{namespace}/pods",
    "jobs": "/apis/batch.volcano.sh/v1alpha1/namespaces/{namespace}/jobs",
    "appwrappers": "/apis/workload.codeflare.dev/v1beta1/namespaces/{namespace}/appwrappers",
}
"""What is watched: plural name -> path of its list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One event."""

    at: float
    """When it came, by `time.time`."""
    deleted: bool
    object: Manifest


class Server:
    """An API server, by the token and the authority of a kubeconfig in JSON."""

    def __init__(self, kubeconfig: Path) -> None:
        whole = json.loads(kubeconfig.read_text())
        cluster, user = whole["clusters"][0]["cluster"], whole["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._address = cluster["server"]
        self._token = user["token"]
        handler = urllib.request.HTTPSHandler(context=ssl.create_default_context(cadata=authority))
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), handler)

    def open(self, method: str, path: str, body: object = None, *, timeout_s: float = 30, kind: str = "json") -> Any:
        """Send a request and return the answer, unread."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._address + path, data=data, method=method)
        request.add_header("Authorization", f"Bearer {self._token}")
        request.add_header("Content-Type", f"application/{kind}")
        return self._opener.open(request, timeout=timeout_s)

    def ask(self, method: str, path: str, body: object = None, *, kind: str = "json") -> Manifest:
        """Send a request and return the answer."""
        with self.open(method, path, body, kind=kind) as answer:
            return dict(json.loads(answer.read()))


class ClusterWatch:
    """Follows the job objects and pods of a namespace from the time when it was made until `close`."""

    def __init__(self, server: Server, namespace: str) -> None:
        self.server = server
        self._closed = threading.Event()
        self._guard = threading.Lock()
        self._seen: dict[tuple[str, str], list[Seen]] = {}
        self._uids: dict[tuple[str, str], set[str]] = {}
        self._threads: list[threading.Thread] = []
        self._error: Manifest | None = None
        """The event with which a watch ended for good. None: they all go on."""
        for plural, path in PATHS.items():
            place = path.format(namespace=namespace)
            try:
                version = server.ask("GET", f"{place}?limit=1")["metadata"]["resourceVersion"]
            except urllib.error.HTTPError as error:
                # 404: the cluster does not have the kind.
                error.close()
                continue
            thread = threading.Thread(target=self._follow, args=(plural, place, version), daemon=True)
            self._threads.append(thread)
            thread.start()

    def events(self, plural: str, name: str) -> Sequence[Seen]:
        """Return the events of an object, oldest first."""
        assert self._error is None, self._error
        with self._guard:
            return tuple(self._seen.get((plural, name), ()))

    def pods(self, owner: str) -> Sequence[Sequence[Seen]]:
        """Return the events of each pod whose name begins with that of a job; one made again is another pod."""
        with self._guard:
            found: dict[str, list[Seen]] = {}
            for (plural, name), events in self._seen.items():
                if plural == "pods" and name.startswith(f"{owner}-"):
                    for event in events:
                        found.setdefault(event.object["metadata"]["uid"], []).append(event)
            return tuple(tuple(events) for events in found.values())

    def close(self) -> None:
        """End the watches."""
        self._closed.set()
        for thread in self._threads:
            thread.join(timeout=10)

    def _follow(self, plural: str, place: str, version: str) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                path = f"{place}?watch=1&allowWatchBookmarks=true&timeoutSeconds=5&resourceVersion={version}"
                with self.server.open("GET", path) as lines:
                    for line in lines:
                        version = self._note(plural, json.loads(line))

    def _note(self, plural: str, event: Manifest) -> str:
        one, now = event["object"], time.time()
        if event["type"] == "ERROR":
            # From here on changes are missing: the next question about the truth fails with this event.
            self._error = event
            self._closed.set()
            return ""
        if event["type"] != "BOOKMARK":
            seen = Seen(at=now, deleted=event["type"] == "DELETED", object=_slim(one))
            with self._guard:
                self._seen.setdefault((plural, one["metadata"]["name"]), []).append(seen)
        return str(one["metadata"]["resourceVersion"])


def _slim(one: Manifest) -> Manifest:
    """Return the fields that the tests read of an object."""
    meta = one["metadata"]
    kept = {key: meta.get(key) for key in ("name", "uid", "creationTimestamp", "deletionTimestamp")}
    return {"metadata": kept, "status": one.get("status") or {}}


def first(events: Sequence[Seen], claim: Callable[[Manifest], object]) -> Seen | None:
    """Return the first event whose object is as claimed."""
    return next((event for event in events if claim(event.object)), None)
