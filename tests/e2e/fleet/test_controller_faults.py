"""The controller while something is broken: real parts that refuse, vanish, fill up or jump, and come back.

Apps are launched through the engine and run on fake nodes, where an annotation ends their pods; those whose logs count
run on the real node.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.e2e.fleet.controller_process import StackWatch, stored_logs
from tests.e2e.fleet.controller_world import World
from tests.e2e.project import STOP_S, eventually
from tests.loopback import LoopbackProxy
from tests.s3_server import S3Backend

pytestmark = pytest.mark.e2e

EVENTS = int(os.environ.get("TORCHX_PULUMI_CONTROLLER_EVENTS", "1000"))
"""Events that come at once; 10,000 in the long run."""
LINE_MB = int(os.environ.get("TORCHX_PULUMI_CONTROLLER_LINE_MB", "9"))
"""Length of the long line; 100 in the long run."""
GROWTH_MB = 40
"""By which memory may grow in a fault."""
EVENT_PATH = "/api/v1/namespaces/{}/events"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mount disks of a size."""
    made: list[Path] = []

    def mount(size: str) -> Path:
        if os.geteuid() != 0:
            pytest.skip("a small disk can be mounted by root only")
        folder = Path(tempfile.mkdtemp(prefix="txf-", dir=tmp_path))
        words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder]
        if subprocess.run(words, check=False, capture_output=True).returncode:
            pytest.skip("this machine lets nobody mount a disk")
        made.append(folder)
        return folder

    yield mount
    for folder in made:
        subprocess.run(["umount", "--lazy", folder], check=True)


class SwitchedProxy(LoopbackProxy):
    """Forwards connections to an API server while it is on."""

    def __init__(self, kubeconfig: Path) -> None:
        self._config = json.loads(kubeconfig.read_text())
        server = urlsplit(self._config["clusters"][0]["cluster"]["server"])
        self._target = (str(server.hostname), int(server.port or 443))
        self.on = True
        super().__init__()

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig whose way leads through the proxy."""
        self._config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self.port}"
        path.write_text(json.dumps(self._config))
        return path

    def switch(self, *, on: bool) -> None:
        """Switch it; off, all connections end and new ones are closed at once."""
        self.on = on
        if not on:
            self._end(*self._ends)

    def _serve(self, client: socket.socket) -> None:
        if not self.on:
            client.close()
            return
        server = self._connect(self._target)
        self._run(self._forward, client, server)
        self._forward(server, client)

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        self._end(source, sink)


def test_a_cluster_that_goes_away_a_clock_that_jumps_a_deleted_stack_and_a_stop(
    world: World, kubeconfig: Path, tmp_path: Path
) -> None:
    jumped, ended, deleted, failed = world.launch(count=4)
    proxy = SwitchedProxy(kubeconfig)
    try:
        controller = world.controller("--kubeconfig", str(proxy.kubeconfig(tmp_path / "through.json")))
        for app in (jumped, ended, deleted, failed):
            world.reaches(app, "RUNNING", 90)

        # Who wrote last had a clock that is an hour ahead.
        path = world.checkpoint(jumped)
        future = (datetime.now(timezone.utc) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        text = path.read_text()
        assert '"observed_at"' in text
        changed = path.with_suffix(".new")
        changed.write_text(re.sub(r'("observed_at": ?)"[^"]*"', rf'\1"{future}"', text))
        changed.rename(path)
        world.end(jumped)
        world.reaches(jumped, "SUCCEEDED")

        # The cluster is away while an app ends, and for longer than the first pauses.
        proxy.switch(on=False)
        world.end(ended)
        world.checkpoint(deleted).unlink()
        eventually(lambda: controller.lines("watching stopped"))
        time.sleep(4)
        assert world.state(ended) == "RUNNING"
        proxy.switch(on=True)
        world.reaches(ended, "SUCCEEDED", 90)
        world.end(deleted)
        world.end(failed, 7)
        world.reaches(failed, "FAILED")
        # The watches come back one after the other, and the line with the last of them.
        eventually(lambda: controller.lines("watching goes on"))
        assert len(controller.lines("watching stopped")) == len(controller.lines("watching goes on")) == 1, (
            controller.said()
        )
        assert controller.stop() < STOP_S
        assert "Traceback" not in controller.said()
        assert not list(world.backend.glob(f".pulumi/stacks/torchx/*{deleted.partition(':')[2]}*.json"))
        assert not list((world.backend / ".pulumi/locks").rglob("*.json"))
    finally:
        proxy.close()


def test_a_backend_that_cannot_be_written_gets_all_when_it_can(world: World, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a folder can be mounted by root only")
    apps = world.launch(count=2)
    view = tmp_path / "view"
    view.mkdir()
    subprocess.run(["mount", "--bind", world.backend, view], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", view], check=True)
        controller = world.controller("--backend", f"file://{view}")
        for app in apps:
            world.end(app)
        eventually(lambda: controller.lines(str(view), "not written yet"))
        assert {world.state(app) for app in apps} == {"SUBMITTED"}
        subprocess.run(["mount", "-o", "remount,bind,rw", view], check=True)
        for app in apps:
            world.reaches(app, "SUCCEEDED", 60)
        # Of the backend it is said once. An attempt that began before the folder could be written says it of its app.
        assert len(controller.lines("backend file://", "not written yet")) == 1, controller.said()
        eventually(lambda: controller.lines(str(view), "can be written again"))
        assert controller.stop() < STOP_S
    finally:
        subprocess.run(["umount", "--lazy", view], check=True)


def test_kinds_that_may_not_be_watched_are_named_once_and_the_rest_works(world: World, kubeconfig: Path) -> None:
    (app,) = world.launch()
    user = _account(world, kubeconfig)
    controller = world.controller("--kubeconfig", str(user))
    world.end(app, 9)
    world.reaches(app, "FAILED")
    written = world.stacks.last(app)
    assert written is not None
    assert written.reason == "ExitCode"
    for place in (f"events in namespace {world.namespace}", "podgroups.scheduling.volcano.sh"):
        eventually(lambda place=place: controller.lines("no permission to list and watch", place))
        assert len(controller.lines("no permission to list and watch", place)) == 1, controller.said()
    lines = controller.said().splitlines()
    assert len(lines) == len({line.partition(" ")[2] for line in lines}), controller.said()
    controller.stop()


@pytest.mark.extended
def test_a_full_disk_delays_logs_and_a_long_line_is_cut_visibly(
    world: World, small_disk: Callable[[str], Path]
) -> None:
    disk = small_disk("192k")
    noise = "i=0; while [ $i -lt 40 ]; do i=$((i+1)); head -c 9000 /dev/urandom | base64 -w0; echo; done"
    long = f"echo first; head -c {LINE_MB}000000 /dev/zero | tr '\\0' x; echo; echo last"
    controller = world.controller("--log-archive", str(disk), "--archive-limit", "4Mi")
    began_kb = controller.memory_kb
    (noisy,) = world.launch(noise)
    world.reaches(noisy, "SUCCEEDED", 180)
    eventually(lambda: controller.lines(str(disk), "space"))
    assert stored_logs(disk) == []
    subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
    # Retries have become as long as 30 s.
    (log,) = eventually(lambda: [log for log in stored_logs(disk) if log.record["complete"]], 180)
    assert (len(log.lines), {len(line) for line in log.lines}) == (40, {12000})
    (line,) = world.launch(long)
    world.reaches(line, "SUCCEEDED", 180)
    (log,) = eventually(
        lambda: [log for log in stored_logs(disk) if log.record["app_id"] == line and log.record["complete"]], 180
    )
    assert log.record["left_out_bytes"] > 0
    assert any("left out" in text for text in log.lines)
    assert log.lines[-1] == "last"
    controller.stop()
    grown_mb = (controller.most_kb - began_kb) / 1024
    assert grown_mb < GROWTH_MB
    assert not [path for path in disk.rglob("*") if path.suffix == ".tmp"]


@pytest.mark.extended
def test_a_burst_of_events_delays_nothing_and_takes_no_memory(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    first, later = world.launch(count=2)
    controller = world.controller()
    world.reaches(first, "RUNNING", 90)
    began_kb = controller.memory_kb
    name = first.partition(":")[2]
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": world.namespace, "name": f"{name}-trainer-0-0"}

    def burst(number: int) -> None:
        event = {
            "metadata": {"name": f"{name}.{number}"}, "involvedObject": about, "type": "Warning",
            "reason": "FailedScheduling", "message": f"{number}: " + "no room " * 40,
        }  # fmt: skip
        world.server.ask("POST", EVENT_PATH.format(world.namespace), event)

    with ThreadPoolExecutor(4) as pool:
        made = pool.map(burst, range(EVENTS))
        time.sleep(1)
        world.end(later)
        ended_at = time.time()
        delay_s = world.reaches(later, "SUCCEEDED") - ended_at
        list(made)
    world.end(first)
    world.reaches(first, "SUCCEEDED")
    controller.stop()
    grown_mb = (controller.most_kb - began_kb) / 1024
    with capsys.disabled():
        sys.stdout.write(f"\n{EVENTS} events: an end in between in {delay_s:.2f} s, memory grew by {grown_mb:.1f} MB\n")
    assert grown_mb < GROWTH_MB
    assert len(controller.lines(first)) < 10


@pytest.mark.extended
def test_stacks_and_logs_on_s3(world: World, s3_backend: S3Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        **s3_backend.env,
        "PULUMI_BACKEND_URL": s3_backend.url,
        "PULUMI_CONFIG_PASSPHRASE": "p",
    }.items():
        monkeypatch.setenv(name, value)
        world.cli.env[name] = value
    stacks = StackWatch(s3_backend.bucket)
    archive = s3_backend.url.replace("s3://state", "s3://state/logs")
    try:
        controller = world.controller("--log-archive", archive)
        (app,) = world.launch("i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo line $i; done; sleep 1; exit 3")

        def failed() -> bool:
            written = stacks.last(app)
            return written is not None and (written.state, written.reason) == ("FAILED", "ExitCode")

        eventually(failed, 180)
        (log,) = eventually(
            lambda: [log for log in stored_logs(s3_backend.bucket / "logs") if log.record["complete"]], 120
        )
        assert log.lines == [f"line {number}" for number in range(1, 301)]
        assert controller.stop() < STOP_S
        said = controller.said()
        assert s3_backend.env["AWS_SECRET_ACCESS_KEY"] not in said
    finally:
        stacks.close()


def _account(world: World, kubeconfig: Path) -> Path:
    """Write the kubeconfig of an account that may watch jobs and pods of the namespace, and nothing else."""
    path = f"/api/v1/namespaces/{world.namespace}/serviceaccounts"
    rights = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{world.namespace}"
    rules = [
        {"apiGroups": ["batch.volcano.sh"], "resources": ["jobs"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "few"}
    subject = {"kind": "ServiceAccount", "name": "few", "namespace": world.namespace}
    world.server.ask("POST", path, {"metadata": {"name": "few"}})
    world.server.ask("POST", f"{rights}/roles", {"metadata": {"name": "few"}, "rules": rules})
    binding = {"metadata": {"name": "few"}, "roleRef": role, "subjects": [subject]}
    world.server.ask("POST", f"{rights}/rolebindings", binding)
    # The API server decides by a cache, which has a new binding some time later.
    reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    user = f"system:serviceaccount:{world.namespace}:few"
    for group, resource in (("batch.volcano.sh", "jobs"), ("", "pods")):
        asks = {"namespace": world.namespace, "verb": "watch", "group": group, "resource": resource}
        review = {"spec": {"user": user, "resourceAttributes": asks}}
        eventually(lambda review=review: world.server.ask("POST", reviews, review)["status"]["allowed"])
    asked = world.server.ask("POST", f"{path}/few/token", {"spec": {"expirationSeconds": 3600}})
    whole = json.loads(kubeconfig.read_text())
    whole["users"][0]["user"] = {"token": asked["status"]["token"]}
    made = world.cli.folder / "few.json"
    made.write_text(json.dumps(whole))
    return made
