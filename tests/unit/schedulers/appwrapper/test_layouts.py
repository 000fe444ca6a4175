"""Layouts of an AppWrapper v1beta2: a pod for each replica, or Indexed Jobs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torchx_pulumi.model.errors import InvalidJobError
from torchx_pulumi.model.options import TaskLayout
from torchx_pulumi.planning.references import expand
from torchx_pulumi.runs.identity import field_digests
from torchx_pulumi.runs.run_hash import run_hash
from torchx_pulumi.schedulers import plan_job
from torchx_pulumi.schedulers.appwrapper.backend import BACKEND
from torchx_pulumi.schedulers.appwrapper.options import MCADOptions
from torchx_pulumi.schedulers.appwrapper.v1beta2 import render_mcad_v1beta2

from tests.unit.builders import job, role
from tests.unit.schedulers.appwrapper.indexed import plan, wrapped

V1BETA2 = BACKEND.variants["v1beta2"]
MACROS = {"args": ["${replica_id}", "${rank0_env}"]}


def counts(*roles: Any, **chosen: Any) -> dict[str, int]:
    """Return each Job of an AppWrapper and its replicas; empty if it has pods."""
    made = plan(*roles, **chosen)
    return {one["metadata"]["name"]: one["spec"]["completions"] for one in wrapped(made, "Job")}


def env(template: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one.get("value") for one in template["spec"]["containers"][0]["env"]}


def test_auto_has_pods_as_long_as_the_webhook_takes_them() -> None:
    assert counts(role(num_replicas=7), role(name="reader")) == {}
    many = {"app-trainer-0": 1, "app-trainer-1": 7, "app-reader-0": 1}
    assert counts(role(num_replicas=8), role(name="reader")) == many
    assert counts(role(num_replicas=20), layout="replica") == {}


def test_each_task_of_the_layout_role_is_a_job_even_of_one_replica() -> None:
    assert counts(role(num_replicas=2), role(name="ps", num_replicas=3), layout="role") == {
        "app-trainer-0": 1,
        "app-trainer-1": 1,
        "app-ps-0": 3,
    }
    assert counts(role(), layout="role") == {"app-trainer-0": 1}
    assert counts(role(num_replicas=100_000), layout="role") == {"app-trainer-0": 1, "app-trainer-1": 99_999}


def test_a_job_never_deletes_the_pods_that_run_when_one_fails() -> None:
    (spec,) = [one["spec"] for one in wrapped(plan(role(num_replicas=9, args=["${replica_id}"])), "Job")]
    assert (spec["completionMode"], spec["parallelism"], spec["completions"]) == ("Indexed", 9, 9)
    assert (spec["backoffLimitPerIndex"], spec.keys() & {"backoffLimit", "maxFailedIndexes"}) == (0, set())


def test_rank_0_is_found_by_the_host_of_its_job() -> None:
    made = plan(role(num_replicas=9))
    first, others = (one["spec"]["template"] for one in wrapped(made, "Job"))
    assert (env(first)["TORCHX_RANK0_HOST"], "TORCHX_RANK0_HOST" in env(others)) == ("localhost", False)
    host = "app-trainer-0-0.app"
    assert env(first)["TORCHX_MCAD_TRAINER_0_HOSTS"] == env(others)["TORCHX_MCAD_TRAINER_0_HOSTS"] == host
    assert V1BETA2.rank0_host(made) == host
    assert {one["spec"]["subdomain"] for one in (first, others)} == {"app"}
    assert not any("hostname" in one["spec"] for one in (first, others))


def test_a_role_with_its_index_is_one_job_whose_pods_read_it() -> None:
    made = plan(role(num_replicas=9, args=["${replica_id}"]))
    (template,) = [one["spec"]["template"] for one in wrapped(made, "Job")]
    variable = template["spec"]["containers"][0]["env"][0]
    assert variable == {
        "name": "TORCHX_REPLICA_ID",
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}},
    }
    assert template["spec"]["containers"][0]["command"][-1] == "$(TORCHX_REPLICA_ID)"
    assert any("rank 0 has no TORCHX_RANK0_HOST" in warning for warning in made.warnings)
    assert V1BETA2.rank0_host(made) == "app-trainer-0-0.app"


def test_what_coscheduler_network_and_priority_add_is_in_the_pods_of_jobs() -> None:
    made = plan(role(num_replicas=9), coscheduler_name="co", network="fast", priority_class="high")
    (group,) = wrapped(made, "PodGroup")
    assert group["spec"]["minMember"] == 9
    for one in wrapped(made, "Job"):
        template = one["spec"]["template"]
        assert template["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == group["metadata"]["name"]
        assert template["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"] == "fast"
        assert (template["spec"]["schedulerName"], template["spec"]["priorityClassName"]) == ("co", "high")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (MACROS, "uses ${rank0_env}, and roles[0] uses ${replica_id}"),
        ({"pod_overlay": {"spec": {"restartPolicy": "OnFailure"}}}, "has restartPolicy OnFailure"),
        ({"pod_overlay": {"spec": {"containers": [{"name": "trainer-3", "image": "i"}]}}}, "names 'trainer-3'"),
    ],
)
def test_what_jobs_cannot_run_has_pods_and_a_warning(changes: dict[str, Any], reason: str) -> None:
    made = plan(role(num_replicas=9, **changes))
    assert made.layout is TaskLayout.REPLICA
    said = "\n".join(made.warnings)
    assert reason in said
    assert "pods of the AppWrapper: 9, each of them a pod set" in said


def test_what_a_job_names_and_the_layout_changes_is_a_warning() -> None:
    said = plan(role(num_replicas=9, args=["${app_id}-trainer-3.${app_id}"])).warnings
    assert any("roles[0].args[0] names <job>-trainer-3, a pod that only the layout replica has" in one for one in said)


def test_too_many_roles_for_the_webhook_are_a_warning() -> None:
    said = "\n".join(plan(*(role(name=f"r{index}", num_replicas=2) for index in range(8))).warnings)
    assert "Jobs of the AppWrapper: 9, each of them a pod set" in said
    assert "ask for fewer roles" in said


def test_v1beta1_has_pods_and_refuses_jobs() -> None:
    chosen = MCADOptions(layout=TaskLayout.ROLE)
    with pytest.raises(InvalidJobError, match=r"options\.layout: must be replica or auto with api_version=v1beta1"):
        plan_job(job(), chosen, "app")
    made = plan_job(job(roles=[role(num_replicas=200)]), MCADOptions(), "app")
    assert made.layout is TaskLayout.REPLICA


def test_the_layout_is_no_part_of_the_identity_and_a_kept_run_keeps_its_own() -> None:
    spec = job(roles=[role(num_replicas=9)])
    hashes = set()
    for layout in TaskLayout:
        chosen = MCADOptions(api_version="v1beta2", layout=layout)  # type: ignore[arg-type]
        digests = field_digests(spec, chosen, rerun=None)
        hashes.add((run_hash(digests, {"trainer": 9}, spec, chosen, version=2), tuple(sorted(digests.items()))))
        as_pods = plan_job(spec, chosen, "app", launched={"trainer": 9}, tasks={})
        assert len(wrapped(as_pods, "Pod")) == 9
        as_jobs = plan_job(spec, chosen, "app", launched={"trainer": 9}, tasks={"trainer": (0, 1)})
        assert len(wrapped(as_jobs, "Job")) == 2
    assert len(hashes) == 1


@pytest.mark.parametrize("roles", [[role(num_replicas=9), role(name="My_role", num_replicas=2)], [role()]])
def test_the_tasks_of_a_run_without_a_record_are_read_from_its_object(roles: Any) -> None:
    rendered = render_mcad_v1beta2(plan(*roles, layout="role"))
    tasks = BACKEND.choose_layout(job(roles=roles), MCADOptions(api_version="v1beta2", layout="role")).tasks  # type: ignore[arg-type]
    assert {name: tuple(firsts) for name, firsts in (V1BETA2.read_tasks(rendered) or {}).items()} == {
        name.lower().replace("_", ""): tuple(firsts) for name, firsts in (tasks or {}).items()
    }
    assert V1BETA2.read_tasks(render_mcad_v1beta2(plan(*roles, layout="replica"))) is None


WORDS = st.lists(
    st.sampled_from(["${replica_id}", "${app_id}", "$$(A)", "$$$$(A)", "$$", "x", "$(TORCHX_REPLICA)", "${rank0_env}"]),
    max_size=3,
).map("".join)


def commands(made: Any) -> list[list[str]]:
    """Return the command of each replica as the kubelet starts it, with the values of its variables."""
    found = []
    for kind in ("Pod", "Job"):
        for one in wrapped(made, kind):
            template = one if kind == "Pod" else one["spec"]["template"]
            for index in range(one["spec"].get("completions", 1)):
                own: dict[str, str] = {}
                for variable in template["spec"]["containers"][0]["env"]:
                    given_value = str(index) if "valueFrom" in variable else variable["value"]
                    own[variable["name"]] = expand(given_value, own)
                own.pop("TORCHX_MCAD_TRAINER_0_HOSTS")
                words = [expand(word, own) for word in template["spec"]["containers"][0]["command"]]
                own.pop("TORCHX_REPLICA_ID", "")
                own.pop("TORCHX_RANK0_HOST", "")
                found.append([*words, *(f"{name}={value}" for name, value in sorted(own.items()))])
    return found


@given(st.lists(WORDS, max_size=2), st.dictionaries(st.sampled_from(["A", "B"]), WORDS), st.integers(1, 4))
def test_processes_of_both_layouts_have_the_same_commands_and_variables(
    args: list[str], variables: dict[str, str], replicas: int
) -> None:
    roles = [role(num_replicas=replicas, args=args, env=variables), role(name="ps", num_replicas=2, args=args)]
    assert commands(plan(*roles, layout="role")) == commands(plan(*roles, layout="replica"))


@given(st.integers(1, 63), st.sampled_from(["r", "trainer", "r" * 60]), st.integers(1, 100_000))
def test_names_of_pods_and_hosts_fit_however_long_the_app_id_is(length: int, name: str, replicas: int) -> None:
    made = plan(role(name=name, num_replicas=replicas), app_id="a" * length, layout="role")
    jobs = {one["metadata"]["name"]: one["spec"]["completions"] for one in wrapped(made, "Job")}
    assert len(jobs) == min(replicas, 2)
    assert all(len(f"{one}-{count - 1}-abcde") <= 63 and not one.startswith("-") for one, count in jobs.items())
