"""Damaged values are refused with their paths, never with another exception."""

from typing import Any

import pytest
from torchx_pulumi.model.app_entry import Stage
from torchx_pulumi.model.codec import from_json
from torchx_pulumi.model.status import Reason

DAMAGED = [[], [None], {}, {"a": 1}, 3, True]


@pytest.mark.parametrize("value", DAMAGED)
def test_a_value_that_is_not_text_is_no_member_of_an_enum(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^stage: found .*, allowed are 'launching', 'launched', 'deleting'$"):
        from_json(Stage, value, "stage")


@pytest.mark.parametrize("value", DAMAGED)
def test_a_value_that_is_not_text_is_read_as_the_member_for_later_releases(value: Any) -> None:
    assert from_json(Reason, value, fallbacks={Reason: Reason.UNREADABLE}) is Reason.UNREADABLE
