"""A wrong call of a component's constructor is one message."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest
from torchx_pulumi_components import MCADTrainingJob, VolcanoTrainingJob
from torchx_pulumi_components.patched_image import PatchedImage


@pytest.mark.parametrize("component", [VolcanoTrainingJob, MCADTrainingJob, PatchedImage])
@pytest.mark.parametrize(
    ("words", "options", "text"),
    [
        (("train",), {"queue": "gold", "roles": []}, "queue, roles: not keyword arguments of the constructor"),
        (("train", ["roles"]), {}, "args: must be a mapping, found list"),
        (("train", {}, {}), {}, "opts: must be pulumi.ResourceOptions, found dict"),
        (("train", {}, None, 1), {}, "4 positional arguments"),
        (({"queue": "gold"}, {}), {}, "name: must be a text, found dict"),
        (("", {}), {}, "name: is empty"),
        (("train",), {}, "args: is missing"),
    ],
)
def test_a_wrong_call_is_refused_with_what_is_allowed(
    component: Any, words: tuple[Any, ...], options: dict[str, Any], text: str
) -> None:
    with pytest.raises(pulumi.RunError) as caught:
        component(*words, **options)
    assert text in str(caught.value)
    assert f'{component.__name__}("NAME", {{"FIELD": VALUE}})' in str(caught.value)
    assert ("from_app" in str(caught.value)) is (component is not PatchedImage)
