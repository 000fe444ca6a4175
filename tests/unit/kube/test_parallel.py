"""Several reads at once."""

from __future__ import annotations

import threading

import pytest
from torchx_pulumi.kube import run_concurrently


def test_they_run_at_the_same_time_and_answer_in_their_order() -> None:
    met = threading.Barrier(3, timeout=5)

    def call(answer: str) -> str:
        met.wait()
        return answer

    assert run_concurrently(lambda: call("a"), lambda: call("b"), lambda: call("c")) == ["a", "b", "c"]
    assert run_concurrently() == []
    assert run_concurrently(None, lambda: "a", None) == [None, "a", None]


def test_the_first_error_is_raised_when_all_have_ended() -> None:
    ended: list[str] = []

    def fail(text: str) -> None:
        raise ValueError(text)

    with pytest.raises(ValueError, match="one"):
        run_concurrently(lambda: fail("one"), lambda: fail("two"), lambda: ended.append("three"))
    assert ended == ["three"]
