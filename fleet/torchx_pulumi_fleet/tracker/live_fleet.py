"""LiveFleet: the apps of backends as last seen, for tables, pages and metrics. In memory only."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import takewhile
from typing import Any

from torchx_pulumi.apps.answer import stored_value, without_words
from torchx_pulumi.apps.app import App, AppKey
from torchx_pulumi.apps.judge import latest
from torchx_pulumi.model.object_fields import mapping_at

from torchx_pulumi_fleet.views.columns import ShownApp
from torchx_pulumi_fleet.views.row import FleetRow, build_row, complete

MOST_GONE = 1000
"""Apps that are gone and that a reader with an older version still learns of."""

ID_DIGITS = 16


def live_id(key: AppKey) -> str:
    """Return the name of an app in URLs: 16 hex digits, equal in all processes that read the same backends."""
    backend, stack, urn = key
    return hashlib.sha256("\0".join((backend, str(stack), urn)).encode()).hexdigest()[:ID_DIGITS]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveApp:
    """One app as it was last seen."""

    id: str
    """`live_id` of its key."""
    app: App
    """As its stack was last read."""
    local: Mapping[str, Any] | None = None
    """What this machine saw of it last, in the shape of the output `observed`. None: nothing, or a controller runs."""
    seen: Mapping[str, Any] | None = None
    """What its cluster says, in the same shape. None: nothing, or no more than what is known without it."""
    cluster: str | None = None
    """Name of the cluster that it was last seen in. None: in none."""
    away_since: datetime | None = None
    """Since when that cluster does not answer. None: it does, and any change would be known."""
    note: str = ""
    """Why its cluster says nothing, although it was asked. Empty: it was not asked, or it says how the run stands."""
    version: int = 0
    """Version of the fleet in which it changed last."""

    def shown(self, now: datetime) -> ShownApp:
        """Return it for a view, with ages until `now`."""
        return ShownApp(self.id, self.app.place.backend, self.row(now))

    def unseen(self, note: str = "") -> LiveApp:
        """Return it as it is known without its cluster."""
        return replace(self, seen=None, cluster=None, away_since=None, note=note)

    def row(self, now: datetime, *, updating: bool = False) -> FleetRow:
        """Return its row in a fleet.

        Args:
            now: End of all ages, aware.
            updating: Its stack is locked by a running update.
        """
        recorded = mapping_at(self.app.output, "observed")
        known, source, checked_at, note = recorded, "state", None, self.note
        if self.local is not None and not (recorded and latest(recorded, self.local) is recorded):
            known, source = complete(self.local, recorded), "local"
        seen = self.seen
        # The same state is more complete in what was seen.
        is_news = seen is not None and (
            not known or _is_same_state(seen, known) or latest(known, seen, self.app.answer.requested) is seen
        )
        if is_news or (seen is None and self.cluster is not None):
            known = known if seen is None else complete(seen, known)
            source, checked_at = "live" if self.away_since is None else "local", self.away_since or now
            note = "" if self.away_since is None else f"cluster not reached: {self.cluster}"
        return build_row(
            self.app,
            now,
            seen=known,
            checked_at=checked_at,
            source=source,
            cluster=self.cluster or self.app.context,
            updating=updating,
            note=note,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetChange:
    """What changed in a fleet since a version."""

    version: int
    """The present version."""
    changed: tuple[LiveApp, ...]
    gone: tuple[str, ...]
    """Ids of apps whose stacks are gone."""
    whole: bool
    """`changed` has all apps: the reader's version is too old, or of another process."""


class LiveFleet:
    """The apps of a process. For use by several threads."""

    def __init__(self) -> None:
        """Begin without apps."""
        self._guard = threading.Lock()
        self._apps: OrderedDict[str, LiveApp] = OrderedDict()
        """By id, in the order in which they changed last."""
        self._away: dict[str, datetime] = {}
        """Watched clusters that do not answer, and since when. Observations that began before it may come later."""
        self._gone: OrderedDict[str, int] = OrderedDict()
        self._forgotten = 0
        """Version up to which apps that are gone are not known any more."""
        self._version = 0
        self._listeners: list[Callable[[], None]] = []

    def put_stack(self, app: App) -> None:
        """Take an app as its stack was last read, and drop observations of its other runs."""
        with self._guard:
            name = live_id(app.key)
            known = self._apps.get(name)
            if known is None:
                made = LiveApp(id=name, app=app)
            elif known.app.uid != app.uid and (known.seen is None or known.seen.get("uid") != app.uid):
                made = replace(known, app=app).unseen()
            else:
                made = replace(known, app=app)
            changed = known is None or _told(known) != _told(made)
            recorded = mapping_at(app.output, "observed")
            if made.seen is not recorded and made.seen == recorded:
                # Kept once.
                made = replace(made, seen=recorded)
            self._keep(made, changed=changed)
        self._tell(changed=changed)

    def put_seen(
        self, key: AppKey, uid: str | None, seen: Mapping[str, Any] | None, *, cluster: str | None = None
    ) -> None:
        """Take what a cluster says of a run of an app.

        Args:
            key: The app.
            uid: Uid of the run's job object, as the stack has it. Observations of another run are dropped.
            seen: In the shape of `observed`. None: the cluster was looked at, and what is known stays.
            cluster: Name of the watched cluster. None: the one that it was last seen in.
        """
        with self._guard:
            known = self._apps.get(live_id(key))
            if known is None or known.app.uid != uid:
                return
            if seen is not None and (known.app.has_secrets or known.app.quotes_secrets):
                seen = without_words(seen)
            seen = stored_value(seen)
            kept = known.seen
            changed = seen is not None and (kept is None or _without_time(kept) != _without_time(seen))
            if seen is not None and changed:
                # The time of the last change stays, as in a stack. A controller that starts knows it from there.
                recorded = mapping_at(known.app.output, "observed")
                has_time = _is_same_state(seen, recorded) and recorded.get("observed_at")
                kept = {**seen, "observed_at": recorded["observed_at"]} if has_time else seen
            where = cluster or known.cluster
            away_since = self._away.get(where) if where else None
            made = replace(known, seen=kept, cluster=where, away_since=away_since, note="")
            changed = changed or (known.away_since, known.note) != (away_since, "")
            self._keep(made, changed=changed)
        self._tell(changed=changed)

    def put_unseen(self, key: AppKey, note: str = "") -> None:
        """Take that the cluster of an app says nothing, and why; empty: it is not asked any more."""
        self._change(key, lambda known: known.unseen(note))

    def put_local(self, key: AppKey, local: Mapping[str, Any] | None) -> bool:
        """Take what this machine saw last of an app; return whether it is something else than before."""
        return self._change(key, lambda known: replace(known, local=local))

    def _change(self, key: AppKey, change: Callable[[LiveApp], LiveApp]) -> bool:
        with self._guard:
            known = self._apps.get(live_id(key))
            made = None if known is None else change(known)
            changed = made is not None and made != known
            if made is not None and changed:
                self._keep(made, changed=True)
        self._tell(changed=changed)
        return changed

    def put_away(self, cluster: str, since: datetime | None) -> None:
        """Note since when a watched cluster does not answer. None: it answers."""
        with self._guard:
            if since is None:
                self._away.pop(cluster, None)
            else:
                self._away[cluster] = since
            there = [app for app in self._apps.values() if app.cluster == cluster]
            for app in there:
                self._keep(replace(app, away_since=since), changed=True)
        self._tell(changed=bool(there))

    def drop(self, key: AppKey) -> None:
        """Forget an app whose stack is gone."""
        with self._guard:
            known = self._apps.pop(live_id(key), None)
            if known is None:
                return
            self._version += 1
            self._gone[known.id] = self._version
            self._gone.move_to_end(known.id)
            while len(self._gone) > MOST_GONE:
                _, self._forgotten = self._gone.popitem(last=False)
        self._tell(changed=True)

    @property
    def version(self) -> int:
        """Return the number of changes so far."""
        with self._guard:
            return self._version

    def apps(self) -> list[LiveApp]:
        """Return all apps."""
        with self._guard:
            return [*self._apps.values()]

    def find(self, app: str) -> LiveApp | None:
        """Return the app of an id. None: unknown id."""
        with self._guard:
            return self._apps.get(app)

    def changes(self, since: int | None) -> FleetChange:
        """Return the changes since a version. None: everything there is."""
        with self._guard:
            if since is None or since > self._version or since < self._forgotten:
                return FleetChange(version=self._version, changed=(*self._apps.values(),), gone=(), whole=True)
            # From the last change back: it costs what has changed, however many apps there are.
            changed = tuple(takewhile(lambda app: app.version > since, reversed(self._apps.values())))
            recent = takewhile(lambda item: item[1] > since, reversed(self._gone.items()))
            gone = tuple(name for name, _ in recent)
            return FleetChange(version=self._version, changed=changed, gone=gone, whole=False)

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call a function after each change, from any thread, and return the function that ends that.

        Args:
            listener: Must return at once and not raise.
        """
        with self._guard:
            self._listeners.append(listener)

        def end() -> None:
            with self._guard:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return end

    def _keep(self, app: LiveApp, *, changed: bool) -> None:
        if changed:
            self._version += 1
            app = replace(app, version=self._version)
        self._apps[app.id] = app
        if changed:
            self._apps.move_to_end(app.id)
        self._gone.pop(app.id, None)

    def _tell(self, *, changed: bool) -> None:
        if not changed:
            return
        with self._guard:
            listeners = [*self._listeners]
        for listener in listeners:
            listener()


def _told(live: LiveApp) -> tuple[object, ...]:
    """Return the part of an app whose change readers learn."""
    return live.app.uid, live.app.output, live.app.answer.requested, live.seen


def _is_same_state(seen: Mapping[str, Any], recorded: Mapping[str, Any]) -> bool:
    return (seen.get("state"), seen.get("reason")) == (recorded.get("state"), recorded.get("reason"))


def _without_time(observed: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in observed.items() if name != "observed_at"}
