from __future__ import annotations

import copy

import pytest
from torchx_pulumi.inputs.rendering import render_plan
from torchx_pulumi.model.errors import InvalidJobError
from torchx_pulumi.model.job_spec import MountSpec, SecretRef
from torchx_pulumi.schedulers import plan_job
from torchx_pulumi.schedulers.volcano.options import GangMode

from tests.unit.builders import job, options, plan, role


def env_of(made: object, role_index: int, replica: int) -> dict[str, str | None]:
    return {env.name: env.value for env in made.roles[role_index].tasks[replica].env}  # type: ignore[attr-defined]


def test_rank_0_finds_itself_on_localhost() -> None:
    made = plan(role(num_replicas=2, env={"HOST_VAR": "${rank0_env}"}))
    assert env_of(made, 0, 0)["HOST_VAR"] == "TORCHX_RANK0_HOST"
    assert env_of(made, 0, 0)["TORCHX_RANK0_HOST"] == "localhost"
    assert "TORCHX_RANK0_HOST" not in env_of(made, 0, 1)


def test_other_replicas_find_rank_0_by_the_variable_that_volcano_exports() -> None:
    made = plan(role(name="my-train", num_replicas=2, args=["${rank0_env}"]), role(name="b", args=["${rank0_env}"]))
    assert made.roles[0].tasks[1].command == ("main", "VC_MY_TRAIN_0_HOSTS")
    assert made.roles[1].tasks[0].command == ("main", "VC_MY_TRAIN_0_HOSTS")


def test_pods_name_the_digest_after_the_image_and_read_the_same_name() -> None:
    made = plan(role(image="repo:tag", image_digest="sha256:1", num_replicas=2))
    assert made.roles[0].image == "repo:tag@sha256:1"
    assert {env_of(made, 0, replica)["TORCHX_IMAGE"] for replica in (0, 1)} == {"repo:tag@sha256:1"}
    (container,) = render_plan(made)["spec"]["tasks"][1]["template"]["spec"]["containers"]
    assert container["image"] == "repo:tag@sha256:1"


def test_role_with_a_hash_is_found_by_its_hashed_name() -> None:
    made = plan(role(name="a_b", args=["${rank0_env}"], num_replicas=2), role(name="ab"))
    expected = made.roles[0].dns_name.replace("-", "_").upper()
    assert made.roles[0].tasks[1].command[1] == f"VC_{expected}_0_HOSTS"


def test_surplus_replicas_of_a_launched_job_stay_in_the_plan() -> None:
    made = plan(role(num_replicas=2), launched={"trainer": 4, "gone": 9})
    assert [task.requested for task in made.roles[0].tasks] == [1, 1, 0, 0]
    assert made.roles[0].replicas == 2


def test_more_replicas_than_launched_have_no_surplus() -> None:
    made = plan(role(num_replicas=3), launched={"trainer": 1})
    assert [task.requested for task in made.roles[0].tasks] == [1] * 3


def test_spec_is_not_changed() -> None:
    spec = job(roles=[role(env={"A": "${app_id}"}, pod_overlay={"spec": {}})])
    before = copy.deepcopy(spec)
    plan_job(spec, options(), "app-x1")
    assert spec == before


def test_secret_environment_holds_references_only() -> None:
    made = plan(role(secret_env={"TOKEN": SecretRef(name="s", key="k")}))
    (env,) = [env for env in made.roles[0].tasks[0].env if env.name == "TOKEN"]
    assert env.secret == ("s", "k", False)
    assert env.value is None


@pytest.mark.parametrize(("permissions", "read_only"), [("r", True), ("rw", False), ("m", False), ("", True)])
def test_device_is_read_only_without_w_and_m(permissions: str, read_only: bool) -> None:
    made = plan(role(mounts=[MountSpec(kind="device", src="/dev/a", dst="/a", permissions=permissions)]))
    assert made.roles[0].mounts[0].read_only is read_only
    assert made.roles[0].privileged


def test_secret_mount_is_read_only_and_not_privileged() -> None:
    made = plan(role(mounts=[MountSpec(kind="secret", src="s", dst="/s")]))
    assert made.roles[0].mounts[0].read_only
    assert not made.roles[0].privileged


def test_version_label_is_left_out_without_torchx() -> None:
    made = plan_job(job(torchx_version=None), options(), "app-x1")
    assert "torchx.pytorch.org/version" not in made.roles[0].tasks[0].labels


def test_mixed_retries_are_reported() -> None:
    made = plan(role(name="a", max_retries=5), role(name="b", max_retries=2), role(name="c"))
    assert any("a: 5, b: 2, c: 0" in warning and "which is 2" in warning for warning in made.warnings)


def test_retries_say_how_volcano_counts_them() -> None:
    assert any("is Failed is 0;" in warning for warning in plan(role(max_retries=1)).warnings)
    assert any("is Failed is 2;" in warning for warning in plan(role(max_retries=3)).warnings)


@pytest.mark.parametrize(
    ("retries", "policy", "warns"), [(2, "REPLICA", True), (2, "APPLICATION", False), (0, "REPLICA", False)]
)
def test_retries_of_a_replica_say_that_logs_go(retries: int, policy: str, warns: bool) -> None:
    warnings = plan(role(max_retries=retries, retry_policy=policy)).warnings
    assert any("with its log" in warning for warning in warnings) is warns


def test_plain_job_has_no_warnings() -> None:
    assert plan().warnings == ()


def test_plugins_without_svc_are_reported() -> None:
    assert any("svc" in warning for warning in plan(plugins={}).warnings)


def test_many_pods_in_pods_mode_are_reported() -> None:
    assert any("200 replicas" in warning for warning in plan(role(num_replicas=200), gang=GangMode.PODS).warnings)


def test_all_problems_come_in_one_error() -> None:
    with pytest.raises(InvalidJobError) as error:
        plan_job(job(roles=[role(num_replicas=0), role(image="")]), options(namespace="Not Valid"), "Not Valid")
    paths = {problem.path for problem in error.value.problems}
    assert paths == {"roles[0].num_replicas", "roles[1].image", "roles[1].name", "options.namespace", "app_id"}


def test_an_overlay_that_the_api_server_would_refuse_ends_a_new_launch_and_keeps_what_was_launched() -> None:
    overlays = [{"spec": {"__join__:containers:name": [{"name": name, "tty": True}]}} for name in ("a-0", "b")]
    roles = [role(name=name, num_replicas=2, pod_overlay=one) for name, one in zip("ab", overlays, strict=True)]
    with pytest.raises(InvalidJobError) as caught:
        plan(*roles)
    assert [problem.path for problem in caught.value.problems] == ["roles[0].pod_overlay", "roles[1].pod_overlay"]
    assert "'a-${replica_id}'" in str(caught.value)
    kept = plan_job(job(roles=roles), options(), "app-x1", launched={"a": 2, "b": 2}, tasks={})
    assert len(render_plan(kept)["spec"]["tasks"]) == 4
