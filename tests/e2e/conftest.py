"""The session's cluster to look at, and Pulumi projects that clean up after themselves."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_QUEUE

from tests.e2e.project import Project, end_sessions, eventually

if TYPE_CHECKING:
    from tests.e2e.app_wrappers import AppWrappers
    from tests.e2e.fleet.controller_world import World
    from tests.e2e.kueue_queues import KueueQueues
    from tools.local_cluster import Cluster

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def nothing_left_running() -> Iterator[None]:
    """After a test and its cleaning up, end the hosts of commands that it killed."""
    yield
    end_sessions()


@pytest.fixture(scope="session")
def kueue_cluster() -> Iterator[Cluster]:
    """A cluster with the AppWrapper operator under Kueue. Its tests are of one group, so that one worker has it."""
    from tools.local_cluster import Cluster

    found = Cluster.up(f"kueue-{os.getpid()}", features=("appwrapper", "kueue"))
    yield found
    found.down()


@pytest.fixture
def queues(kueue_cluster: Cluster, namespace: str) -> KueueQueues:
    """Queues of Kueue in the test's namespace."""
    from tests.e2e.kueue_queues import KueueQueues

    return KueueQueues(kueue_cluster, namespace)


@pytest.fixture
def jobs(kueue_cluster: Cluster, namespace: str) -> AppWrappers:
    """AppWrappers v1beta2 in the test's namespace, in the cluster with Kueue."""
    from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER_V1BETA2

    from tests.e2e.app_wrappers import AppWrappers

    return AppWrappers(kueue_cluster, namespace, APP_WRAPPER_V1BETA2)


@pytest.fixture
def look(kubeconfig: Path) -> KubernetesCluster:
    """The session's cluster, to look at."""
    return KubernetesCluster.connect(str(kubeconfig))


@pytest.fixture
def e2e_env(pulumi_env: dict[str, str]) -> dict[str, str]:
    """Environment in which programs find this checkout's packages."""
    paths = [str(ROOT / folder) for folder in ("sdk", "components", "stacks", "fleet")]
    return {**pulumi_env, "PYTHONPATH": os.pathsep.join(paths)}


@pytest.fixture
def namespace(kubeconfig: Path) -> Iterator[str]:
    """A namespace of the test's own."""
    from kubernetes import client, config

    api = client.CoreV1Api(config.new_client_from_config(str(kubeconfig)))
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    api.create_namespace({"metadata": {"name": name}})
    # Pods are refused until the controller manager has made it.
    eventually(lambda: api.list_namespaced_service_account(name, field_selector="metadata.name=default").items)
    yield name
    api.delete_namespace(name)


@pytest.fixture
def make_project(tmp_path: Path, e2e_env: dict[str, str], namespace: str) -> Callable[..., Project]:
    """Make projects. What they deployed goes with the namespace; tests of deletion destroy their stacks themselves."""

    def make(name: str = "project", **options: Any) -> Project:
        return Project(tmp_path / name, e2e_env, namespace, **options)

    return make


@pytest.fixture
def project(make_project: Callable[..., Project]) -> Project:
    """One project."""
    return make_project()


@pytest.fixture
def world(
    pulumi_env: dict[str, str],
    tmp_path: Path,
    kubeconfig: Path,
    namespace: str,
    cluster: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[World]:
    """Apps and controllers on the real node and on fake ones."""
    if not cluster.images:
        pytest.skip("the local cluster has no real node")
    from tests.e2e.fleet.controller_world import controller_world

    image = cluster.images["busybox"]
    with controller_world(pulumi_env, tmp_path, kubeconfig, namespace, image, monkeypatch) as made:
        yield made


@pytest.fixture
def closed_queue(kubeconfig: Path, look: KubernetesCluster) -> Iterator[Callable[[str], None]]:
    """Make queues that take no jobs."""
    from kubernetes import client, config

    api = client.CustomObjectsApi(config.new_client_from_config(str(kubeconfig)))
    made: list[str] = []

    def close(name: str) -> None:
        queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}}
        created = api.create_cluster_custom_object(
            "scheduling.volcano.sh", "v1beta1", "queues", {**queue, "spec": {"weight": 1}}
        )
        made.append(name)
        # A command that comes before Volcano has taken the queue up is lost.
        eventually(lambda: (look.get(VOLCANO_QUEUE, None, name) or {}).get("status", {}).get("state") == "Open")
        target = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "name": name,
            "uid": created["metadata"]["uid"],
            "controller": True,
        }
        command = {
            "apiVersion": "bus.volcano.sh/v1alpha1",
            "kind": "Command",
            "metadata": {"name": f"close-{name}", "namespace": "default", "ownerReferences": [target]},
            "action": "CloseQueue",
            "target": target,
        }
        api.create_namespaced_custom_object("bus.volcano.sh", "v1alpha1", "default", "commands", command)

    yield close
    for name in made:
        api.delete_cluster_custom_object("scheduling.volcano.sh", "v1beta1", "queues", name)


@pytest.fixture
def image(cluster: Any) -> str:
    """Image with a shell, in the cluster's registry."""
    if not cluster.images:
        pytest.skip("the local cluster has no real node: no container can run")
    return str(cluster.images["busybox"])
