"""Job plugins that go by tasks, and those that Volcano adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from torchx_pulumi.model.errors import InvalidJobError

from tests.unit.builders import plan, role

Plugins = Mapping[str, Sequence[str]]


def told(plugins: Plugins, roles: Mapping[str, int], layout: str = "replica") -> list[str]:
    """Return the warnings about plugins of a job with so many replicas of each role."""
    made = plan(*(role(name=name, num_replicas=count) for name, count in roles.items()), plugins=plugins, layout=layout)
    return [warning for warning in made.warnings if warning.startswith("plugins has")]


ROLES = {"master": 1, "worker": 2}
BOTH = ["--master=master-0", "--worker=worker-0"]


@pytest.mark.parametrize(
    ("name", "arguments", "roles", "layout", "parts"),
    [
        # By the names of roles, as Volcano's own examples have it.
        (
            "pytorch",
            ["--master=master", "--worker=worker"],
            ROLES,
            "replica",
            [
                "pytorch, which finds pods by the names of tasks: the job has no task master "
                "(--master); the job has no task worker (--worker); no argument names master-0, worker-0, worker-1",
                "such pods do not get RANK, and without a master no pod gets MASTER_ADDR or WORLD_SIZE",
                "the tasks are master-0, worker-0, worker-1; set layout=role, in which the tasks are master-0, "
                "worker-0, and the arguments --master=master-0 --worker=worker-0",
            ],
        ),
        # The defaults of Volcano.
        ("pytorch", [], ROLES, "replica", ["no argument names master-0, worker-0, worker-1"]),
        ("pytorch", [], ROLES, "role", ["; set the arguments --master=master-0 --worker=worker-0"]),
        ("pytorch", BOTH, ROLES, "role", []),
        ("pytorch", BOTH, {"master": 1, "worker": 1}, "replica", []),
        # One task of several replicas is known by its name.
        ("pytorch", BOTH, ROLES, "replica", ["no argument names worker-1; "]),
        ("pytorch", ["--master=trainer-0", "--worker", "trainer-1"], {"trainer": 4}, "role", []),
        (
            "pytorch",
            ["--master=trainer-0"],
            {"trainer": 4},
            "replica",
            ["set layout=role, in which the tasks are trainer-0, trainer-1, and the arguments --master=trainer-0 "
             "--worker=trainer-1"],
        ),
        ("pytorch", ["--master=trainer-0"], {"trainer": 1}, "replica", []),
        # Go reads no argument after one that it does not know.
        ("pytorch", ["--master=master-0", "--no=1", "--worker=worker-0"], ROLES, "role", ["names worker-0"]),
        ("mpi", BOTH, ROLES, "role", []),
        ("mpi", BOTH, ROLES, "replica", ["no argument names worker-1", "a place in MPI_HOST"]),
        ("tensorflow", [], {"ps": 1, "worker": 2}, "role", ["set the arguments --worker=worker-0 --ps=ps-0"]),
        ("tensorflow", ["--ps=ps-0", "--worker=worker-0"], {"ps": 1, "worker": 2}, "role", []),
        ("tensorflow", ["--ps=ps-0", "--worker=worker-0"], {"ps": 1, "worker": 2}, "replica", ["TF_CONFIG"]),
        (
            "ray",
            ["--head=head-0", "--worker=worker-0"],
            {"head": 1, "worker": 2},
            "role",
            [
                "the container of head-0 is not head (--headContainer); the container of worker-0 is not worker",
                "set the arguments --head=head-0 --worker=worker-0 --headContainer=head-0 --workerContainer=worker-0",
            ],
        ),
        (
            "ray",
            ["--head=head-0", "--worker=worker-0", "--headContainer=head-0", "--workerContainer=worker-0"],
            {"head": 1, "worker": 2},
            "role",
            [],
        ),
        ("hcclrank", [], ROLES, "role", ["the annotation hccl/rankIndex"]),
    ],
)  # fmt: skip
def test_tasks_that_a_plugin_does_not_find_are_a_warning(
    name: str, arguments: list[str], roles: dict[str, int], layout: str, parts: list[str]
) -> None:
    found = told({name: arguments, "svc": []}, roles, layout)
    assert len(found) == (1 if parts else 0), found
    assert all(part in found[0] for part in parts), found


def test_the_rank_of_pytorch_is_that_of_hcclrank() -> None:
    assert told({"pytorch": BOTH, "hcclrank": []}, ROLES, "role") == []


@pytest.mark.parametrize(
    ("plugins", "roles", "problem"),
    [
        ({"mpi": []}, ROLES, "options.plugins['mpi']: finds no task master (--master); the tasks are master-0, "
         "worker-0, worker-1, and without it Volcano refuses the job; name one of them"),
        ({"ray": ["--head=head"]}, {"head": 1}, "options.plugins['ray']: finds no task head (--head); the tasks are "
         "head-0, and without it Volcano makes no pod, so that the job waits for ever; name one of them"),
    ],
)  # fmt: skip
def test_a_job_that_volcano_would_not_start_is_refused(plugins: Plugins, roles: dict[str, int], problem: str) -> None:
    with pytest.raises(InvalidJobError) as refused:
        told(plugins, roles)
    assert [str(each) for each in refused.value.problems] == [problem]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("pytorch", []), ("tensorflow", []), ("mpi", BOTH), ("ray", ["--head=master-0"])],
)
def test_plugins_bring_the_service_along(name: str, arguments: list[str]) -> None:
    """Volcano's webhook adds svc, which makes a Service of the job's name and a ConfigMap of all hosts."""
    roles = [role(name=each, num_replicas=count) for each, count in ROLES.items()]
    assert not any("no svc" in warning for warning in plan(*roles, plugins={name: arguments}).warnings)
    with pytest.raises(InvalidJobError, match="app_id: is '1abc', must start with a letter, since a Service"):
        plan(*roles, plugins={name: arguments}, app_id="1abc")
    many = [role(name="master"), role(name="worker", num_replicas=50_000)]
    with pytest.raises(InvalidJobError, match="have too many replicas: the ConfigMap"):
        plan(*many, plugins={name: arguments}, layout="role")


def test_the_service_of_ray_has_room() -> None:
    plugins = {"ray": ["--head=h-0", "--headContainer=h-0"]}
    plan(role(name="h"), plugins=plugins, app_id="n" * 54)
    with pytest.raises(InvalidJobError, match="may have 54 characters, since the plugin ray makes a Service"):
        plan(role(name="h"), plugins=plugins, app_id="n" * 55)
