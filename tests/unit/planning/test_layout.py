from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torchx_pulumi.model.errors import InvalidJobError
from torchx_pulumi.model.job_plan import RolePlan
from torchx_pulumi.model.job_spec import SecretRef
from torchx_pulumi.planning.layout import AUTO_REPLICAS, layout_obstacles, tasks_per_role
from torchx_pulumi.planning.macros import REPLICA_ID_REFERENCE
from torchx_pulumi.planning.references import expand

from tests.unit.builders import job, plan, role


def counts(made: RolePlan) -> list[tuple[str, int, int]]:
    return [(task.name, task.count, task.requested) for task in made.tasks]


def test_rank_0_is_a_task_of_its_own() -> None:
    made = plan(role(num_replicas=2500), role(name="reader", num_replicas=1001), layout="role")
    assert counts(made.roles[0]) == [
        ("trainer-0", 1, 1),
        ("trainer-1", 1000, 1000),
        ("trainer-1001", 1000, 1000),
        ("trainer-2001", 499, 499),
    ]
    assert counts(made.roles[1]) == [("reader-0", 1000, 1000), ("reader-1000", 1, 1)]


def test_rank_0_has_torchx_values_and_the_others_its_variable() -> None:
    made = plan(role(num_replicas=3, args=["${rank0_env}"]), layout="role")
    first, others = made.roles[0].tasks
    assert (first.command[1], others.command[1]) == ("TORCHX_RANK0_HOST", "VC_TRAINER_0_HOSTS")
    assert [env.name for env in first.env] == ["TORCHX_RANK0_HOST", "TORCHX_IMAGE"]
    assert [env.name for env in others.env] == ["TORCHX_IMAGE"]


def test_a_role_that_uses_its_index_is_one_task_which_reads_it_from_the_pod() -> None:
    made = plan(role(num_replicas=3, args=["${replica_id}"], env={"ID": "x${replica_id}"}), layout="role")
    (task,) = made.roles[0].tasks
    assert task.command[1] == REPLICA_ID_REFERENCE
    assert task.env[0].name == "TORCHX_REPLICA_ID"
    assert task.env[0].field_path == "metadata.labels['volcano.sh/task-index']"
    assert (task.env[1].name, task.env[1].value) == ("ID", f"x{REPLICA_ID_REFERENCE}")
    assert "torchx.pytorch.org/replica-id" not in task.labels


def test_one_replica_is_the_same_in_both_layouts() -> None:
    overlay = {"metadata": {"labels": {"torchx.pytorch.org/replica-id": "3"}}}
    changes: dict[str, Any] = {"args": ["${replica_id}", "${rank0_env}"], "pod_overlay": overlay}
    shared, own = (plan(role(**changes), layout=layout) for layout in ("role", "replica"))
    assert (shared.roles, shared.warnings) == (own.roles, own.warnings)


def test_references_are_expanded_as_the_kubelet_does_it() -> None:
    assert expand("$(A) $(B) $$(A) ${A} $(", {"A": "1"}) == "1 $(B) $(A) ${A} $("


def test_auto_shares_tasks_above_its_limit() -> None:
    assert len(plan(role(num_replicas=AUTO_REPLICAS)).roles[0].tasks) == AUTO_REPLICAS
    assert len(plan(role(num_replicas=AUTO_REPLICAS + 1)).roles[0].tasks) == 2
    many = [role(name=f"r{index}", num_replicas=AUTO_REPLICAS // 2) for index in range(3)]
    assert [len(each.tasks) for each in plan(*many).roles] == [2, 1, 1]


def test_a_role_of_several_replicas_that_ends_the_job_is_one_task() -> None:
    roles = [role(name="ps", num_replicas=2), role(name="worker", num_replicas=3)]
    made = plan(*roles, success_roles=["worker"])
    assert [counts(each) for each in made.roles] == [[("ps-0", 1, 1), ("ps-1", 1, 1)], [("worker-0", 3, 3)]]
    assert any("pods and hosts are called" in warning for warning in made.warnings)
    assert [len(each.tasks) for each in plan(*roles, success_roles=["worker"], layout="role").roles] == [2, 1]
    first = plan(*roles, success_roles=["ps"])
    assert counts(first.roles[0]) == [("ps-0", 2, 2)]
    assert any("roles[0] is in success_roles, so its replicas are one task: rank 0 has no" in w for w in first.warnings)


@pytest.mark.parametrize(
    ("changes", "chosen", "reason"),
    [
        ({}, {"layout": "replica"}, "as it ends a job with one; set layout to role or auto"),
        ({"num_replicas": 1001}, {}, r"roles\[0\].num_replicas is 1001: a role that is in success_roles is one task"),
        ({"args": ["${rank0_env}"]}, {}, r"uses \$\{rank0_env\}, and roles\[0\] is in success_roles"),
        ({"max_retries": 1, "retry_policy": "REPLICA"}, {"layout": "role"}, "retry_policy is REPLICA"),
    ],
)
def test_a_role_that_ends_the_job_and_cannot_be_one_task_is_refused(
    changes: dict[str, Any], chosen: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidJobError, match=rf"options.success_roles: names 'trainer', .*{reason}"):
        plan(role(**{"num_replicas": 2, **changes}), role(name="ps"), success_roles=["trainer"], **chosen)


def test_a_kept_run_keeps_its_tasks() -> None:
    from torchx_pulumi.schedulers import plan_job

    from tests.unit.builders import options

    spec = job(roles=[role(num_replicas=4)])
    kept = plan_job(spec, options(layout="replica"), "app-x1", launched={"trainer": 9}, tasks={"trainer": [0, 1, 6]})
    assert counts(kept.roles[0]) == [("trainer-0", 1, 1), ("trainer-1", 5, 3), ("trainer-6", 3, 0)]
    replica = plan_job(spec, options(layout="role"), "app-x1", launched={"trainer": 4}, tasks={})
    assert len(replica.roles[0].tasks) == 4


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"args": ["$$${replica_id}"]}, "args[0] has ${replica_id} where the kubelet expands no variable"),
        ({"args": ["$(run ${replica_id})"]}, "args[0] has ${replica_id}"),
        ({"args": ["$(A_${replica_id})"]}, "args[0] has ${replica_id}"),
        ({"env": {"A": "[FIELD_PATH]metadata.labels['${replica_id}']"}}, "env['A'] has ${replica_id}"),
        ({"args": ["${replica_id}", "$(TORCHX_REPLICA_ID)"]}, "args[1] has ${replica_id}"),
        ({"args": ["${replica_id}"], "env": {"TORCHX_REPLICA_ID": "x"}}, "env sets TORCHX_REPLICA_ID"),
        (
            {"args": ["${replica_id}"], "secret_env": {"TORCHX_REPLICA_ID": SecretRef(name="s", key="k")}},
            "secret_env sets TORCHX_REPLICA_ID",
        ),
        ({"args": ["${replica_id}", "${rank0_env}"]}, "args[1] uses ${rank0_env}, and roles[0] uses ${replica_id}"),
        ({"args": ["${replica_id}"], "env": {"TORCHX_RANK0_HOST": "x"}}, "env sets TORCHX_RANK0_HOST"),
        ({"args": ["$replica_id"], "num_replicas": 1001}, "num_replicas is 1001"),
        ({"max_retries": 1, "retry_policy": "REPLICA"}, "retry_policy is REPLICA"),
        (
            {"pod_overlay": {"spec": {"containers": [{"name": "trainer-3", "image": "i"}]}}},
            "pod_overlay names 'trainer-3', the container of one replica",
        ),
        (
            {"env": {"ID": "[FIELD_PATH]metadata.labels['torchx.pytorch.org/replica-id']"}},
            "env['ID'] reads the label torchx.pytorch.org/replica-id",
        ),
        (
            {"pod_overlay": {"spec": {"affinity": ({"key": "torchx.pytorch.org/replica-id"},)}}},
            "pod_overlay uses the label torchx.pytorch.org/replica-id",
        ),
        (
            {"pod_overlay": {"metadata": {"labels": {"torchx.pytorch.org/replica-id": "3"}}}},
            "pod_overlay uses the label torchx.pytorch.org/replica-id",
        ),
        (
            {
                "args": ["${replica_id}"],
                "pod_overlay": {"spec": {"__join__:containers:image": [{"image": "img:1", "env": []}]}},
            },
            "pod_overlay joins containers on 'image', which may replace TORCHX_REPLICA_ID",
        ),
        (
            {
                "args": ["${replica_id}"],
                "pod_overlay": {"spec": {"__join__:containers:name": [{"name": "trainer-${replica_id}", "env": []}]}},
            },
            "pod_overlay joins containers on 'name', which may replace TORCHX_REPLICA_ID",
        ),
    ],
)
def test_what_needs_a_task_per_replica_gets_it_with_the_reason(changes: dict[str, Any], reason: str) -> None:
    made = plan(role(**{"num_replicas": 5, **changes}), layout="role")
    assert all(task.count == 1 for task in made.roles[0].tasks)
    (warning,) = [warning for warning in made.warnings if warning.startswith("layout replica")]
    assert f"roles[0].{reason}" in warning


@pytest.mark.parametrize(
    "text", ["${replica_id}", "a${replica_id}b", "bash -c 'echo ${replica_id}' $$HOME", "$$(date)"]
)
def test_text_that_the_kubelet_expands_needs_no_task_per_replica(text: str) -> None:
    spec = job(roles=[role(num_replicas=3, args=[text, "${replica_id}"])])
    assert list(layout_obstacles(spec, 1000)) == []


def test_an_overlay_that_joins_containers_keeps_shared_tasks_where_no_replica_uses_its_index() -> None:
    for key, item in (("image", {"image": "img:1"}), ("name", {"name": "trainer-${replica_id}", "env": []})):
        overlay = {"spec": {f"__join__:containers:{key}": [{**item, "tty": True}]}}
        made = plan(role(num_replicas=5, pod_overlay=overlay), layout="role")
        assert [task.count for task in made.roles[0].tasks] == [1, 4]


def test_an_overlay_that_reaches_every_replica_keeps_shared_tasks_that_use_their_index() -> None:
    overlay = {"spec": {"__join__:containers:name": [{"name": "trainer-${replica_id}", "tty": True}]}}
    made = plan(role(num_replicas=5, args=["${replica_id}"], pod_overlay=overlay), layout="role")
    assert [task.count for task in made.roles[0].tasks] == [5]


TEXTS = st.lists(st.sampled_from(["$", "$$", "${replica_id}", "$replica_id", "(", ")", "A", "{", "}", " "]), max_size=8)


@given(TEXTS.map("".join), st.integers(0, 999))
def test_no_accepted_text_differs_between_layouts(text: str, index: int) -> None:
    spec = job(roles=[role(num_replicas=1000, args=[text, "${replica_id}"])])
    if list(layout_obstacles(spec, 1000)):
        return
    (task,) = plan(*spec.roles, layout="role").roles[0].tasks
    alone = plan(*spec.roles, layout="replica").roles[0].tasks[index]
    known = {"TORCHX_REPLICA_ID": str(index)}
    assert [expand(word, known) for word in task.command] == [expand(word, {}) for word in alone.command]


def test_a_job_that_fits_in_no_layout_is_refused_with_the_reason() -> None:
    with pytest.raises(InvalidJobError) as caught:
        plan(role(num_replicas=3000, args=["${replica_id}", "${rank0_env}"]))
    text = str(caught.value)
    assert "3000 replicas as 3000 tasks" in text
    assert "roles[0].num_replicas is 3000" in text
    assert "${rank0_env}" in text


def test_tasks_of_ten_thousand_replicas() -> None:
    spec = job(roles=[role(num_replicas=10_000)])
    assert tasks_per_role(spec, 1000) == {"trainer": (0, *range(1, 10_000, 1000))}
    made = plan(role(num_replicas=10_000), app_id="train-12345678")
    assert sum(task.requested for task in made.roles[0].tasks) == 10_000
