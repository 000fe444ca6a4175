"""Paths and parameters of requests to an API server, and the parts of its lists."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.kube.protocol import Selector
from torchx_pulumi.model.options import Manifest


def items_of(page: Manifest, kind: Kind) -> Iterator[Manifest]:
    """Yield the objects of a page of a list."""
    # The items of a list have neither field; every other object has them.
    return ({"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in page.get("items") or [])


def next_page(page: Manifest) -> str | None:
    """Return the token by which the next page is requested. None: this is the last one."""
    return (page.get("metadata") or {}).get("continue") or None


def place_of(found: Manifest) -> tuple[str, str]:
    """Return namespace and name, by which lists are sorted."""
    return found["metadata"].get("namespace", ""), found["metadata"]["name"]


def selected(selector: Selector | None) -> list[tuple[str, str]]:
    """Return the parameter of a selector. Empty: there is no selector."""
    wanted = (key if value is None else f"{key}={value}" for key, value in (selector or {}).items())
    return [("labelSelector", ",".join(wanted))] if selector else []


def version_path(kind: Kind) -> str:
    """Return the API path of a group and version."""
    return f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"


def path_of(kind: Kind, namespace: str | None) -> str:
    """Return the API path of the objects of a kind."""
    start = version_path(kind)
    inside = f"/namespaces/{quote(namespace, safe='')}" if namespace and kind.namespaced else ""
    return f"{start}{inside}/{kind.plural}"
