"""The cluster of benchmarks: a namespace and a queue of their own, and when jobs come and go."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tools.local_cluster import Cluster

TIMEOUT_S = 180.0
JOBS = ("batch.volcano.sh", "v1alpha1")
QUEUES = ("scheduling.volcano.sh", "v1beta1", "queues")
METADATA = "as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
"""Content type of objects without spec and status: those of a job of 1,000 replicas are 1 MB for each change."""


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """Yield a running local cluster, or one that is started and ended here."""
    from tools.local_cluster import Cluster

    for name in filter(None, (os.environ.get("TORCHX_PULUMI_TEST_CLUSTER"), "default", "dev")):
        found = Cluster.find(name)
        if found is not None:
            yield found
            return
    cluster = Cluster.up(name=f"bench-{os.getpid()}")
    try:
        yield cluster
    finally:
        cluster.down()


@contextmanager
def own_namespace(kubeconfig: Path) -> Iterator[str]:
    """Make a namespace and delete it in the end, with all that is in it."""
    from kubernetes import client, config

    api = client.CoreV1Api(config.new_client_from_config(str(kubeconfig)))
    name = f"bench-{os.urandom(3).hex()}"
    api.create_namespace({"metadata": {"name": name}})
    try:
        yield name
    finally:
        api.delete_namespace(name)


@contextmanager
def full_queue(kubeconfig: Path, name: str) -> Iterator[str]:
    """Make a queue without capacity: its jobs wait and have no pods, which would take the machine's time."""
    from kubernetes import client, config

    api = client.CustomObjectsApi(config.new_client_from_config(str(kubeconfig)))
    queue = {
        "apiVersion": "/".join(QUEUES[:2]),
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": 1, "capability": {"cpu": "1m"}},
    }
    api.create_cluster_custom_object(*QUEUES, queue)
    try:
        wait_until(lambda: queue_state(api, name) == "Open", f"queue {name} is open")
        yield name
    finally:
        api.delete_cluster_custom_object(*QUEUES, name)


@contextmanager
def more_fake_nodes(kubeconfig: Path, pods: int) -> Iterator[None]:
    """Add fake nodes that together take a number of pods, and delete them in the end."""
    from kubernetes import client, config

    from tools.local_cluster.fake_nodes import CAPACITY, node

    api = client.CoreV1Api(config.new_client_from_config(str(kubeconfig)))
    tainted = bool(api.read_node("fake-0").spec.taints)
    names = [f"fake-bench-{index}" for index in range(-(-pods // int(CAPACITY["pods"])))]
    try:
        for name in names:
            api.create_node(node(name, tainted=tainted))
        yield
    finally:
        for name in names:
            with suppress(client.ApiException):
                api.delete_node(name)


def queue_state(api: Any, name: str) -> str | None:
    """Return the state of a queue. None: Volcano has not seen it yet."""
    state = api.get_cluster_custom_object(*QUEUES, name).get("status", {}).get("state")
    return None if state is None else str(state)


def with_namespace(kubeconfig: Path, namespace: str, folder: Path) -> str:
    """Write a kubeconfig whose contexts have the namespace, as TorchX's scheduler lists that one only; return it."""
    whole = json.loads(kubeconfig.read_text())
    for context in whole["contexts"]:
        context["context"]["namespace"] = namespace
    written = folder / "kubeconfig"
    written.write_text(json.dumps(whole))
    return str(written)


def delete_job(kubeconfig: Path, namespace: str, name: str) -> None:
    """Delete a job, as `kubectl delete` does."""
    from kubernetes import client, config

    api = client.CustomObjectsApi(config.new_client_from_config(str(kubeconfig)))
    api.delete_namespaced_custom_object(*JOBS, namespace, "jobs", name)


class JobWatch:
    """When each Volcano Job of a namespace came and went; watched from outside of the processes that are measured."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        from kubernetes import config

        self._api = config.new_client_from_config(str(kubeconfig))
        self._path = f"/apis/{'/'.join(JOBS)}/namespaces/{namespace}/jobs"
        self._came: dict[str, float] = {}
        self._gone: dict[str, float] = {}
        self._news = threading.Condition()
        listed = json.loads(self._get("List").data)
        version = listed["metadata"]["resourceVersion"]
        threading.Thread(target=self._follow, args=(version,), daemon=True).start()

    def _get(self, kind: str, **query: str) -> Any:
        return self._api.call_api(
            self._path, "GET", query_params=list(query.items()), auth_settings=["BearerToken"],
            header_params={"Accept": f"application/json;{METADATA.format(kind)}"},
            _preload_content=False, _return_http_data_only=True,
        )  # fmt: skip

    def _follow(self, version: str) -> None:
        for line in self._get("", watch="true", resourceVersion=version):
            event = json.loads(line)
            times = {"ADDED": self._came, "DELETED": self._gone}.get(event["type"])
            if times is not None:
                with self._news:
                    times[event["object"]["metadata"]["name"]] = time.time()
                    self._news.notify_all()

    def next_after(self, begun: float) -> float:
        """Return when the first job after a time came."""
        with self._news:
            if not self._news.wait_for(lambda: any(came > begun for came in self._came.values()), TIMEOUT_S):
                raise RuntimeError("no job object came")
            return min(came for came in self._came.values() if came > begun)

    def gone(self, name: str) -> float:
        """Return when a job went."""
        with self._news:
            if not self._news.wait_for(lambda: name in self._gone, TIMEOUT_S):
                raise RuntimeError(f"job {name} is still there")
            return self._gone[name]


class Pods:
    """How many pods of a namespace run, and whether any is left."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        from kubernetes import client, config

        api = config.new_client_from_config(str(kubeconfig))
        self._objects, self._core = client.CustomObjectsApi(api), client.CoreV1Api(api)
        self._namespace = namespace

    def running(self) -> int:
        """Return how many pods of jobs run, from their pod groups."""
        groups = self._objects.list_namespaced_custom_object(
            "scheduling.volcano.sh", "v1beta1", self._namespace, "podgroups"
        )
        return sum(int(group.get("status", {}).get("running") or 0) for group in groups["items"])

    def any(self) -> bool:
        """Return whether there is a pod."""
        return bool(self._core.list_namespaced_pod(self._namespace, limit=1).items)


def wait_until(claim: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S) -> float:
    """Wait until a claim holds; return when it did."""
    end = time.monotonic() + timeout_s
    while not claim():
        if time.monotonic() > end:
            raise RuntimeError(f"not within {timeout_s:.0f} s: {what}")
        time.sleep(0.2)
    return time.time()
