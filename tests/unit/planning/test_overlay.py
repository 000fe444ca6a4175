from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torchx_pulumi.planning.overlay import OverlayError, container_problems, merge, overlay_pod, select_overlay


def pod() -> dict[str, Any]:
    return {
        "metadata": {"annotations": {"a": "b"}},
        "spec": {
            "containers": [{"name": "main", "image": "v1"}],
            "volumes": [{"name": "dshm"}],
            "restartPolicy": "Never",
        },
    }


def test_mappings_merge_lists_append_scalars_overwrite() -> None:
    made = overlay_pod(pod(), {"spec": {"volumes": [{"name": "x"}], "restartPolicy": "Always", "new": {"k": "v"}}})
    assert made["spec"]["volumes"] == [{"name": "dshm"}, {"name": "x"}]
    assert made["spec"]["restartPolicy"] == "Always"
    assert made["spec"]["new"] == {"k": "v"}


def test_tuple_and_put_replace() -> None:
    assert overlay_pod(pod(), {"spec": {"volumes": ()}})["spec"]["volumes"] == []
    assert overlay_pod(pod(), {"spec": {"__put__:volumes": [1]}})["spec"]["volumes"] == [1]


def test_join_merges_items_of_the_same_name() -> None:
    side = {"name": "side", "image": "i"}
    overlay = {"spec": {"__join__:containers:name": [{"name": "main", "tty": True}, side]}}
    assert overlay_pod(pod(), overlay)["spec"]["containers"] == [{"name": "main", "image": "v1", "tty": True}, side]


def test_join_reaches_the_main_container_of_every_replica() -> None:
    sidecar = {"name": "trainer", "image": "i"}
    every = {"name": "trainer-${replica_id}", "workingDir": "/data"}
    overlay = {"spec": {"__join__:containers:name": [every, sidecar]}}
    before = copy.deepcopy(overlay)
    for name in ("trainer-0", "trainer-12"):
        own = {"name": name, "image": "v1"}
        made = overlay_pod({"metadata": {}, "spec": {"containers": [own]}}, overlay)
        assert made["spec"]["containers"] == [{"name": name, "image": "v1", "workingDir": "/data"}, sidecar]
    assert overlay == before


@pytest.mark.parametrize(
    ("joined", "message"),
    [
        ({"name": "trainer", "tty": True}, r"leaves spec.containers\[1\] without an image"),
        ({"name": "other-${replica_id}", "tty": True}, r"leaves spec.containers\[1\].name without the name"),
        ({"name": "trainer-${replica_id}-x", "image": "i"}, r"leaves spec.containers\[1\].name without the name"),
        ({"tty": True, "image": "i"}, r"leaves spec.containers\[1\].name without the name"),
    ],
)
def test_a_container_that_the_api_server_refuses_is_told(joined: dict[str, Any], message: str) -> None:
    template = {"metadata": {}, "spec": {"containers": [{"name": "trainer-3", "image": "v1"}]}}
    pod = overlay_pod(template, {"spec": {"__join__:containers:name": [joined]}})
    assert re.match(rf"{message}.*'trainer-\$\{{replica_id\}}'", next(container_problems(pod["spec"], "trainer-3")))


def test_containers_of_one_name_are_told() -> None:
    made = overlay_pod(pod(), {"spec": {"initContainers": [{"name": "main", "image": "i"}]}})
    assert [*container_problems(made["spec"], "main")] == [
        "leaves spec.initContainers[0].name with the name of another container; rename it"
    ]


def test_join_on_values_that_cannot_be_hashed_compares_them() -> None:
    base: dict[str, Any] = {"items": [{"on": ["a"], "x": 1}]}
    merge(base, {"__join__:items:on": [{"on": ["a"], "x": 2}]})
    assert base == {"items": [{"on": ["a"], "x": 2}]}


def test_del_removes() -> None:
    assert "volumes" not in overlay_pod(pod(), {"spec": {"__del__:volumes": None}})["spec"]


def test_null_is_absent() -> None:
    assert "restartPolicy" not in overlay_pod(pod(), {"spec": {"restartPolicy": None}})["spec"]


def test_operators_inside_new_fields_are_resolved() -> None:
    made = overlay_pod(pod(), {"spec": {"affinity": {"__put__:nodeAffinity": {"a": 1}}}})
    assert made["spec"]["affinity"] == {"nodeAffinity": {"a": 1}}


def test_only_metadata_and_spec_are_kept() -> None:
    assert set(overlay_pod(pod(), {"kind": "Pod", "status": {}})) == {"metadata", "spec"}


def test_numbers_become_text_where_kubernetes_wants_text() -> None:
    made = overlay_pod(pod(), {"metadata": {"labels": {"n": 1, "b": True}}, "spec": {"priority": 1}})
    assert made["metadata"]["labels"] == {"n": "1", "b": "true"}
    assert made["spec"]["priority"] == 1


@pytest.mark.parametrize(
    "overlay",
    [
        {"spec": "text"},
        {"spec": {"volumes": "text"}},
        {"spec": {"restartPolicy": ["a"]}},
        {"spec": {"__join__:volumes:": []}},
        {"spec": {"__join__:volumes": []}},
        {"spec": {"__join__:volumes:name": "text"}},
        {"spec": {"__join__:volumes:name": ["text"]}},
        {"spec": {"__join__:restartPolicy:name": [{"name": "x"}]}},
        {"__del__:spec": None},
        {"__put__:metadata": None},
        {"spec": {"__del__:containers": None}},
        {"spec": {"__put__:containers": "text"}},
        {"spec": {"__put__:containers": ["text"]}},
        {"spec": {"__put__:containers": [{"name": "a", "image": "i", "env": {}}]}},
        {"spec": {"__put__:containers": [{"name": "a", "image": "i", "env": ["A=1"]}]}},
        {"spec": {"__put__:containers": [{"name": "a", "image": "i", "resources": {"limits": []}}]}},
        {"spec": {"initContainers": [None, 5]}},
        {"metadata": {"__put__:annotations": "text"}},
        {"metadata": {"labels": ["a"]}},
    ],
)
def test_overlay_that_does_not_fit_is_an_error(overlay: dict[str, Any]) -> None:
    with pytest.raises(OverlayError):
        overlay_pod(pod(), overlay)


KEYS = st.sampled_from(
    [
        "spec",
        "metadata",
        "containers",
        "volumes",
        "__del__:spec",
        "__put__:volumes",
        "__join__:volumes:name",
        "__join__:a",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3) | st.tuples(inner),
    max_leaves=8,
)


@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_overlays_of_any_shape_give_a_pod_or_one_clear_error(overlay: dict[str, Any]) -> None:
    before = copy.deepcopy(overlay)
    try:
        made = overlay_pod(pod(), overlay)
    except OverlayError:
        return
    assert overlay == before
    assert made["spec"]["containers"]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (None, {}),
        ("file:///x", {}),
        ([], {}),
        ({}, {}),
        ({"V1Pod": {"a": 1}, "Other": {}}, {"a": 1}),
        ({"__torchx_overlays__": True, "Other": {}}, {}),
        ({"__torchx_overlays__": True, "V1Pod": {"a": 1}}, {"a": 1}),
        ({"spec": {}}, {"spec": {}}),
        ({"spec": {}, "metadata": {}}, {}),
        ({"spec": {}, "x": 1}, {"spec": {}, "x": 1}),
    ],
)
def test_overlay_is_chosen_as_torchx_chooses_it(value: object, found: dict[str, Any]) -> None:
    assert select_overlay(value, "V1Pod") == found
