"""The objects of a manifest with their kinds. The first one is the job object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchx_pulumi.kube import kinds
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.model.errors import Problem, invalid_job
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.schedulers.registry import find_backend, scheduler_names


def all_kinds() -> Iterator[Kind]:
    """Yield every kind that this package or a scheduler reads or writes."""
    yield from (kind for kind in vars(kinds).values() if isinstance(kind, Kind))
    for scheduler in scheduler_names():
        yield from find_backend(scheduler).kinds


def objects_of(manifest: Manifest) -> list[tuple[Kind, Manifest]]:
    """Return the kinds and objects of a manifest. The first one is the job object.

    Raises:
        InvalidJobError: It has no object, or one of a kind that this package does not create.
    """
    whole: Any = manifest
    items = whole.get("items") if isinstance(whole, dict) and whole.get("kind") == "List" else [whole]
    known = {(kind.api_version, kind.kind): kind for kind in all_kinds()}
    found = []
    for item in items or []:
        if not isinstance(item, dict):
            text = f"is {type(item).__name__}, must be a mapping, or a List of mappings: objects of Kubernetes"
            raise invalid_job("unnamed", [Problem("request.resource", text)])
        kind = known.get((str(item.get("apiVersion")), str(item.get("kind"))))
        if kind is None or not (item.get("metadata") or {}).get("name"):
            text = f"has {item.get('kind')!r} of {item.get('apiVersion')!r}, or no name: torchx-pulumi cannot launch it"
            raise invalid_job("unnamed", [Problem("request.resource", text)])
        found.append((kind, item))
    if not found:
        raise invalid_job("unnamed", [Problem("request.resource", "has no object; there is nothing to launch")])
    return found
