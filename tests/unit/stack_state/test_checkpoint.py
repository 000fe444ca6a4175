from typing import Any

import pytest
from torchx_pulumi.stack_state.checkpoint import (
    Checkpoint,
    checkpoint_text,
    encode_checkpoint,
    parse_checkpoint,
    read_notes,
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
    entry, found = read_notes(checkpoint_text("organization/p/s", resources))
    assert entry is None
    assert found is not None
    assert found.job_name == "a"
