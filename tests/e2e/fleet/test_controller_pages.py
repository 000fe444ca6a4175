"""`torchx-pulumi controller --listen` as a process: who gets in, what arrives when, and what clients cannot hold."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.e2e.fleet.controller_process import ControllerProcess
from tests.e2e.fleet.controller_world import tell
from tests.e2e.project import STOP_S, eventually
from tests.e2e.torchx_cli import TorchxCli

pytestmark = pytest.mark.e2e

COMPONENT = """
from torchx import specs

def slow(image: str, script: str) -> specs.AppDef:
    role = specs.Role(name="main", image=image, entrypoint="sh", args=["-c", script], num_replicas=1,
                      resource=specs.Resource(cpu=0.1, gpu=0, memMB=32))
    return specs.AppDef("slow", [role])
"""

# The last word, which does nothing, tells this script from those of other tests.
SCRIPT = (
    "trap 'over=1' USR1; "
    "x=$(head -c 1000 /dev/zero | tr '\\0' x); i=0; while [ $i -lt 8000 ]; do echo $x; i=$((i+1)); done; "
    'i=0; while [ -z "$over" ]; do i=$((i+1)); echo line $i; sleep 0.3; done; : {}'
)
"""Eight million bytes at once, which a reader who does not read must not make the controller hold; then slow lines."""

STREAMS = 100
"""Pages that are open at the same time."""
DELAY_S = 5.0
"""Wanted of the time from a change in the cluster to the pages, on a machine that other tests use too."""


class Site:
    """The pages of a controller, asked with Python's own HTTP client."""

    def __init__(self, url: str) -> None:
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/(?:\?token=(\S+))?", url)
        assert found, url
        self.port, self.token = int(found[1]), found[2] or ""

    def ask(self, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, Mapping[str, str], bytes]:
        """Send a request; without headers, with the token."""
        sent = {"Authorization": f"Bearer {self.token}"} if headers is None else headers
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            connection.request("GET", path, headers=dict(sent))
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()

    def json(self, path: str) -> Any:
        status, _, body = self.ask(path)
        assert status == 200, body
        return json.loads(body)

    def open(self, path: str) -> socket.socket:
        """Send a request, and read nothing."""
        client = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.token}\r\n\r\n"
        client.sendall(head.encode())
        return client


class Stream:
    """Follows the stream of changes in a thread."""

    def __init__(self, site: Site) -> None:
        self.frames: list[Any] = []
        self.states: dict[tuple[str, str], float] = {}
        """Name of an app and state, to the time of its arrival."""
        self._client = site.open("/api/v1/stream")
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        with contextlib.suppress(OSError), self._client.makefile("rb") as lines:
            for line in lines:
                if line.startswith(b"data: "):
                    frame = json.loads(line.removeprefix(b"data: "))
                    self.frames.append(frame)
                    for app in frame["apps"]:
                        self.states.setdefault((app["app_id"], app["state"]), time.time())

    def ended(self) -> bool:
        self._thread.join(0.01)
        return not self._thread.is_alive()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)
        self._client.close()
        self._thread.join(10)


@pytest.fixture
def cli(pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path) -> TorchxCli:
    made = TorchxCli(pulumi_env, tmp_path, kubeconfig)
    (tmp_path / "mine.py").write_text(COMPONENT)
    return made


@contextlib.contextmanager
def running(cli: TorchxCli, *words: str) -> Iterator[tuple[ControllerProcess, Site]]:
    controller = ControllerProcess(cli.env, cli.folder, "--listen", "0", *words)
    try:
        eventually(lambda: controller.lines("the page: "))
        yield controller, Site(controller.lines("the page: ")[0].removeprefix("the page: "))
    finally:
        controller.close()


def test_a_job_is_followed_by_pages_and_a_stop_ends_them(
    cli: TorchxCli,
    cluster: Any,
    namespace: str,
    look: KubernetesCluster,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if not cluster.images:
        pytest.skip("the local cluster has no real node: no container can write a log")
    with running(cli, "--namespace", namespace) as (controller, site):
        eventually(lambda: site.ask("/readyz", {})[0] == 200)
        check_refusals(site)
        check_port_in_use(cli, site)
        stream = Stream(site)
        script = SCRIPT.format(namespace)
        said = cli.torchx(
            "run", "--workspace", "", "-s", "pulumi_volcano", "-cfg", f"namespace={namespace},queue=default",
            "mine.py:slow", "--image", cluster.images["busybox"], "--script", script,
        )  # fmt: skip
        job = said.handle.rpartition(":")[2]
        app_id = f"{namespace}:{job}"
        eventually(lambda: (app_id, "RUNNING") in stream.states, timeout_s=180)
        (app,) = site.json("/api/v1/apps?state=active")["apps"]
        assert "default" in {queue["name"] for queue in site.json("/api/v1/queues")["queues"]}
        path = f"/api/v1/apps/{app['id']}"
        log = f"{path}/logs?role=main&replica=0&timestamps=false"
        lines, follower = Lines(site.open(f"{log}&follow=true")), memory(controller)
        # Clients that do not read: what they could hold is 20 times 8 MB.
        silent = [site.open(f"{log}&follow=true") for _ in range(20)]
        eventually(lambda: "line 3" in lines.read)
        held_mb = memory(controller) - follower
        for client in silent:
            client.close()
        before = memory(controller)
        pages = [site.open("/api/v1/stream") for _ in range(STREAMS)]
        for page in pages:
            assert b" 200 " in page.recv(1 << 16)
        pages_mb = memory(controller) - before
        check_document(site, path, stream)
        tell(script)
        ended_at = when(lambda: phase(look, namespace, job) == "Completed")
        eventually(lambda: (app_id, "SUCCEEDED") in stream.states)
        delay_s = stream.states[(app_id, "SUCCEEDED")] - ended_at
        eventually(lines.ended)
        numbers = [int(line.removeprefix("line ")) for line in lines.read if line.startswith("line ")]
        assert numbers == [*range(1, len(numbers) + 1)]
        stop_s = controller.stop()
        eventually(stream.ended)
        stream.close()
        for page in pages:
            page.close()
        assert "Traceback" not in controller.said()
        assert controller.said().count(site.token) == 1
    with capsys.disabled():
        sys.stdout.write(
            f"\nend of the job to the page: {delay_s:.2f} s; 20 logs that are not read: {held_mb:.0f} MB; "
            f"{STREAMS} open pages: {pages_mb:.1f} MB; stopped after {stop_s:.1f} s\n"
        )
    assert delay_s < DELAY_S
    assert held_mb < 40
    assert pages_mb < 20
    assert stop_s < STOP_S


def test_a_token_in_a_file_is_exchanged_while_the_controller_runs(cli: TorchxCli, namespace: str) -> None:
    file = cli.folder / "token"
    file.touch(0o600)
    file.write_text("first-token-012345\n")
    with running(cli, "--namespace", namespace, "--token-file", str(file)) as (controller, site):
        assert site.ask("/metrics", {"Authorization": "Bearer first-token-012345"})[0] == 200
        file.write_text("short\n")
        assert site.ask("/metrics", {"Authorization": "Bearer first-token-012345"})[0] == 200
        eventually(lambda: controller.lines("--token-file:", "the token before the change stays valid"))
        file.write_text("second-token-012345\n")
        assert site.ask("/metrics", {"Authorization": "Bearer first-token-012345"})[0] == 401
        assert site.ask("/metrics", {"Authorization": "Bearer second-token-012345"})[0] == 200
        assert controller.stop() < STOP_S
        assert "token-012345" not in controller.said()


def check_refusals(site: Site) -> None:
    """Requests that have no right, or come from elsewhere, are refused by the real process."""
    bearer = {"Authorization": f"Bearer {site.token}"}
    cookie = {"Cookie": f"torchx-pulumi-{site.port}=99999999999.{'0' * 64}"}
    for headers, status in (
        ({}, 401),
        ({"Authorization": f"Bearer {site.token}x"}, 401),
        (cookie, 401),
        ({**bearer, "Host": "rebound.example"}, 421),
        ({**bearer, "Origin": "https://evil.example"}, 403),
        ({**bearer, "Origin": f"http://localhost:{site.port + 1}"}, 403),
        (bearer, 200),
    ):
        for path in ("/api/v1/apps", "/metrics"):
            answered, found, body = site.ask(path, headers)
            assert (answered, site.token in body.decode()) == (status, False)
            assert not [name for name in found if name.startswith("access-control")]
    status, found, _ = site.ask(f"/?token={site.token}", {})
    assert status == 200
    given = {"Cookie": found["set-cookie"].partition(";")[0]}
    assert site.ask("/api/v1/apps", given)[0] == 200
    assert b"<table" in site.ask("/", given)[2]


def check_port_in_use(cli: TorchxCli, site: Site) -> None:
    said = cli.ours("controller", "--listen", str(site.port), code=2)
    assert f"--listen: {site.port} cannot be used: Address already in use" in said.err


def check_document(site: Site, path: str, stream: Stream) -> None:
    """What the real process answers is what its document says."""
    document = site.json("/api/v1/openapi.json")
    found = {
        "Apps": site.json("/api/v1/apps"),
        "App": site.json(path),
        "Events": site.json(f"{path}/events"),
        "Runs": site.json(f"{path}/runs"),
        "Fleet": stream.frames[-1],
    }
    assert found["Events"]["events"]
    assert found["Runs"]["runs"][0]["attempts"]
    for name, values in found.items():
        schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        jsonschema.Draft202012Validator(schema).validate(values)


class Lines:
    """Reads a log in a thread."""

    def __init__(self, client: socket.socket) -> None:
        self.read: list[str] = []
        self._answer = http.client.HTTPResponse(client)
        self._client = client
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            self._answer.begin()
            for line in self._answer:
                self.read.append(line.decode().rstrip("\n"))
        self._client.close()

    def ended(self) -> bool:
        return not self._thread.is_alive()


def memory(controller: ControllerProcess) -> float:
    return controller.memory_kb / 1024


def phase(look: KubernetesCluster, namespace: str, job: str) -> str:
    found = look.get(VOLCANO_JOB, namespace, job) or {}
    return str(((found.get("status") or {}).get("state") or {}).get("phase", ""))


def when(claim: Callable[[], bool]) -> float:
    """Return the time at which a claim held for the first time."""
    eventually(claim)
    return time.time()
