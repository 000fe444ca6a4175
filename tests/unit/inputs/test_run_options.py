from __future__ import annotations

from typing import Any

import pytest
from torchx_pulumi.inputs.run_options import read_options
from torchx_pulumi.model.errors import InvalidJobError, MissingOptionError
from torchx_pulumi.schedulers.volcano.options import GangMode, NetworkTopology, VolcanoOptions


def test_defaults_are_those_of_torchx() -> None:
    assert read_options({"queue": "q"}) == VolcanoOptions(
        queue="q", namespace="default", reserved_millicpu=100, reserved_memmb=1024, gang=GangMode.JOB
    )


@pytest.mark.parametrize("options", [{}, {"queue": None}])
def test_queue_is_required(options: dict[str, Any]) -> None:
    with pytest.raises(MissingOptionError, match="queue: is not set"):
        read_options(options)


def test_missing_queue_is_a_type_error_as_in_torchx() -> None:
    with pytest.raises(TypeError):
        read_options({})
    with pytest.raises(ValueError, match="queue"):
        read_options({})


def test_camel_case_is_the_same_as_snake_case() -> None:
    given = {"queue": "q", "priorityClass": "p", "ttlSecondsAfterFinished": 5, "reservedMillicpu": 0}
    assert read_options(given) == VolcanoOptions(
        queue="q", priority_class="p", ttl_seconds_after_finished=5, reserved_millicpu=0
    )


def test_option_given_in_both_spellings_is_refused() -> None:
    with pytest.raises(InvalidJobError, match="given twice"):
        read_options({"queue": "q", "priorityClass": "a", "priority_class": "b"})


def test_every_problem_is_reported_at_once() -> None:
    with pytest.raises(InvalidJobError) as error:
        read_options({"priorty": "x", "reserved_memmb": "many", "gang": "both"})
    paths = [problem.path for problem in error.value.problems]
    assert paths == ["options.priorty", "options.reserved_memmb", "options.gang", "options.queue"]
    assert "priority_class" in str(error.value)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("ttl_seconds_after_finished", "5", 5),
        ("efa_device_count", "0", 0),
        ("reserved_millicpu", 5.0, 5),
        ("gang", "pods", GangMode.PODS),
        ("labels", "a=b, c=d", {"a": "b", "c": "d"}),
        ("labels", "a:b,c=d:e", {"a": "b", "c": "d:e"}),
        ("labels", '{"a": "b"}', {"a": "b"}),
        ("image_secrets", "a,b", ["a", "b"]),
        ("image_secrets", '["a"]', ["a"]),
        ("plugins", '{"svc": []}', {"svc": []}),
        ("start_after", '{"a": ["b"]}', {"a": ["b"]}),
        ("success_roles", "a;b", ["a", "b"]),
        ("network_topology", "soft", NetworkTopology(mode="soft")),
        ("network_topology", '{"highestTierAllowed": 2}', NetworkTopology(highest_tier_allowed=2)),
        (
            "network_topology",
            {"mode": "soft", "highest_tier_allowed": "1"},
            NetworkTopology(mode="soft", highest_tier_allowed=1),
        ),
    ],
)
def test_text_becomes_what_the_option_is(name: str, text: Any, value: Any) -> None:
    assert getattr(read_options({"queue": "q", name: text}), name) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("namespace", 5),
        ("ttl_seconds_after_finished", True),
        ("ttl_seconds_after_finished", "1.5"),
        ("gang", []),
        ("labels", "a"),
        ("labels", "{"),
        ("plugins", "svc"),
        ("network_topology", {"tier": 1}),
    ],
)
def test_value_of_the_wrong_type_is_a_problem(name: str, value: Any) -> None:
    with pytest.raises(InvalidJobError, match=f"options.{name}"):
        read_options({"queue": "q", name: value})


def test_none_and_empty_namespace_are_the_default() -> None:
    assert read_options({"queue": "q", "namespace": "", "priority_class": None}) == VolcanoOptions(queue="q")


def test_options_that_only_launching_needs_are_taken() -> None:
    assert read_options({"queue": "q", "image_repo": "r", "validate_spec": True, "quiet": False}).queue == "q"


@pytest.mark.parametrize("options", [None, "queue=q", []])
def test_options_are_a_mapping(options: Any) -> None:
    with pytest.raises(InvalidJobError, match="must be a mapping"):
        read_options(options)


@pytest.mark.parametrize("name", ["labels", "plugins", "network_topology", "image_secrets"])
def test_text_that_cannot_be_parsed_is_one_problem(name: str) -> None:
    with pytest.raises(InvalidJobError) as error:
        read_options({"queue": "q", name: "{x"})
    assert [problem.path for problem in error.value.problems] == [f"options.{name}"]


def test_a_number_of_thousands_of_digits_is_a_problem_of_its_option() -> None:
    with pytest.raises(InvalidJobError) as error:
        read_options({"queue": "q", "namespace": 10**5000})
    assert [problem.path for problem in error.value.problems] == ["options.namespace"]
