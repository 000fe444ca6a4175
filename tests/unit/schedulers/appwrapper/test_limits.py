"""Size of AppWrappers, next to what etcd and the operator take."""

from __future__ import annotations

import json
from typing import Any

import pytest
from torchx_pulumi.model.errors import InvalidJobError
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.job_spec import RoleSpec
from torchx_pulumi.schedulers import plan_job
from torchx_pulumi.schedulers.appwrapper.backend import BACKEND
from torchx_pulumi.schedulers.appwrapper.limits import POD_STATUS_BYTES, app_wrapper_bytes
from torchx_pulumi.schedulers.appwrapper.options import MCADOptions

from tests.unit.builders import job, role

VERSIONS = pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])


def plan(*roles: RoleSpec, launched: dict[str, int] | None = None, **chosen: Any) -> JobPlan[MCADOptions]:
    return plan_job(job(roles=list(roles)), MCADOptions(**chosen), "app-x1", launched=launched)


@VERSIONS
@pytest.mark.parametrize("coscheduler", [None, "coscheduler"])
def test_the_size_is_that_of_the_rendered_app_wrapper(version: str, coscheduler: str | None) -> None:
    roles = [role(num_replicas=30, args=["é" * 100]), role(name="reader", num_replicas=7), role(name="one")]
    made = plan(*roles, api_version=version, layout="replica", coscheduler_name=coscheduler)
    [app_wrapper] = BACKEND.variants[version].render(made)
    exact = len(json.dumps(app_wrapper, separators=(",", ":"), ensure_ascii=False).encode())
    exact += 38 * POD_STATUS_BYTES if version == "v1beta2" else 0
    assert exact <= app_wrapper_bytes(made) <= exact * 1.02


@pytest.mark.parametrize(("version", "advice"), [("v1beta1", "ask for fewer"), ("v1beta2", "set layout to role")])
def test_a_job_that_is_too_large_for_etcd_is_refused(version: str, advice: str) -> None:
    text = rf"have 2000 replicas, each of them a pod of its own .* makes 2\.\d\d MB; etcd takes 1\.56 MB; {advice}"
    with pytest.raises(InvalidJobError, match=text):
        plan(role(num_replicas=2000), api_version=version, layout="replica")


def test_jobs_take_as_much_as_their_text_and_not_as_their_replicas() -> None:
    large = plan(role(num_replicas=10_000, args=["é" * 100]), role(name="one"), api_version="v1beta2")
    [app_wrapper] = BACKEND.variants["v1beta2"].render(large)
    exact = len(json.dumps(app_wrapper, separators=(",", ":"), ensure_ascii=False).encode()) + 3 * POD_STATUS_BYTES
    assert exact == app_wrapper_bytes(large) < 10_000
    with pytest.raises(InvalidJobError, match=r"have 10000 replicas, as 2 Jobs in the AppWrapper, .*; make arguments"):
        plan(role(num_replicas=10_000, args=["x" * 800_000]), api_version="v1beta2")


@VERSIONS
def test_a_kept_run_is_not_measured(version: str) -> None:
    plan(role(num_replicas=2000), api_version=version, launched={"trainer": 2000})


def test_the_status_of_a_pod_with_the_longest_name_is_counted() -> None:
    # As the operator 1.2.0 writes it (`componentStatus`).
    condition = {
        "lastTransitionTime": "2026-11-23T16:01:43Z",
        "message": "",
        "reason": "ComponentCreatedSuccessfully",
        "status": "Unknown",
        "type": "ResourcesDeployed",
    }
    pod = {
        "apiVersion": "v1",
        "conditions": [condition],
        "kind": "Pod",
        "name": "n" * 63,
        "podSets": [{"path": "template", "replicas": 1}],
    }
    assert len(json.dumps(pod, separators=(",", ":"))) + 1 <= POD_STATUS_BYTES
