"""The controller as the example deploys it: two pods on the real node, of which one writes.

Real: the example's Dockerfile is built by a Docker daemon, the pods run without root rights and with no other
permissions than the example gives them, the backend is an S3 server, and the apps are launched through the engine.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import LEASE, NAMESPACE, POD, Kind
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.doc_blocks import commands
from tests.e2e.docker_daemon import docker_environment, docker_host
from tests.e2e.fleet.controller_world import World, controller_world
from tests.e2e.project import changes, eventually
from tests.e2e.python_images import controller_image
from tests.e2e.stack_project import StackProject
from tests.s3_server import S3Backend, serve_s3

pytestmark = pytest.mark.e2e

NAME = "torchx-controller"
PORT = 8080
TAKEOVER_S = 20.0
"""Wanted of the time from the kill of the pod that writes until another one writes: the Lease is valid for 15 s."""
PROGRAM = b"/torchx-pulumi\0controller"
RBAC = "rbac.authorization.k8s.io"
HOST = "jobs.example.com"


@pytest.fixture
def images(cluster: Any) -> dict[str, str]:
    """The images of the cluster, with Python's."""
    if not cluster.images:
        pytest.skip("the local cluster has no real node: no container can run")
    made: dict[str, str] = type(cluster).up(cluster.name, images=("busybox", "python")).images
    return made


@pytest.fixture
def store(s3_program: Path, tmp_path: Path, cluster: Any, images: dict[str, str]) -> Iterator[S3Backend]:
    """A backend that this machine and pods reach by one URL."""
    with serve_s3(s3_program, tmp_path / "s3", host=cluster.settings.gateway) as made:
        yield made


@pytest.fixture
def apps(
    pulumi_env: dict[str, str],
    tmp_path: Path,
    kubeconfig: Path,
    namespace: str,
    images: dict[str, str],
    store: S3Backend,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[World]:
    """Apps whose stacks are in the store."""
    folder = tmp_path / "user"
    folder.mkdir()
    with controller_world(pulumi_env, folder, kubeconfig, namespace, images["busybox"], monkeypatch, store) as made:
        yield made


@pytest.fixture
def image(images: dict[str, str], cluster: Any, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "base").mkdir()
    with docker_host() as host:
        docker = docker_environment(host, tmp_path)
        # The cache of packages is the user's.
        for name in ("DOCKER_HOST", "DOCKER_CONFIG"):
            monkeypatch.setenv(name, docker[name])
        return controller_image(images["python"], f"{cluster.registry}/{namespace}", tmp_path / "base")


@pytest.fixture
def control(namespace: str) -> str:
    """The namespace of the controller."""
    return f"{namespace}-control"


@pytest.fixture
def example(tmp_path: Path, e2e_env: dict[str, str], control: str) -> Iterator[StackProject]:
    root = tmp_path / "root"
    root.mkdir()
    made = StackProject(root, e2e_env, control, place="examples/controller", config_dir="examples/controller")
    yield made
    made.destroy()


class Pods:
    """The pods of the controller, and what they serve."""

    def __init__(self, look: KubernetesCluster, namespace: str) -> None:
        self._look, self._namespace = look, namespace
        self.token = secrets.token_hex(16)

    def all(self) -> list[dict[str, Any]]:
        found = self._look.list(POD, self._namespace, {"app.kubernetes.io/instance": NAME})
        return [dict(pod) for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def ready(self) -> list[dict[str, Any]]:
        def is_ready(pod: dict[str, Any]) -> bool:
            return any((c["type"], c["status"]) == ("Ready", "True") for c in pod["status"].get("conditions", ()))

        return [pod for pod in self.all() if is_ready(pod)]

    def holder(self) -> str:
        """Return the identity in the Lease: a pod's name and more. Empty: no pod has it."""
        lease = self._look.get(LEASE, self._namespace, NAME) or {}
        return str((lease.get("spec") or {}).get("holderIdentity") or "")

    def ask(self, pod: dict[str, Any], path: str, **headers: str) -> tuple[int, str]:
        """Return status and body of an answer of one pod."""
        request = urllib.request.Request(f"http://{pod['status']['podIP']}:{PORT}{path}", headers=headers)
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
                return int(answer.status), answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def read(self, pod: dict[str, Any], path: str) -> str:
        """Return the body of an answer to somebody who has the token."""
        status, body = self.ask(pod, path, Authorization=f"Bearer {self.token}")
        assert status == 200, (path, status, body)
        return body

    def apps(self, pod: dict[str, Any]) -> dict[str, Any]:
        """Return the apps as one pod knows them."""
        found: dict[str, Any] = json.loads(self.read(pod, "/api/v1/apps"))
        return found

    def lines(self, pod: dict[str, Any]) -> str:
        return "\n".join(self._look.logs(self._namespace, pod["metadata"]["name"]))


@pytest.fixture
def pods(look: KubernetesCluster, control: str) -> Pods:
    return Pods(look, control)


def kill(pod_of: str) -> None:
    """End the controller of a pod with SIGKILL."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes()
            if PROGRAM in words and (folder / "root/etc/hostname").read_text().strip() == pod_of:
                os.kill(int(folder.name), signal.SIGKILL)
                return
    raise AssertionError(f"no controller runs in {pod_of}")


def test_two_pods_serve_and_one_writes_through_a_kill_and_a_rollout(
    example: StackProject,
    apps: World,
    pods: Pods,
    store: S3Backend,
    image: str,
    control: str,
    namespace: str,
    look: KubernetesCluster,
    kubeconfig: Path,
    record_property: Callable[[str, Any], None],
) -> None:
    example.configure(namespace=control, image=image, backends=[store.url], namespaces=[namespace])
    values = {
        '"$(openssl rand -hex 32)"': pods.token,
        "AKIAEXAMPLE": store.env["AWS_ACCESS_KEY_ID"],
        "example-secret": store.env["AWS_SECRET_ACCESS_KEY"],
    }
    *configured, deployed = commands("docs/controller-deployment.md", "deploy", values)
    for command in configured:
        example.run(*shlex.split(command)[1:])
    with ThreadPoolExecutor(1) as pool:
        launched = pool.submit(apps.launch, count=2)
        example.run(*shlex.split(deployed)[1:], "--yes")
        first, second = launched.result()

    # Both serve, only with the token, and one of them writes.
    for app in (first, second):
        apps.reaches(app, "RUNNING", 120)
    for pod in eventually(lambda: found if len(found := pods.ready()) == 2 else None):
        # Each follows the cluster by itself, and only one writes.
        eventually(lambda pod=pod: [app["state"] for app in pods.apps(pod)["apps"]] == ["RUNNING"] * 2)
        assert pods.apps(pod)["problems"] == []
        assert "<html" in pods.read(pod, "/")
        assert pods.ask(pod, "/api/v1/apps")[0] == 401
        assert pods.ask(pod, "/api/v1/apps", Authorization=f"Bearer {pods.token}", Host=HOST)[0] in (400, 421)
        assert pods.ask(pod, "/healthz", Host=HOST)[0] == 200
    denied(kubeconfig, control, namespace)

    # Killed without a chance to give the Lease back.
    before = pods.holder()
    kill(next(pod["metadata"]["name"] for pod in pods.all() if before.startswith(pod["metadata"]["name"])))
    begun = time.monotonic()
    apps.end(first)
    eventually(lambda: pods.holder() not in ("", before), TAKEOVER_S)
    takeover_s = time.monotonic() - begun
    apps.reaches(first, "SUCCEEDED")
    record_property("takeover_s", round(takeover_s, 1))

    # A rollout, during which a pod serves at any time and an app ends.
    eventually(lambda: len(pods.ready()) == 2, 180)
    old = names(pods.all())
    said = [pods.lines(pod) for pod in pods.all()]
    example.run("config", "set", "--path", "allowedHosts[0]", HOST)
    with served(pods) as gaps:
        apps.end(second)
        example.up()
        eventually(lambda: not old & names(pods.all()))
    assert not gaps
    for pod in pods.ready():
        assert pods.ask(pod, "/api/v1/apps", Authorization=f"Bearer {pods.token}", Host=HOST)[0] == 200
    apps.reaches(second, "SUCCEEDED", 120)
    again = example.up("--diff")
    assert changes(again).keys() == {"unchanged"}, again
    said += [pods.lines(pod) for pod in pods.all()]
    for text in said:
        assert "Traceback" not in text
        assert "ermission" not in text
        assert pods.token not in text
    state = json.dumps(example.resources())
    for secret in (pods.token, store.env["AWS_SECRET_ACCESS_KEY"]):
        assert secret not in state

    example.destroy()
    assert look.get(NAMESPACE, None, control) is None
    for plural in ("clusterroles", "clusterrolebindings"):
        kind = Kind(group=RBAC, version="v1", kind=plural, plural=plural, namespaced=False)
        assert not [item for item in look.list(kind, None) if item["metadata"]["name"].startswith(f"{control}:")]


def names(pods: Iterable[dict[str, Any]]) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods}


@contextlib.contextmanager
def served(pods: Pods) -> Iterator[list[str]]:
    """Look all the time for a pod that is ready and answers; yield a list of the times at which there was none."""
    gaps: list[str] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.1):
            answers: dict[str, int] = {}
            try:
                asked = pods.ready()
                for pod in asked:
                    with contextlib.suppress(OSError, HTTPException):
                        answers[pod["metadata"]["name"]] = pods.ask(pod, "/readyz")[0]
                # A pod that became ready since then was not asked: that says nothing.
                is_current = names(pods.ready()) <= names(asked)
            except ClusterError:
                # Nor does an API server that had no time for an answer.
                continue
            if 200 not in answers.values() and is_current:
                gaps.append(f"{time.strftime('%X')}: {sorted(names(asked))} answered {answers}")

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield gaps
    finally:
        over.set()
        thread.join(30)


def denied(kubeconfig: Path, control: str, watched: str) -> None:
    """See that the pods' account may do nothing that the controller does not do."""
    from kubernetes import client, config

    def allowed(verb: str, group: str, resource: str, name: str = "", place: str = control) -> bool:
        asked = {"verb": verb, "group": group, "resource": resource, "name": name, "namespace": place}
        body = {"spec": {"user": f"system:serviceaccount:{control}:{NAME}", "resourceAttributes": asked}}
        return bool(reviews.create_subject_access_review(body).status.allowed)

    with config.new_client_from_config(str(kubeconfig)) as api:
        reviews = client.AuthorizationV1Api(api)
        jobs = (VOLCANO_JOB.group, VOLCANO_JOB.plural)
        assert allowed("watch", *jobs, place=watched)
        assert allowed("update", LEASE.group, LEASE.plural, NAME)
        assert not allowed("update", LEASE.group, LEASE.plural, "another")
        assert not allowed("create", LEASE.group, LEASE.plural)
        assert not allowed("watch", *jobs, place="default")
        assert not allowed("get", "", "secrets")
        for verb in ("create", "update", "patch", "delete"):
            assert not allowed(verb, *jobs, place=watched)
            assert not allowed(verb, "", "pods", place=watched)
