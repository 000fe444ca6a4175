import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torchx_pulumi.stack_state.checkpoint import Checkpoint, checkpoint_text, read_notes, with_values

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
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


@given(st.dictionaries(st.text(), VALUES, min_size=1), VALUES, st.sampled_from([None, 2, "\t"]))
def test_one_value_changes_and_all_others_stay(document: dict[str, Any], value: Any, indent: Any) -> None:
    text = json.dumps(document, indent=indent)
    key = random.Random(0).choice(sorted(document))
    assert json.loads(with_values(text, {(key,): value})) == {**document, key: value}


def test_numbers_and_escapes_of_the_rest_keep_their_text() -> None:
    text = (
        '{ "n": 1.50, "big": 123456789012345678901234567890, "e": 1E+2, "s": "\\u003ca\\/b", "x": [0, {"y": "old"}] }\n'
    )
    changed = with_values(text, {("x", 1, "y"): {"new": "\u00e9"}})
    assert changed == text.replace('"old"', '{"new":"\u00e9"}')


def test_several_values_change_at_once() -> None:
    text = '{"a": {"b": 1, "c": 2}, "d": [3, 4]}'
    assert (
        with_values(text, {("d", 0): 30, ("a", "c"): 20, ("a", "b"): 10}) == '{"a": {"b": 10, "c": 20}, "d": [30, 4]}'
    )


@given(st.dictionaries(st.text(), VALUES), VALUES, VALUES, st.sampled_from([None, 4]))
def test_keys_that_are_absent_are_added_and_all_others_stay(document: Any, one: Any, other: Any, indent: Any) -> None:
    text = json.dumps({"outer": document}, indent=indent)
    added = {("outer", "new key"): one, ("outer", "other new key"): other}
    document = {key: value for key, value in document.items() if key not in ("new key", "other new key")}
    assert json.loads(with_values(text, added)) == {"outer": {**document, "new key": one, "other new key": other}}


@pytest.mark.parametrize("path", [("none", "a"), ("d", 2), ("a", 0), ("d", "a"), ("a", "b", "c")])
def test_a_path_that_leads_nowhere_is_an_error(path: Any) -> None:
    with pytest.raises(KeyError):
        with_values('{"a": {"b": 1}, "d": [3, 4]}', {path: 0})


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
