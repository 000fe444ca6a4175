from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from torchx_pulumi.model.errors import InvalidJobError
from torchx_pulumi.model.job_spec import MountSpec, ResourceSpec, RoleSpec
from torchx_pulumi.schedulers.volcano.gang_pods import render_gang_pods
from torchx_pulumi.schedulers.volcano.job import render_volcano
from torchx_pulumi.schedulers.volcano.options import GangMode, NetworkTopology

from tests.unit.builders import plan, role


def objects(*roles: RoleSpec, **options: Any) -> list[dict[str, Any]]:
    launched = options.pop("launched", None)
    return render_gang_pods(plan(*roles, gang=GangMode.PODS, launched=launched, **options))


def env_of(pod: dict[str, Any]) -> dict[str, Any]:
    return {env["name"]: env.get("value") for env in pod["spec"]["containers"][0]["env"]}


def test_group_and_service_come_before_the_pods_that_need_them() -> None:
    made = objects(role(num_replicas=2), role(name="b"))
    assert [item["kind"] for item in made] == ["PodGroup", "Service", "Pod", "Pod", "Pod"]
    assert [item["metadata"]["name"] for item in made] == [
        "app-x1",
        "app-x1",
        "app-x1-trainer-0-0",
        "app-x1-trainer-1-0",
        "app-x1-b-0-0",
    ]
    assert {item["metadata"]["namespace"] for item in made} == {"default"}


def test_gang_may_start_with_min_replicas() -> None:
    group = objects(role(num_replicas=4, min_replicas=2), role(name="b", num_replicas=2))[0]
    assert group["spec"] == {"minMember": 4, "queue": "test"}


def test_group_carries_priority_and_topology() -> None:
    group = objects(priority_class="high", network_topology=NetworkTopology(mode="soft"))[0]
    assert group["spec"]["priorityClassName"] == "high"
    assert group["spec"]["networkTopology"] == {"mode": "soft"}


def test_surplus_replicas_have_no_pod() -> None:
    made = objects(role(num_replicas=1), launched={"trainer": 3})
    assert [item["kind"] for item in made] == ["PodGroup", "Service", "Pod"]
    assert made[0]["spec"]["minMember"] == 1


def test_service_finds_the_pods_before_they_are_ready() -> None:
    made = objects(role(num_replicas=2))
    service, pods = made[1], made[2:]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    for pod in pods:
        assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()


def test_pod_is_found_by_the_host_that_the_others_are_told() -> None:
    made = objects(role(name="my-train", num_replicas=2))
    host = env_of(made[3])["VC_MY_TRAIN_0_HOSTS"]
    assert host == f"{made[2]['spec']['hostname']}.{made[2]['spec']['subdomain']}" == "app-x1-my-train-0-0.app-x1"
    assert made[1]["metadata"]["name"] == made[2]["spec"]["subdomain"]


def test_every_pod_has_the_variables_that_volcano_would_give() -> None:
    made = objects(role(num_replicas=2), role(name="b"))
    for pod in made[2:]:
        assert {name: value for name, value in env_of(pod).items() if name.startswith(("VC_", "VK_"))} == {
            "VC_TRAINER_0_HOSTS": "app-x1-trainer-0-0.app-x1",
            "VC_TRAINER_0_NUM": "1",
            "VC_TRAINER_1_HOSTS": "app-x1-trainer-1-0.app-x1",
            "VC_TRAINER_1_NUM": "1",
            "VC_B_0_HOSTS": "app-x1-b-0-0.app-x1",
            "VC_B_0_NUM": "1",
            "VC_TASK_INDEX": "0",
            "VK_TASK_INDEX": "0",
        }


def test_pods_join_their_group_and_are_bound_by_volcano() -> None:
    pod = objects(priority_class="high")[2]
    assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "app-x1"
    assert pod["spec"]["schedulerName"] == "volcano"
    assert pod["spec"]["priorityClassName"] == "high"


def test_pod_is_that_of_job_mode_and_what_the_controller_adds() -> None:
    roles = [role(num_replicas=2, args=["${rank0_env}"])]
    template = render_volcano(plan(*roles))["spec"]["tasks"][1]["template"]
    pod = objects(*roles)[3]
    assert template["metadata"]["labels"].items() <= pod["metadata"]["labels"].items()
    assert set(pod["spec"]) - set(template["spec"]) == {"schedulerName", "hostname", "subdomain"}
    container, ours = template["spec"]["containers"][0], pod["spec"]["containers"][0]
    assert ours["env"][: len(container["env"])] == container["env"]
    empty = {"ports": [], "resources": {"limits": {}, "requests": {}}, "securityContext": {}}
    assert {**empty, **ours, "env": []} == {**container, "env": []}


def test_pods_are_spelled_as_the_api_server_stores_them() -> None:
    made = role(
        env={"EMPTY": ""},
        resource=ResourceSpec(cpu=2, memory_mb=3000),
        mounts=[
            MountSpec(kind="volume", src="a", dst="/a"),
            MountSpec(kind="volume", src="b", dst="/b", read_only=True),
        ],
    )
    spec = objects(made)[2]["spec"]
    container = spec["containers"][0]
    assert container["resources"] == {
        "limits": {"cpu": "2", "memory": "3G"},
        "requests": {"cpu": "1900m", "memory": "1976M"},
    }
    assert {"name": "EMPTY"} in container["env"]
    assert container["volumeMounts"][1:] == [
        {"name": "mount-0", "mountPath": "/a"},
        {"name": "mount-1", "mountPath": "/b", "readOnly": True},
    ]
    assert not {"ports", "securityContext"} & set(container)
    assert "nodeSelector" not in spec


def test_labels_of_the_job_are_on_group_and_service_only() -> None:
    group, service, pod = objects(labels={"l": "v"})
    assert group["metadata"]["labels"] == service["metadata"]["labels"] == {"l": "v"}
    assert "l" not in pod["metadata"]["labels"]


def test_init_containers_of_an_overlay_get_the_variables_too() -> None:
    pod = objects(role(pod_overlay={"spec": {"initContainers": [{"name": "wait", "image": "i"}]}}))[2]
    assert "VC_TRAINER_0_HOSTS" in {env["name"] for env in pod["spec"]["initContainers"][0]["env"]}


KEYS = st.sampled_from(
    [
        prefix + name
        for prefix in ("", "__put__:")
        for name in ("spec", "metadata", "labels", "annotations", "containers")
    ]
    + ["initContainers", "env", "resources", "limits", "volumeMounts", "ports", "name", "__join__:containers:name"]
)
OVERLAYS = st.recursive(
    st.none() | st.integers() | st.text(max_size=3) | st.just("trainer-0"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=10,
)


@given(st.fixed_dictionaries({}, optional={"spec": OVERLAYS, "metadata": OVERLAYS, "__put__:spec": OVERLAYS}))
def test_any_overlay_gives_objects_or_one_clear_error(overlay: dict[str, Any]) -> None:
    try:
        made = objects(role(pod_overlay=overlay))
    except InvalidJobError:
        return
    assert len(made) == 3
