from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from torchx_pulumi.kube.yaml_text import to_yaml

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


@given(DATA)
def test_text_reads_back_as_what_was_written(data: object) -> None:
    assert yaml.safe_load(to_yaml(data)) == data


@pytest.mark.parametrize(
    "text", ["1e-4", "y", "No", "0x1f", "010", "1_000", "~", "null", "", "-", "a: b", "#", "12:30"]
)
def test_text_that_a_reader_could_take_for_something_else_is_quoted(text: str) -> None:
    assert to_yaml({"a": text}) == f'a: "{text}"\n'


@pytest.mark.parametrize("text", ["img:1", "registry.io/a/b@sha256:0a", "/dev/shm", "nvidia.com/gpu", "VC_A_0_HOSTS"])
def test_common_texts_stay_readable(text: str) -> None:
    assert to_yaml({"a": text}) == f"a: {text}\n"


def test_what_occurs_twice_is_written_twice() -> None:
    shared = {"x": [1]}
    assert to_yaml([shared, shared]) == "- x:\n  - 1\n- x:\n  - 1\n"
