"""Every reason has its row in the docs, and every one that a diagnosis may have is ranked or has advice."""

from __future__ import annotations

import re
from pathlib import Path

from torchx_pulumi.model.status import Reason
from torchx_pulumi.schedulers.diagnosis.ranking import CAUSES

PAGE = Path(__file__).resolve().parents[4] / "docs" / "diagnosis.md"

QUIET = {Reason.SUBMITTED, Reason.WAITING_FOR_PODS, Reason.STARTING, Reason.RUNNING, Reason.COMPLETED}
"""Reasons with which nothing is wrong."""


def test_the_page_has_every_reason_once_and_no_other() -> None:
    rows = re.findall(r"^\| `(\w+)` \| [^|]+\. \| [^|]+ \|$", PAGE.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(reason.value for reason in Reason)


def test_every_cause_has_its_rank() -> None:
    assert set(CAUSES) == set(Reason) - QUIET
