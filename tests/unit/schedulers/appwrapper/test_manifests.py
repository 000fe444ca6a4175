"""AppWrappers of both versions, field by field."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torchx_pulumi.model.errors import InvalidJobError
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.job_spec import ResourceSpec, RoleSpec
from torchx_pulumi.schedulers import plan_job
from torchx_pulumi.schedulers.appwrapper.options import AppWrapperVersion, MCADOptions, PodGroupVersion
from torchx_pulumi.schedulers.appwrapper.v1beta1 import render_mcad
from torchx_pulumi.schedulers.appwrapper.v1beta2 import render_mcad_v1beta2

from tests.unit.builders import job, role

Manifest = dict[str, Any]


def plan(*roles: RoleSpec, app_id: str = "app-x1", **chosen: Any) -> JobPlan[MCADOptions]:
    return plan_job(job(roles=list(roles) or [role()]), MCADOptions(**chosen), app_id)


def items(made: JobPlan[MCADOptions], kind: str = "Pod") -> list[Manifest]:
    found = render_mcad(made)["spec"]["resources"]["GenericItems"]
    return [item for item in found if item["generictemplate"]["kind"] == kind]


def objects(made: JobPlan[MCADOptions], kind: str = "Pod") -> list[Manifest]:
    return [item["generictemplate"] for item in items(made, kind)]


def env(pod: Manifest) -> dict[str, Any]:
    return {variable["name"]: variable.get("value") for variable in pod["spec"]["containers"][0]["env"]}


TWO_ROLES = (role(num_replicas=3, args=["${rank0_env}"]), role(name="my-reader", num_replicas=3, args=["${rank0_env}"]))


def test_pods_of_two_roles_are_distinct_and_carry_their_role() -> None:
    named = [pod["metadata"]["name"] for pod in objects(plan(*TWO_ROLES))]
    assert named == [f"app-x1-{r}-{i}" for r in ("trainer", "my-reader") for i in range(3)]


def test_every_pod_has_the_first_roles_variable_and_its_arguments_name_it() -> None:
    pods = objects(plan(*TWO_ROLES))
    assert {env(pod)["TORCHX_MCAD_TRAINER_0_HOSTS"] for pod in pods} == {"app-x1-trainer-0.app-x1"}
    words = [pod["spec"]["containers"][0]["command"][1] for pod in pods]
    assert words == ["TORCHX_RANK0_HOST", *["TORCHX_MCAD_TRAINER_0_HOSTS"] * 5]
    assert [env(pod).get("TORCHX_RANK0_HOST") for pod in pods] == ["localhost", *[None] * 5]


def test_rank0_can_be_found_by_its_host_name() -> None:
    made = plan(role(num_replicas=2))
    first, service = objects(made)[0], objects(made, "Service")[0]
    host = f"{first['spec']['hostname']}.{first['spec']['subdomain']}"
    assert env(objects(made)[1])["TORCHX_MCAD_TRAINER_0_HOSTS"] == host
    assert (first["spec"]["subdomain"], service["spec"]["clusterIP"]) == (service["metadata"]["name"], "None")
    assert service["spec"]["selector"].items() <= first["metadata"]["labels"].items()


@given(st.integers(1, 63), st.sampled_from(["r", "trainer", "r" * 60]), st.integers(1, 12))
def test_names_fit_and_differ_however_long_the_app_id_is(length: int, name: str, replicas: int) -> None:
    made = plan(role(name=name, num_replicas=replicas), role(name="b"), app_id="a" * length, coscheduler_name="co")
    named = [found["metadata"]["name"] for kind in ("Pod", "PodGroup") for found in objects(made, kind)]
    assert len(set(named)) == replicas + 3
    assert max(map(len, named)) <= 63


def test_long_names_of_different_jobs_differ() -> None:
    one, other = (objects(plan(app_id="a" * 60 + end))[0]["metadata"]["name"] for end in ("1", "2"))
    assert one != other


def test_pod_groups_come_with_a_coscheduler_only() -> None:
    assert objects(plan(*TWO_ROLES), "PodGroup") == []
    made = plan(*TWO_ROLES, coscheduler_name="co")
    groups = objects(made, "PodGroup")
    assert [(g["metadata"]["name"], g["spec"]["minMember"]) for g in groups] == [("app-x1-pg0", 3), ("app-x1-pg1", 3)]
    assert {g["metadata"]["labels"]["appwrapper.workload.codeflare.dev"] for g in groups} == {"app-x1"}
    assert {pod["spec"]["schedulerName"] for pod in objects(made)} == {"co"}


@pytest.mark.parametrize(
    ("api", "label"),
    [
        (PodGroupVersion.X_K8S, "scheduling.x-k8s.io/pod-group"),
        (PodGroupVersion.SIGS, "pod-group.scheduling.sigs.k8s.io"),
    ],
)
def test_pods_are_labelled_as_the_coscheduler_of_that_api_looks_for(api: PodGroupVersion, label: str) -> None:
    made = plan(*TWO_ROLES, coscheduler_name="co", pod_group_api=api)
    assert {group["apiVersion"] for group in objects(made, "PodGroup")} == {api.value}
    assert [pod["metadata"]["labels"][label] for pod in objects(made)] == ["app-x1-pg0"] * 3 + ["app-x1-pg1"] * 3


def test_pods_complete_where_there_are_no_retries() -> None:
    made = plan(*TWO_ROLES)
    assert {item["completionstatus"] for item in items(made)} == {"Ready"}
    assert "schedulingSpec" not in render_mcad(made)["spec"]
    assert "completionstatus" not in items(made, "Service")[0]


def test_retries_are_requeuings_of_the_whole_and_nothing_completes() -> None:
    made = plan(role(num_replicas=2, max_retries=5), role(name="b", max_retries=2))
    assert render_mcad(made)["spec"]["schedulingSpec"] == {
        "minAvailable": 3,
        "requeuing": {"timeInSeconds": 300, "maxTimeInSeconds": 0, "growthType": "exponential", "maxNumRequeuings": 2},
    }
    assert not any("completionstatus" in item for item in items(made))


def test_one_role_without_retries_means_none() -> None:
    assert "schedulingSpec" not in render_mcad(plan(role(max_retries=5), role(name="b")))["spec"]


def test_resources_of_pods_are_written_for_mcad() -> None:
    made = plan(role(resource=ResourceSpec(cpu=2, memory_mb=3000, gpu=1)))
    assert items(made)[0]["custompodresources"] == [
        {
            "replicas": 1,
            "requests": {"cpu": "1900m", "memory": "1976M", "nvidia.com/gpu": "1"},
            "limits": {"cpu": "2000m", "memory": "3000M", "nvidia.com/gpu": "1"},
        }
    ]
    assert "custompodresources" not in items(made, "Service")[0]


@pytest.mark.parametrize(
    ("maps", "port"),
    [
        ([{}, {}], 29500),
        ([{"a": 1, "b": 2}, {}], 2),
        ([{"a": 1}, {"b": 3, "c": 4}], 4),
        ([{"a": 1}, {"b": 70000}], 29500),
    ],
)
def test_the_service_has_the_last_port_of_the_last_role_with_any(maps: list[dict[str, int]], port: int) -> None:
    made = plan(*(role(name=f"r{index}", port_map=ports) for index, ports in enumerate(maps)))
    assert objects(made, "Service")[0]["spec"]["ports"] == [{"port": port, "protocol": "TCP", "targetPort": port}]


def test_options_reach_their_places() -> None:
    made = plan(
        namespace="team-a",
        service_account="runner",
        priority=0,
        priority_class="high",
        image_secret="pull",
        network="net",
        labels={"a": "b"},
    )
    wrapper, pod = render_mcad(made), objects(made)[0]
    assert (wrapper["spec"]["priority"], wrapper["metadata"]["labels"]) == (0, {"a": "b"})
    assert pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"] == "net"
    assert pod["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    assert (pod["spec"]["serviceAccountName"], pod["spec"]["priorityClassName"]) == ("runner", "high")
    assert {found["metadata"]["namespace"] for kind in ("Pod", "Service") for found in objects(made, kind)} == {
        "team-a"
    }


def test_nothing_is_said_of_what_was_not_given() -> None:
    wrapper, pod = render_mcad(plan()), objects(plan())[0]
    absent = ("imagePullSecrets", "schedulerName", "priorityClassName", "serviceAccountName")
    assert not [field for field in absent if field in pod["spec"]]
    assert wrapper["spec"].keys() == {"resources"}
    assert wrapper["metadata"] == {"name": "app-x1", "namespace": "default"}


def test_pods_share_nothing() -> None:
    first, second = objects(plan(role(num_replicas=2, node_selector={"a": "b"})))
    before = copy.deepcopy(second)
    first["spec"]["nodeSelector"]["a"] = "c"
    first["spec"]["containers"][0]["env"].clear()
    first["metadata"]["labels"].clear()
    assert second == before


def test_an_overlay_knows_the_container_as_under_volcano() -> None:
    overlay = {"spec": {"__join__:containers:name": [{"name": "trainer-0", "tty": True}]}}
    containers = objects(plan(role(pod_overlay=overlay)))[0]["spec"]["containers"]
    assert [(c["name"], c["tty"]) for c in containers] == [("app-x1-trainer-0", True)]


def test_an_overlay_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InvalidJobError, match="pod_overlay"):
        render_mcad(plan(role(pod_overlay={"spec": {"containers": "none"}})))


def test_v1beta2_wraps_the_same_objects() -> None:
    made = plan(*TWO_ROLES, coscheduler_name="co", api_version=AppWrapperVersion.V1BETA2)
    components = render_mcad_v1beta2(made)["spec"]["components"]
    wrapped = [component["template"] for component in components]
    same = [item["generictemplate"] for item in render_mcad(made)["spec"]["resources"]["GenericItems"]]
    assert sorted(map(repr, wrapped)) == sorted(map(repr, same))
    assert {c["template"]["kind"]: c.get("podSets") for c in components} == {
        "PodGroup": None,
        "Service": None,
        "Pod": [{"replicas": 1, "path": "template"}],
    }


def test_v1beta2_suspends_on_demand_and_leaves_that_to_kueue_where_it_queues() -> None:
    for suspend in (True, False):
        made = render_mcad_v1beta2(plan(api_version=AppWrapperVersion.V1BETA2, suspend=suspend))
        assert made["spec"].get("suspend", False) is suspend
        # A false that the operator drops would be a change on every `up`.
        assert made["spec"].get("suspend") is not False
    queued = render_mcad_v1beta2(plan(api_version=AppWrapperVersion.V1BETA2, local_queue="team-a"))
    assert "suspend" not in queued["spec"]
    assert queued["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "team-a"}


def test_v1beta2_retries_as_often_as_the_job_may_and_the_users_annotation_wins() -> None:
    key = "workload.codeflare.dev.appwrapper/"
    chosen = {f"{key}failureGracePeriodDuration": "5m"}
    made = plan(role(max_retries=2), api_version=AppWrapperVersion.V1BETA2, annotations=chosen)
    annotations = render_mcad_v1beta2(made)["metadata"]["annotations"]
    assert (annotations[f"{key}retryLimit"], annotations[f"{key}failureGracePeriodDuration"]) == ("2", "5m")
