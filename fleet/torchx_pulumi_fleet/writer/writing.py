"""The writer of stacks: what is seen of an app in its cluster is written where its stack says something else.

All state is in the stack. docs/decisions/0017 has the rules.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from torchx_pulumi.apps.answer import StackChange
from torchx_pulumi.apps.app import App, AppKey
from torchx_pulumi.apps.judge import Weight, weight
from torchx_pulumi.apps.look import Look
from torchx_pulumi.model.app_entry import StackRef
from torchx_pulumi.model.errors import ClusterError, TorchxPulumiError
from torchx_pulumi.model.object_fields import number_at
from torchx_pulumi.model.status import read_state
from torchx_pulumi.runs.driver import Recorded, Written

from torchx_pulumi_fleet.tracker.live_fleet import live_id
from torchx_pulumi_fleet.tracker.looking import Sighting, is_behind, is_told, known_of, sighting_of
from torchx_pulumi_fleet.tracker.observing import WAITS, ClusterView
from torchx_pulumi_fleet.writer.shared import ControllerParts

BEHIND_S = 1.0
"""Time until an app is looked at again if its watch is behind the cluster."""

BUSY_S = 0.1
"""Time until a stack that another thread writes is tried again."""

LOCKED_S = 600.0
"""Time for which an end waits closely for a lock. A lock that stays longer was probably left by a dead process."""


def look_for(shared: ControllerParts, app: App, *, to_write: bool) -> Sighting | None:
    """Look at an app in its cluster, and queue it again if the watch may not tell its next change.

    Args:
        shared: What the parts of the controller share.
        app: The app.
        to_write: It is written to the stack. False: it is only shown, and what the fleet shows counts as known.

    Returns:
        The new observation. None: nothing new, or unknown.

    Raises:
        ClusterError: A cluster does not answer.
    """
    shown = None if to_write or shared.fleet is None else shared.fleet.find(live_id(app.key))
    before = known_of(app, shown, app.answer.requested)
    failure: ClusterError | None = None
    for view in [view for view in shared.views if view.job_object(app) is not None] or shared.views:
        try:
            found = sighting_of(view, app, shared.now(), before, shared.tracked.is_changing)
        except ClusterError as error:
            failure = error
            continue
        _look_later(shared, app, view, found)
        if found is not None:
            return found
    if failure is not None:
        raise failure
    return None


def _look_later(shared: ControllerParts, app: App, view: ClusterView, found: Sighting | None) -> None:
    watched, unwatched_s = view.job_object(app) is not None, shared.timing.unwatched_s
    if found is None:
        if watched:
            shared.queue_of(app.key).add(app.key, BEHIND_S)
    elif found.look.changing:
        shared.queue_of(app.key).add(app.key, unwatched_s, pending=False)
    elif not found.look.gone and not watched:
        shared.queue_of(app.key).add(app.key, BEHIND_S if view.is_synced(app) else unwatched_s, pending=False)


class StackWriter:
    """Looks at apps, shows what it sees and writes their stacks; one call per app at a time."""

    def __init__(self, shared: ControllerParts) -> None:
        """Take what the parts of the controller share."""
        self._shared = shared
        self._reporter, self._tracked, self._timing = shared.reporter, shared.tracked, shared.timing
        self._success_at: dict[str, float] = {}
        self._guard = threading.Lock()
        self._writing: set[StackRef] = set()
        """Stacks that a thread writes."""
        self._locked_at: dict[StackRef, float] = {}
        """When a lock of another process was last seen on a stack, until it was left alone long enough."""
        self.outcomes: Counter[tuple[str, str]] = Counter()
        """Backend and outcome of writes, `error` for a defect, to their number since the start."""

    def settle(self, key: AppKey) -> None:
        """Write how an app stands if its stack says something else, or add the app to the queue again."""
        app, queue = self._tracked.app(key), self._shared.queue_of(key)
        if app is None:
            self._shared.drop(key)
            return
        if app.left_alone:
            words = f"{app.app_id}: stack {app.stack} is left alone: {app.left_alone}"
            self._reporter.once(f"unwritable {key}", words)
            queue.succeeded(key)
            return
        writes = self._is_written(app)
        if not writes and self._shared.fleet is None:
            return
        try:
            sighting = look_for(self._shared, app, to_write=writes)
        except ClusterError:
            # The watch reports a cluster that is away.
            queue.retry(key)
            return
        if sighting is None:
            return
        if self._shared.fleet is not None:
            self._shared.fleet.put_seen(key, app.uid, sighting.observed, cluster=sighting.cluster)
        self._say_if_behind(app, sighting.look)
        observed = sighting.observed or app.answer.observed
        if read_state(observed.get("state")) in WAITS and not sighting.look.gone:
            queue.add(key, self._timing.recheck_s, pending=False)
        if is_told(observed, app.answer.observed):
            self._settled(app)
        elif writes:
            self._write(app, sighting.look, observed)
        else:
            queue.succeeded(key)

    def stand_by(self) -> None:
        """Drop the problems of writes: another process has them now."""
        for backend in {app.place.backend for app in self._tracked.apps()}:
            self._reporter.forget(f"writes {backend}")
        for key, work in [*self._shared.work.items()]:
            work.failing_since = None
            self._reporter.forget(f"write {key}")

    def _is_written(self, app: App) -> bool:
        """Return whether this process writes the stack of an app."""
        is_wanted = app.entry is not None or self._shared.settings.program_stacks
        if not (self._shared.leading() and app.uid and is_wanted) or app.place.backend in self._tracked.only_shown:
            # A launch that is running writes the uid at its end, and the stack is read again then.
            return False
        if app.has_secrets:
            words = f"{app.app_id}: stack {app.stack} is not written: values of its outputs are secret"
            self._reporter.once(f"unwritable {app.key}", words)
        return not app.has_secrets

    def _say_if_behind(self, app: App, look: Look) -> None:
        if look.confirmed and look.status is not None and is_behind(look, app.answer.observed):
            known = number_at(app.answer.observed, "attempt") or 1
            words = (
                f"{app.app_id}: attempt {look.status.attempt} in the cluster, {known} in stack {app.stack}: the "
                "cluster may have been restored from a backup; the stack is written when the run ends"
            )
            self._reporter.once(f"restored {app.key}", words)

    def _write(self, app: App, look: Look, observed: Mapping[str, Any]) -> None:
        """Write what the stack does not have, now or when it is due."""
        key, has_ended, work = app.key, weight(observed) is not Weight.ACTIVE, self._shared.work_of(app.key)
        since_s = math.inf if work.written_at is None else self._shared.clock() - work.written_at
        if not has_ended and since_s < self._timing.write_every_s:
            self._shared.queue_of(key).add(key, self._timing.write_every_s - since_s)
            return
        if not self._shared.leading():
            return
        with self._guard:
            if app.place in self._writing:
                self._shared.queue_of(key).add(key, BUSY_S)
                return
            self._writing.add(app.place)
        # Looked at once, also if the write is tried again.
        others = functools.cache(lambda: self._waiting_with(app))
        try:
            if app.place in self._locked_at and not self._is_quiet(app, has_ended=has_ended):
                return
            written = self._record(app, look, lambda: [change for _, change in others()])
        finally:
            with self._guard:
                self._writing.discard(app.place)
        if written.answer is not None:
            self._tracked.note_answer(key, written.answer)
        if written.outcome is Recorded.WRITTEN:
            backend = app.place.backend
            self._success_at[backend] = self._shared.clock()
            self._reporter.end(f"writes {backend}", f"backend {backend}: stacks can be written again")
            for other, known in others() if written.also else ():
                if known.uid in written.also:
                    self._tracked.note_answer(other.key, written.also[known.uid])
                    self._note_written(other)
            self._note_written(app)
        elif written.outcome is Recorded.KNOWN:
            now = self._tracked.app(key) if written.answer is not None else self._tracked.reread(app)
            if now is not None and now.uid == app.uid:
                self._settled(now)
            elif now is not None:
                self._shared.queue_of(key).retry(key)
        elif written.outcome is Recorded.LEFT and self._tracked.is_there(app.place.backend):
            self._left(app)
        else:
            self._deferred(app, has_ended=has_ended)

    def _record(self, app: App, look: Look, also: Callable[[], list[StackChange]]) -> Written:
        outcome, change = "error", StackChange(uid=app.uid or "", look=look)
        try:
            program_stacks = self._shared.settings.program_stacks
            written = self._shared.driver.record_at(app.place, change, also=also, program_stacks=program_stacks)
            outcome = written.outcome.value
        finally:
            with self._guard:
                self.outcomes[app.place.backend, outcome] += 1
        return written

    def _is_quiet(self, app: App, *, has_ended: bool) -> bool:
        """Return whether no foreign lock was seen for a while. If one was, the app is queued again."""
        if self._is_locked(app):
            # The lock may be of one of our own processes, which has ended since it was seen.
            self._shared.driver.clear_dead_locks(app.place.backend, app.place)
            self._deferred(app, has_ended=has_ended)
            return False
        left_s = self._locked_at[app.place] + self._timing.quiet_s - self._shared.clock()
        if left_s > 0:
            self._shared.queue_of(app.key).add(app.key, left_s)
            return False
        del self._locked_at[app.place]
        return True

    def _is_locked(self, app: App) -> bool:
        try:
            return self._tracked.is_locked(app)
        except TorchxPulumiError:
            return False

    def _waiting_with(self, app: App) -> list[tuple[App, StackChange]]:
        """Return the other apps in the stack of an app that wait to be written, so that one lock serves all."""
        found = []
        for key in self._shared.queue_of(app.key).pending():
            other = self._tracked.app(key) if key[:2] == app.key[:2] and key != app.key else None
            if other is None or other.uid == app.uid or not self._is_written(other):
                continue
            with contextlib.suppress(ClusterError):
                sighting = look_for(self._shared, other, to_write=True)
                if sighting is not None and not is_told(sighting.observed, other.answer.observed):
                    found.append((other, StackChange(uid=other.uid or "", look=sighting.look)))
        return found

    def _note_written(self, app: App) -> None:
        now = self._tracked.app(app.key) or app
        self._shared.work_of(app.key).written_at = self._shared.clock()
        state, reason = now.answer.observed.get("state"), now.answer.observed.get("reason")
        self._reporter.line(f"{app.app_id}: {state} ({reason}) is in stack {app.stack}")
        self._settled(now)

    def _left(self, app: App) -> None:
        now, again_s, queue = self._tracked.reread(app), self._timing.left_again_s, self._shared.queue_of(app.key)
        if now is None:
            return
        if now.left_alone:
            queue.add(app.key)
            return
        self._reporter.begin(
            f"writes {app.place.backend}",
            f"backend {app.place.backend}: stack {app.stack} cannot be written: it may not be written, or the "
            f"checkpoint has a format that only the Pulumi CLI writes; it is tried again every {again_s:g} s",
        )
        queue.add(app.key, again_s, pending=False)

    def _deferred(self, app: App, *, has_ended: bool) -> None:
        now, work = self._shared.clock(), self._shared.work_of(app.key)
        since = work.failing_since = now if work.failing_since is None else work.failing_since
        longest_s = self._timing.longest_retry_s
        if self._is_locked(app):
            self._locked_at[app.place] = now
            if has_ended and now - since < LOCKED_S:
                longest_s = self._timing.locked_retry_s
        self._shared.queue_of(app.key).retry(app.key, longest_s)
        if now - since < self._timing.failing_s:
            return
        why = (
            f"stack {app.stack} is not written yet: an update holds its lock, an operation is pending, or the backend "
            "cannot be reached or has no space; it is tried again"
        )
        if self._success_at.get(app.place.backend, since - 1) >= since:
            self._reporter.begin(f"write {app.key}", f"{app.app_id}: {why}")
        else:
            self._reporter.begin(f"writes {app.place.backend}", f"backend {app.place.backend}: {why}")

    def _settled(self, app: App) -> None:
        self._shared.queue_of(app.key).succeeded(app.key)
        for view in self._shared.views:
            view.forget(app.uid)
        work = self._shared.work_of(app.key)
        if work.failing_since is not None:
            work.failing_since = None
            self._reporter.end(f"write {app.key}", f"{app.app_id}: stack {app.stack} is written again")
