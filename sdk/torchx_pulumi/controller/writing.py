"""StackWriter: brings the outputs of one app's stack in line with the cluster. Nothing is stored besides the stack.

docs/decisions/0017 has the rules.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from torchx_pulumi.controller.live_fleet import LiveFleet
from torchx_pulumi.controller.looking import Looker, is_known, told
from torchx_pulumi.controller.observing import WAITS, ClusterView, Sighting
from torchx_pulumi.controller.reporting import Reporter
from torchx_pulumi.controller.settings import ControllerTiming
from torchx_pulumi.controller.stack_apps import AppKey, TrackedApp
from torchx_pulumi.controller.tracked import TrackedStacks
from torchx_pulumi.controller.work_queue import WorkQueue
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import time_at
from torchx_pulumi.model.status import JobStatus, Reason
from torchx_pulumi.outputs.building import build_observed
from torchx_pulumi.runs.driver import Driver, Recorded

FAILURES_SHOWN = 6
"""Failures in a row, about 15 s, after which a line says that a stack is not written."""


class StackWriter:
    """Looks at apps, shows what it sees and writes their stacks; one call per app at a time."""

    def __init__(
        self,
        tracked: TrackedStacks,
        queue: WorkQueue[AppKey],
        views: Sequence[ClusterView],
        driver: Driver,
        reporter: Reporter,
        *,
        program_stacks: bool = False,
        fleet: LiveFleet | None = None,
        leading: Callable[[], bool] = lambda: True,
        timing: ControllerTiming | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        """Take the dependencies.

        Args:
            tracked: The apps.
            queue: Takes apps that have to be looked at again.
            views: The clusters.
            driver: Writes stacks.
            reporter: Takes lines.
            program_stacks: Write also the stacks of users' own programs.
            fleet: Takes what is seen, also of apps whose stacks are not written. None: there are no pages.
            leading: Returns whether this process writes stacks.
            timing: Times between steps. None: the defaults.
            clock: Monotonic time in seconds.
            now: The time of the observations, aware.
        """
        self._tracked = tracked
        self._queue = queue
        self._views = views
        self._driver = driver
        self._reporter = reporter
        self._program_stacks = program_stacks
        self._fleet = fleet
        self._leading = leading
        self._timing = timing or ControllerTiming()
        self._clock = clock
        self._now = now
        self._looker = Looker(tracked, queue, views, timing=self._timing, now=now)
        self._written_at: dict[AppKey, float] = {}
        self._refused: dict[AppKey, tuple[Any, Any]] = {}
        self._failing_since: dict[AppKey, float] = {}
        self._success_at: dict[str, float] = {}
        self._guard = threading.Lock()
        self._outcomes: Counter[tuple[str, str]] = Counter()

    def settle(self, key: AppKey) -> None:
        """Write what is seen of an app, if its stack says something else, or add the app to the queue again."""
        app = self._tracked.app(key)
        if app is None:
            self._forget(key)
            return
        writes = self._is_written(app)
        if not writes and self._fleet is None:
            return
        try:
            sighting = self._looker.look(app, to_write=writes)
        except ClusterError:
            # The watch reports a cluster that is away.
            self._queue.retry(key)
            return
        if sighting is None:
            return
        self._show(app, sighting)
        if sighting.status.state in WAITS:
            self._queue.add(key, self._timing.recheck_s, pending=False)
        if is_known(app, sighting.status):
            self._settled(app)
        elif writes:
            self._compare(app, sighting.status)
        else:
            self._queue.succeeded(key)

    def stand_by(self) -> None:
        """Drop the problems of writes: another process has them now."""
        for backend in {app.backend for app in self._tracked.apps()}:
            self._reporter.forget(f"writes {backend}")
        for key in [*self._failing_since]:
            self._failing_since.pop(key, None)
            self._reporter.forget(f"write {key}")

    def outcomes(self) -> dict[tuple[str, str], int]:
        """Return backend and outcome of writes, `error` for a defect, to their number since the start."""
        with self._guard:
            return dict(self._outcomes)

    def _is_written(self, app: TrackedApp) -> bool:
        """Return whether this process writes the stack of an app."""
        if not self._leading() or app.uid is None or not (app.by_torchx or self._program_stacks):
            # A launch that is running writes the uid at its end, and the stack is read again then.
            return False
        if app.has_secrets:
            words = f"{app.app_id}: stack {app.stack} is not written: values of its outputs are secret"
            self._reporter.once(f"unwritable {app.key}", words)
        return not app.has_secrets

    def _show(self, app: TrackedApp, sighting: Sighting) -> None:
        if self._fleet is None:
            return
        seen = _observed(sighting.status, self._now())
        shown = without_words(seen) if app.has_secrets else seen
        self._fleet.put_seen(app.key, app.uid, shown, cluster=sighting.cluster)

    def _forget(self, key: AppKey) -> None:
        self._looker.forget(key)
        for table in (self._written_at, self._refused, self._failing_since):
            table.pop(key, None)
        self._reporter.forget(f"unwritable {key}")
        self._reporter.forget(f"write {key}")
        self._queue.succeeded(key)

    def _compare(self, app: TrackedApp, status: JobStatus) -> None:
        """Write a status that the stack does not have, now or when it is due."""
        key = app.key
        if self._refused.get(key) == (app.observed, told(status)):
            return
        if not status.state.terminal and status.reason is not Reason.NOT_FOUND:
            wait_s = self._written_at.get(key, -self._timing.write_every_s) + self._timing.write_every_s - self._clock()
            if wait_s > 0:
                self._queue.add(key, wait_s)
                return
        self._write(app, status)

    def _write(self, app: TrackedApp, status: JobStatus) -> None:
        if not self._leading():
            return
        key, moment = app.key, self._now()
        last = time_at(app.observed, "observed_at")
        if last is not None and last >= moment:
            # This clock or that of the last writer was set.
            moment = last + timedelta(milliseconds=1)
        observed = _observed(status, moment)
        outcome = self._record(app, observed)
        if outcome is Recorded.WRITTEN:
            self._written_at[key], self._success_at[app.backend] = self._clock(), self._clock()
            self._tracked.note_written(key, observed)
            self._reporter.end(f"writes {app.backend}", f"backend {app.backend}: stacks can be written again")
            self._reporter.line(f"{app.app_id}: {status.state.value} ({status.reason.value}) is in stack {app.stack}")
            self._settled(app)
            for view in self._views if status.state.terminal else ():
                view.forget(app.uid)
        elif outcome is Recorded.KNOWN:
            self._read_again(app, status)
        elif outcome is Recorded.LEFT:
            self._left(app)
        else:
            self._deferred(app)

    def _record(self, app: TrackedApp, observed: Mapping[str, Any]) -> Recorded:
        outcome = "error"
        try:
            recorded = self._driver.record_at(
                app.place, observed, program_stacks=self._program_stacks, replaces=app.observed
            )
            outcome = recorded.value
            return recorded
        finally:
            with self._guard:
                self._outcomes[app.backend, outcome] += 1

    def _read_again(self, app: TrackedApp, status: JobStatus) -> None:
        """Continue with what the stack has now; a stack that has the same as before refuses the observation."""
        now = self._tracked.reread(app)
        if now is not None and now.observed == app.observed and now.uid == app.uid:
            self._refused[app.key] = (app.observed, told(status))
            self._settled(app)
        elif now is not None:
            self._queue.retry(app.key)

    def _left(self, app: TrackedApp) -> None:
        if not self._tracked.is_there(app.backend):
            self._deferred(app)
            return
        if self._tracked.reread(app) is None:
            return
        self._reporter.begin(
            f"writes {app.backend}",
            f"backend {app.backend}: stack {app.stack} cannot be written: there is no permission to write it, or the "
            "checkpoint has a format that only the Pulumi CLI writes; it is tried again every "
            f"{self._timing.left_again_s:g} s",
        )
        self._queue.add(app.key, self._timing.left_again_s, pending=False)

    def _deferred(self, app: TrackedApp) -> None:
        since = self._failing_since.setdefault(app.key, self._clock())
        if self._queue.retry(app.key) < FAILURES_SHOWN:
            return
        why = (
            "an update holds its lock, an operation is pending, or the backend cannot be reached or has no space; "
            "it is tried again"
        )
        if self._success_at.get(app.backend, since - 1) >= since:
            self._reporter.begin(f"write {app.key}", f"{app.app_id}: stack {app.stack} is not written yet: {why}")
        else:
            self._reporter.begin(
                f"writes {app.backend}", f"backend {app.backend}: stack {app.stack} is not written yet: {why}"
            )

    def _settled(self, app: TrackedApp) -> None:
        self._looker.forget_end(app.key)
        self._queue.succeeded(app.key)
        if self._failing_since.pop(app.key, None) is not None:
            self._reporter.end(f"write {app.key}", f"{app.app_id}: stack {app.stack} is written again")


def _observed(status: JobStatus, moment: datetime) -> dict[str, Any]:
    """Return an observation with its time in milliseconds: an app may change more than once in a second."""
    observed = dict(build_observed(status, observed_at=moment))
    observed["observed_at"] = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return observed


def without_words(observed: Mapping[str, Any]) -> dict[str, Any]:
    """Return an observation without explanations, which may quote a secret value of the job."""
    roles = [
        {**role, "replicas": [{**replica, "message": ""} for replica in role["replicas"]]} for role in observed["roles"]
    ]
    conditions = [{**each, "message": ""} for each in observed["conditions"]]
    message = "explanations are not shown: values of its outputs are secret"
    return {**observed, "message": message, "diagnoses": [], "conditions": conditions, "roles": roles}
