"""The state of a cluster as plain data: what the command line prints, and what the demo and tests read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tools.local_cluster import leftovers, processes
from tools.local_cluster.api import Api
from tools.local_cluster.components import components
from tools.local_cluster.errors import LocalClusterError
from tools.local_cluster.fake_nodes import ENDING_ANNOTATIONS, NODE_LABEL, TAINT, node_ready
from tools.local_cluster.layout import Layout
from tools.local_cluster.settings import Settings, load_settings
from tools.local_cluster.startup import Component


def status(name: str) -> dict[str, Any]:
    """Return the state of a cluster, existing or not, as plain data."""
    layout = Layout.of(name)
    settings = load_settings(layout)
    if settings is None:
        state = "broken" if leftovers.anything_left(layout) else "absent"
        return {"name": name, "state": state}
    states = _component_states(layout, settings)
    healthy = settings.ready and all(one["healthy"] for one in states)
    return {
        "name": name,
        "state": "running" if healthy else "broken",
        "kubeconfig": str(layout.kubeconfig),
        "context": f"torchx-pulumi-{name}",
        "features": list(settings.features),
        "registry": settings.registry,
        "images": dict(settings.images),
        "real_node": settings.real_node,
        "why_no_real_node": settings.why_no_real_node,
        "fake_nodes": {
            "count": settings.kwok_nodes,
            "node_selector": {NODE_LABEL: "fake"},
            "toleration": {**TAINT, "operator": "Equal"} if settings.real_node else None,
            "endings": list(ENDING_ANNOTATIONS),
        },
        "nodes": _nodes(layout, settings),
        "components": states,
    }


def _component_states(layout: Layout, settings: Settings) -> list[dict[str, Any]]:
    known = {p.name: p for p in processes.recorded(layout)}
    units = components(layout, settings)
    with ThreadPoolExecutor() as pool:
        healths = list(pool.map(_healthy, units))
    return [
        {
            "name": unit.name,
            "pid": known[unit.name].pid if unit.name in known and known[unit.name].alive else None,
            "healthy": health and unit.name in known and known[unit.name].alive,
            "log": str(layout.logs / f"{unit.name}.log"),
        }
        for unit, health in zip(units, healths, strict=True)
    ]


def _healthy(component: Component) -> bool:
    try:
        return component.ready()
    except (OSError, LocalClusterError):
        return False


def _nodes(layout: Layout, settings: Settings) -> list[dict[str, Any]]:
    try:
        items = Api.of(layout, settings).request("GET", "/api/v1/nodes", timeout_s=5)["items"]
    except (OSError, LocalClusterError):
        return []
    return [
        {"name": one["metadata"]["name"], "kind": one["metadata"]["labels"].get(NODE_LABEL), "ready": node_ready(one)}
        for one in items
    ]
