"""A real server over a fleet that a test fills, and a client that sends any bytes."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torchx_pulumi.apps.app import App
from torchx_pulumi.stack_state.stacks import StackName
from torchx_pulumi_fleet.tracker.live_fleet import LiveFleet
from torchx_pulumi_fleet.web.access import PageAccess
from torchx_pulumi_fleet.web.application import Application
from torchx_pulumi_fleet.web.serving import WebServer
from torchx_pulumi_fleet.web.site import Site
from torchx_pulumi_fleet.web.tokens import GeneratedToken

from tests.fleet.writer.live_apps import app_of

BACKEND = "file:///srv/state"


def app(name: str = "train", *, state: str = "RUNNING", second: int = 0, **more: Any) -> App:
    """An app of `torchx run` as its stack has it."""
    namespace, user = more.pop("namespace", "default"), more.pop("user", "ann")
    observed = {
        "state": state,
        "reason": more.pop("reason", "Running"),
        "message": more.pop("message", ""),
        "attempt": 1,
        "queued_at": f"2026-03-04T10:00:{second:02d}Z",
        "observed_at": "2026-03-04T11:00:00Z",
        "roles": [
            {"name": "trainer", "counts": {state: 2}, "replicas": [{"id": 0, "pod": f"{name}-0", "state": state}]}
        ],
    }
    output = {
        "app": {
            "id": f"{namespace}:{name}", "name": name, "namespace": namespace, "scheduler": "volcano",
            "queue": more.pop("queue", "default"), "handle": f"pulumi_volcano://torchx/{namespace}:{name}",
        },
        "declared": {
            "created_by": user, "resources_total": {"gpu": 4},
            "roles": [{"name": "trainer", "image": "app:1", "replicas": 2, "resource": {"gpu": 2}}],
        },
        "observed": observed,
        "links": {"log_command": f"torchx log {name}", "ui_url": "javascript:alert(1)"},
    }  # fmt: skip
    backend, stack = more.pop("backend", BACKEND), StackName(project="torchx", stack=f"{namespace}.{name}")
    run = {"namespace": namespace, "job_name": name, "uid": f"uid-{name}"}
    return app_of(output, stack, backend=backend, urn=f"urn:{name}", **run, **more)


@dataclass
class Answer:
    """What the server answered."""

    status: int
    headers: Mapping[str, str]
    """By lower-case names."""
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        return str(self.json["error"]["message"])


@dataclass
class Served:
    """A server, what it shows and what it said."""

    fleet: LiveFleet
    port: int
    generated: GeneratedToken
    reported: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    not_ready: str = ""

    @property
    def token(self) -> str:
        return self.generated.text

    def ask(
        self, path: str, method: str = "GET", *, token: bool = True, body: bytes | None = None, **headers: str
    ) -> Answer:
        """Send a request; names of headers with `_` for `-`."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            sent.setdefault("Authorization", f"Bearer {self.token}")
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)) as connection:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())

    def connect(self, head: bytes = b"") -> socket.socket:
        """Connect and send bytes."""
        client = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        client.sendall(head)
        return client

    def head(self, path: str) -> bytes:
        """Return the bytes of a request with the token."""
        return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.token}\r\n\r\n".encode()


@contextlib.contextmanager
def served(
    *,
    stop: threading.Event | None = None,
    port: int = 0,
    auth: bool = True,
    hosts: tuple[str, ...] = (),
    fleet: LiveFleet | None = None,
    **more: Any,
) -> Iterator[Served]:
    """Run a server over a fleet; None: an empty one. Its port 0: a free one. `stop` ends it."""
    listener = socket.create_server(("127.0.0.1", port))
    port, token, fleet = int(listener.getsockname()[1]), GeneratedToken(), fleet or LiveFleet()
    found = Served(fleet=fleet, port=port, generated=token)
    site = Site(
        fleet=fleet,
        backends=(BACKEND,),
        problems=lambda: found.problems,
        not_ready=lambda: found.not_ready,
        report=lambda _, text: found.reported.append(text),
        **{
            "events": lambda one: [{"message": one.app.run.job_name}],
            "queues": list,
            "runs": lambda one: {"runs": [{"uid": one.app.uid}], "updates": [], "notes": []},
            "metrics": lambda: (b"metric 1\n", "text/plain; version=1.0.0"),
            "logs": None,
            **more,
        },
    )
    access = PageAccess(token=token if auth else None, port=port, hosts=frozenset(hosts))
    server = WebServer(Application(site, access), listener, found.reported.append)
    server.start(stop)
    try:
        yield found
    finally:
        ended = server.stop()
        assert ended


def eventually(claim: Callable[[], object], timeout_s: float = 10) -> None:
    """Wait until a claim holds."""
    end = time.monotonic() + timeout_s
    while not claim():
        assert time.monotonic() < end
        time.sleep(0.01)
