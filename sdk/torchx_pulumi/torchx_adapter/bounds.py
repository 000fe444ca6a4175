"""The end of waits that TorchX would never end: it asks again for as long as an app's state is not terminal."""

from __future__ import annotations

import threading

from torchx_pulumi.logs import Clock
from torchx_pulumi.model.app_entry import RunEntry
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.status import JobState, Reason
from torchx_pulumi.runs.waiting import GONE_S, REFUSED_S, UNREACHABLE_S, Patience, progress_line
from torchx_pulumi.torchx_adapter.observe import AppSnapshot
from torchx_pulumi.torchx_adapter.plain_errors import is_command

HOW_LONG = (
    f"asking again ends {GONE_S:g} s after a job's objects were found gone, after {REFUSED_S:g} s where the access is "
    f"refused, and after {UNREACHABLE_S:g} s without an answer"
)


class PollLimits:
    """Counts for how long each app has been asked for without learning its state. For use by several threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waits: dict[str, Patience] = {}
        self._unknown: tuple[str, float] | None = None
        """The app that was asked for last although it is not known, and since when. None: the last one is known."""
        self._guard = threading.Lock()

    def unknown(self, app_id: str) -> None:
        """Note that there is no such app: `torchx log` of TorchX 0.7.0 would ask for one for ever.

        Raises:
            ClusterError: The command `torchx` has asked for nothing else for `GONE_S`. Other programs go on.
        """
        with self._guard:
            now_s = self._clock.monotonic()
            if self._unknown is None or self._unknown[0] != app_id:
                self._unknown = app_id, now_s
            since_s = self._unknown[1]
        if is_command() and now_s - since_s >= GONE_S:
            text = f"app {app_id} is not known here; it was deleted, or never launched"
            raise ClusterError(f"{text}; `torchx list` names the apps that are known", reason=Reason.NOT_FOUND.value)

    def check(self, entry: RunEntry, snapshot: AppSnapshot) -> None:
        """Note what a look told.

        Raises:
            ClusterError: Looks have told nothing for so long that whoever waits would wait for ever; with the last
                known state and the reason.
        """
        gone = snapshot.reached and (snapshot.status.state, snapshot.status.reason) == (
            JobState.UNKNOWN,
            Reason.NOT_FOUND,
        )
        with self._guard:
            self._unknown = None
            if snapshot.status.state.terminal or (snapshot.error is None and not gone):
                self._waits.pop(entry.app_id, None)
                return
            patience = self._waits.setdefault(entry.app_id, Patience())
            now_s = self._clock.monotonic()
            over = patience.gone(now_s) if snapshot.error is None else patience.failed(snapshot.error, now_s)
        if not over:
            return
        if snapshot.error is None:
            text = f"{snapshot.status.message}; how it ended is not known, and the cluster has no trace of it any more"
            raise ClusterError(f"app {entry.app_id}: {text}; {HOW_LONG}", reason=Reason.NOT_FOUND.value)
        raise ClusterError(
            f"app {entry.app_id}, last known state: {progress_line(snapshot.status)}; {HOW_LONG}",
            retryable=snapshot.error.retryable,
            reason=snapshot.error.reason,
        )
