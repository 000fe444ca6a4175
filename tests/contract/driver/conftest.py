"""What the driver contract runs on: the fake here, the real engine where a cluster is (`make e2e`).

The real world is made by `real_world` in `real.py`, which belongs to the real driver's tests.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from torchx_pulumi import schedulers
from torchx_pulumi.kube import Cluster
from torchx_pulumi.model.app_entry import Owner, RunEntry, StackRef, Stage
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.job_spec import JobSpec, ResourceSpec, RoleSpec
from torchx_pulumi.outputs.building import build_declared
from torchx_pulumi.planning.names import owner_digest
from torchx_pulumi.runs.driver import Driver
from torchx_pulumi.runs.registration import Registration
from torchx_pulumi.schedulers import plan_job
from torchx_pulumi.schedulers.volcano.options import VolcanoOptions
from torchx_pulumi.stack_state.backend import stack_name
from torchx_pulumi.storage.owners import this_process

from tests.fakes import FakeCluster, FakeDriver
from tests.unit.builders import registration_of


@dataclass(kw_only=True)
class DriverWorld:
    """A driver, the cluster it works on, and orders that fit both."""

    driver: Driver
    cluster: Cluster
    backend: str
    namespace: str = "default"
    queue: str = "default"
    image: str = "img:1"
    kubeconfig: str | None = None
    break_cluster: Callable[[], None] = field(default=lambda: None)
    """From now on the cluster cannot be reached, for the driver."""

    def order(self, name: str | None = None, **options: Any) -> Registration:
        """Make the order of a job that sleeps, of two replicas."""
        name = name or f"t{uuid4().hex[:8]}"
        role = RoleSpec(
            name="trainer",
            image=self.image,
            entrypoint="sleep",
            args=["1000"],
            num_replicas=2,
            resource=ResourceSpec(cpu=0.05, memory_mb=16),
        )
        spec = JobSpec(name="train", roles=[role])
        chosen = VolcanoOptions(
            queue=self.queue, namespace=self.namespace, reserved_millicpu=0, reserved_memmb=0, **options
        )
        plan = plan_job(spec, chosen, name)
        identity = self.cluster.identity
        place = StackRef(
            backend=self.backend, project="torchx", stack=stack_name(self.namespace, name, "volcano", identity)
        )
        urn = f"urn:pulumi:{place.stack}::torchx::torchx:index:VolcanoTrainingJob::train"
        form = schedulers.variant_of(chosen)
        entry = RunEntry(
            app_id=f"{self.namespace}:{name}",
            scheduler="volcano",
            choice=form.name,
            place=place,
            cluster=identity,
            kubeconfig=self.kubeconfig,
            kube_context=None,
            session="torchx",
            user="tester",
            name="train",
            queue=self.queue,
            app={"name": "train", "roles": [], "metadata": {}},
            pods={role.name: [form.pod_name(plan, task, 0) for task in plan.roles[0].tasks]},
            declared=build_declared(plan, spec_hash="0123456789abcdef", created_by="tester"),
            launch=owner_digest("organization", "torchx", place.stack, urn),
            run="0123456789abcdef",
            launched_at=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            stage=Stage.LAUNCHING,
            owner=this_process(),
        )
        return registration_of(entry, plan)

    def dead_owner(self) -> Owner:
        """Return a process of this machine that ended long ago."""
        return replace(this_process(), started="never")


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.e2e)])
def driver_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DriverWorld]:
    if request.param == "real":
        real = importlib.import_module("tests.contract.driver.real")
        yield from real.real_world(request, tmp_path, DriverWorld)
        return
    cluster = FakeCluster()

    def break_cluster() -> None:
        cluster.error = ClusterError("the cluster cannot be reached", retryable=True)

    yield DriverWorld(  # noqa: PT022 - the real one has teardown
        driver=FakeDriver(cluster), cluster=cluster, backend=f"file://{tmp_path}", break_cluster=break_cluster
    )
