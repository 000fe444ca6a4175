"""Half-filled and strange objects are read as far as they can be, and never raise."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torchx_pulumi.model.status import JobState, JobStatus, Reason
from torchx_pulumi.outputs.building import build_observed
from torchx_pulumi.schedulers.diagnosis.evidence import Evidence, ObservedObjects
from torchx_pulumi.schedulers.diagnosis.explain import explain

from tests.unit.schedulers.diagnosis.objects import (
    BACKOFF,
    CREATED,
    JOB,
    LATER,
    MCAD,
    NOW,
    OPERATOR,
    PODS,
    SHORT,
    Manifest,
    ended,
    group,
    job,
    node,
    other,
    pod,
    queue,
    unplaced,
    waits,
    wrapper,
)

WORDS = st.sampled_from(
    ["", "Failed", "Pending", "True", "Evicted", "q", "Pod", "0001-01-01T00:00:00+14:00", "1", "9" * 400]
)
KEYS = st.sampled_from(
    [
        "metadata",
        "spec",
        "status",
        "phase",
        "name",
        "reason",
        "conditions",
        "state",
        "containerStatuses",
        "tasks",
        "template",
        "containers",
        "resources",
        "nodeSelector",
        "allocatable",
        "generictemplate",
        "ownerReferences",
        "capability",
    ]
)
SCALARS = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | WORDS
OBJECTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)
MANY = st.lists(st.dictionaries(KEYS, OBJECTS, max_size=3), max_size=1)

STRANGE: tuple[Any, ...] = (
    None,
    "",
    "x",
    -1,
    2.5,
    True,
    [],
    {},
    [None],
    [[]],
    {"x": 1},
    "9" * 400,
    10**400,
    "0001-01-01T00:00:00+14:00",
)
"""What a field may hold that nobody expects there."""


@settings(max_examples=25)
@given(st.data())
def test_objects_of_any_shape_never_raise(data: st.DataObject) -> None:
    evidence = Evidence(
        status=JobStatus(
            state=data.draw(st.sampled_from(JobState)), reason=data.draw(st.sampled_from(Reason)), message="m"
        ),
        job_object=next(iter(data.draw(MANY)), None),
        pods=data.draw(MANY),
        pod_groups=data.draw(MANY),
        events=data.draw(MANY),
        queues=data.draw(MANY),
        neighbours=data.draw(MANY),
        nodes=data.draw(MANY),
        at=data.draw(st.sampled_from([None, NOW, LATER])),
    )
    variant = data.draw(st.sampled_from([JOB, PODS, MCAD]))
    status = explain(
        evidence,
        describe=variant.describe,
        diagnose=variant.diagnose,
        replica_messages=variant.replica_messages,
    )
    json.dumps(build_observed(status, observed_at=NOW))


def full(head: Manifest, made: Manifest) -> dict[str, Any]:
    """Return all that can be seen of a job in trouble."""
    event = {
        "type": "Warning",
        "reason": "Failed",
        "message": "m",
        "involvedObject": {"kind": "PodGroup", "name": "app-u"},
    }
    condition = {"type": "Unschedulable", "status": "True", "message": "m", "lastTransitionTime": CREATED}
    return {
        "job_object": head,
        "pods": [made],
        "pod_groups": [group("Pending", conditions=[condition])],
        "events": [event],
        "queues": [queue(state="Open", allocated={"cpu": "1"})],
        "neighbours": [other("busy"), wrapper(name="before", priority=1)],
        "nodes": [node(labels={"a": "b"}, spec={"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]})],
    }


def paths(value: Any, path: tuple[Any, ...] = ()) -> Any:
    """Yield the path of everything inside."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield (*path, key)
        yield from paths(item, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], by: Any) -> Any:
    """Return a copy with one thing replaced; what is beside it is shared."""
    if not path:
        return by
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], by)
    return copy


TROUBLES = {
    "failed": pod(0, "Failed", node="n", containerStatuses=ended(1, message="m")),
    "evicted": pod(
        0, "Failed", reason="Evicted", conditions=[{"type": "DisruptionTarget", "status": "True", "reason": "x"}]
    ),
    "no image": pod(0, "Pending", node="n", containerStatuses=waits("ErrImagePull", "m")),
    "unplaced": pod(
        0, "Pending", conditions=unplaced(SHORT), spec={"tolerations": [{"key": "k", "operator": "Exists"}]}
    ),
}


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize(
    ("form", "head"),
    [(JOB, job()), (PODS, group()), (MCAD, wrapper(status=BACKOFF)), (OPERATOR, wrapper(version="v1beta2"))],
    ids=["job", "pods", "mcad", "operator"],
)
def test_a_field_that_holds_what_nobody_expects_never_raises(form: Any, head: Manifest, trouble: str) -> None:
    whole, turn = full(head, TROUBLES[trouble]), list(TROUBLES).index(trouble)
    for number, path in enumerate(paths(whole)):
        if len(path) == 1 or (path[0] != "job_object" and len(path) == 2):
            continue
        # Every other field is null, in the next trouble those between.
        strange = None if (number + turn) % 2 else STRANGE[number % len(STRANGE)]
        status = form.read_status(ObservedObjects(**replaced(whole, path, strange)), LATER)
        assert status.reason.value
