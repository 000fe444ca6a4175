from __future__ import annotations

from typing import Any

import pytest
from torchx_pulumi.model.errors import Problem
from torchx_pulumi.planning.layout import task_counts
from torchx_pulumi.schedulers.volcano.checks import check_launch, check_options
from torchx_pulumi.schedulers.volcano.options import GangMode, NetworkTopology, VolcanoOptions

from tests.unit.builders import job, options, role
from tests.unit.typed_checks import check_typed


def option_problems(chosen: VolcanoOptions) -> list[Problem]:
    return list(check_typed(VolcanoOptions, chosen, "options", check_options))


def test_good_options_have_no_problems() -> None:
    chosen = options(
        namespace="team-a",
        service_account="runner",
        priority_class="high.v2",
        ttl_seconds_after_finished=0,
        efa_device_count=0,
        network_topology=NetworkTopology(mode="soft", highest_tier_allowed=2),
        plugins={"svc": (), "env": []},
        labels={"a.io/b": "c"},
        annotations={"a.io/b": "any text {}"},
        image_secrets=("pull",),
    )
    assert option_problems(chosen) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("queue", None),
        ("queue", ""),
        ("queue", 5),
        ("queue", "Not Valid"),
        ("queue", "q" * 64),
        ("namespace", "a.b"),
        ("namespace", None),
        ("service_account", "Not Valid"),
        ("priority_class", ""),
        ("reserved_millicpu", -1),
        ("reserved_memmb", "5"),
        ("efa_device_count", -1),
        ("ttl_seconds_after_finished", -1),
        ("ttl_seconds_after_finished", 2**31),
        ("scheduler_name", ""),
        ("labels", {"a": "not valid"}),
        ("labels", ["a"]),
        ("annotations", {"a": 5}),
        ("image_secrets", "pull"),
        ("image_secrets", ["Not Valid"]),
        ("network_topology", {"mode": "hard"}),
        ("network_topology", NetworkTopology(mode="near")),
        ("network_topology", NetworkTopology(highest_tier_allowed=-1)),
        ("plugins", {"svc": "--flag"}),
        ("plugins", ["svc"]),
        ("plugins", {"": []}),
        ("success_roles", "master"),
        ("start_after", ["a"]),
        ("start_after", {"a": "b"}),
    ],
)
def test_wrong_option_is_named(field: str, value: Any) -> None:
    found = [problem.path for problem in option_problems(options(**{field: value}))]
    assert found
    assert all(path.startswith(f"options.{field}") for path in found)


def launch_problems(app_id: Any, *roles: Any, launched: dict[str, int] | None = None, **chosen: Any) -> list[str]:
    spec = job(roles=roles)
    tasks = task_counts(spec, None, launched)
    return [str(problem) for problem in check_launch(spec, options(**chosen), app_id, tasks)]


@pytest.mark.parametrize("app_id", ["", "A", "a_b", "-a", "a-", "a.b", "a" * 64, None, 5])
def test_app_id_that_is_no_dns_label_is_refused(app_id: Any) -> None:
    assert "app_id: is" in launch_problems(app_id, role())[0]


def test_app_id_starts_with_a_letter_because_of_its_service() -> None:
    assert launch_problems("1a", role()) == [
        "app_id: is '1a', must start with a letter, since a Service of this name is made"
    ]
    assert launch_problems("1a", role(), plugins={"env": []}) == []


def test_longest_pod_name_that_fits_is_accepted_and_one_more_is_not() -> None:
    room = 63 - len("-trainer-0-0")
    assert launch_problems("a" * room, role()) == []
    assert f"may have {room}" in launch_problems("a" * (room + 1), role())[0]


def test_pod_name_that_only_the_webhook_forms_counts_too() -> None:
    """Volcano's webhook numbers pods by the position of their task, which has two digits from the eleventh on."""
    room = 63 - len("-trainer-10-10")
    assert launch_problems("a" * room, role(num_replicas=11)) == []
    assert launch_problems("a" * (room + 1), role(num_replicas=11)) != []


def test_surplus_replicas_count_for_the_longest_name() -> None:
    room = 63 - len("-trainer-0-0")
    assert launch_problems("a" * room, role(), launched={"trainer": 11}) != []


@pytest.mark.parametrize(
    ("changes", "chosen", "path"),
    [
        ({"max_retries": 1}, {}, "roles[0].max_retries"),
        ({}, {"ttl_seconds_after_finished": 5}, "options.ttl_seconds_after_finished"),
        ({}, {"plugins": {}}, "options.plugins"),
    ],
)
def test_gang_of_pods_refuses_what_only_a_controller_can_do(
    changes: dict[str, Any], chosen: dict[str, Any], path: str
) -> None:
    (found,) = launch_problems("a", role(**changes), gang=GangMode.PODS, **chosen)
    assert found.startswith(f"{path}: ")
    assert "gang=job" in found


def test_unknown_gang_is_refused() -> None:
    found = [str(problem) for problem in option_problems(options(gang="both"))]
    assert found == ["options.gang: is 'both', must be job or pods"]


@pytest.mark.parametrize(
    ("chosen", "problems"),
    [
        ({"success_roles": ["a", "b"], "start_after": {"a": ["b"], "c": ["a", "b"]}}, []),
        ({"success_roles": []}, ["success_roles: is empty, must name a role of the job"]),
        ({"success_roles": ["a", "x"]}, ["success_roles[1]: is 'x', which is no role; known are a, b, c"]),
        ({"start_after": {}}, ["start_after: is empty"]),
        ({"start_after": {"a": []}}, ["start_after['a']: is empty"]),
        ({"start_after": {"a": ["x"]}}, ["start_after['a'][0]: is 'x', which is no role"]),
        ({"start_after": {"x": ["a"]}}, ["start_after['x']: is of a role that is not there"]),
        ({"start_after": {"a": ["a"]}}, ["start_after: has roles that wait for each other: 'a'; one has to"]),
        (
            {"start_after": {"a": ["b"], "b": ["c"], "c": ["a"]}},
            ["start_after: has roles that wait for each other: 'a', 'b', 'c'"],
        ),
        (
            {"success_roles": ["a"], "start_after": {"a": ["b"]}, "gang": GangMode.PODS},
            ["success_roles: must be unset with gang=pods", "start_after: must be unset with gang=pods"],
        ),
    ],
)
def test_roles_that_end_a_job_or_wait_exist_and_none_waits_for_itself(
    chosen: dict[str, Any], problems: list[str]
) -> None:
    found = launch_problems("app-x1", *(role(name=name) for name in "abc"), **chosen)
    assert len(found) == len(problems)
    assert all(text.startswith(f"options.{wanted}") for text, wanted in zip(found, problems, strict=True)), found
