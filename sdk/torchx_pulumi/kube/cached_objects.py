"""Observed objects in memory: by namespace and name, and by the labels by which they are listed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection
from typing import Final

from torchx_pulumi.kube.protocol import Selector
from torchx_pulumi.model.object_fields import mapping_at, text_at
from torchx_pulumi.model.options import Manifest

Key = tuple[str, str]
"""Namespace, empty for kinds without one, and name."""

Manifests = list[Manifest]
"""The class has a method `list`."""

EVENTS_OF_ONE: Final = 10
"""Events that are kept of one object: the last ones."""

MOST_EVENTS: Final = 50_000
"""Events that are kept in all: those of the objects that had one last."""


def key_of(found: Manifest) -> Key:
    """Return namespace and name of an object."""
    return text_at(found, "metadata", "namespace") or "", text_at(found, "metadata", "name") or ""


def matches(found: Manifest, selector: Selector | None) -> bool:
    """Return whether an object has the labels of a selector."""
    labels = mapping_at(found, "metadata", "labels")
    return all(key in labels and value in (None, labels[key]) for key, value in (selector or {}).items())


class CachedObjects:
    """All objects of a watch."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._objects: dict[Key, Manifest] = {}
        self._labels: dict[str, dict[str, set[Key]]] = {}
        """Label to value to keys, for labels by which objects were listed."""

    def put(self, found: Manifest) -> Manifest | None:
        """Keep an object, and return the one that had its name."""
        key = key_of(found)
        with self._guard:
            previous = self._objects.get(key)
            self._objects[key] = found
            if previous is not None:
                self._forget_labels(key, previous)
            for label, values in self._labels.items():
                _add_to(values, label, key, found)
            return previous

    def remove(self, key: Key) -> Manifest | None:
        """Drop an object, and return it. None: it is not kept."""
        with self._guard:
            previous = self._objects.pop(key, None)
            if previous is not None:
                self._forget_labels(key, previous)
            return previous

    def _forget_labels(self, key: Key, previous: Manifest) -> None:
        for label, values in self._labels.items():
            value = text_at(previous, "metadata", "labels", label)
            if value is not None:
                values[value].discard(key)
                if not values[value]:
                    del values[value]

    def all_keys(self) -> set[Key]:
        """Return the keys of all objects."""
        with self._guard:
            return {*self._objects}

    def get(self, namespace: str | None, name: str) -> Manifest | None:
        """Return an object. None: it is not kept."""
        with self._guard:
            return self._objects.get((namespace or "", name))

    def list(self, namespace: str | None = None, selector: Selector | None = None) -> Manifests:
        """Return objects with some labels, sorted by namespace and name."""
        exact = next(((label, value) for label, value in (selector or {}).items() if value is not None), None)
        with self._guard:
            if exact is None:
                found = [*self._objects.items()]
            else:
                keys = self._index(exact[0]).get(exact[1], ())
                found = [(key, self._objects[key]) for key in keys]
        wanted = ((key, one) for key, one in found if namespace in (None, key[0]) and matches(one, selector))
        return [one for _, one in sorted(wanted, key=lambda pair: pair[0])]

    def _index(self, label: str) -> dict[str, set[Key]]:
        """Return the keys of all objects by the value of a label. The index is made when it is first used."""
        values = self._labels.get(label)
        if values is None:
            values = self._labels[label] = {}
            for key, found in self._objects.items():
                _add_to(values, label, key, found)
        return values


def _add_to(values: dict[str, set[Key]], label: str, key: Key, found: Manifest) -> None:
    value = text_at(found, "metadata", "labels", label)
    if value is not None:
        values.setdefault(value, set()).add(key)


class CachedEvents:
    """The last events of each object, without those of the objects that have had none for longest."""

    def __init__(self, *, most: int = MOST_EVENTS) -> None:
        """Create an empty store.

        Args:
            most: Events that are kept in all.
        """
        self._most = most
        self._guard = threading.Lock()
        self._events: OrderedDict[Key, OrderedDict[Key, Manifest]] = OrderedDict()
        """Namespace and name of the involved object to its events by their own, the last ones at the end."""
        self._involved: dict[Key, Key] = {}
        """Key of each kept event to the involved object."""

    def put(self, found: Manifest) -> Manifest | None:
        """Keep an event, and return the one that had its name."""
        key = key_of(found)
        involved = (key[0], text_at(found, "involvedObject", "name") or "")
        with self._guard:
            previous = self._drop(key)
            mine = self._events.setdefault(involved, OrderedDict())
            mine[key] = found
            self._involved[key] = involved
            self._events.move_to_end(involved)
            if len(mine) > EVENTS_OF_ONE:
                oldest, _ = mine.popitem(last=False)
                del self._involved[oldest]
            while len(self._involved) > self._most:
                _, gone = self._events.popitem(last=False)
                for one in gone:
                    del self._involved[one]
            return previous

    def remove(self, key: Key) -> Manifest | None:
        """Drop an event, and return it. None: it is not kept."""
        with self._guard:
            return self._drop(key)

    def _drop(self, key: Key) -> Manifest | None:
        involved = self._involved.pop(key, None)
        if involved is None:
            return None
        mine = self._events[involved]
        previous = mine.pop(key)
        if not mine:
            del self._events[involved]
        return previous

    def all_keys(self) -> set[Key]:
        """Return the keys of all kept events."""
        with self._guard:
            return {*self._involved}

    def of(self, namespace: str, names: Collection[str | None]) -> Manifests:
        """Return the events that involve objects of some names, sorted by their own names."""
        with self._guard:
            found = [pair for name in names if name for pair in self._events.get((namespace, name), {}).items()]
        return [event for _, event in sorted(found, key=lambda pair: pair[0])]


ObjectCache = CachedObjects | CachedEvents
"""The objects of one watch."""
