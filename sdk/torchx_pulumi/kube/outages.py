"""Report what the watches of a cluster cannot read: once when it begins, and once when it ends."""

from __future__ import annotations

import logging
import threading
from typing import Final, Protocol

from torchx_pulumi.model.errors import ClusterError

logger = logging.getLogger(__name__)

DOCS: Final = "docs/permissions.md"

OWN: Final = frozenset({"InternalError", "Invalid", "BadRequest", "NotAcceptable", "MethodNotAllowed", "NotFound"})
"""Reasons of errors that may concern one kind only, for example while its conversion webhook fails."""


class Watcher(Protocol):
    """What is known of a watch here."""

    place: str
    """Kind and namespace for messages."""

    def retry_now(self) -> None:
        """End the wait after a failure."""


class Outages:
    """Failures of the watches of one cluster."""

    def __init__(self, where: str) -> None:
        """Begin without failures.

        Args:
            where: Name of the cluster in messages.
        """
        self._where = where
        self._guard = threading.Lock()
        self._away: set[Watcher] = set()
        """Watches that the cluster does not answer."""
        self._failing: set[Watcher] = set()
        """Watches whose kind cannot be read."""
        self._refused: set[Watcher] = set()
        self._problems: dict[str, str] = {}
        """Place of a watch, empty for the whole cluster, to what was said about it."""

    def problems(self) -> tuple[str, ...]:
        """Return what cannot be read now; kinds that the cluster does not serve are no problem."""
        with self._guard:
            return tuple(self._problems.values())

    @property
    def is_away(self) -> bool:
        """Return whether the cluster does not answer some of the watches."""
        return bool(self._away)

    def failed(self, watch: Watcher, error: ClusterError) -> None:
        """Report a failure that may pass."""
        whole = error.reason not in OWN
        with self._guard:
            failing = self._away if whole else self._failing
            is_new = not failing if whole else watch not in failing
            failing.add(watch)
            if whole:
                text = f"{error}; watching stopped and goes on when the cluster answers"
            else:
                text = f"{error}; the watch of {watch.place} stopped and is tried again"
            if is_new:
                self._problems["" if whole else watch.place] = text
        if is_new:
            logger.warning("%s", text)

    def refused(self, watch: Watcher, error: ClusterError) -> None:
        """Report that a kind cannot be watched. The cluster answered."""
        with self._guard:
            # Versions of one kind have the same place.
            is_new = watch.place not in {other.place for other in self._refused}
            self._refused.add(watch)
        self._answered(watch)
        if not is_new:
            return
        lost = "its changes are not noticed by themselves; it is read where that is allowed, at most every 30 s"
        if error.reason == "Forbidden":
            text = f"no permission to list and watch {watch.place} at {self._where}: {lost} ({DOCS})"
            with self._guard:
                self._problems[watch.place] = text
            logger.warning("%s", text)
        else:
            logger.info("%s; it is asked for again every minute", error)

    def recovered(self, watch: Watcher) -> None:
        """Report that a watch works."""
        with self._guard:
            was_refused = watch in self._refused
            was_failing = watch in self._failing
            self._refused.discard(watch)
            self._failing.discard(watch)
            self._problems.pop(watch.place, None)
        self._answered(watch)
        if was_refused or was_failing:
            logger.warning("%s at %s can be watched now", watch.place, self._where)

    def _answered(self, watch: Watcher) -> None:
        """Note that the cluster answered a watch; the others try again at once."""
        with self._guard:
            if watch not in self._away:
                return
            self._away.discard(watch)
            others = [*self._away]
            if not others:
                self._problems.pop("", None)
        if not others:
            logger.warning("%s answers again: watching goes on", self._where)
        for other in others:
            other.retry_now()
