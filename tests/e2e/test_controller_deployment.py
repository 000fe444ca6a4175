"""The controller as the platform stack deploys it: two pods on the real node, of which one writes.

Real: the image is built on Python's by a Docker daemon, the pods run without root rights and with no other permissions
than the stack gives them, the backend is an S3 server, and the apps are launched through the engine.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD, SECRET, SERVICE, SERVICE_ACCOUNT, Kind
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.e2e.controller_world import World, controller_world
from tests.e2e.docker_daemon import docker_environment, docker_host
from tests.e2e.project import changes, eventually
from tests.e2e.stack_project import StackProject
from tests.s3_server import S3Backend, serve_s3

pytestmark = pytest.mark.e2e

NAME = "torchx-controller"
PORT = 8080
TAKEOVER_S = 20.0
"""Wanted of the time from the kill of the pod that writes until another one writes: the Lease is valid for 15 s."""
PROGRAM = b"torchx_pulumi_stacks.console"
RBAC = "rbac.authorization.k8s.io"
LEASE = Kind(group="coordination.k8s.io", version="v1", kind="Lease", plural="leases")
MADE = (
    *(SECRET, SERVICE, SERVICE_ACCOUNT, LEASE, POD),
    Kind(group="apps", version="v1", kind="Deployment", plural="deployments"),
    Kind(group="policy", version="v1", kind="PodDisruptionBudget", plural="poddisruptionbudgets"),
    *(Kind(group=RBAC, version="v1", kind=kind, plural=f"{kind.lower()}s") for kind in ("Role", "RoleBinding")),
)
"""Kinds of all that the stack makes in its namespace, and of what comes of it."""


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
def platform(tmp_path: Path, e2e_env: dict[str, str], namespace: str) -> Iterator[StackProject]:
    root = tmp_path / "root"
    root.mkdir()
    with docker_host() as host:
        docker = docker_environment(host, tmp_path)
        # The cache of packages is the user's: pip fills it once.
        env = {**e2e_env, **{name: docker[name] for name in ("DOCKER_HOST", "DOCKER_CONFIG")}}
        made = StackProject(root, env, namespace, place="stacks/platform", config_dir="stacks/platform")
        yield made
        made.destroy()


class Pods:
    """The pods of the controller, and what they serve."""

    def __init__(self, look: KubernetesCluster, namespace: str) -> None:
        self._look, self._namespace = look, namespace
        self.token = ""

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
        """Return what one pod knows of all apps."""
        found: dict[str, Any] = json.loads(self.read(pod, "/api/v1/apps"))
        return found

    def lines(self, pod: dict[str, Any]) -> str:
        return "\n".join(self._look.logs(self._namespace, pod["metadata"]["name"]))


@pytest.fixture
def pods(look: KubernetesCluster, namespace: str) -> Pods:
    return Pods(look, namespace)


def kill(pod_of: str) -> None:
    """End the controller of a pod with SIGKILL."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes()
            if PROGRAM in words and (folder / "root/etc/hostname").read_text().strip() == pod_of:
                os.kill(int(folder.name), signal.SIGKILL)
                return
    raise AssertionError(f"no controller runs in {pod_of}")


def configuration(store: S3Backend, cluster: Any, images: dict[str, str], namespace: str) -> dict[str, Any]:
    return {
        "baseImage": images["python"],
        "pythonVersion": python_of_the_image(),
        "imageRepo": f"{cluster.registry}/{namespace}",
        "backends": [store.url],
        "namespaces": [namespace],
    }


def python_of_the_image() -> str:
    from tools.bootstrap import ensure

    root = ensure(["python-root"])["python-root"].parent / "root"
    (found,) = root.glob("usr/lib/python3.*")
    return found.name.removeprefix("python")


def test_two_pods_serve_and_one_writes_through_a_kill_and_a_rollout(
    platform: StackProject,
    apps: World,
    pods: Pods,
    store: S3Backend,
    cluster: Any,
    images: dict[str, str],
    namespace: str,
    look: KubernetesCluster,
    kubeconfig: Path,
    record_property: Callable[[str, Any], None],
) -> None:
    config = configuration(store, cluster, images, namespace)
    platform.configure(namespace=namespace, controller=config)
    for name, value in store.env.items():
        platform.run("config", "set", "--secret", "--path", f"controller.backendCredentials.{name}", value)
    with ThreadPoolExecutor(1) as pool:
        launched = pool.submit(apps.launch, count=2)
        platform.up()
        first, second = launched.result()

    # Both serve, only with the token, and one of them writes.
    pods.token = token_of(platform)
    for app in (first, second):
        apps.reaches(app, "RUNNING", 120)
    for pod in eventually(lambda: found if len(found := pods.ready()) == 2 else None, 120):
        # Each follows the cluster by itself, and only one writes.
        eventually(lambda pod=pod: [app["state"] for app in pods.apps(pod)["apps"]] == ["RUNNING"] * 2)
        assert pods.apps(pod)["problems"] == []
        assert "<html" in pods.read(pod, "/")
        assert pods.ask(pod, "/api/v1/apps")[0] == 401
        assert pods.ask(pod, "/api/v1/apps", Authorization=f"Bearer {pods.token}", Host="evil.example")[0] in (400, 421)
        assert pods.ask(pod, "/healthz", Host="evil.example")[0] == 200
    denied(kubeconfig, namespace)

    # Killed without a chance to give the Lease back.
    before = pods.holder()
    kill(next(pod["metadata"]["name"] for pod in pods.all() if before.startswith(pod["metadata"]["name"])))
    begun = time.monotonic()
    apps.end(first)
    eventually(lambda: pods.holder() not in ("", before), TAKEOVER_S)
    takeover_s = time.monotonic() - begun
    apps.reaches(first, "SUCCEEDED")
    record_property("takeover_s", round(takeover_s, 1))

    # A rollout, during which a pod serves at any time and an app ends. The new pods start only if they may delete.
    eventually(lambda: len(pods.ready()) == 2, 180)
    old = names(pods.all())
    said = [pods.lines(pod) for pod in pods.all()]
    platform.run("config", "set", "--path", "controller.forgetAfter", "30d")
    with served(pods) as gaps:
        apps.end(second)
        platform.up()
        eventually(lambda: not old & names(pods.all()), 120)
    assert not gaps
    apps.reaches(second, "SUCCEEDED", 120)
    again = platform.up("--diff")
    assert changes(again).keys() == {"unchanged"}, again
    said += [pods.lines(pod) for pod in pods.all()]
    for text in said:
        assert "Traceback" not in text
        assert "ermission" not in text
        assert pods.token not in text
    state = json.dumps(platform.resources())
    for secret in (pods.token, store.env["AWS_SECRET_ACCESS_KEY"]):
        assert secret not in state

    platform.destroy()
    for kind in MADE:
        eventually(lambda kind=kind: not mine(look, kind, namespace), 180)
    for plural in ("clusterroles", "clusterrolebindings"):
        kind = Kind(group=RBAC, version="v1", kind=plural, plural=plural, namespaced=False)
        assert look.get(kind, None, f"{namespace}:{NAME}") is None


def names(pods: Iterable[dict[str, Any]]) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods}


def mine(look: KubernetesCluster, kind: Kind, namespace: str) -> list[str]:
    found = look.list(kind, namespace, {"app.kubernetes.io/instance": NAME})
    return [item["metadata"]["name"] for item in found]


def token_of(platform: StackProject) -> str:
    return platform.run("stack", "output", "--show-secrets", "controller_token").strip().splitlines()[-1]


@contextlib.contextmanager
def served(pods: Pods) -> Iterator[list[str]]:
    """Look all the time for a pod that is ready and answers; yield a list of the times at which there was none."""
    gaps: list[str] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.1):
            answers: dict[str, int] = {}
            asked = pods.ready()
            for pod in asked:
                with contextlib.suppress(OSError):
                    answers[pod["metadata"]["name"]] = pods.ask(pod, "/readyz")[0]
            # A pod that became ready since then was not asked: that says nothing.
            is_current = names(pods.ready()) <= names(asked)
            if 200 not in answers.values() and is_current:
                gaps.append(f"{time.strftime('%X')}: {sorted(names(asked))} answered {answers}")

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    yield gaps
    over.set()
    thread.join(30)


def denied(kubeconfig: Path, namespace: str) -> None:
    """See that the pods' account may do nothing that the controller does not do."""
    from kubernetes import client, config

    def allowed(verb: str, group: str, resource: str, name: str = "", place: str = namespace) -> bool:
        asked = {"verb": verb, "group": group, "resource": resource, "name": name, "namespace": place}
        body = {"spec": {"user": f"system:serviceaccount:{namespace}:{NAME}", "resourceAttributes": asked}}
        return bool(reviews.create_subject_access_review(body).status.allowed)

    with config.new_client_from_config(str(kubeconfig)) as api:
        reviews = client.AuthorizationV1Api(api)
        jobs = (VOLCANO_JOB.group, VOLCANO_JOB.plural)
        assert allowed("watch", *jobs)
        assert allowed("update", LEASE.group, LEASE.plural, NAME)
        assert not allowed("update", LEASE.group, LEASE.plural, "another")
        assert not allowed("create", LEASE.group, LEASE.plural)
        assert not allowed("watch", *jobs, place="default")
        assert not allowed("get", "", "secrets", f"{NAME}-token")
        for verb in ("create", "update", "patch", "delete"):
            assert not allowed(verb, *jobs)
            assert not allowed(verb, "", "pods")
