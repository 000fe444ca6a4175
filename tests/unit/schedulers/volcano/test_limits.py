from __future__ import annotations

import json

import pytest
from torchx_pulumi.model.errors import InvalidJobError
from torchx_pulumi.schedulers import backend_of
from torchx_pulumi.schedulers.volcano.job import render_volcano
from torchx_pulumi.schedulers.volcano.limits import STATUS_BYTES, job_bytes
from torchx_pulumi.schedulers.volcano.names import MAX_CONFIG_MAP_BYTES, MAX_PER_TASK, pod_name, room_for_hosts

from tests.unit.builders import job, options, plan, role


def config_map_bytes(job_name: str, tasks: dict[str, int]) -> int:
    """Return the data of the ConfigMap that Volcano's svc plugin makes."""
    total = 0
    for task, count in tasks.items():
        hosts = [f"{pod_name(job_name, task, position)}.{job_name}" for position in range(count)]
        key = task.replace("-", "_").upper()
        data = {f"{task}.host": "\n".join(hosts), f"VC_{key}_HOSTS": ",".join(hosts), f"VC_{key}_NUM": str(count)}
        total += sum(len(name) + len(value) for name, value in data.items())
    return total


@pytest.mark.parametrize("replicas", [2000, 5000, 10_000, 12_000])
def test_the_longest_name_that_is_allowed_fits_into_the_config_map(replicas: int) -> None:
    tasks = {"trainer-0": 1, **{f"trainer-{first}": 1000 for first in range(1, replicas, 1000)}}
    room = room_for_hosts(tasks)
    assert config_map_bytes("n" * room, tasks) <= MAX_CONFIG_MAP_BYTES
    # The estimate is not far off.
    assert config_map_bytes("n" * (room + 3), tasks) > 0.97 * MAX_CONFIG_MAP_BYTES


def test_generated_names_leave_room_for_the_hosts() -> None:
    backend, spec = backend_of(options()), job(roles=[role(num_replicas=10_000)])
    tail = backend.name_tail(spec, options())
    assert 8 + 1 + 1 <= 63 - tail <= 17
    plan(role(num_replicas=10_000), app_id="n" * (63 - tail))


def test_a_name_that_is_too_long_for_the_hosts_is_refused_with_the_length_that_fits() -> None:
    with pytest.raises(InvalidJobError, match=r"app_id: is .*, 30 characters; the ConfigMap .* it may have 1\d;"):
        plan(role(num_replicas=10_000), app_id="n" * 30)


def test_without_the_plugin_there_is_no_config_map() -> None:
    plan(role(num_replicas=10_000), app_id="n" * 30, plugins={"env": ()})


def test_too_many_replicas_for_any_name_are_refused() -> None:
    with pytest.raises(InvalidJobError, match="roles: have too many replicas: the ConfigMap"):
        plan(role(num_replicas=50_000), app_id="n")


@pytest.mark.parametrize("layout", ["replica", "role"])
def test_the_size_is_that_of_the_rendered_job(layout: str) -> None:
    roles = [role(num_replicas=30, args=["x" * 100]), role(name="reader", num_replicas=7), role(name="one")]
    made = plan(*roles, layout=layout)
    tasks = sum(len(each.tasks) for each in made.roles)
    exact = len(json.dumps(render_volcano(made), separators=(",", ":"))) + STATUS_BYTES * tasks
    assert exact <= job_bytes(made) <= exact * 1.02


def test_a_job_that_is_too_large_for_etcd_is_refused_and_told_the_layout_that_fits() -> None:
    with pytest.raises(InvalidJobError, match=r"roles: have 3000 replicas as 3000 tasks.*set layout to role"):
        plan(role(num_replicas=3000), layout="replica")


@pytest.mark.parametrize(("layout", "replicas"), [("auto", 10), ("replica", 90)])
def test_a_job_with_few_large_replicas_is_told_the_layout_that_fits(layout: str, replicas: int) -> None:
    few = role(num_replicas=replicas, args=["x" * (1_800_000 // replicas)])
    with pytest.raises(InvalidJobError, match=rf"{replicas} replicas as {replicas} tasks.*set layout to role"):
        plan(few, layout=layout)
    plan(few, layout="role")


def test_roles_of_one_replica_each_are_told_no_layout() -> None:
    with pytest.raises(InvalidJobError, match="make arguments, environment or overlays smaller"):
        plan(*(role(name=f"r{index}", args=["x" * 20_000]) for index in range(90)))


def test_a_kept_run_is_not_measured() -> None:
    plan(role(num_replicas=3000), layout="replica", launched={"trainer": 3000})


def test_hosts_of_one_task_fit_into_one_variable() -> None:
    longest = f"{'p' * 63}.{'j' * 63},"
    assert len(f"VC_{'R' * 45}_HOSTS=") + MAX_PER_TASK * len(longest) <= 131_072
