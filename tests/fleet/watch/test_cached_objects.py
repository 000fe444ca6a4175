"""Objects and events in memory: found by name, label and involved object, within bounds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torchx_pulumi.kube.protocol import key_of, matches
from torchx_pulumi_fleet.watch import cached_objects
from torchx_pulumi_fleet.watch.cached_objects import EVENTS_OF_ONE, CachedEvents, CachedObjects

Found = dict[str, Any]


def made(name: str, namespace: str = "a", **labels: str) -> Found:
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}}


def event(name: str, involved: str, namespace: str = "a", message: str = "") -> Found:
    return {
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {"name": involved},
        "message": message,
    }


def names(found: list[Found]) -> list[str]:
    return [one["metadata"]["name"] for one in found]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, True),
        ({}, True),
        ({"x": "1"}, True),
        ({"x": None, "y": ""}, True),
        ({"x": "2"}, False),
        ({"z": None}, False),
    ],
)
def test_a_selector_wants_every_label(selector: Any, expected: bool) -> None:
    assert matches(made("a", x="1", y=""), selector) is expected


def test_objects_are_sorted_and_selected() -> None:
    cache = CachedObjects()
    for one in (made("b", x="1"), made("a", x="1"), made("c", x="2"), made("a", "z", x="1")):
        assert cache.put(one) is None
    assert names(cache.list("a", {"x": "1"})) == ["a", "b"]
    assert names(cache.list("a", {"x": None})) == ["a", "b", "c"]
    assert [key_of(one) for one in cache.list(None, {"x": "1"})] == [("a", "a"), ("a", "b"), ("z", "a")]
    assert cache.get("a", "c") == made("c", x="2")
    assert cache.get("b", "c") is None


@given(st.lists(st.tuples(st.sampled_from("pr"), st.sampled_from("abc"), st.sampled_from(["", "1", "2"]))))
def test_the_index_of_a_label_follows_all_changes(steps: list[tuple[str, str, str]]) -> None:
    cache, truth = CachedObjects(), {}
    cache.list(None, {"x": "1"})
    for step, name, value in steps:
        if step == "p":
            one = made(name, **({"x": value} if value else {}))
            assert cache.put(one) == truth.get(name)
            truth[name] = one
        else:
            assert cache.remove(("a", name)) == truth.pop(name, None)
        for wanted in ("1", "2"):
            expected = sorted(name for name, one in truth.items() if one["metadata"]["labels"].get("x") == wanted)
            assert names(cache.list(None, {"x": wanted})) == expected
    assert cache.all_keys() == {("a", name) for name in truth}


def test_events_are_found_by_the_involved_object() -> None:
    cache = CachedEvents()
    for one in (event("e2", "p"), event("e1", "p"), event("e3", "q"), event("e4", "p", "other")):
        cache.put(one)
    assert names(cache.of("a", {"p", None})) == ["e1", "e2"]
    assert names(cache.of("a", {"q", "p", "absent"})) == ["e1", "e2", "e3"]
    assert cache.put(event("e1", "p", message="again")) == event("e1", "p")
    assert cache.remove(("a", "e1")) == event("e1", "p", message="again")
    assert cache.remove(("a", "e1")) is None
    assert cache.all_keys() == {("a", "e2"), ("a", "e3"), ("other", "e4")}


def test_of_one_object_the_last_events_are_kept() -> None:
    cache = CachedEvents()
    for number in range(EVENTS_OF_ONE + 2):
        cache.put(event(f"e{number:02}", "p"))
    cache.put(event("e02", "p", message="again"))
    cache.put(event("e99", "p"))
    assert names(cache.of("a", {"p"})) == ["e02", *(f"e{number:02}" for number in range(4, EVENTS_OF_ONE + 2)), "e99"]


def test_all_events_together_are_bounded_and_the_last_ones_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_objects, "MOST_EVENTS", 3)
    cache = CachedEvents()
    for name, involved in (("e1", "p"), ("e2", "q"), ("e1", "p"), ("e3", "p"), ("e4", "r")):
        cache.put(event(name, involved))
    assert names(cache.of("a", {"p", "q", "r"})) == ["e1", "e3", "e4"]
    assert len(cache.all_keys()) == 3
