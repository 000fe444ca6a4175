"""Observed objects in memory, by namespace and name, and by labels."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable
from typing import Final

from torchx_pulumi.kube.protocol import Key, Manifests, Selector, key_of, matches
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.options import Manifest

EVENTS_OF_ONE: Final = 10
"""Events that are kept of one object: the last ones."""

MOST_EVENTS: Final = 50_000
"""Events that are kept in all: the last ones."""


class CachedObjects:
    """All objects of a watch."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._objects: dict[Key, Manifest] = {}
        self._indexes: dict[str, dict[str, set[Key]]] = {}
        """Label to value to keys, for labels by which objects were listed."""

    def put(self, found: Manifest) -> Manifest | None:
        """Keep an object, and return the one that had its name."""
        return self._replace(key_of(found), found)

    def remove(self, key: Key) -> Manifest | None:
        """Drop an object, and return it if it was kept."""
        return self._replace(key, None)

    def _replace(self, key: Key, found: Manifest | None) -> Manifest | None:
        with self._guard:
            previous = self._objects.pop(key, None)
            if found is not None:
                self._objects[key] = found
            for label, index in self._indexes.items():
                before = text_at(previous, "metadata", "labels", label)
                if before is not None:
                    index[before].discard(key)
                    if not index[before]:
                        del index[before]
                _add_to(index, label, key, found)
            return previous

    def all_keys(self) -> set[Key]:
        """Return the keys of all objects."""
        with self._guard:
            return {*self._objects}

    def get(self, namespace: str | None, name: str) -> Manifest | None:
        """Return an object, or None if it is not kept."""
        return self._objects.get((namespace or "", name))

    def list(self, namespace: str | None = None, selector: Selector | None = None) -> Manifests:
        """Return objects with some labels, sorted by namespace and name."""
        exact = next(((label, value) for label, value in (selector or {}).items() if value is not None), None)
        with self._guard:
            keys: Iterable[Key] = self._objects
            if exact is not None:
                label, value = exact
                if label not in self._indexes:
                    index = self._indexes[label] = {}
                    for key, one in self._objects.items():
                        _add_to(index, label, key, one)
                keys = self._indexes[label].get(value, ())
            found = [(key, self._objects[key]) for key in keys if namespace in (None, key[0])]
        return [one for _, one in sorted(found, key=lambda pair: pair[0]) if matches(one, selector)]


def _add_to(index: dict[str, set[Key]], label: str, key: Key, found: Manifest | None) -> None:
    value = text_at(found, "metadata", "labels", label)
    if value is not None:
        index.setdefault(value, set()).add(key)


class CachedEvents:
    """The last events of each object."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._events: OrderedDict[Key, Manifest] = OrderedDict()
        """The last ones at the end."""
        self._of: dict[Key, dict[Key, Manifest]] = {}
        """Namespace and name of the involved object to its events, the last ones at the end."""

    def put(self, found: Manifest) -> Manifest | None:
        """Keep an event, and return the one that had its name."""
        key = key_of(found)
        with self._guard:
            previous = self._drop(key)
            mine = self._of.setdefault(_involved(found), {})
            mine[key] = self._events[key] = found
            if len(mine) > EVENTS_OF_ONE:
                self._drop(next(iter(mine)))
            if len(self._events) > MOST_EVENTS:
                self._drop(next(iter(self._events)))
            return previous

    def remove(self, key: Key) -> Manifest | None:
        """Drop an event, and return it if it was kept."""
        with self._guard:
            return self._drop(key)

    def _drop(self, key: Key) -> Manifest | None:
        previous = self._events.pop(key, None)
        if previous is not None:
            involved = _involved(previous)
            del self._of[involved][key]
            if not self._of[involved]:
                del self._of[involved]
        return previous

    def all_keys(self) -> set[Key]:
        """Return the keys of all kept events."""
        with self._guard:
            return {*self._events}

    def of(self, namespace: str, names: Collection[str | None]) -> Manifests:
        """Return the events that involve objects of some names, sorted by their own names."""
        with self._guard:
            found = [pair for name in names if name for pair in self._of.get((namespace, name), {}).items()]
        return [event for _, event in sorted(found, key=lambda pair: pair[0])]


def _involved(event: Manifest) -> Key:
    """Return namespace and name of the object that an event involves."""
    return key_of(event)[0], text_at(event, "involvedObject", "name") or ""
