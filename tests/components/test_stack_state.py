"""What the state says of a component's last run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from torchx_pulumi.model.run_record import RunRecord
from torchx_pulumi_components.stack_state import StackState

RUN = RunRecord(
    app_id="a", job_name="a", namespace="n", hash="h", digests={}, launched={}, replicas={}, attempt=1,
    launched_at="", uid="u",
)  # fmt: skip


@pytest.mark.parametrize(
    ("uid", "output", "end"),
    [("u", None, None), ("u", "RUNNING", None), ("u", "SUCCEEDED", "SUCCEEDED"), ("of another run", "SUCCEEDED", None)],
)
def test_the_end_of_a_run_is_that_of_its_output(uid: str, output: str | None, end: str | None) -> None:
    past = StackState(urn="urn", record=RUN, outputs={"uid": uid, "observed": {"state": output}} if output else {})
    assert (past.end_of(RUN) or {}).get("state") == end


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
