"""Custom resources of every feature that a cluster has, from the files that its parts bring along."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tools.local_cluster.api import Api
from tools.local_cluster.features import parts_of
from tools.local_cluster.layout import Layout
from tools.local_cluster.settings import Settings
from tools.local_cluster.startup import Step, Unit

_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def custom_resources(layout: Layout, settings: Settings) -> Iterator[Unit]:
    """Yield the step that defines them all, one file each, named `<group>_<plural>.yaml`."""
    api = Api.of(layout, settings)
    files = [
        file for part in parts_of(settings.features) for file in sorted((settings.share(part) / "crd").glob("*.yaml"))
    ]
    wanted = [tuple(file.stem.split("_", 1)) for file in files]
    yield Step(
        name="custom-resources",
        run=lambda: api.create_all(_DEFINITIONS, (file.read_bytes() for file in files), kind="yaml"),
        until=lambda: all(_served(api, group, plural) for group, plural in wanted),
        needs=("kube-apiserver",),
    )


def _served(api: Api, group: str, plural: str) -> bool:
    found = api.get(f"/apis/{group}")
    if found is None:
        return False
    resources = api.get(f"/apis/{found['preferredVersion']['groupVersion']}") or {}
    return any(resource["name"] == plural for resource in resources.get("resources", ()))
