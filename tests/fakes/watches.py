"""Watches of a cluster in memory: the history of its changes, and streams of them."""

from __future__ import annotations

import copy
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.kube.protocol import EXPIRED, Selector, WatchEvent, matches
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.options import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One change of one object."""

    version: int
    before: Manifest | None
    after: Manifest | None


class FakeHistory:
    """The last changes of all objects."""

    def __init__(self, limit: int) -> None:
        """Begin without changes.

        Args:
            limit: Changes that are kept. A watch from an earlier version is refused.
        """
        self.changed = threading.Condition(threading.RLock())
        """Guards the objects of the cluster too; notified after each change."""
        self.version = 0
        self.error: ClusterError | None = None
        """Interrupts all watches. None: the cluster answers."""
        self.ended = 0
        """How often all watches were ended."""
        self.bookmarks = 0
        """How many bookmarks each watch was sent."""
        self._steps: deque[_Step] = deque(maxlen=limit)

    def next_version(self) -> int:
        """Return a new version."""
        self.version += 1
        return self.version

    def add(self, before: Manifest | None, after: Manifest | None) -> None:
        """Add a change that has the current version."""
        self._steps.append(_Step(version=self.version, before=before, after=after))
        self.changed.notify_all()

    def forget(self) -> None:
        """Drop all changes: watches from any earlier version are refused."""
        with self.changed:
            self.next_version()
            self._steps.clear()

    def check(self, version: int) -> None:
        """Check that all changes since a version are known.

        Raises:
            ClusterError: They are not.
        """
        oldest = self._steps[0].version if self._steps else self.version + 1
        if version < oldest - 1:
            raise ClusterError(
                f"the fake cluster answered 410: too old resource version: {version} ({oldest})",
                retryable=True,
                reason=EXPIRED,
            )

    def since(self, version: int) -> Iterator[_Step]:
        """Yield the changes after a version."""
        return (step for step in self._steps if step.version > version)


class FakeWatch:
    """`WatchEvents` of a history."""

    def __init__(
        self, history: FakeHistory, kind: Kind, namespace: str | None, selector: Selector | None, version: int
    ) -> None:
        self._history = history
        self._kind = kind
        self._namespace = namespace
        self._selector = selector
        self._version = version
        self._ended = history.ended
        self._bookmarks = history.bookmarks
        self._closed = False

    def __iter__(self) -> Iterator[WatchEvent]:
        """Return the iterator itself."""
        return self

    def __next__(self) -> WatchEvent:
        """Return the next event."""
        history = self._history
        with history.changed:
            while True:
                if self._closed or history.ended != self._ended:
                    raise StopIteration
                if history.error is not None:
                    self._closed = True
                    raise ClusterError(
                        f"the watch of {self._kind.plural} from the fake cluster was interrupted",
                        retryable=True,
                        reason="BrokenStream",
                    )
                event = self._next_event()
                if event is not None:
                    return event
                history.changed.wait()

    def _next_event(self) -> WatchEvent | None:
        history = self._history
        history.check(self._version)
        for step in history.since(self._version):
            self._version = step.version
            event = self._event(step)
            if event is not None:
                return event
        if self._bookmarks < history.bookmarks:
            self._bookmarks += 1
            meta = {"resourceVersion": str(history.version)}
            found = {"apiVersion": self._kind.api_version, "kind": self._kind.kind, "metadata": meta}
            return WatchEvent(type="BOOKMARK", object=found)
        return None

    def _event(self, step: _Step) -> WatchEvent | None:
        """Return the event of a change. None: this watch does not concern it."""
        before, after = self._selects(step.before), self._selects(step.after)
        if after is not None:
            return WatchEvent(type="MODIFIED" if before is not None else "ADDED", object=copy.deepcopy(after))
        if before is None:
            return None
        last = copy.deepcopy(step.after or before)
        last["metadata"]["resourceVersion"] = str(step.version)
        return WatchEvent(type="DELETED", object=last)

    def _selects(self, found: Manifest | None) -> Manifest | None:
        if found is None or (found["apiVersion"], found["kind"]) != (self._kind.api_version, self._kind.kind):
            return None
        if self._namespace and text_at(found, "metadata", "namespace") != self._namespace:
            return None
        return found if matches(found, self._selector) else None

    def close(self) -> None:
        """End the watch, and the wait of other threads."""
        with self._history.changed:
            self._closed = True
            self._history.changed.notify_all()
