"""Builders with defaults, so that a test shows only what matters."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.model.app_entry import RunEntry, StackRef
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.job_spec import JobSpec, RoleSpec
from torchx_pulumi.runs.registration import LaunchState, Registration, prepare
from torchx_pulumi.schedulers import find_backend, plan_job, variant_of
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB_NAME
from torchx_pulumi.schedulers.volcano.options import VolcanoOptions

from tests.fakes import FakeCluster


def put_running_pods(cluster: FakeCluster, job: dict[str, Any]) -> None:
    """Put the pods of a Volcano Job that are not there yet into a cluster, as they run."""
    owner = job["metadata"]
    for name, template in find_backend("volcano").variants["job"].pod_templates(job):
        meta = {**template["metadata"], "name": name, "namespace": owner["namespace"]}
        meta["labels"] = {**meta["labels"], VOLCANO_JOB_NAME: owner["name"]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {**template["spec"], "nodeName": "n"}}
        if cluster.find(POD, owner["namespace"], name) is None:
            cluster.put({**pod, "status": {"phase": "Running"}})


def role(**changes: Any) -> RoleSpec:
    return RoleSpec(**{"name": "trainer", "image": "img:1", "entrypoint": "main", **changes})


def job(**changes: Any) -> JobSpec:
    return JobSpec(**{"name": "app", "roles": [role()], "torchx_version": "0.7.0", **changes})


def options(**changes: Any) -> VolcanoOptions:
    return VolcanoOptions(**{"queue": "test", **changes})


def plan(*roles: RoleSpec, launched: dict[str, int] | None = None, app_id: str = "app-x1", **chosen: Any) -> JobPlan:
    return plan_job(job(roles=list(roles) or [role()]), options(**chosen), app_id, launched=launched)


def run_entry(**changes: Any) -> RunEntry:
    fields: dict[str, Any] = {
        "app_id": "default:train-1",
        "scheduler": "volcano",
        "choice": "job",
        "place": StackRef(backend="file:///b", project="torchx", stack="s"),
        "cluster": "c1",
        "kubeconfig": None,
        "kube_context": None,
        "session": "torchx",
        "user": "me",
        "name": "train",
        "queue": "default",
        "app": {"name": "train", "roles": [], "metadata": {}},
        "pods": {},
        "declared": {},
        "launch": "l",
        "run": "r",
        "launched_at": "2026-01-01T00:00:00Z",
    }
    return RunEntry(**{**fields, **changes})


def registration_of(entry: RunEntry, plan: JobPlan) -> Registration:
    """Return the registration of the launch of an app, under the hash that its entry has."""
    state = LaunchState(
        name=entry.name,
        owner=entry.launch,
        at=datetime.now(timezone.utc),
        job_name=plan.job_name,
        cluster=entry.cluster_identity,
        user=entry.user,
        plan=plan,
    )
    made = prepare(plan.spec, plan.options, state)
    record = replace(made.record, hash=entry.run or made.record.hash)
    entry = replace(entry, run=record.hash)
    return replace(made, record=record, given=variant_of(plan.options).render(plan), entry=entry)
