"""The third scheduler, registered for each test, and the adapter over a fake cluster and a fake driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torchx import specs
from torchx_pulumi.kube import kinds
from torchx_pulumi.schedulers import register, registry
from torchx_pulumi.torchx_adapter.context import AdapterContext
from torchx_pulumi.torchx_adapter.scheduler import PulumiScheduler

from tests.fakes import KNOWN, FakeCluster, FakeDriver
from tests.third_scheduler.indexed_job.manifests import JOB
from tests.unit.logs.scripted import FastClock

NAMESPACE = "default"


# region register
def register_indexed_jobs() -> None:
    register("indexed_job", "tests.third_scheduler.indexed_job.backend")


# endregion


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the scheduler until the end of a test."""
    monkeypatch.setattr(registry, "_MODULES", dict(registry._MODULES))
    register_indexed_jobs()


class World:
    """A fake cluster with Indexed Jobs, a fake driver, and the TorchX scheduler over both."""

    def __init__(self) -> None:
        self.cluster = FakeCluster(served=[*KNOWN, JOB])
        self.driver = FakeDriver(self.cluster)
        context = AdapterContext(make_driver=lambda: self.driver, connect=lambda *_: self.cluster, clock=FastClock())
        self.scheduler = PulumiScheduler("indexed_job", "torchx", context)

    def launch(self, given: Any = None, **options: Any) -> str:
        return str(self.scheduler.submit(given or app(), options))

    def job(self, app_id: str) -> Any:
        return self.cluster.get(JOB, *app_id.split(":"))

    def end(self, app_id: str, condition: str, message: str = "") -> None:
        """Note the end of a Job as its controller does."""
        found = {"type": condition, "status": "True", "message": message, "lastTransitionTime": "2026-01-01T00:01:00Z"}
        self.cluster.put({**self.job(app_id), "status": {"conditions": [found]}})

    def pod(self, app_id: str, index: int, **status: Any) -> str:
        """Make the pod of a replica as the Job controller does, and return its name."""
        job = self.job(app_id)
        made = pod_of(job, index, **status)
        self.cluster.put(made)
        return str(made["metadata"]["name"])


def pod_of(job: Any, index: int, suffix: str = "x7k2p", **status: Any) -> dict[str, Any]:
    """Return the pod of a replica as the Job controller makes it."""
    name = job["metadata"]["name"]
    template = job["spec"]["template"]
    metadata = {
        **template["metadata"],
        "name": f"{name}-{index}-{suffix}",
        "namespace": job["metadata"]["namespace"],
        "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [{"uid": job["metadata"].get("uid")}],
    }
    return {
        "apiVersion": kinds.POD.api_version,
        "kind": kinds.POD.kind,
        "metadata": metadata,
        "spec": {**template["spec"], "nodeName": "n1"},
        "status": status or running(),
    }


def running() -> dict[str, Any]:
    """Return the status of a pod whose container runs."""
    container = {"name": "trainer-0", "restartCount": 0, "containerID": "run-1", "state": {"running": {}}}
    return {"phase": "Running", "containerStatuses": [container]}


def ended(code: int) -> dict[str, Any]:
    """Return the status of a pod whose container has ended."""
    state = {"terminated": {"exitCode": code, "finishedAt": "2026-01-01T00:01:00Z"}}
    container = {"name": "trainer-0", "restartCount": 0, "state": state}
    return {"phase": "Failed" if code else "Succeeded", "containerStatuses": [container]}


def role(**changes: Any) -> Any:
    fields = {
        "name": "trainer",
        "image": "img:1",
        "entrypoint": "main",
        "args": ["--id", "${app_id}"],
        "num_replicas": 2,
    }
    return specs.Role(**{**fields, "resource": specs.Resource(cpu=1, gpu=0, memMB=1024), **changes})


def app(*roles: Any) -> Any:
    return specs.AppDef(name="train", roles=list(roles) or [role()])


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    for name in ("XDG_STATE_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    for name in ("PULUMI_BACKEND_URL", "TORCHXCONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return World()
