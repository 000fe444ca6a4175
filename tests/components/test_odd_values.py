"""H2: arguments of odd types are refused by name, never taken apart and never written as Python shows them."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest
from torchx_pulumi_components import VolcanoTrainingJob

ROLE = {"name": "trainer", "image": "app:1", "entrypoint": "python"}

ODD: dict[str, tuple[dict[str, Any], str]] = {
    "bytes as a list": ({"plugins": {"svc": b"--x"}}, "plugins[svc]: must be a list of texts, found bytes"),
    "bytes as names": ({"image_secrets": b"ab"}, "image_secrets: must be a list, found bytes"),
    "a set as text": ({"plugins": {"svc": [{"a", "b"}]}}, "plugins[svc]: must be a text, found set"),
    "a set as a name": ({"queue": frozenset("a")}, "queue: must be a text, found frozenset"),
    "bytes in a mapping": ({"labels": {"team": b"a"}}, "labels[team]: must be a text, found bytes"),
    "an endless number": ({"efa_device_count": 10**400}, "efa_device_count: must be a whole number, found int"),
    "a number as an image": ({"roles": [{**ROLE, "image": 5.0}]}, "roles[0].image: must be a text, found float"),
    "a number in env": ({"roles": [{**ROLE, "env": {"A": 1}}]}, "roles[0].env[A]: must be a text, found int; write it"),
    "a number in args": ({"roles": [{**ROLE, "args": [5]}]}, "roles[0].args: must be a text, found int"),
    "a number of too many digits": ({"efa_device_count": 10**5000}, "efa_device_count: must be a whole number"),
}


@pytest.mark.parametrize("name", ODD)
def test_an_argument_of_an_odd_type_is_refused_by_name(engine: Any, name: str) -> None:
    args, message = ODD[name]
    with pytest.raises(pulumi.RunError) as caught:
        engine.run(lambda: VolcanoTrainingJob("train", {"queue": "default", "roles": [ROLE], **args}))
    assert message in str(caught.value)
    assert engine.mocks.resources == []


def test_all_problems_of_a_job_that_can_be_read_are_in_one_message(engine: Any) -> None:
    wrong = {**ROLE, "image": "A B:1", "num_replicas": 0, "args": ["${app_idd}"], "resource": {"cpu": -2, "gpu": -3}}
    with pytest.raises(pulumi.RunError) as caught:
        engine.run(lambda: VolcanoTrainingJob("train", {"queue": "No Queue", "roles": [wrong]}))
    for path in ("image", "num_replicas", "args[0]", "resource.cpu", "resource.gpu"):
        assert f"roles[0].{path}: " in str(caught.value)
    assert "queue: " in str(caught.value)
