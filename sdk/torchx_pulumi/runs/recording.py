"""Keep how an app stands: each look is noted in the index, and ends and requests are written to its stack too."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from torchx_pulumi.apps.answer import Answer, StackChange
from torchx_pulumi.apps.judge import Weight, judge, latest, was_resumed, weight
from torchx_pulumi.apps.look import Look
from torchx_pulumi.model.app_entry import RunEntry, Stage
from torchx_pulumi.model.errors import TorchxPulumiError
from torchx_pulumi.model.object_fields import text_at, time_at
from torchx_pulumi.model.requested import Requested, RequestedAction
from torchx_pulumi.model.status import JobState, Reason, read_state
from torchx_pulumi.model.timestamps import EPOCH, format_time
from torchx_pulumi.outputs.building import build_observed, same
from torchx_pulumi.runs.driver import Driver, Recorded, Written
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.runs.observation import Noted, end_of, status_of, with_replicas

logger = logging.getLogger(__name__)

RETRY_AFTER_S = {Recorded.DEFERRED.value: 5.0, Recorded.LEFT.value: 3600.0}
"""Seconds until a write that was not possible is tried again. An outcome that is not in it is final."""

REQUEST_PAUSES_S = (0.2, 0.4, 0.8)
"""Pauses between attempts to write a request: others that write a state hold the stack's lock for at most 1 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecords:
    """The index of this machine and the stacks, which keep how apps stand."""

    index: RunIndex
    driver: Callable[[], Driver]
    """Returns the engine; called only to read or write a stack."""

    def note(self, entry: RunEntry, look: Look) -> Mapping[str, Any] | None:
        """Judge a look, note the result, write an end to the stack, and return how the run stands.

        The stack is read only if it may say more: the objects do not show a run that goes on, and the index has no
        end that came from the stack or was written to it. What cannot be read or written is logged. A request that is
        in the index only is written first.

        Returns:
            An `Observation` whose roles may list more replicas than the output. None: unknown.
        """
        entry, answer = self.write_request(self._as_kept(entry), look)
        last = None
        try:
            last = self.index.noted(entry)
            before, request = None if last is None else last.observed, entry.requested
            found = _judged(look, request, before)
            if answer is None and _stack_may_say_more(look, found, last):
                answer = self.answer(entry)
            if answer is not None:
                entry = self._with_request(entry, answer)
            known = answer.observed if answer is not None else {}

            def decide(now: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
                later = _later(now, known, entry.requested)
                if later != before or entry.requested != request:
                    return _judged(look, entry.requested, later)
                # Neither another process nor the stack has said anything since.
                return now if found is before else found

            noted = self.index.observe(entry, decide)
        except TorchxPulumiError as error:
            logger.warning("what was seen of %s is not kept: %s", entry.app_id, error)
            found = _judged(look, entry.requested, answer.observed if answer is not None and answer.observed else None)
            noted = None if found is None else Noted(observed=found)
        if noted is None or not noted.state.terminal:
            if noted is not None and last is not None and last.state.terminal and _has_stack(entry):
                # The run was resumed, and its stack may say that it was cancelled.
                written = self._try(entry, StackChange(uid=entry.uid or "", look=look))
                if (now := _readable(written.answer, entry)) is not None:
                    self._with_request(entry, now)
            return None if noted is None else noted.observed
        return self._record_end(entry, look, noted, answer)

    def answer(self, entry: RunEntry) -> Answer | None:
        """Return the observation in the stack of an app. None: it cannot be read, or there is none."""
        if entry.uid is None or not _has_stack(entry):
            return None
        try:
            return _readable(self.driver().answer(entry), entry)
        except TorchxPulumiError as error:
            logger.debug("what the stack of %s says is not known: %s", entry.app_id, error)
            return None

    def request(self, entry: RunEntry, look: Look, action: RequestedAction, *, by: str | None) -> tuple[RunEntry, bool]:
        """Write that an app is to be cancelled or resumed, before the cluster is asked.

        If it is to be cancelled already, that request stays. If another one got in between, the next number is
        taken. A request that cannot be written stays in the index, with a warning.

        Args:
            entry: The app.
            look: What was read of it just now.
            action: What is requested.
            by: User who requests it. None: not known.

        Returns:
            The app with its last request, and whether that is a new one.
        """
        asked = Requested(
            action=action,
            at=format_time(look.at),
            by=by,
            uid=entry.uid,
            attempt=1 if look.status is None else look.status.attempt,
            resource_version=look.resource_version,
        )
        waits = entry.requested
        if waits is not None and not entry.request_written and _covers(waits, asked):
            return self._write_next(entry, look, waits)[0], False
        return self._write_next(entry, look, asked)

    def take_back(self, entry: RunEntry, look: Look, before: RunEntry, *, by: str | None) -> None:
        """Take back a cancellation that the cluster refused: the request before it stands again, under a new number.

        Without such a request, the run is to go on.

        Args:
            entry: The app with the refused cancellation.
            look: What was read of it before the request.
            before: The app before the request.
            by: User who made the refused request. None: not known.
        """
        if not entry.request_written:
            # No stack has it.
            self._keep(entry, before.requested, written=before.request_written)
        elif before.requested is not None:
            self._write_next(entry, look, before.requested)
        else:
            self.request(entry, look, RequestedAction.RESUME, by=by)

    def write_request(self, entry: RunEntry, look: Look) -> tuple[RunEntry, Answer | None]:
        """Write the request of an app that only the index has, if there is one.

        Returns:
            The app, and what its stack says. None: nothing was written.
        """
        request = entry.requested
        if request is None or entry.request_written or entry.uid is None or not _has_stack(entry):
            return entry, None
        written = self._try(entry, StackChange(uid=entry.uid, look=look, request=request))
        answer = _readable(written.answer, entry)
        if answer is None and written.outcome is not Recorded.KNOWN:
            return entry, None
        present = None if answer is None else answer.requested
        if present != request:
            now = "another run" if answer is None else present.words if present is not None else "nothing"
            logger.warning(
                "app %s: that it was %s is not written any more; its stack says: %s", entry.app_id, request.words, now
            )
        return self._keep(entry, present, written=True), answer

    def _write_next(self, entry: RunEntry, look: Look, asked: Requested) -> tuple[RunEntry, bool]:
        """Write a request with the number that follows that of the last one, unless that one covers it.

        Returns:
            The app with its last request, and whether that is a new one.
        """
        outcome = Recorded.LEFT
        for pause_s in (0.0, *REQUEST_PAUSES_S):
            time.sleep(pause_s)
            answer = self.answer(entry)
            last = answer.requested if answer is not None else entry.requested if entry.request_written else None
            if last is not None and _covers(last, asked):
                return self._keep(entry, last, written=True), False
            request = replace(asked, counter=_next_number(entry, answer))
            entry = self._keep(entry, request, written=False)
            if entry.uid is None or not _has_stack(entry):
                break
            written = self._try(entry, StackChange(uid=entry.uid, look=look, request=request))
            outcome = written.outcome
            if written.answer is not None and written.answer.requested == request:
                return self._keep(entry, request, written=True), True
            if outcome is Recorded.LEFT or (written.answer is None and outcome is Recorded.KNOWN):
                break
        stack = f"stack {entry.place.cli_name} in {entry.place.backend}" if entry.has_stack else "its stack"
        # Only an app in the index keeps what is to be written.
        later = (
            f", and count it as {JobState.UNKNOWN.value} once its objects are gone: run the same command again later"
            if entry.of_program
            else ". The next `torchx status` of this user writes it"
        )
        logger.warning(
            "app %s: %s does not say yet that it was %s: %s. Controllers and colleagues do not know of it%s",
            *(entry.app_id, stack, asked.words, _WHY[outcome], later),
        )
        return entry, True

    def _record_end(self, entry: RunEntry, look: Look, noted: Noted, answer: Answer | None) -> Mapping[str, Any]:
        """Write an end to its app's stack if that is due, and return the end that the stack has then."""
        if not _has_stack(entry) or entry.uid is None or not _is_due(noted, look.at):
            return noted.observed
        if answer is not None and end_of(answer.observed) == noted.of_end:
            written = Written(outcome=Recorded.KNOWN, answer=answer)
        else:
            written = self._try(entry, StackChange(uid=entry.uid, look=look, observed=_for_stack(noted, look)))
        now = _readable(written.answer, entry)
        try:
            if now is not None:
                entry = self._with_request(entry, now)
                if read_state(now.observed.get("state")).terminal and end_of(now.observed) != noted.of_end:
                    # It was judged under the lock of the stack, with requests that are not known here.
                    noted = self.index.observe(entry, lambda _: now.observed) or noted
            self.index.note_recorded(entry, noted, written.outcome.value, format_time(look.at))
        except TorchxPulumiError as error:
            logger.debug("that the end of %s was written is not kept: %s", entry.app_id, error)
        return noted.observed

    def _try(self, entry: RunEntry, change: StackChange) -> Written:
        try:
            return self.driver().record(entry, change)
        except TorchxPulumiError as error:
            logger.warning("what is known of %s is not in its stack yet: %s", entry.app_id, error)
            return Written(outcome=Recorded.DEFERRED)

    def _with_request(self, entry: RunEntry, answer: Answer) -> RunEntry:
        """Return an app with its stack's request, unless a later one of this user waits to be written."""
        waits = entry.requested is not None and not entry.request_written
        if waits or answer.requested in (None, entry.requested):
            return entry
        return self._keep(entry, answer.requested, written=True)

    def _as_kept(self, entry: RunEntry) -> RunEntry:
        """Return an app with the request that the index has by now."""
        try:
            now = self.index.get(entry)
        except TorchxPulumiError:
            return entry
        if now is None or (now.launch, now.uid) != (entry.launch, entry.uid):
            return entry
        return replace(entry, requested=now.requested, request_written=now.request_written)

    def _keep(self, entry: RunEntry, request: Requested | None, *, written: bool) -> RunEntry:
        """Keep a request in the index, if the app is in it, and return the app with it."""
        try:
            kept = self.index.change(entry, lambda now: replace(now, requested=request, request_written=written))
        except TorchxPulumiError as error:
            logger.warning("what was requested of %s is not kept: %s", entry.app_id, error)
            kept = None
        return kept or replace(entry, requested=request, request_written=written)


_WHY = {
    Recorded.DEFERRED: "another process works on the stack, or it cannot be reached",
    Recorded.LEFT: "it is not known here, is gone, has secrets, or cannot be written by this user",
    Recorded.KNOWN: "it has another run, or other requests got in between",
    Recorded.WRITTEN: "other requests got in between",
}


def _judged(look: Look, request: Requested | None, last: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return `judge` with as many replicas as the index notes; `last` itself if nothing has changed."""
    found = judge(look, request, last)
    if found is None or found is last:
        return last
    whole = with_replicas(found, look.status)
    return last if last is not None and same(last, whole) else whole


def _later(
    last: Mapping[str, Any] | None, stack: Mapping[str, Any], request: Requested | None
) -> Mapping[str, Any] | None:
    """Return which of the observations of index and stack says more. That objects are gone is judged anew."""
    if not stack or stack.get("reason") == Reason.NOT_FOUND.value:
        return last
    return stack if last is None or was_resumed(last, request) else latest(last, stack)


def _stack_may_say_more(look: Look, found: Mapping[str, Any] | None, noted: Noted | None) -> bool:
    if found is None:
        return True
    if noted is not None and noted.recorded is not None and weight(found) is Weight.SEEN:
        # A run that was cancelled may have been resumed by somebody else.
        return read_state(found.get("state")) is JobState.CANCELLED
    goes_on = look.objects is not None and not look.gone and weight(found) is Weight.ACTIVE
    # Of these the last request decides, and another user may have made a later one.
    return not goes_on or found.get("reason") in (Reason.CANCELLED.value, Reason.RESTARTING.value)


def _covers(last: Requested, asked: Requested) -> bool:
    """Return whether a run is to be cancelled already, and was not started again since."""
    same_run = last.is_about(asked.uid) and last.attempt >= asked.attempt
    return last.action is asked.action is RequestedAction.CANCEL and same_run


def _readable(answer: Answer | None, entry: RunEntry) -> Answer | None:
    """Return the answer of a stack about the run that is known here, without an observation that cannot be read."""
    if answer is None or text_at(answer.observed, "uid") not in (None, entry.uid):
        return None
    if answer.requested is not None and not answer.requested.is_about(entry.uid):
        answer = replace(answer, requested=None)
    try:
        known = (
            text_at(answer.observed, "state") in JobState.__members__ and text_at(answer.observed, "uid") is not None
        )
        return answer if known and status_of(answer.observed) else replace(answer, observed={})
    except ValueError:
        return replace(answer, observed={})


def _next_number(entry: RunEntry, answer: Answer | None) -> int:
    if answer is not None:
        return 1 if answer.requested is None else answer.requested.counter + 1
    known = entry.requested
    if known is None or not known.is_about(entry.uid):
        return 1
    return known.counter + 1 if entry.request_written else known.counter


def _for_stack(noted: Noted, look: Look) -> Mapping[str, Any]:
    """Return a noted end with as many replicas as an output lists."""
    seen = look.objects is not None and not look.gone
    return build_observed(
        status_of(noted.observed),
        observed_at=time_at(noted.observed, "observed_at") or EPOCH,
        source="live" if seen else "record",
        resource_version=text_at(noted.observed, "resource_version"),
    )


def _has_stack(entry: RunEntry) -> bool:
    return entry.stage is Stage.LAUNCHED and entry.has_stack


def _is_due(noted: Noted, now: datetime) -> bool:
    if noted.recorded is None:
        return True
    tried = time_at({"at": noted.recorded_at}, "at") or EPOCH
    wait_s = RETRY_AFTER_S.get(noted.recorded)
    return wait_s is not None and (now - tried).total_seconds() >= wait_s
