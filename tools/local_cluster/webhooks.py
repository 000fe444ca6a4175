"""Admission webhooks of a component: those of its own manifests, at an address in place of a Service."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from tools.local_cluster.api import Api
from tools.local_cluster.certificates import Credentials
from tools.local_cluster.errors import ApiError, LocalClusterError
from tools.local_cluster.layout import Layout

_CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1"

Json = dict[str, Any]


def read_webhooks(manifest: Path, prefix: str = "") -> list[Json]:
    """Return the webhook configurations of a manifest, which may be too long to be parsed whole.

    Args:
        manifest: the file.
        prefix: what an installation puts before their names.
    """
    documents = re.split(r"^---\s*$", manifest.read_text("utf-8"), flags=re.MULTILINE)
    found = [yaml.safe_load(text) for text in documents if "WebhookConfiguration" in text]
    if not found:
        raise LocalClusterError(f"{manifest}: no webhook configurations in it: build its part again")
    return [{**one, "metadata": {**one["metadata"], "name": prefix + one["metadata"]["name"]}} for one in found]


def localised(webhooks: Iterable[Json], address: str, authority: bytes) -> Iterator[Json]:
    """Yield webhook configurations that name an address in place of a service."""
    for one in webhooks:
        hooks = [
            {**hook, "clientConfig": client(address + hook["clientConfig"]["service"]["path"], authority)}
            for hook in one["webhooks"]
        ]
        yield {**one, "webhooks": hooks}


def client(url: str, authority: bytes) -> Json:
    """Return how the API server calls a webhook."""
    return {"url": url, "caBundle": base64.b64encode(authority).decode()}


def register(layout: Layout, api: Api, webhooks: Iterable[Json], address: str) -> None:
    """Create webhook configurations; those that are there already are left as they are."""
    for one in localised(webhooks, address, Credentials.of(layout).ca.read_bytes()):
        api.create(f"{_CONFIGURATIONS}/{one['kind'].lower()}s", one)


def refuses(api: Api, path: str, body: Json, *words: str) -> bool:
    """Whether an object is refused with a message that has all these words."""
    try:
        api.request("POST", f"{path}?dryRun=All", body)
    except ApiError as error:
        return all(word in error.message for word in words)
    return False
