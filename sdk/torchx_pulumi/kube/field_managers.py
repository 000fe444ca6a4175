"""Which client last set a field of an object, by the managed fields that the API server keeps (server-side apply)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from torchx_pulumi.model.object_fields import items_at, mapping_at, text_at
from torchx_pulumi.model.options import Observed

PULUMI: Final = "pulumi-kubernetes"
"""Beginning of the names under which Pulumi's Kubernetes provider writes."""

PATCH_FORCE: Final = "pulumi.com/patchForce"
"""Annotation by which the provider takes fields from other managers."""

PATCH_MANAGER: Final = "pulumi.com/patchFieldManager"
"""Annotation that gives the provider another name as a manager."""

CONTROLLERS: Final = ("kube-", "vc-", "mcad-", "appwrapper", "kueue", "manager")
"""Beginnings of the names of controllers, which set fields of jobs by their task: Kueue suspends an AppWrapper."""

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignField:
    """A field that another client than Pulumi has set."""

    path: str
    """The field, as Pulumi's `ignore_changes` names it."""
    manager: str
    """Name of the client, for example `kubectl-label`."""
    since: str
    """When it last wrote, as the API server says. Empty: unknown."""


def find_foreign(live: Observed, wanted: Observed, ignored: Collection[str] = ()) -> list[ForeignField]:
    """Return the fields to which another client gave a value that differs from the wanted one.

    Args:
        live: The observed object with its managed fields.
        wanted: The object as Pulumi would apply it. Fields that it lacks do not count.
        ignored: Fields that Pulumi keeps as they are, with all below them, as `ignore_changes` names them. `[*]` is
            any index.
    """
    found = []
    for path, value in _leaves({key: wanted.get(key) or {} for key in ("metadata", "spec")}):
        text = written_path(path)
        patterns = (re.escape(one).replace(r"\[\*\]", r"\[\d+\]") for one in ignored)
        if _at(live, path) == value or any(re.match(rf"{pattern}(?:[.\[]|$)", text) for pattern in patterns):
            continue
        for entry in _entries(live, own=text_at(wanted, "metadata", "annotations", PATCH_MANAGER)):
            if _is_owner(mapping_at(entry, "fieldsV1"), path):
                manager, since = text_at(entry, "manager") or "?", text_at(entry, "time") or ""
                found.append(ForeignField(path=text, manager=manager, since=since))
    return found


def set_by_others(live: Observed) -> list[ForeignField]:
    """Return the labels, annotations and fields of `spec` that neither Pulumi nor a controller has set last.

    Whether a program sets them too is not known. An object that Pulumi has never written has none.
    """
    if not any(_is_pulumi(entry) for entry in items_at(live, "metadata", "managedFields")):
        return []
    found = []
    for entry in _entries(live):
        if (text_at(entry, "manager") or "").startswith(CONTROLLERS):
            continue
        fields = mapping_at(entry, "fieldsV1")
        groups = [("metadata", key) for key in ("labels", "annotations")]
        for path in (*groups, ("spec",)):
            owned = fields
            for key in path:
                owned = mapping_at(owned, f"f:{key}")
            for name in sorted(key.removeprefix("f:") for key in owned if key.startswith("f:")):
                manager, since = text_at(entry, "manager") or "?", text_at(entry, "time") or ""
                found.append(ForeignField(path=written_path((*path, name)), manager=manager, since=since))
    return found


def written_edits(found: Iterable[ForeignField]) -> list[str]:
    """Return for each client and time what it has set, in one line.

    >>> written_edits([ForeignField(path="metadata.labels.a", manager="kubectl-label", since="2026-03-01T10:00:00Z")])
    ['metadata.labels.a, set by kubectl-label at 2026-03-01T10:00:00Z']
    """
    paths: dict[tuple[str, str], list[str]] = {}
    for one in found:
        paths.setdefault((one.manager, one.since), []).append(one.path)
    return [
        f"{', '.join(fields)}, set by {manager}{f' at {since}' if since else ''}"
        for (manager, since), fields in paths.items()
    ]


def written_path(path: Path) -> str:
    """Write a path as Pulumi does.

    >>> written_path(("metadata", "labels", "example.com/team")), written_path(("spec", "tasks", 0, "replicas"))
    ('metadata.labels["example.com/team"]', 'spec.tasks[0].replicas')
    """
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        elif re.fullmatch(r"[\w-]+", key):
            text += f".{key}" if text else key
        else:
            text += f'["{key}"]'
    return text


def _leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, (*path, str(key)))
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, index))
    else:
        yield path, value


def _at(value: Any, path: Path) -> Any:
    for key in path:
        if isinstance(key, int):
            value = value[key] if isinstance(value, list) and key < len(value) else None
        else:
            value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _is_pulumi(entry: Observed, own: str | None = None) -> bool:
    name = text_at(entry, "manager") or ""
    return name.startswith(PULUMI) or name == own


def _entries(live: Observed, own: str | None = None) -> Iterator[Observed]:
    """Yield what others than Pulumi own of an object, without subresources, which Pulumi does not write."""
    for entry in items_at(live, "metadata", "managedFields"):
        if not _is_pulumi(entry, own) and text_at(entry, "subresource") is None:
            yield entry


def _is_owner(fields: Mapping[str, Any], path: Path) -> bool:
    """Return whether managed fields have a field, or all of what it is in: a list without keys is owned as a whole."""
    for key in path:
        inside = fields.get(f"f:{key}") if isinstance(key, str) else None
        if not isinstance(inside, Mapping):
            # Keys of the items of a list are not compared.
            return False
        if not inside:
            return True
        fields = inside
    return True
