"""Both layouts of a Volcano Job, by what each process sees of them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torchx_pulumi.model.errors import InvalidJobError
from torchx_pulumi.model.job_spec import RoleSpec

from tests.unit.builders import plan, role
from tests.unit.schedulers.volcano.process_views import process_views

NAMED = re.compile(
    r"env (VC_\w+_\d+_(HOSTS|NUM)|V[CK]_TASK_INDEX|TORCHX_REPLICA_ID)"
    r"|field metadata\.(labels|annotations)(\['(torchx\.pytorch\.org/replica-id|volcano\.sh/task-(spec|index))'\])?"
)
"""What differs in every job, by the note on tasks and the documentation."""


def differing(*roles: RoleSpec, **options: Any) -> tuple[set[str], list[str]]:
    """Return the differences that a process sees in the layout `role`, without the named ones, and its warnings."""
    shared = plan(*roles, layout="role", **options)
    alone, views = process_views(plan(*roles, layout="replica", **options)), process_views(shared)
    assert alone.keys() == views.keys()
    found = set()
    for replica, one in alone.items():
        keys = one.keys() | views[replica].keys()
        found |= {key for key in keys if one.get(key) != views[replica].get(key) and not NAMED.fullmatch(key)}
    return found, [warning for warning in shared.warnings if warning.startswith("layout ")]


NUMBERED = {"num_replicas": 3, "args": ["${replica_id}"]}
JOIN = "__join__:containers:name"


@pytest.mark.parametrize(
    ("roles", "warnings"),
    [
        ([{"args": ["$${${rank0_env}:=localhost}", "$$VC_TRAINER_0_HOSTS"]}], []),
        ([{}, {**NUMBERED, "env": {"A": "[FIELD_PATH]metadata.name", "B": "$(A)", "C": "$$(B)"}}], []),
        (
            [{**NUMBERED}],
            ["roles[0] uses ${replica_id}, so its replicas are one task: rank 0 has no TORCHX_RANK0_HOST"],
        ),
        ([{"args": ["$$VC_TRAINER_1_HOSTS"]}], ["roles[0].args[0] uses VC_TRAINER_1_HOSTS"]),
        ([{"args": ["VC_TRAINER_1_${img_root}NUM"]}], ["roles[0].args[0] uses VC_TRAINER_1_NUM"]),
        ([{"entrypoint": "$(VC_TASK_INDEX)"}], ["roles[0].entrypoint uses VC_TASK_INDEX"]),
        ([{}, {"env": {"HOSTS": "VC_READER_${replica_id}_HOSTS"}}], ["roles[1].env['HOSTS'] uses VC_READER_12_HOSTS"]),
        ([{"args": ["cat /etc/volcano/trainer-1.host"]}], ["roles[0].args[0] uses /etc/volcano"]),
        ([{"args": ["${app_id}-trainer-0-0.${app_id},${app_id}-trainer-1-0.${app_id}"]}, {}], []),
        ([{"args": ["${app_id}-trainer-2-0.${app_id}"]}], ["roles[0].args[0] names <job>-trainer-2-0"]),
        ([{"env": {"PS": "job-reader-1-0.job:1"}}, {}], ["roles[0].env['PS'] names <job>-reader-1-0"]),
        (
            [{}, {**NUMBERED, "args": ["${app_id}-reader-${replica_id}-0"]}],
            ["roles[1].args[0] names <job>-reader-12-0"],
        ),
        (
            [{"env": {"I": "[FIELD_PATH]metadata.labels['volcano.sh/task-index']"}}],
            ["roles[0].env['I'] uses volcano.sh/task-index"],
        ),
        (
            [{"pod_overlay": {"spec": {"volumes": [{"items": [{"fieldRef": {"fieldPath": "metadata.labels"}}]}]}}}],
            ["roles[0].pod_overlay uses metadata.labels"],
        ),
        ([{"min_replicas": 2}], ["roles[0].min_replicas are any 2 replicas of a task"]),
        (
            [{**NUMBERED, "entrypoint": "$(TORCHX_REPLICA_ID)"}],
            ["layout replica, one task per replica: roles[0].entry"],
        ),
        ([{**NUMBERED, "entrypoint": "$$(TORCHX_REPLICA_ID)"}, {}], ["roles[0] uses ${replica_id}"]),
    ],
)
def test_what_a_job_names_and_shared_tasks_change_is_a_warning(
    roles: list[dict[str, Any]], warnings: list[str]
) -> None:
    made = [
        role(**{"name": name, "num_replicas": 3, **changes})
        for name, changes in zip(("trainer", "reader"), roles, strict=False)
    ]
    found, told = differing(*made)
    assert len(told) == len(warnings), told
    assert all(text in one for text, one in zip(warnings, told, strict=True)), told
    assert not found or told


def test_a_plugin_that_goes_by_tasks_is_named() -> None:
    _, told = differing(role(num_replicas=3), plugins={"svc": (), "pytorch": ("--master=trainer-0",)})
    assert told == ["layout role, shared tasks: options.plugins has pytorch, which goes by tasks"]


@pytest.mark.parametrize("changes", [NUMBERED, {"args": ["$$VC_TRAINER_1_HOSTS"]}])
def test_auto_shares_tasks_of_large_jobs_only_where_a_process_would_see_it(changes: dict[str, Any]) -> None:
    few, many = plan(role(**{**changes, "num_replicas": 100})), plan(role(**{**changes, "num_replicas": 101}))
    assert len(few.roles[0].tasks) == 100
    assert not few.warnings
    assert len(many.roles[0].tasks) <= 2
    assert [warning.partition(":")[0] for warning in many.warnings] == ["layout role, shared tasks"] * 2


TEXTS = st.lists(
    st.sampled_from(
        [
            *("$", "$$", "${replica_id}", "${rank0_env}", "${app_id}", "${img_root}", "(", ")", "x", "$(A)"),
            *("$(TORCHX_REPLICA_ID)", "$(VC_TRAINER_0_HOSTS)", "$(VC_READER_1_HOSTS)", "$(VC_TASK_INDEX)"),
            *("$(TORCHX_RANK0_HOST)", "[FIELD_PATH]metadata.name"),
            "[FIELD_PATH]metadata.labels['torchx.pytorch.org/replica-id']",
        ]
    ),
    max_size=4,
).map("".join)
ENVS = st.dictionaries(st.sampled_from(["A", "B", "TORCHX_RANK0_HOST", "TORCHX_REPLICA_ID"]), TEXTS, max_size=3)
OVERLAYS = st.sampled_from(
    [
        None,
        {"spec": {JOIN: [{"name": "trainer-1", "tty": True}]}},
        {"spec": {"__join__:containers:image": [{"image": "img:1", "env": [{"name": "A", "value": "x"}]}]}},
        {"spec": {"hostNetwork": True, "containers": [{"name": "side", "image": "side:1"}]}},
        {"spec": {"__put__:containers": [{"name": "main", "image": "i", "args": ["$(VC_TASK_INDEX)"]}]}},
        {"metadata": {"labels": {"torchx.pytorch.org/replica-id": "7"}}},
    ]
)
ROLES = st.fixed_dictionaries(
    {
        "num_replicas": st.integers(1, 4),
        "entrypoint": TEXTS.map(lambda text: text or "main"),
        "args": st.lists(TEXTS, max_size=2),
        "env": ENVS,
        "pod_overlay": OVERLAYS,
        "max_retries": st.sampled_from([0, 2]),
        "retry_policy": st.sampled_from(["APPLICATION", "REPLICA"]),
    }
)


@given(ROLES, ROLES)
def test_processes_of_both_layouts_see_the_same_or_a_warning_names_it(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    try:
        found, told = differing(role(name="trainer", **one), role(name="reader", **other))
    except InvalidJobError:
        return
    assert not found or told, found
