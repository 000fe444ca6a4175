"""Watch the objects of one kind: list them, then follow their changes, for as long as the process runs.

An outage of the watches of a cluster is logged once when it begins, and once when it ends.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from torchx_pulumi.kube.kinds import EVENT, Kind
from torchx_pulumi.kube.protocol import EXPIRED, Cluster, Key, Selector, WatchEvents, key_of
from torchx_pulumi.kube.trimming import trim
from torchx_pulumi.model.documentation import page
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.options import Manifest

from torchx_pulumi_fleet.watch.cached_objects import CachedEvents, CachedObjects

logger = logging.getLogger(__name__)

STOP_S: Final = 1.0
"""Seconds that `stop` waits for the thread. It ends later by itself if a request is under way."""

SHORT_STREAMS: Final = 6
"""Streams in a row that ended early after which it is logged."""

OWN: Final = frozenset(
    {"InternalError", "Invalid", "BadRequest", "NotAcceptable", "MethodNotAllowed", "NotFound", EXPIRED}
)
"""Reasons of errors that may concern one kind only, for example while its conversion webhook fails."""

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of a watched object."""

    kind: Kind
    type: ChangeType
    """An object that no longer has the labels of the watch is DELETED. A new object of the same name is two changes."""
    object: Manifest
    """The object after the change, trimmed; of a deleted one the last known state. It must not be changed."""
    previous: Manifest | None
    """The object before the change. None: it was not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchTiming:
    """Waits between the requests of a watch."""

    first_s: float = 1.0
    """Wait after a failure. Doubled by each further one in a row; the actual wait is between half of it and all."""
    longest_s: float = 60.0
    """Longest of these waits."""
    forbidden_s: float = 300.0
    """Wait after a refusal."""
    not_served_s: float = 60.0
    """Wait after the answer that the cluster does not serve the kind."""
    settled_s: float = 10.0
    """A watch that lasted for so long did not fail."""
    share: Callable[[], float] = random.random
    """Return a random number from 0 to 1."""
    monotonic: Callable[[], float] = time.monotonic
    """Return the seconds of a clock that does not jump."""

    def wait_s(self, failures: int) -> float:
        """Return the wait after a number of failures in a row."""
        longest = min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, 30))
        return longest * (0.5 + 0.5 * self.share())


class Outages:
    """The outages of the watches of one cluster."""

    def __init__(self, where: str) -> None:
        self._where = where
        """Name of the cluster in messages."""
        self._guard = threading.Lock()
        self._problems: dict[str, tuple[str, set[ObjectWatch]]] = {}
        """Place of watches, empty for the whole cluster, to what was said and the watches that do not work."""

    def problems(self) -> tuple[str, ...]:
        """Return the present outages, without kinds that the cluster does not serve."""
        with self._guard:
            return tuple(text for text, _ in self._problems.values() if text)

    @property
    def is_away(self) -> bool:
        """Return whether the cluster does not answer some of the watches."""
        return "" in self._problems

    def failed(self, watch: ObjectWatch, error: ClusterError) -> None:
        """Report a failure that may pass."""
        place, text = "", f"{error}; watching stopped and goes on when the cluster answers"
        if error.reason in OWN:
            place, text = watch.place, f"{error}; the watch of {watch.place} stopped and is tried again"
        if self._begins(place, watch, text):
            logger.warning("%s", text)

    def refused(self, watch: ObjectWatch, error: ClusterError) -> None:
        """Report that a kind cannot be watched. The cluster answered."""
        self._answered(watch)
        if error.reason == "Forbidden":
            text = (
                f"no permission to list and watch {watch.place} at {self._where}: its changes are not noticed by "
                f"themselves; it is read where that is allowed, at most every 30 s ({page('permissions')})"
            )
            if self._begins(watch.place, watch, text):
                logger.warning("%s", text)
        elif self._begins(watch.place, watch, ""):
            # Not the advice of the error: no app may need the kind.
            text = "%s does not serve %s (%s), which only some apps need; it is asked for again every minute"
            logger.info(text, self._where, watch.kind.kind, watch.kind.api_version)

    def recovered(self, watch: ObjectWatch) -> None:
        """Report that a watch works."""
        self._answered(watch)
        if self._ends(watch.place, watch):
            logger.warning("%s at %s can be watched now", watch.place, self._where)

    def _answered(self, watch: ObjectWatch) -> None:
        """Note that the cluster answered a watch; the others try again at once."""
        if not self._ends("", watch):
            return
        with self._guard:
            others = [*self._problems[""][1]] if "" in self._problems else []
        if not others:
            logger.warning("%s answers again: watching goes on", self._where)
        for other in others:
            other.retry_now()

    def _begins(self, place: str, watch: ObjectWatch, text: str) -> bool:
        """Note that a watch does not work. Return whether it is the first one of its place."""
        with self._guard:
            is_new = place not in self._problems
            self._problems.setdefault(place, (text, set()))[1].add(watch)
            return is_new

    def _ends(self, place: str, watch: ObjectWatch) -> bool:
        """Note that a problem of a watch is over. Return whether it had one."""
        with self._guard:
            _, watches = self._problems.get(place, ("", set()))
            had_one = watch in watches
            watches.discard(watch)
            if had_one and not watches:
                del self._problems[place]
            return had_one


class ObjectWatch:
    """Keeps the objects of one kind up to date in memory, in a thread of its own."""

    def __init__(
        self,
        cluster: Cluster,
        kind: Kind,
        namespace: str | None,
        selector: Selector | None,
        *,
        changed: Callable[[Change], None],
        outages: Outages,
        timing: WatchTiming,
    ) -> None:
        """Prepare a watch. No request is made before `start`.

        Args:
            cluster: The cluster.
            kind: The kind.
            namespace: Namespace. None: all namespaces.
            selector: Labels that an object must have. None: all objects.
            changed: Called in the thread of the watch after the store was changed. An error that it raises is logged.
            outages: Reports failures; shared by the watches of a cluster.
            timing: Waits between requests.
        """
        self.kind = kind
        self.namespace = namespace
        self.selector = selector
        where = f"in namespace {namespace}" if namespace else "in all namespaces"
        self.place = kind.resource + (f" {where}" if kind.namespaced else "")
        """Kind and namespace for messages."""
        self.store: CachedObjects | CachedEvents = CachedEvents() if kind == EVENT else CachedObjects()
        """The objects, trimmed."""
        self.version: str | None = None
        """Version of the last change that the store has. None: everything has to be listed."""
        self.is_served = True
        """Whether the cluster serves the kind, as far as is known."""
        self.synced = False
        """Whether the store has what the cluster has, up to the delay of the connection."""
        self._cluster = cluster
        self._changed = changed
        self._timing = timing
        self._outages = outages
        self._stopped = threading.Event()
        self._wake = threading.Event()
        """Ends a wait before its time."""
        self._events: WatchEvents | None = None
        self._current_s = timing.monotonic()
        """When the store last had what the cluster had; before that, when the watch was made."""
        self._failures = 0
        """Requests in a row that failed."""
        self._short = 0
        """Streams in a row that ended early."""
        self._opened_s: float | None = None
        """When the present stream was opened. None: it is not open."""
        self._told = ""
        """Last defect or shortness of streams that was logged, until a stream lasts."""
        self._thread = threading.Thread(target=self._run, name=f"watch {self.place}", daemon=True)

    @property
    def lag_s(self) -> float:
        """Return 0.0 while the watch works, else the seconds since it did, or since it was made."""
        return 0.0 if self.synced else max(self._timing.monotonic() - self._current_s, 0.0)

    @property
    def is_settled(self) -> bool:
        """Return whether the watch works, or has failed at least once."""
        return self.synced or self._failures > 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def signal_stop(self) -> None:
        """Tell the thread to end, without waiting for it."""
        self._stopped.set()
        self._wake.set()
        events = self._events
        if events is not None:
            events.close()

    def stop(self, timeout_s: float = STOP_S) -> None:
        """End the watch. Returns after a second at most; no change is reported afterwards."""
        self.signal_stop()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def retry_now(self) -> None:
        """End the wait after a failure: the cluster answers again."""
        self._wake.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.clear()
            self._opened_s = None
            try:
                self._watch_once()
                wait_s = self._after_end()
            except ClusterError as error:
                wait_s = self._after_error(error)
            except Exception as error:
                # A defect must not end the watch while the process goes on. Everything is listed again.
                self.version = None
                self.synced = False
                self._failures += 1
                if self._told != repr(error):
                    self._told = repr(error)
                    logger.exception("the watch of %s failed and is started again", self.place)
                wait_s = self._timing.wait_s(self._failures)
            if wait_s and not self._stopped.is_set():
                self._wake.wait(wait_s)

    def _watch_once(self) -> None:
        """List the objects if there is no version to continue from, and follow their changes until the watch ends."""
        if self.version is None:
            self._list()
        version = self.version
        if self._stopped.is_set() or version is None:
            return
        events = self._events = self._cluster.watch(self.kind, self.namespace, self.selector, version=version)
        try:
            if self._stopped.is_set():
                # `signal_stop` may have come before it could close this stream.
                return
            self._opened_s = self._timing.monotonic()
            self._failures = 0
            self._outages.recovered(self)
            self.is_served = True
            self.synced = True
            for event in events:
                if event.type == "DELETED":
                    self._remove(key_of(event.object), trim(event.object))
                elif event.type != "BOOKMARK":
                    self._put(trim(event.object))
                self.version = event.version or self.version
                if self._stopped.is_set():
                    return
        finally:
            self._events = None
            self._current_s = self._timing.monotonic()
            events.close()

    def _list(self) -> None:
        """Take over all objects, and report those that no longer exist."""
        seen: set[Key] = set()

        def take(found: Manifest) -> None:
            seen.add(key_of(found))
            self._put(trim(found))

        _, version = self._cluster.list_versioned(self.kind, self.namespace, self.selector, keep=take)
        if self._stopped.is_set():
            return
        for key in self.store.all_keys() - seen:
            self._remove(key, None)
        self.version = version

    def _put(self, found: Manifest) -> None:
        previous = self.store.put(found)
        if previous is None:
            self._report("ADDED", found, None)
        elif text_at(previous, "metadata", "uid") != text_at(found, "metadata", "uid"):
            # The old one was deleted while the watch was interrupted.
            self._report("DELETED", previous, previous)
            self._report("ADDED", found, None)
        elif text_at(previous, "metadata", "resourceVersion") != text_at(found, "metadata", "resourceVersion"):
            self._report("MODIFIED", found, previous)

    def _remove(self, key: Key, last: Manifest | None) -> None:
        previous = self.store.remove(key)
        found = last or previous
        if found is not None:
            self._report("DELETED", found, previous)

    def _report(self, kind: ChangeType, found: Manifest, previous: Manifest | None) -> None:
        if self._stopped.is_set():
            return
        try:
            self._changed(Change(kind=self.kind, type=kind, object=found, previous=previous))
        except Exception:
            logger.exception("a change of %s (%s) could not be handled", self.place, "/".join(key_of(found)))

    def _after_error(self, error: ClusterError) -> float:
        """Return the seconds to wait after an error."""
        if self._stopped.is_set():
            return 0.0
        # A list of very many objects expires too, if its pages take longer than versions are kept.
        if error.reason == EXPIRED and self.version is not None:
            self.version = None
            return self._after_end()
        if self._opened_s is not None and error.retryable:
            # Proxies and load balancers end long connections, and an API server that stops ends all. Whether it is
            # there, and what happened meanwhile, shows the next request.
            if error.reason == "Silent":
                self.synced = False
            return self._after_end()
        self._failures += 1
        self.synced = False
        if error.reason in ("Forbidden", "NotServed"):
            self.version = None
            self.is_served = error.reason != "NotServed"
            self._outages.refused(self, error)
            return self._timing.forbidden_s if error.reason == "Forbidden" else self._timing.not_served_s
        self._outages.failed(self, error)
        return self._timing.wait_s(self._failures)

    def _after_end(self) -> float:
        """Return the seconds to wait after a stream that ended, or for a new list."""
        lasted_s = 0.0 if self._opened_s is None else self._timing.monotonic() - self._opened_s
        if lasted_s >= self._timing.settled_s:
            self._short, self._told = 0, ""
            return 0.0
        self._short += 1
        if self._short == SHORT_STREAMS and not self._told:
            self._told = "short"
            logger.warning(
                "the watch of %s ends again and again after %.0f s: its changes are seen up to %.0f s late; "
                "check proxies between here and the API server",
                self.place,
                lasted_s,
                self._timing.longest_s,
            )
        # A proxy that ends all streams at once must not make this a loop without a pause.
        return self._timing.wait_s(self._short - 1) if self._short > 1 else 0.0
