"""References of variables to others, `$(NAME)`, in the pods that every scheduler renders."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.job_spec import SecretRef
from torchx_pulumi.model.options import Options
from torchx_pulumi.planning.references import expand, in_expansion_order, unexpanded
from torchx_pulumi.schedulers import plan_job, variant_of
from torchx_pulumi.schedulers.appwrapper.options import AppWrapperVersion, MCADOptions
from torchx_pulumi.schedulers.volcano.options import GangMode

from tests.unit.builders import job, options, role

SCHEDULERS: dict[str, Options] = {
    "volcano": options(),
    "volcano, layout role": options(layout="role"),
    "volcano, gang=pods": options(gang=GangMode.PODS),
    "mcad": MCADOptions(),
    "mcad, v1beta2": MCADOptions(api_version=AppWrapperVersion.V1BETA2),
}
SIDE = {"name": "side", "image": "img:2"}
PASSWORD = {"DB_PASSWORD": SecretRef(name="db", key="password")}


def containers(value: Any) -> list[Any]:
    """Find the containers of all pods in a manifest."""
    if isinstance(value, dict):
        own = [*value.get("initContainers", ()), *value.get("containers", ())]
        return own or [found for item in value.values() for found in containers(item)]
    return [found for item in value for found in containers(item)] if isinstance(value, list) else []


def seen(plan: JobPlan) -> list[dict[str, str]]:
    """Return the variables of each container as the kubelet makes them; one with a source has its name as value."""
    found = []
    for container in containers(variant_of(plan.options).render(plan)):
        env: dict[str, str] = {}
        for one in container.get("env", ()):
            env[one["name"]] = expand(one.get("value", ""), env) if "valueFrom" not in one else f"<{one['name']}>"
        found.append(env)
    return found


def planned(options: Options, **changes: Any) -> JobPlan:
    return plan_job(job(roles=[role(name="first"), role(num_replicas=3, **changes)]), options, "app-x1")


@pytest.mark.parametrize("options", SCHEDULERS.values(), ids=SCHEDULERS)
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"env": {"URL": "db://$(DB_PASSWORD)@x"}, "secret_env": PASSWORD}, {"URL": "db://<DB_PASSWORD>@x"}),
        ({"env": {"CKPT": "/c/$(POD)/x", "POD": "[FIELD_PATH]metadata.name"}}, {"CKPT": "/c/<POD>/x"}),
        ({"env": {"A": "$(B)1", "B": "$(C)2", "C": "3"}}, {"A": "321"}),
        ({"env": {"A": "$(TORCHX_IMAGE)"}}, {"A": "img:1"}),
        ({"env": {"A": "$$$$(B) $$$$$$$$", "B": "1"}}, {"A": "$(B) $$"}),
        ({"env": {"A": "$$(B)", "B": "1"}}, {"A": "1"}),
    ],
)
def test_a_variable_stands_after_those_that_its_value_names(
    options: Options, changes: dict[str, Any], expected: dict[str, str]
) -> None:
    made = planned(options, **changes)
    _, *others = seen(made)
    assert others
    for env in others:
        assert {name: env[name] for name in expected} == expected
    assert not [warning for warning in made.warnings if "keeps $(" in warning]


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (SCHEDULERS["volcano, gang=pods"], "VC_FIRST_0_HOSTS"),
        (SCHEDULERS["volcano, gang=pods"], "VC_TASK_INDEX"),
        (SCHEDULERS["mcad"], "TORCHX_MCAD_FIRST_0_HOSTS"),
    ],
)
def test_variables_that_a_renderer_adds_are_known(options: Options, name: str) -> None:
    made = planned(options, env={"ADDRESS": f"$({name}):29500"})
    assert {env["ADDRESS"] for env in seen(made)[1:]} == {f"{seen(made)[1][name]}:29500"}
    assert made.warnings == ()


@pytest.mark.parametrize(
    ("changes", "warned"),
    [
        ({"env": {"A": "$(NOWHERE)"}}, [("env['A']", "NOWHERE", "$$$$(NOWHERE)")]),
        ({"env": {"PATH": "/x:$(PATH)"}}, [("env['PATH']", "PATH", "give PATH in env or secret_env")]),
        ({"env": {"A": "$(B)", "B": "$(A)"}}, [("env['B']", "A", "needs B")]),
        # Volcano's plugins add their variables after all others, so that only the command has them.
        ({"env": {"A": "$(VC_TASK_INDEX)"}}, [("env['A']", "VC_TASK_INDEX", "plugin")]),
        ({"env": {"A": "$(MASTER_ADDR) $(MASTER_ADDR)"}}, [("env['A']", "MASTER_ADDR", "plugin")]),
        ({"env": {"A": "$(KUBERNETES_SERVICE_HOST) $(DB_SERVICE_PORT_HTTP) $(DB_PORT_80_TCP_ADDR)"}}, []),
        ({"env": {"A": "$(date +%s) $( $() ${B} $B"}, "args": ["$(hostname)"]}, []),
        ({"env": {"A": "[FIELD_PATH]metadata.name"}}, []),
        (
            {"pod_overlay": {"spec": {"containers": [{**SIDE, "env": [{"name": "A", "value": "$(B)"}]}]}}},
            [("pod_overlay, variable A", "B", "$$(B)")],
        ),
        (
            {
                "pod_overlay": {
                    "spec": {"initContainers": [{**SIDE, "env": [{"name": "A", "value": "$(B)"}], "envFrom": [{}]}]},
                }
            },
            [],
        ),
    ],
)
def test_a_reference_that_stays_text_is_warned_about_once(
    changes: dict[str, Any], warned: list[tuple[str, str, str]]
) -> None:
    found = [warning for warning in planned(options(), **changes).warnings if "keeps $(" in warning]
    assert len(found) == len(warned)
    for warning, (place, name, advice) in zip(found, warned, strict=True):
        assert warning.startswith(f"roles[1].{place} keeps $({name}) as text")
        assert advice in warning


def test_the_variables_of_an_overlay_are_ordered_too() -> None:
    env = [{"name": "A", "value": "$(B)"}, {"name": "B", "value": "1"}]
    overlay = {
        "spec": {
            "__join__:containers:name": [{"name": "trainer-${replica_id}", "env": env}],
            "initContainers": [{**SIDE, "env": env}],
        }
    }
    init, main = seen(planned(options(), pod_overlay=overlay))[3:5]
    assert (init["A"], main["A"]) == ("1", "1")


VARIABLES = st.fixed_dictionaries(
    {
        "name": st.sampled_from("ABCD"),
        "value": st.lists(st.sampled_from(["$(A)", "$(B)", "$(C)", "$$(D)", "x"])).map("".join),
    }
)


@given(st.lists(VARIABLES, max_size=6, unique_by=lambda one: one["name"]))
def test_the_order_changes_only_where_a_reference_needs_it(env: list[dict[str, str]]) -> None:
    ordered = in_expansion_order(env)
    assert sorted(ordered, key=str) == sorted(env, key=str)
    assert in_expansion_order(ordered) == ordered or [*unexpanded(ordered)]
    if not [*unexpanded(env)]:
        assert ordered == env


def test_a_variable_that_is_given_twice_keeps_its_last_value() -> None:
    env = [{"name": "B", "value": "$(C)"}, {"name": "B", "value": "2"}, {"name": "C", "value": "1"}]
    assert [one["value"] for one in in_expansion_order(env)] == ["1", "$(C)", "2"]


def test_a_long_chain_of_references_is_ordered() -> None:
    env = [{"name": f"V{number}", "value": f"$(V{number + 1})"} for number in range(5000)]
    assert in_expansion_order(env) == env[::-1]
