"""Which end of a run counts where the record of 0.1.0 and the component's output differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from torchx_pulumi.model.run_record import RunRecord
from torchx_pulumi_components.stack_state import StackState

RUN = RunRecord(
    app_id="a", job_name="a", namespace="n", hash="h", digests={}, launched={}, replicas={}, attempt=1,
    launched_at="", uid="u",
)  # fmt: skip


def seen(state: str, minute: int) -> dict[str, Any]:
    return {"state": state, "attempt": 1, "uid": "u", "observed_at": f"2026-01-01T10:{minute:02}:00Z"}


@pytest.mark.parametrize(
    ("recorded", "output", "end"),
    [
        (None, None, None),
        (None, seen("RUNNING", 1), None),
        (None, seen("SUCCEEDED", 1), "SUCCEEDED"),
        # An `up` while the job was Aborted; then it was resumed.
        (seen("CANCELLED", 1), seen("RUNNING", 2), None),
        (seen("CANCELLED", 1), seen("SUCCEEDED", 2), "SUCCEEDED"),
        (seen("CANCELLED", 2), seen("RUNNING", 1), "CANCELLED"),
        (seen("FAILED", 1), seen("RUNNING", 2), "FAILED"),
    ],
)
def test_the_end_of_a_run_is_the_newer_one_unless_it_was_left_again(recorded: Any, output: Any, end: Any) -> None:
    run = replace(RUN, observed=recorded)
    past = StackState(
        urn="urn",
        record=run,
        outputs={"uid": "u", "observed": output} if output else {},
    )
    found = past.end_of(run)
    assert (found or {}).get("state") == end


@pytest.mark.parametrize(
    ("record", "intent", "interrupted"),
    [(None, None, False), (None, 1, True), (1, 1, False), (1, 2, True), (2, None, False)],
)
def test_a_launch_that_was_begun_and_not_confirmed_is_known(
    record: int | None, intent: int | None, interrupted: bool
) -> None:
    def at(attempt: int | None) -> RunRecord | None:
        return None if attempt is None else replace(RUN, attempt=attempt)

    assert StackState(urn="urn", record=at(record), intent=at(intent)).interrupted is interrupted
