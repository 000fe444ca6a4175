from __future__ import annotations

from string import Template

from hypothesis import given
from hypothesis import strategies as st
from torchx_pulumi.planning.macros import macro_values, substitute

VALUES = macro_values(app_id="a-1", replica_id="3", rank0_env="RANK0")


def test_every_macro_is_filled_in() -> None:
    text = "${img_root}|${base_img_root}|${app_id}|${replica_id}|${rank0_env}|$app_id"
    assert substitute(text, VALUES) == "|DEPRECATED|a-1|3|RANK0|a-1"


@given(st.text(st.sampled_from("$${}ap_id x"), max_size=30))
def test_odd_dollars_are_treated_as_torchx_treats_them(text: str) -> None:
    assert substitute(text, VALUES) == Template(text).safe_substitute(VALUES)
