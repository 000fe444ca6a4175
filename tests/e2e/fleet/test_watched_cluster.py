"""A watched cluster shows runs of both schedulers as the cluster itself does, without a request for each look."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from typing import Any

import pytest
from torchx_pulumi import render
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import EVENT, POD
from torchx_pulumi.model import labels
from torchx_pulumi.model.status import JobState
from torchx_pulumi.schedulers import find_backend
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_POD_GROUP
from torchx_pulumi_fleet.watch.object_watch import Change
from torchx_pulumi_fleet.watch.watched_cluster import KEPT_S, WatchedCluster
from torchx_pulumi_fleet.watch.watching import watch_list

from tests.e2e.app_wrappers import FAKE
from tests.e2e.project import eventually, finite

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("scheduler", ["volcano", pytest.param("mcad", marks=pytest.mark.mcad)])
def test_a_run_is_followed_to_its_end_without_requests(
    scheduler: str, look: KubernetesCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant = next(iter(find_backend(scheduler).variants.values()))
    name, launch = f"watched-{uuid.uuid4().hex[:6]}", uuid.uuid4().hex
    role = {"name": "trainer", "image": "img:1", "entrypoint": "sh", "num_replicas": 3, **FAKE}
    role["metadata"] = {"kubernetes": finite(0, "2s")}
    options = {"namespace": namespace, **({"queue": "default"} if scheduler == "volcano" else {})}
    manifest = render({"name": name, "roles": [role]}, scheduler, options, app_id=name)
    manifest["metadata"]["labels"] = {**manifest["metadata"].get("labels", {}), labels.LAUNCH: launch}

    asked: list[str] = []
    original = KubernetesCluster._request

    def request(self: KubernetesCluster, method: str, path: str, *args: Any, **more: Any) -> Any:
        asked.append(f"{method} {path}")
        return original(self, method, path, *args, **more)

    changes: list[Change] = []
    watched = WatchedCluster(look, watch_list(), namespaces=[namespace], changed=changes.append)
    watched.start()
    try:
        eventually(lambda: all(watched.is_synced(kind, namespace) for kind in (variant.job_object, POD, EVENT)))
        look.create(variant.job_object, namespace, manifest)
        monkeypatch.setattr(KubernetesCluster, "_request", request)
        begun = time.monotonic()

        def status() -> Any:
            return variant.read_status(variant.observe(watched, namespace, name))

        eventually(lambda: status().state is JobState.SUCCEEDED, 240)
        # What explains a wait, nodes and the jobs of others, is read of the whole cluster, and seldom.
        assert [one for one in asked if f"/namespaces/{namespace}/" in one] == []
        counts, spans = Counter(asked), (time.monotonic() - begun) // KEPT_S + 1
        assert len(counts) <= 4, counts
        assert max(counts.values(), default=0) <= spans, counts
        monkeypatch.undo()
        seen, live = status(), variant.read_status(variant.observe(look, namespace, name))
        assert (seen.state, seen.reason, seen.uid) == (live.state, live.reason, live.uid)
        own = {labels.UNIQUE_NAME: name}
        pods = watched.list(POD, namespace, own)
        assert len(pods) == 3
        assert all("command" not in container for pod in pods for container in pod["spec"]["containers"])
        if scheduler == "volcano":
            groups = [change.object for change in changes if change.kind == VOLCANO_POD_GROUP]
            assert {group["metadata"]["labels"][labels.LAUNCH] for group in groups} == {launch}
        look.delete(variant.job_object, namespace, name)
        eventually(lambda: watched.get(variant.job_object, namespace, name) is None)
        eventually(lambda: not watched.list(POD, namespace, own))
    finally:
        watched.stop()
        look.delete(variant.job_object, namespace, name)
