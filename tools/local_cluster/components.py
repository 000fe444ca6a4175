"""The table of all that a cluster is made of, in families. A further controller is a further entry here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from tools.local_cluster.app_wrappers import app_wrapper_operator, mcad
from tools.local_cluster.control_plane import control_plane
from tools.local_cluster.custom_resources import custom_resources
from tools.local_cluster.default_scheduler import default_scheduler
from tools.local_cluster.dns import dns
from tools.local_cluster.fake_nodes import fake_nodes
from tools.local_cluster.kubernetes_service import kubernetes_service
from tools.local_cluster.kueue import kueue
from tools.local_cluster.layout import Layout
from tools.local_cluster.real_node import real_node
from tools.local_cluster.registry import registry
from tools.local_cluster.settings import Settings
from tools.local_cluster.startup import Component, Unit
from tools.local_cluster.volcano import volcano

FAMILIES: Final[tuple[Callable[[Layout, Settings], Iterable[Unit]], ...]] = (
    control_plane,
    custom_resources,
    volcano,
    default_scheduler,
    mcad,
    app_wrapper_operator,
    kueue,
    fake_nodes,
    registry,
    real_node,
    dns,
    kubernetes_service,
)
"""Each yields its components and steps, none if the settings do without it."""


def units(layout: Layout, settings: Settings) -> list[Unit]:
    """Return all components and steps of a cluster."""
    return [unit for family in FAMILIES for unit in family(layout, settings)]


def components(layout: Layout, settings: Settings) -> list[Component]:
    """Return the components alone: what runs as long as the cluster does."""
    return [unit for unit in units(layout, settings) if isinstance(unit, Component)]
