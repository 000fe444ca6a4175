"""What the package makes of the jobs: registrations, records, entries, orders and files, as plain JSON values.

The same code made the recordings and makes what they are compared with. What differs from run
to run (the clock, the process, the random part of an id) is given or put to a fixed value.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pulumi
from torchx import specs
from torchx_pulumi.inputs.rendering import render_plan
from torchx_pulumi.model.app_entry import RunEntry, Stage, read_entry
from torchx_pulumi.model.registration_plan import RegistrationPlan
from torchx_pulumi.model.status import JobState, JobStatus, Reason, ReplicaStatus, RoleStatus
from torchx_pulumi.outputs.building import build_observed
from torchx_pulumi.runs.eject import project_files
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.runs.observation import read_noted, write_noted
from torchx_pulumi.runs.registration import plan_registration
from torchx_pulumi.schedulers import plan_job
from torchx_pulumi.stack_state.backend import own_backend
from torchx_pulumi.testing import cluster_for_tests
from torchx_pulumi.torchx_adapter.context import AdapterContext
from torchx_pulumi.torchx_adapter.dryrun import PulumiJob, make_request
from torchx_pulumi.torchx_adapter.launch import prepare_app
from torchx_pulumi_components import MCADTrainingJob, VolcanoTrainingJob
from torchx_pulumi_components.prerendered import register_app
from torchx_pulumi_stacks.engine.work_dir import WorkDir, place_key

from tests.fakes import FakeCluster
from tests.recordings.engine import UID, run_program
from tests.recordings.jobs import ProgramJob, TorchxJob
from tests.unit.torchx_adapter.run_options import run_options

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
STAMPS = {"launched_at": "2026-01-02T03:04:05+00:00", "observed_at": "2026-01-02T03:04:05Z"}
"""What the times that are read off the clock are put to."""

COMPONENTS: dict[str, Any] = {"volcano": VolcanoTrainingJob, "mcad": MCADTrainingJob}
KUBERNETES = "kubernetes:"
STATUS: dict[str, dict[str, Any]] = {
    "batch.volcano.sh/v1alpha1/Job": {"state": {"phase": "Running"}},
    "scheduling.volcano.sh/v1beta1/PodGroup": {"phase": "Running"},
    "workload.codeflare.dev/v1beta1/AppWrapper": {"state": "Running"},
    "workload.codeflare.dev/v1beta2/AppWrapper": {"phase": "Running"},
    "v1/Pod": {"phase": "Running"},
}


def plain(value: Any) -> Any:
    """Return a value as it comes back from JSON, with the clock at rest."""
    return steady(through_json(value))


def through_json(value: Any) -> Any:
    """Return a value as it comes back from JSON."""
    return json.loads(json.dumps(value))


def steady(value: Any) -> Any:
    """Put times that are read off the clock to a fixed value."""
    if isinstance(value, dict):
        return {
            key: STAMPS[key] if key in STAMPS and isinstance(item, str) else steady(item) for key, item in value.items()
        }
    return [steady(item) for item in value] if isinstance(value, list) else value


def needed() -> Iterator[dict[str, Any]]:
    """Yield what the jobs need in a cluster."""
    for name in ("default", "team-a"):
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "runner", "namespace": name}}
        yield {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pull", "namespace": name}}
    yield {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}}
    for name in ("default", "gpu", "gpu.large"):
        yield {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": name},
            "status": {"state": "Open"},
        }


def cluster_with(registered: list[dict[str, Any]]) -> FakeCluster:
    """Return a cluster that has the objects of a program, running."""
    cluster = FakeCluster(needed())
    for item in registered:
        if not kind_of(item["urn"]).startswith(KUBERNETES):
            continue
        live = copy.deepcopy(item["inputs"])
        live["metadata"] = {**live["metadata"], "uid": UID, "creationTimestamp": "2026-01-02T03:04:06Z"}
        live["status"] = STATUS.get(f"{live['apiVersion']}/{live['kind']}", {})
        cluster.put(live)
    return cluster


def state_after(registered: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the outputs that a stack's state has after a program, by URN."""
    state = {}
    for item in registered:
        outputs = item["outputs"] if item["outputs"] is not None else item["inputs"]
        if kind_of(item["urn"]).startswith(KUBERNETES):
            outputs = {**outputs, "metadata": {**outputs["metadata"], "uid": UID}}
        state[item["urn"]] = outputs
    return state


def kind_of(urn: str) -> str:
    """Return the type of a resource."""
    return urn.split("::")[-2].rpartition("$")[2]


def one_of(registered: list[dict[str, Any]], suffix: str) -> dict[str, Any]:
    """Return the note of a program whose name ends so."""
    (found,) = [item for item in registered if item["urn"].endswith(suffix) and "Stash::" in item["urn"]]
    value: dict[str, Any] = found["inputs"]["input"]
    return value


def record_in(registered: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the record that a program's component registered."""
    (found,) = [item["outputs"]["record"] for item in registered if "record" in (item["outputs"] or {})]
    return found  # type: ignore[no-any-return]


def up(job: ProgramJob, index: int, before: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """Run a program for the given time, after what the run before registered, and return what it registers."""

    def program() -> None:
        parent = None if job.parent is None else pulumi.ComponentResource(*job.parent)
        with cluster_for_tests(cluster_with(before or [])):
            COMPONENTS[job.scheduler](
                job.name, copy.deepcopy(dict(job.ups[index])), pulumi.ResourceOptions(parent=parent)
            )

    made = run_program(
        program,
        state=state_after(before or []),
        organization=job.organization,
        project=job.project,
        stack=job.stack,
    )
    return plain(made)  # type: ignore[no-any-return]


def app_of(job: TorchxJob) -> Any:
    """Return the AppDef of an app."""
    kinds = {"bind": specs.BindMount, "volume": specs.VolumeMount, "device": specs.DeviceMount}
    roles = []
    for given in copy.deepcopy(job.app["roles"]):
        mounts = []
        for mount in given.pop("mounts"):
            kind = mount["kind"]
            names = {"src": "src" if kind == "volume" else "src_path", "dst": "dst_path"}
            mounts.append(kinds[kind](**{names.get(key, key): mount[key] for key in mount if key != "kind"}))
        wanted = given.pop("resource", {})
        resource = specs.Resource(
            cpu=wanted.get("cpu", -1),
            gpu=wanted.get("gpu", -1),
            memMB=wanted.get("memory_mb", -1),
            devices=wanted.get("devices", {}),
            capabilities=wanted.get("capabilities", {}),
        )
        policy = specs.RetryPolicy(given.pop("retry_policy", "APPLICATION"))
        roles.append(specs.Role(**given, mounts=mounts, resource=resource, retry_policy=policy))
    return specs.AppDef(name=job.app["name"], roles=roles, metadata=dict(job.app["metadata"]))


@contextmanager
def environment(user: str) -> Iterator[Path]:
    """Give a launch a user, no kubeconfig and a state folder of a fixed name; yield a folder that is really there."""
    changed = {"LOGNAME": user, "KUBECONFIG": "/nowhere/config", "XDG_STATE_HOME": "/var/lib/somebody"}
    before = {name: os.environ.get(name) for name in (*changed, "PULUMI_BACKEND_URL")}
    with tempfile.TemporaryDirectory(prefix="torchx-pulumi-") as folder:
        try:
            os.environ.update(changed)
            os.environ.pop("PULUMI_BACKEND_URL", None)
            yield Path(folder)
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


def launch(job: TorchxJob, folder: Path) -> dict[str, Any]:
    """Launch as `torchx run` does up to the engine: return request, entry, order, and files by path."""
    config = run_options(job.scheduler).resolve(dict(job.config))
    app = app_of(job)
    request = make_request(app, config, job.scheduler, job.session)
    assert request.plan is not None
    # The id is random in earnest.
    plan = plan_job(request.plan.spec, request.plan.options, job.app_id)
    request = PulumiJob(request.images_to_push, render_plan(plan), plan=plan, app=app, config=config)
    cluster = FakeCluster(needed())
    index = RunIndex(folder / "runs")
    context = AdapterContext(make_driver=_no_driver, connect=lambda *_: cluster, index=index, now=lambda: NOW)
    order = prepare_app(context, request, plan, job.session, cluster)
    entry = replace(order.app_entry, owner=None)
    if job.ambient is not None:
        entry = replace(entry, ambient_kubeconfig=job.ambient[0], ambient_context=job.ambient[1])
    ready = plan_registration(replace(order, entry=entry, state=replace(order.state, digests=job.digests)))
    index.add(entry)
    index.observe(entry, lambda _: observation_of(entry))
    launched = replace(entry, stage=Stage.LAUNCHED, uid=UID)
    WorkDir(folder / "engine", launched).write_request(ready)
    return {"key": place_key(entry.place), "own_backend": own_backend(), "files": files_in(folder)}


def _no_driver() -> Any:
    raise AssertionError("a launch is only prepared here")


def files_in(folder: Path) -> dict[str, Any]:
    """Return the JSON files in a folder by path, as their text says it."""
    found = {}
    for path in sorted(folder.rglob("*.json")):
        value = json.loads(path.read_text())
        assert path.read_text() == json.dumps(value, separators=(",", ":"))
        found[str(path.relative_to(folder))] = value
    return found


def observation_of(entry: RunEntry) -> Any:
    """Return an observation of an app's end."""
    roles = tuple(
        RoleStatus(
            name=role,
            replicas=tuple(
                ReplicaStatus(
                    id=index, pod=pod, state=JobState.FAILED, reason=Reason.EXIT_CODE, message="ended", exit_code=3
                )
                for index, pod in enumerate(pods)
            ),
        )
        for role, pods in entry.pods.items()
    )
    status = JobStatus(state=JobState.FAILED, reason=Reason.EXIT_CODE, message="it failed", phase="Failed", roles=roles)
    return build_observed(status, observed_at=datetime(2026, 1, 2, 3, 5, tzinfo=timezone.utc))


def register(order: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the registrations of the engine's program for an order as it was written down."""
    run = RegistrationPlan(**copy.deepcopy(dict(order)))
    place = run.entry["place"]
    made = run_program(lambda: register_app(run), state={}, project=place["project"], stack=place["stack"])
    return plain(made)  # type: ignore[no-any-return]


def program_of(entry: Mapping[str, Any]) -> dict[str, str]:
    """Return the files of a Pulumi program that goes on with an app."""
    return project_files(read_entry(entry, "recording"))


def take_over(
    files: Mapping[str, str], entry: Mapping[str, Any], registered: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Run a program that goes on with an app, and return what it registers."""
    with tempfile.TemporaryDirectory(prefix="torchx-pulumi-") as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text)
        main = Path(folder) / "__main__.py"

        def program() -> None:
            with cluster_for_tests(cluster_with(registered)):
                exec(compile(main.read_text(), str(main), "exec"), {"__file__": str(main)})

        place = entry["place"]
        made = run_program(program, state=state_after(registered), project=place["project"], stack=place["stack"])
    return plain(made)  # type: ignore[no-any-return]


def observation_again(value: Any) -> Any:
    """Return an observation that was read and written back."""
    return through_json(write_noted(read_noted(value, "recording")))


def order_again(value: Any) -> Any:
    """Return an order that was read and written back."""
    return through_json(dataclasses.asdict(RegistrationPlan(**value)))
