"""Site: what a controller offers to its pages. Data only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from torchx_pulumi.logs.waiting import LogStop

from torchx_pulumi_fleet.tracker.live_fleet import LiveApp, LiveFleet
from torchx_pulumi_fleet.web.answers import Event, Runs, ShownQueue
from torchx_pulumi_fleet.web.logs import LogRequest

OpenLog = Callable[[LiveApp, LogRequest, LogStop], Iterator[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What a controller offers to its pages. Its functions are called in any thread."""

    fleet: LiveFleet
    backends: Sequence[str]
    """URLs of the Pulumi backends, without credentials."""
    problems: Callable[[], Sequence[str]]
    """Texts of the problems that have begun and not ended."""
    not_ready: Callable[[], str]
    """Why pages are not complete yet. Empty: they are."""
    events: Callable[[LiveApp], Sequence[Event]]
    """Returns the events of an app's objects, the newest first (`events_of`). May raise a ClusterError."""
    queues: Callable[[], list[ShownQueue]]
    """Returns the queues of the watched clusters (`queues_of`)."""
    runs: Callable[[LiveApp], Runs]
    """Returns the runs of an app and the updates of its stack (`RunHistory.of`)."""
    metrics: Callable[[], tuple[bytes, str]]
    """Returns the metrics, and their content type."""
    logs: OpenLog | None
    """Opens the log of an app (`LiveLogs.open`). None: logs are not served, as they never are without a token."""
    report: Callable[[str, str], None]
    """Takes what has failed, and a line about it for the people who run the controller; one line for each."""

    def remarks(self) -> tuple[str, ...]:
        """Return notes for readers of the pages: why they are not complete, and the problems."""
        waiting = self.not_ready()
        return ((waiting,) if waiting else ()) + tuple(self.problems())
