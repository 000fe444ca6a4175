"""A backend in a folder with checkpoints as the engine writes them, a fake cluster, and a controller over both."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import Cluster
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.model.app_entry import RunEntry, StackRef, Stage
from torchx_pulumi.model.job_spec import JobSpec, ResourceSpec, RoleSpec
from torchx_pulumi.model.registration_plan import UID, RegistrationPlan, replace_uid
from torchx_pulumi.outputs.building import build_declared
from torchx_pulumi.planning.names import owner_digest
from torchx_pulumi.runs.driver import Driver
from torchx_pulumi.runs.registration import plan_registration
from torchx_pulumi.schedulers import plan_job, variant_of
from torchx_pulumi.schedulers.appwrapper.options import MCADOptions
from torchx_pulumi.schedulers.manifest_objects import objects_of
from torchx_pulumi.schedulers.registry import component_type
from torchx_pulumi.schedulers.volcano.options import VolcanoOptions
from torchx_pulumi_fleet.archive.archiving import LogArchiver
from torchx_pulumi_fleet.tracker.live_fleet import LiveFleet
from torchx_pulumi_fleet.tracker.reporting import Reporter
from torchx_pulumi_fleet.writer import Controller, ControllerParts, ControllerSettings, writing
from torchx_pulumi_fleet.writer.settings import ControllerTiming
from torchx_pulumi_stacks.engine import AutomationDriver

from tests.fakes import FakeCluster
from tests.unit.builders import put_running_pods, registration_of, run_entry

STACK = "pulumi:pulumi:Stack"
STASH = "pulumi:index:Stash"

FAST = ControllerTiming(
    write_every_s=0.05,
    refresh_s=0.2,
    relist_s=0.1,
    left_again_s=0.3,
    unwatched_s=0.1,
    sync_s=5.0,
    retry_s=0.05,
    longest_retry_s=0.4,
    locked_retry_s=0.4,
    quiet_s=0.2,
    failing_s=1.1,
    outage_s=0.02,
    flush_s=1.0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """One launched app."""

    entry: RunEntry
    plan: RegistrationPlan
    kind: Kind
    path: Path
    """Its checkpoint."""

    @property
    def name(self) -> str:
        return self.entry.job_name


QUEUE = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "default"}}


@dataclass(kw_only=True)
class World:
    """A backend, a cluster, and what a controller says."""

    root: Path
    cluster: FakeCluster = field(default_factory=lambda: FakeCluster([QUEUE]))
    lines: list[str] = field(default_factory=list)
    url: str | None = None
    """The backend. None: the folder `backend` in `root`, where its files are in any case."""

    @property
    def backend(self) -> str:
        return self.url or f"file://{self.root}/backend"

    def plan(
        self,
        name: str,
        *,
        scheduler: str = "volcano",
        project: str = "torchx",
        namespace: str = "default",
        replicas: int = 1,
        kube_context: str | None = None,
        **options: Any,
    ) -> App:
        """Return an app that is not launched yet."""
        chosen: Any = (
            MCADOptions(namespace=namespace, **options)
            if scheduler == "mcad"
            else VolcanoOptions(queue="default", namespace=namespace, **options)
        )
        role = RoleSpec(
            name="trainer",
            image="img:1",
            entrypoint="sleep",
            num_replicas=replicas,
            resource=ResourceSpec(cpu=1, memory_mb=16),
        )
        plan, variant = plan_job(JobSpec(name="train", roles=[role]), chosen, name), variant_of(chosen)
        place = StackRef(backend=self.backend, project=project, stack=f"{namespace}.{name}-12345678")
        urn = urn_of(place, scheduler)
        entry = run_entry(
            app_id=f"{namespace}:{name}",
            scheduler=scheduler,
            choice=variant.name,
            place=place,
            cluster=self.cluster.identity,
            cluster_identity=self.cluster.identify(),
            kube_context=kube_context,
            user="tester",
            pods={"trainer": [variant.pod_name(plan, task, 0) for task in plan.roles[0].tasks]},
            declared=build_declared(plan, spec_hash="0123456789abcdef", created_by="tester"),
            launch=owner_digest("organization", project, place.stack, urn),
            run="0123456789abcdef",
            stage=Stage.LAUNCHING,
        )
        registration = plan_registration(registration_of(entry, plan))
        path = self.root / f"backend/.pulumi/stacks/{project}/{place.stack}.json"
        return App(entry=entry, plan=registration, kind=variant.job_object, path=path)

    def create(self, app: App) -> App:
        """Create the objects of an app in the cluster."""
        uid = None
        for kind, manifest in objects_of({"apiVersion": "v1", "kind": "List", "items": list(app.plan.objects)}):
            made = self.cluster.create(kind, "default", manifest)
            uid = uid or made["metadata"]["uid"]
        return replace(app, entry=replace(app.entry, uid=uid))

    def write(self, app: App, *, program: bool = False, **changes: Any) -> None:
        """Write the checkpoint of an app whose objects were created, as the engine does at the end of a launch."""
        app.path.parent.mkdir(parents=True, exist_ok=True)
        app.path.write_text(json.dumps(checkpoint(app, program=program, **changes), indent=4))

    def launch(self, name: str, **options: Any) -> App:
        """Launch an app."""
        app = self.create(self.plan(name, **options))
        self.write(app)
        return app

    def launch_program(self, name: str, **options: Any) -> App:
        """Launch a job of a user's own program."""
        app = self.create(self.plan(name, project="mine", **options))
        self.write(app, program=True)
        return app

    def change(self, app: App, **status: Any) -> None:
        """Change the status of a job object."""
        found = self.cluster.find(app.kind, "default", app.name)
        assert found is not None
        self.cluster.put({**found, "status": {**(found.get("status") or {}), **status}})

    def phase(self, app: App, phase: str, **status: Any) -> None:
        """Change the phase of a Volcano Job."""
        self.change(app, state={"phase": phase, "lastTransitionTime": "2026-01-01T00:01:00Z"}, **status)
        if phase == "Running":
            put_running_pods(self.cluster, self.cluster.find(app.kind, "default", app.name) or {})

    def state(self, app: App) -> tuple[str, str]:
        """Return state and reason in the stack, which are equal in all three places."""
        resources = json.loads(app.path.read_text())["checkpoint"]["latest"]["resources"]
        stack, component = resources[0]["outputs"], resources[1]["outputs"]["observed"]
        places = (stack, stack["torchx"]["observed"], component)
        found = {(place["state"], place["reason"]) for place in places}
        assert len(found) == 1, found
        return found.pop()

    def observed(self, app: App) -> dict[str, Any]:
        """Return the observation in the stack."""
        resources = json.loads(app.path.read_text())["checkpoint"]["latest"]["resources"]
        observed: dict[str, Any] = resources[1]["outputs"]["observed"]
        return observed

    def driver(self) -> Driver:
        return AutomationDriver(self.root / "engine")

    @contextmanager
    def controller(
        self,
        *,
        driver: Driver | None = None,
        clusters: Mapping[str, Cluster] | None = None,
        archiver: LogArchiver | None = None,
        fleet: LiveFleet | None = None,
        leading: Callable[[], bool] = lambda: True,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
        clock: Callable[[], float] = time.monotonic,
        timing: ControllerTiming | None = None,
        **settings: Any,
    ) -> Iterator[Controller]:
        """Run a controller."""
        stop = threading.Event()
        running = Controller(
            ControllerParts(
                settings=ControllerSettings(**{"backends": (self.backend,), **settings}),
                driver=driver or self.driver(),
                reporter=Reporter(self.lines.append),
                archiver=archiver,
                fleet=fleet,
                leading=leading,
                timing=timing or FAST,
                now=now,
                clock=clock,
            ),
            clusters or {"test": self.cluster},
        )
        thread = threading.Thread(target=running.run, args=(stop,), daemon=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(writing, "BEHIND_S", 0.1)
            thread.start()
            try:
                yield running
            finally:
                stop.set()
                thread.join(10)
                assert not thread.is_alive()


def a_while() -> None:
    """Let the time pass in which a controller with these times would do what it must not."""
    time.sleep(0.15)


def wait_for(met: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Wait until a condition is met."""
    end = time.monotonic() + timeout_s
    while not met():
        assert time.monotonic() < end, "not met in time"
        time.sleep(0.01)


def urn_of(place: StackRef, scheduler: str, name: str = "train") -> str:
    return f"urn:pulumi:{place.stack}::{place.project}::{component_type(scheduler)}::{name}"


def checkpoint(app: App, *, program: bool = False, **latest: Any) -> Any:
    """Return the checkpoint of an app."""
    place = app.entry.place
    urn = urn_of(place, app.entry.scheduler)
    return {
        "version": 3,
        "checkpoint": {
            "stack": f"organization/{place.project}/{place.stack}",
            "latest": {
                "manifest": {"time": "2026-01-01T00:00:00Z", "magic": "m", "version": "v3.259.0"},
                "resources": [
                    {
                        "urn": f"urn:pulumi:{place.stack}::{place.project}::{STACK}::{place.project}-{place.stack}",
                        "type": STACK,
                        "outputs": with_uid(app, app.plan.exports),
                    },
                    *component(app, urn, program=program),
                ],
                **latest,
            },
        },
    }


def component(app: App, urn: str, *, program: bool = False) -> list[dict[str, Any]]:
    """Return the resources of a component: itself and its notes."""
    notes = {"intent": app.plan.intent, "app": None if program else app.plan.entry}
    outputs = {**app.plan.outputs, "record": app.plan.record}
    return [
        {"urn": urn, "type": component_type(app.entry.scheduler), "outputs": with_uid(app, outputs)},
        *(
            {
                "urn": f"{urn.rpartition('::')[0]}${STASH}::{urn.rpartition('::')[2]}-{name}",
                "type": STASH,
                "parent": urn,
                "inputs": {"input": with_uid(app, value)},
            }
            for name, value in notes.items()
            if value is not None
        ),
    ]


def with_uid(app: App, value: Any) -> Any:
    """Return a value as the state has it: without None, with the uid of the job object."""
    uid = app.entry.uid or ""
    return without_none(replace_uid(value, lambda text: text.replace(UID, uid)))


def without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    return [without_none(item) for item in value] if isinstance(value, (list, tuple)) else value
