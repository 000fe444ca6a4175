"""Builders of AppWrappers v1beta2 with Indexed Jobs: rendered, and with the objects that controllers make of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchx_pulumi.model import labels
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.job_spec import RoleSpec
from torchx_pulumi.schedulers import plan_job
from torchx_pulumi.schedulers.appwrapper.objects import COMPLETION_INDEX, JOB_NAME, OPERATOR_LABEL
from torchx_pulumi.schedulers.appwrapper.options import MCADOptions
from torchx_pulumi.schedulers.appwrapper.v1beta2 import render_mcad_v1beta2

from tests.unit.builders import job
from tests.unit.schedulers.app_wrappers import metadata
from tests.unit.schedulers.observed_objects import CREATED

Manifest = dict[str, Any]


def plan(*roles: RoleSpec, app_id: str = "app", **chosen: Any) -> JobPlan[MCADOptions]:
    return plan_job(job(roles=list(roles)), MCADOptions(api_version="v1beta2", **chosen), app_id)  # type: ignore[arg-type]


def wrapped(made: JobPlan[MCADOptions], kind: str) -> list[Manifest]:
    """Return the rendered objects of a kind in an AppWrapper."""
    found = [component["template"] for component in render_mcad_v1beta2(made)["spec"]["components"]]
    return [one for one in found if one["kind"] == kind]


def observed(made: JobPlan[MCADOptions], phase: str | None = "Running", **status: Any) -> Manifest:
    """Return the AppWrapper of a plan as its operator has it."""
    rendered = render_mcad_v1beta2(made)
    own = {key: rendered["metadata"].get(key, {}) for key in ("annotations", "labels")}
    return {**rendered, "metadata": metadata(**own), "status": ({"phase": phase} if phase else {}) | status}


def pod_of(
    name: str, place: int, phase: str = "Running", *, letters: str = "abcde", node: str | None = "n0", **status: Any
) -> Manifest:
    """Return a pod of a Job `app-<role>-<first replica>`, with the labels that controllers set."""
    role = name.removeprefix("app-").rsplit("-", 1)[0]
    found = {
        labels.ROLE_NAME: role,
        labels.ROLE_INDEX: "0",
        labels.UNIQUE_NAME: "app",
        OPERATOR_LABEL: "app",
        JOB_NAME: name,
        COMPLETION_INDEX: str(place),
    }
    own = {"name": f"{name}-{place}-{letters}", "namespace": "default", "labels": found, "creationTimestamp": CREATED}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": own,
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase, **status},
    }


def job_of(name: str, **status: Any) -> Manifest:
    """Return an observed Job."""
    own: Mapping[str, Any] = {"name": name, "namespace": "default", "labels": {labels.UNIQUE_NAME: "app"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": dict(own), "status": status}
