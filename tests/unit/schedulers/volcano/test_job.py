from __future__ import annotations

from typing import Any

import pytest
from torchx_pulumi.model.errors import InvalidJobError
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.job_spec import MountSpec, SecretRef
from torchx_pulumi.schedulers.volcano.job import render_volcano
from torchx_pulumi.schedulers.volcano.options import NetworkTopology

from tests.unit.builders import plan, role


def tasks(made: JobPlan) -> list[dict[str, Any]]:
    return list(render_volcano(made)["spec"]["tasks"])


def pod(**changes: Any) -> dict[str, Any]:
    spec: dict[str, Any] = tasks(plan(role(**changes)))[0]["template"]["spec"]
    return spec


def test_min_available_is_written_for_job_and_every_task() -> None:
    made = plan(role(num_replicas=3), role(name="b", num_replicas=2, min_replicas=1))
    assert [task["minAvailable"] for task in tasks(made)] == [1, 1, 1, 1, 0]
    assert render_volcano(made)["spec"]["minAvailable"] == 4


def test_surplus_replicas_of_a_smaller_job_go_to_zero() -> None:
    made = plan(role(num_replicas=1), launched={"trainer": 2})
    assert [(task["replicas"], task["minAvailable"]) for task in tasks(made)] == [(1, 1), (0, 0)]
    assert render_volcano(made)["spec"]["minAvailable"] == 1


def test_smaller_job_keeps_the_templates_of_all_its_tasks() -> None:
    before, after = tasks(plan(role(num_replicas=3))), tasks(plan(role(num_replicas=1), launched={"trainer": 3}))
    assert [task["template"] for task in before] == [task["template"] for task in after]


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_no_task_is_left_to_the_webhook(retries: int) -> None:
    """A task with maxRetry 0 or none is written anew by Volcano's webhook, with every quantity respelled."""
    assert [task["maxRetry"] for task in tasks(plan(role(max_retries=retries)))] == [retries or 3]


def test_job_without_retries_has_neither_policies_nor_a_count() -> None:
    made = render_volcano(plan())
    assert "maxRetry" not in made["spec"]
    assert "policies" not in made["spec"]["tasks"][0]


def test_retries_of_the_job_are_the_smallest_that_are_not_zero() -> None:
    made = plan(role(name="a", max_retries=5), role(name="b", max_retries=2), role(name="c"))
    assert render_volcano(made)["spec"]["maxRetry"] == 2


@pytest.mark.parametrize(
    ("policy", "events"),
    [
        ("APPLICATION", [("PodEvicted", "RestartJob"), ("PodFailed", "RestartJob")]),
        ("REPLICA", [("PodFailed", "RestartTask")]),
    ],
)
def test_retry_policy_says_what_is_restarted(policy: str, events: list[tuple[str, str]]) -> None:
    (task,) = tasks(plan(role(max_retries=2, retry_policy=policy)))
    assert [(found["event"], found["action"]) for found in task["policies"]] == events


def test_options_of_the_job_are_written_where_given() -> None:
    made = render_volcano(
        plan(
            priority_class="high",
            ttl_seconds_after_finished=0,
            network_topology=NetworkTopology(mode="soft", highest_tier_allowed=2),
            plugins={"ssh": ["--a"]},
            labels={"l": "v"},
            annotations={"a": "v"},
            scheduler_name="other",
        )
    )
    assert made["metadata"]["labels"] == {"l": "v"}
    assert made["metadata"]["annotations"] == {"a": "v"}
    spec = {key: value for key, value in made["spec"].items() if key not in ("tasks", "minAvailable", "queue")}
    assert spec == {
        "schedulerName": "other",
        "plugins": {"ssh": ["--a"]},
        "priorityClassName": "high",
        "ttlSecondsAfterFinished": 0,
        "networkTopology": {"mode": "soft", "highestTierAllowed": 2},
    }


def test_what_is_not_given_is_not_written() -> None:
    made = render_volcano(plan())
    assert set(made["spec"]) == {"schedulerName", "queue", "minAvailable", "tasks", "plugins"}
    assert set(made["metadata"]) == {"name", "namespace"}
    spec = {"containers", "nodeSelector", "restartPolicy", "volumes"}
    assert set(made["spec"]["tasks"][0]["template"]["spec"]) == spec


def test_labels_of_the_job_never_reach_its_pods() -> None:
    (task,) = tasks(plan(labels={"launch-id": "1"}, annotations={"a": "1"}))
    assert "launch-id" not in task["template"]["metadata"]["labels"]
    assert "a" not in task["template"]["metadata"]["annotations"]


def test_pull_secrets_are_absent_or_named() -> None:
    assert "imagePullSecrets" not in pod()
    (task,) = tasks(plan(image_secrets=["a", "b"]))
    assert task["template"]["spec"]["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]


def test_secret_environment_is_a_reference() -> None:
    secrets = {"A": SecretRef(name="s", key="k"), "B": SecretRef(name="s", key="k", optional=True)}
    env = pod(secret_env=secrets)["containers"][0]["env"]
    assert {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}} in env
    assert {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}} in env


def test_secret_is_mounted_read_only() -> None:
    spec = pod(mounts=[MountSpec(kind="secret", src="s", dst="/s")])
    assert {"name": "mount-0", "secret": {"secretName": "s"}} in spec["volumes"]
    mount = {"name": "mount-0", "mountPath": "/s", "readOnly": True}
    assert mount in spec["containers"][0]["volumeMounts"]


def test_a_device_needs_a_privileged_container() -> None:
    mounts = [MountSpec(kind="device", src="/dev/x", dst="/dev/x")]
    assert pod(mounts=mounts)["containers"][0]["securityContext"] == {"privileged": True}
    assert pod()["containers"][0]["securityContext"] == {}


def test_tolerations_and_node_selector_reach_the_pod() -> None:
    spec = pod(node_selector={"zone": "a"}, tolerations=[{"key": "gpu", "operator": "Exists"}])
    assert spec["nodeSelector"] == {"zone": "a"}
    assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists"}]


def test_labels_of_a_replica_win_over_an_overlay() -> None:
    overlay = {"metadata": {"labels": {"app.kubernetes.io/instance": "other", "team": "x"}}}
    (task,) = tasks(plan(role(pod_overlay=overlay)))
    assert task["template"]["metadata"]["labels"]["app.kubernetes.io/instance"] == "app-x1"
    assert task["template"]["metadata"]["labels"]["team"] == "x"


def test_overlay_that_does_not_fit_names_the_role() -> None:
    with pytest.raises(InvalidJobError, match=r"roles\[1\]\.pod_overlay: containers is text, must be a list"):
        plan(role(name="a"), role(pod_overlay={"spec": {"containers": "x"}}))


def test_replicas_on_the_network_of_the_host_resolve_names_of_the_cluster() -> None:
    assert pod(pod_overlay={"spec": {"hostNetwork": True}})["dnsPolicy"] == "ClusterFirstWithHostNet"
    given = {"spec": {"hostNetwork": True, "dnsPolicy": "Default"}}
    assert pod(pod_overlay=given)["dnsPolicy"] == "Default"


def test_no_two_tasks_share_a_part() -> None:
    made = tasks(plan(role(num_replicas=2, tolerations=[{"operator": "Exists"}]), image_secrets=["a"]))
    made[0]["template"]["spec"]["volumes"].append("x")
    made[0]["template"]["spec"]["containers"][0]["resources"]["limits"]["x"] = "y"
    made[0]["template"]["spec"]["tolerations"][0]["x"] = "y"
    made[0]["template"]["metadata"]["labels"]["x"] = "y"
    again = tasks(plan(role(num_replicas=2, tolerations=[{"operator": "Exists"}]), image_secrets=["a"]))
    assert made[1] == again[1]
