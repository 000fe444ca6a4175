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


@pytest.mark.parametrize(("uid", "state"), [("u", "RUNNING"), ("of another run", None)])
def test_what_is_observed_and_requested_of_a_run_is_in_its_outputs(uid: str, state: str | None) -> None:
    requested = {"action": "cancel", "at": "2026-01-01T10:00:00Z", "counter": 1.0, "uid": "u"}
    outputs = {"uid": uid, "observed": {"state": "RUNNING"}, "requested": requested}
    answer = StackState(urn="urn", record=RUN, outputs=outputs).answer(RUN)
    assert answer.observed.get("state") == state
    assert (answer.requested is None) is (state is None)


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
