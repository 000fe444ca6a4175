"""The platform program's configuration: what is made, and all that is wrong at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pulumi
import pytest
from torchx_pulumi.model.errors import InvalidJobError
from torchx_pulumi_stacks.platform import PlatformConfig, read_config


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    pulumi.runtime.set_all_config({}, [])


def read(**values: Any) -> PlatformConfig:
    texts = {f"torchx-platform:{key}": v if isinstance(v, str) else json.dumps(v) for key, v in values.items()}
    pulumi.runtime.set_all_config(texts, ["torchx-platform:dockerConfigJson"])
    return read_config(pulumi.Config("torchx-platform"))


def test_nothing_asked_for_is_nothing_made() -> None:
    assert read() == PlatformConfig()


def test_everything_can_be_asked_for() -> None:
    config = read(
        namespace="team-a",
        createNamespace="true",
        queue={"name": "team-a", "weight": 2, "capability": {"cpu": "8"}},
        priorityClass={"name": "high", "value": 1000},
        serviceAccount="trainer",
        pullSecret="regcred",
        dockerConfigJson='{"auths": {"hush": {}}}',
    )
    assert config.queue["weight"] == 2
    assert config.priority_class["value"] == 1000
    assert "hush" not in repr(config)


def test_all_problems_come_in_one_error() -> None:
    with pytest.raises(InvalidJobError) as caught:
        read(
            namespace="Team_A",
            queue={"name": "-", "wieght": 1},
            priorityClass={"value": "much"},
            pullSecret="regcred",
            serviceAcount="x",
        )
    said = str(caught.value)
    for part in (
        "namespace: is 'Team_A'",
        "queue.name: is '-'",
        "queue.wieght: is unknown",
        "priorityClass.name: is None",
        "priorityClass.value: is 'much'",
        "dockerConfigJson: is not set",
        "serviceAcount: is unknown; did you mean 'serviceAccount'?",
    ):
        assert part in said
