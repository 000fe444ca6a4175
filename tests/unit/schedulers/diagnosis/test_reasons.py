"""Every reason has its row in the docs, and every one that a diagnosis may have is ranked or has advice."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from torchx_pulumi.model import status
from torchx_pulumi.model.status import Diagnosis, Reason
from torchx_pulumi.schedulers.diagnosis.messages import MESSAGES
from torchx_pulumi.schedulers.diagnosis.ranking import CAUSES
from torchx_pulumi.schedulers.volcano.diagnosis import unusable_queue

from tests.unit.schedulers.diagnosis.objects import first, group, job, queue

PAGE = Path(__file__).resolve().parents[4] / "docs" / "diagnosis.md"

QUIET = {
    Reason.WAITING_FOR_ROLE,
    Reason.ROLE_ENDED,
    Reason.SUBMITTED,
    Reason.WAITING_FOR_PODS,
    Reason.STARTING,
    Reason.RUNNING,
    Reason.COMPLETED,
}
"""Reasons with which nothing is wrong."""


def rows() -> dict[str, tuple[str, str]]:
    """Return reason -> what it means and what to do, by the page."""
    found = re.findall(r"^\| `(\w+)` \| ([^|]+\.) \| ([^|]+) \|$", PAGE.read_text(), re.MULTILINE)
    return {reason: (plain(means), plain(advice)) for reason, means, advice in found}


def plain(text: str) -> str:
    """Return a text as it is compared: a sentence of a page begins with a capital letter, and marks code."""
    return " ".join(text.replace("`", "").split()).lower()


def test_the_page_has_every_reason_once_and_no_other() -> None:
    assert list(rows()) == [reason.value for reason in Reason]


def test_the_page_says_of_each_reason_what_the_code_says() -> None:
    body = next(
        one for one in ast.parse(Path(status.__file__).read_text()).body if getattr(one, "name", "") == "Reason"
    )
    texts = [one.value.value for one in body.body if isinstance(one, ast.Expr)][1:]  # type: ignore[attr-defined]
    assert {name: means for name, (means, _) in rows().items()} == {
        reason.value: plain(text) for reason, text in zip(Reason, texts, strict=True)
    }
    for reason in Reason:
        means, advice = rows()[reason.value]
        for words in re.split(r"[,;] ", MESSAGES.get(reason, "")):
            assert plain(words) in means
        cause = CAUSES.get(reason)
        for words in re.split("[,;:] ", (cause and cause.advice) or ""):
            assert plain(words) in advice or words == "{lost}"


@pytest.mark.parametrize(
    ("reason", "diagnosis"),
    [
        (Reason.QUEUE_MISSING, unusable_queue("q", None)),
        (Reason.QUEUE_CLOSED, unusable_queue("q", "Closed")),
        (Reason.OVER_QUOTA, first(head=job(), pod_groups=[group()], queues=[queue(allocated={"cpu": "3"})])),
        (Reason.WAITING_IN_QUEUE, first(head=job(), pod_groups=[group()], queues=[queue(state="Open")])),
    ],
)
def test_the_page_gives_the_advice_of_a_diagnosis(reason: Reason, diagnosis: Diagnosis) -> None:
    assert diagnosis.reason is reason
    advice = re.sub(r" \([^)]*\)|; priority_class.*", "", diagnosis.resolution)
    assert plain(advice) in rows()[reason.value][1]


def test_every_cause_has_its_rank() -> None:
    assert set(CAUSES) == set(Reason) - QUIET
