"""The objects that the contract is tried on, as a program's inputs."""

from __future__ import annotations

from typing import Any

from tests.contract.provider.conftest import WIDGET
from tests.contract.provider.driver import Properties

WIDGETS = f"{WIDGET['apiVersion']}:{WIDGET['kind']}"


def urn(kind: str, name: str = "thing") -> str:
    """The URN of a resource of a kind such as `core/v1:Pod`."""
    return f"urn:pulumi:dev::contract::kubernetes:{kind}::{name}"


def widget(namespace: str, name: str | None = "w", annotations: Properties | None = None, **spec: Any) -> Properties:
    metadata: Properties = {"namespace": namespace}
    if name is not None:
        metadata["name"] = name
    if annotations:
        metadata["annotations"] = annotations
    return {**WIDGET, "metadata": metadata, "spec": spec or {"size": 1}}


def config_map(namespace: str, data: Properties, name: str = "c") -> Properties:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name}, "data": data}


def pod(namespace: str, *, annotations: Properties | None = None, name: str = "p", **spec: Any) -> Properties:
    container = {"name": "main", "image": "example.test/image:1", "resources": {"limits": {"cpu": "1000m"}}}
    metadata: Properties = {"namespace": namespace, "name": name}
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **spec},
    }
