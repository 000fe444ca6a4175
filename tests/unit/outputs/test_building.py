"""The stack's object `torchx`: versioned, stable where it says so, fresh where it says so, plain JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torchx_pulumi.model.job_plan import JobPlan, RolePlan
from torchx_pulumi.model.job_spec import JobSpec, ResourceSpec, RoleSpec
from torchx_pulumi.model.status import (
    Condition,
    Diagnosis,
    JobState,
    JobStatus,
    ObjectRef,
    Reason,
    ReplicaStatus,
    RoleStatus,
)
from torchx_pulumi.outputs.building import (
    MAX_OBSERVED_BYTES,
    MAX_REPLICAS_LISTED,
    build_declared,
    build_observed,
    flatten,
    log_command,
    same,
)
from torchx_pulumi.schedulers.volcano.options import VolcanoOptions

from tests.unit import builders

from .whole import build_outputs

NOW = datetime(2026, 3, 1, 10, 0, tzinfo=timezone.utc)
LATER = NOW + timedelta(minutes=5)


def role_plan(role: RoleSpec, index: int) -> RolePlan:
    return RolePlan(
        name=role.name,
        dns_name=role.name,
        index=index,
        image=role.image,
        replicas=role.num_replicas,
        min_replicas=role.min_replicas,
        max_retries=0,
        retry_policy="APPLICATION",
        requests={},
        limits={},
        ports={},
        mounts=(),
        node_selector={},
        tolerations=(),
        pod_overlay=None,
        privileged=False,
        tasks=(),
    )


def job_plan(*roles: RoleSpec) -> JobPlan:
    spec = JobSpec(
        name="train",
        roles=roles
        or (
            RoleSpec(
                name="trainer", image="img:1", entrypoint="python", num_replicas=2, resource=ResourceSpec(cpu=1.5)
            ),
        ),
    )
    return JobPlan(
        app_id="train-1",
        job_name="train-1",
        namespace="team",
        spec=spec,
        options=VolcanoOptions(queue="q", priority_class="high"),
        roles=tuple(role_plan(role, index) for index, role in enumerate(spec.roles)),
    )


def status(state: JobState = JobState.RUNNING, replicas: tuple[ReplicaStatus, ...] = ()) -> JobStatus:
    return JobStatus(
        state=state,
        reason=Reason.RUNNING,
        message="running",
        phase="Running",
        roles=(RoleStatus(name="trainer", replicas=replicas),),
        queued_at=NOW,
    )


def replica(index: int, state: JobState = JobState.RUNNING) -> ReplicaStatus:
    return ReplicaStatus(id=index, pod=f"p-{index}", state=state, reason=Reason.RUNNING, message="running")


def build(seen: JobStatus | None = None, **more: Any) -> dict[str, Any]:
    given = {"scheduler": "volcano", "spec_hash": "abc", "observed_at": NOW, **more}
    return dict(build_outputs(job_plan(), seen or status(), **given))


def test_the_object_is_versioned_plain_json_with_the_documented_parts() -> None:
    outputs = build(created_by="pulumi:torchx/dev")
    assert json.loads(json.dumps(outputs)) == outputs
    assert outputs["schema_version"] == 1
    assert list(outputs) == ["schema_version", "app", "declared", "observed", "links"]
    assert outputs["app"] == {
        "id": "team:train-1",
        "handle": "pulumi_volcano://torchx/team:train-1",
        "name": "train",
        "scheduler": "volcano",
        "namespace": "team",
        "queue": "q",
    }
    assert outputs["declared"]["priority"] == "high"
    assert outputs["links"]["ui_url"] is None


def test_declared_says_how_roles_start_and_end() -> None:
    assert {"success_roles", "start_after"}.isdisjoint(build()["declared"])
    roles = [builders.role(name=name) for name in "ab"]
    made = builders.plan(*roles, success_roles=["a"], start_after={"a": ("b",)})
    declared = build_declared(made, spec_hash="abc")
    assert (declared["success_roles"], declared["start_after"]) == (["a"], {"a": ["b"]})


def test_the_flat_outputs_say_the_same() -> None:
    assert flatten(build()) == {  # type: ignore[arg-type]
        "app_id": "team:train-1",
        "app_handle": "pulumi_volcano://torchx/team:train-1",
        "state": "RUNNING",
        "reason": "Running",
        "log_command": build()["links"]["log_command"],
    }


def test_totals_add_up_replicas_and_ignore_what_is_unset() -> None:
    big = RoleSpec(
        name="a", image="i", entrypoint="e", num_replicas=3, resource=ResourceSpec(cpu=2, gpu=4, devices={"efa": 1})
    )
    none = RoleSpec(
        name="b", image="i", entrypoint="e", num_replicas=2, resource=ResourceSpec(cpu=-1, gpu=-1, memory_mb=500)
    )
    outputs = build_outputs(job_plan(big, none), status(), scheduler="volcano", spec_hash="h", observed_at=NOW)
    assert outputs["declared"]["resources_total"] == {"cpu": 6, "gpu": 12, "memory_mb": 1000, "devices": {"efa": 3}}
    assert outputs["declared"]["roles"][1]["resource"] == {"cpu": 0, "gpu": 0, "memory_mb": 500, "devices": {}}


def test_an_unchanged_observation_keeps_its_time() -> None:
    first = build()
    assert build(observed_at=LATER, previous=first) == first


def test_values_that_the_engine_dropped_or_made_floats_are_no_change() -> None:
    first = build()
    stored = json.loads(json.dumps(first), parse_int=float)
    stored["observed"] = {key: value for key, value in stored["observed"].items() if value is not None}
    assert build(observed_at=LATER, previous=stored)["observed"]["observed_at"] == "2026-03-01T10:00:00Z"


def test_a_changed_observation_moves_its_time() -> None:
    moved = build(status(JobState.SUCCEEDED), observed_at=LATER, previous=build())
    assert moved["observed"]["observed_at"] == "2026-03-01T10:05:00Z"


def test_what_the_stack_remembers_keeps_the_time_at_which_it_was_seen() -> None:
    remembered = build(observed_at=LATER, previous=build(), source="record")
    assert (remembered["observed"]["source"], remembered["observed"]["observed_at"]) == (
        "record",
        "2026-03-01T10:00:00Z",
    )


def test_a_nested_difference_is_a_difference() -> None:
    one = build_observed(status(replicas=(replica(0),)), observed_at=NOW)
    other = build_observed(status(replicas=(replica(0, JobState.FAILED),)), observed_at=NOW)
    assert not same(one, other)


def test_a_large_role_lists_its_failed_replicas_and_counts_all() -> None:
    ended = {7: JobState.FAILED, 8: JobState.SUCCEEDED, 900: JobState.FAILED}
    replicas = tuple(replica(index, ended.get(index, JobState.RUNNING)) for index in range(1000))
    (role,) = build_observed(status(replicas=replicas), observed_at=NOW)["roles"]
    assert [listed["id"] for listed in role["replicas"]] == [7, 900]
    assert (role["omitted"], role["counts"]) == (998, {"RUNNING": 997, "FAILED": 2, "SUCCEEDED": 1})


def test_the_list_of_failed_replicas_is_capped() -> None:
    replicas = tuple(replica(index, JobState.FAILED) for index in range(1000))
    (role,) = build_observed(status(replicas=replicas), observed_at=NOW)["roles"]
    assert (len(role["replicas"]), role["omitted"]) == (MAX_REPLICAS_LISTED, 1000 - MAX_REPLICAS_LISTED)


SIZES = st.sampled_from([0, 1, 40, 300, 2_500, 20_000])
CHARACTERS = st.sampled_from(["a", "é", "\N{ROCKET}", "\n", "\0", '"'])


@settings(max_examples=10, deadline=None)
@given(
    roles=st.lists(st.sampled_from([1, 2, 65, 300]), max_size=4) | st.sampled_from([[1] * 400, [1] * 1_000]),
    name=st.integers(1, 63),
    state=st.sampled_from([JobState.RUNNING, JobState.FAILED]),
    message=SIZES,
    detail=SIZES,
    diagnoses=st.integers(0, 10),
    of_replica=SIZES,
    character=CHARACTERS,
)
def test_observed_has_at_most_the_documented_size(
    roles: list[int],
    name: int,
    state: JobState,
    message: int,
    detail: int,
    diagnoses: int,
    of_replica: int,
    character: str,
) -> None:
    text = character * of_replica
    diagnosis = Diagnosis(
        reason=Reason.NEVER_SCHEDULABLE,
        summary=character * message,
        detail=character * detail,
        resolution=character * message,
        objects=tuple(ObjectRef(kind="Pod", namespace="n" * 63, name="p" * 253) for _ in range(10)),
    )
    seen = JobStatus(
        state=state,
        reason=Reason.RUNNING,
        phase=character * message,
        message=character * message,
        conditions=(Condition(type="Finished", status="True", reason=Reason.EXIT_CODE, message=character * detail),)
        * 3,
        diagnoses=(diagnosis,) * diagnoses,
        roles=tuple(
            RoleStatus(
                name=f"{place:x<{name}}",
                replicas=tuple(replace(replica(index, state), message=text) for index in range(count)),
            )
            for place, count in enumerate(roles)
        ),
        uid="00000000-0000-0000-0000-000000000000",
    )
    observed = build_observed(seen, observed_at=NOW)
    assert len(json.dumps(observed)) <= MAX_OBSERVED_BYTES
    assert (observed["state"], observed["uid"]) == (state.value, seen.uid)
    listed = observed["roles"]
    assert len(listed) + observed.get("roles_omitted", 0) == len(roles)
    for role, count in zip(listed, roles, strict=False):
        assert len(role["replicas"]) + role["omitted"] == count
        assert role["counts"] == {state.value: count}
    assert build_observed(seen, observed_at=LATER, previous=observed) == observed


def test_a_long_message_costs_no_replica_and_many_replicas_cost_no_text() -> None:
    long = build_observed(replace(status(replicas=(replica(0),)), message="x" * 200_000), observed_at=NOW)
    assert (len(long["message"]), len(long["roles"][0]["replicas"])) == (2000, 1)
    failed = RoleStatus(name="a", replicas=tuple(replica(index, JobState.FAILED) for index in range(64)))
    many = build_observed(replace(status(), message="x" * 2000, roles=(failed,) * 20), observed_at=NOW)
    assert len(many["message"]) == 2000
    assert len(many["roles"]) == 20
    assert "roles_omitted" not in many


def test_roles_are_left_out_last_and_counted() -> None:
    whole = tuple(RoleStatus(name=f"role-{index}", replicas=(replica(0),)) for index in range(2_000))
    observed = build_observed(replace(status(), roles=whole), observed_at=NOW)
    names = [role["name"] for role in observed["roles"]]
    assert names == [f"role-{index}" for index in range(len(names))]
    assert 500 < len(names) == 2_000 - observed["roles_omitted"]
    assert all(role["replicas"] == [] for role in observed["roles"])


def test_a_small_role_lists_all() -> None:
    (role,) = build_observed(status(replicas=(replica(0), replica(1))), observed_at=NOW)["roles"]
    assert (len(role["replicas"]), role["omitted"]) == (2, 0)


def test_the_log_command_names_namespace_job_context_and_enough_streams() -> None:
    many = job_plan(RoleSpec(name="a", image="i", entrypoint="e", num_replicas=8))
    command = log_command(many, kube_context="my ctx")
    assert command.startswith("kubectl --context 'my ctx' --namespace team logs")
    assert "volcano.sh/job-name=train-1" in command
    assert "--max-log-requests=8" in command


def test_a_naive_time_is_refused() -> None:
    with pytest.raises(ValueError, match="no zone"):
        build_observed(replace(status(), queued_at=NOW.replace(tzinfo=None)), observed_at=NOW)
