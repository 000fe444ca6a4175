"""Damaged values are refused with their paths, never with another exception."""

from typing import Any

import pytest
from torchx_pulumi.model.app_entry import Stage
from torchx_pulumi.model.codec import check_version, from_json
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.status import Reason

DAMAGED = [[], [None], {}, {"a": 1}, 3, True]


@pytest.mark.parametrize("value", DAMAGED)
def test_a_value_that_is_not_text_is_no_member_of_an_enum(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^stage: found .*, allowed are 'launching', 'launched', 'deleting'$"):
        from_json(Stage, value, "stage")


@pytest.mark.parametrize("value", DAMAGED)
def test_a_value_that_is_not_text_is_read_as_the_member_for_later_releases(value: Any) -> None:
    assert from_json(Reason, value, fallbacks={Reason: Reason.UNREADABLE}) is Reason.UNREADABLE


@pytest.mark.parametrize("number", [10**400, float("nan"), float("inf")], ids=["huge", "nan", "inf"])
def test_a_number_that_no_float_holds_is_refused(number: Any) -> None:
    for kind in (int, float):
        with pytest.raises(ValueError, match=r"^attempt: found (int|float), a (whole )?number that"):
            from_json(kind, number, "attempt")
    with pytest.raises(DeployError, match="without a version"):
        check_version({"version": number}, "the file", "an entry", 2)
