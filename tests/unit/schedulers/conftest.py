"""Every status that a test of the schedulers reads is read of trimmed objects too, and has to be the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

import pytest
from torchx_pulumi.kube.trimming import trim
from torchx_pulumi.model.status import JobStatus
from torchx_pulumi.schedulers import Variant
from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects

NOT_OBJECTS = ("expected", "last_lines")


def trimmed(observed: ObservedObjects) -> ObservedObjects:
    values = {one.name: getattr(observed, one.name) for one in fields(observed) if one.name not in NOT_OBJECTS}
    return replace(observed, **{name: _trimmed(value) for name, value in values.items()})


def _trimmed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return trim(value)
    return [_trimmed(item) for item in value] if isinstance(value, (list, tuple)) else value


@pytest.fixture(autouse=True, scope="module")
def statuses_of_trimmed_objects() -> Iterator[None]:
    original = Variant.read_status

    def read_status(self: Variant, observed: ObservedObjects, now: datetime | None = None) -> JobStatus:
        status = original(self, observed, now)
        assert original(self, trimmed(observed), now) == status
        return status

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Variant, "read_status", read_status)
        yield
