import json
from typing import Any

import pytest
from torchx_pulumi.stack_state.checkpoint import (
    Checkpoint,
    UnreadableStateError,
    checkpoint_text,
    encode_checkpoint,
    parse_checkpoint,
    parse_components,
)


@pytest.mark.parametrize(
    ("present", "kind", "pending"),
    [
        ({"urn": "a"}, "creating", 0),
        ({"urn": "b"}, "creating", 1),
        ({"urn": "a", "inputs": {"metadata": {"name": "replaced"}}}, "creating", 1),
        ({"urn": "a", "type": "pulumi:index:Stash"}, "creating", 1),
        ({"urn": "a", "pendingReplacement": True}, "creating", 1),
        ({"urn": "a", "delete": True}, "creating", 1),
        ({"urn": "a"}, "deleting", 1),
    ],
)
def test_a_creation_is_over_once_the_state_has_its_resource(present: Any, kind: str, pending: int) -> None:
    resource = {"type": "kubernetes:core/v1:Pod", "inputs": {"metadata": {"name": "pod"}}}
    present = {**resource, **present}
    operations = [{"type": kind, "resource": {**resource, "urn": "a", "type": present["type"]}}]
    assert len(Checkpoint({"resources": [present], "pending_operations": operations}).pending) == pending


def test_a_checkpoint_that_is_written_back_keeps_every_value_and_is_as_compact_as_the_engines() -> None:
    text = '{"version":3,"checkpoint":{"latest":{"n":1.5,"big":123456789012345678901234567890,"s":"<a&\u00e9\u2028>"}}}'
    assert encode_checkpoint(parse_checkpoint(text), "a.json") == text.encode()


def test_a_resource_of_the_users_own_is_not_taken_for_the_record() -> None:
    record = {"version": 1, "identity_version": 2, "job_name": "a", "namespace": "n", "hash": "h", "attempt": 1}
    resources = [
        {"type": "torchx:index:VolcanoTrainingJob", "outputs": {"record": {**record, "launched": {"trainer": 1}}}},
        {"type": "pulumi:index:Stash", "urn": "urn::record", "inputs": {"input": {"loss": 1}}},
        {"type": "acme:index:Team", "outputs": {"record": {"wins": 3}}},
    ]
    notes = parse_checkpoint(checkpoint_text("organization/p/s", resources)).notes()
    assert [(name, value["job_name"]) for name, value in notes] == [("record", "a")]


JOB = "torchx:index:VolcanoTrainingJob"
OBJECT = "kubernetes:batch.volcano.sh/v1alpha1:Job"
RESOURCES = [
    {
        "urn": "urn:pulumi:s::p::pulumi:pulumi:Stack::p-s",
        "type": "pulumi:pulumi:Stack",
        "outputs": {"a": "urn:pulumi:"},
    },
    {"urn": "urn:pulumi:s::p::pulumi:providers:kubernetes::x", "type": "pulumi:providers:kubernetes"},
    {
        "urn": "urn:pulumi:s::p::torchx:index:VolcanoTrainingJob::kubernetes:a",
        "type": "torchx:index:VolcanoTrainingJob",
    },
    {
        "urn": f"urn:pulumi:s::p::{JOB}${OBJECT}::a",
        "type": OBJECT,
        "inputs": {"metadata": {"annotations": {"urn": f"urn:pulumi:s::p::{JOB}::b"}}},
        "parent": f"urn:pulumi:s::p::{JOB}::kubernetes:a",
    },
    {"urn": f"urn:pulumi:s::p::{OBJECT}::b", "type": OBJECT},
    {"urn": f"urn:pulumi:s::p::{JOB}$pulumi:index:Stash::a-app", "type": "pulumi:index:Stash"},
]


@pytest.mark.parametrize("place", ["checkpoint", "deployment"])
def test_components_are_read_without_the_objects_that_are_most_of_a_checkpoint(place: str) -> None:
    latest = {"manifest": {"version": "v3"}, "resources": RESOURCES, "metadata": {}}
    whole = {"checkpoint": {"stack": "s", "latest": latest}, "deployment": latest}
    value = {"version": 3, place: whole[place]}
    for text in (json.dumps(value, indent=4), json.dumps(value, indent=4) + "\n", json.dumps(value, indent=1)):
        found = parse_components(text).resources
        assert found == [each for each in RESOURCES if each["type"] != OBJECT]
    # Without indentation, nothing tells a resource from a part of one.
    assert parse_components(json.dumps(value)).resources == RESOURCES
    pending = {**latest, "pending_operations": [{"type": "updating", "resource": RESOURCES[3]}]}
    text = json.dumps({"version": 3, "deployment": pending}, indent=4)
    assert len(parse_components(text).pending) == 1


def test_a_checkpoint_that_was_cut_off_or_edited_is_unreadable_also_for_its_components() -> None:
    text = json.dumps({"version": 3, "deployment": {"resources": RESOURCES}}, indent=4)
    for damaged in (text[: len(text) // 2], text[: text.rindex("}")], text.replace('"type"', "type", 1)):
        with pytest.raises(UnreadableStateError):
            parse_components(damaged)
