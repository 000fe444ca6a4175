"""Chooses what a new cluster is made of: parts, real node or not, ports, addresses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tools.bootstrap import BootstrapError, ensure
from tools.local_cluster import real_node
from tools.local_cluster.addresses import pick_pod_subnet, pick_ports
from tools.local_cluster.errors import LocalClusterError
from tools.local_cluster.features import parts_of
from tools.local_cluster.layout import Layout, known_layouts
from tools.local_cluster.locking import choosing_lock
from tools.local_cluster.progress import Progress
from tools.local_cluster.settings import Settings, load_settings

NEEDED: Final = ("etcd", "kube-apiserver", "kube-controller-manager")
"""Parts without which there is no cluster."""


def choose(
    layout: Layout, *, want_real_node: bool, kwok_nodes: int, features: tuple[str, ...], progress: Progress
) -> Settings:
    """Return the settings of a new cluster, written down already.

    Raises:
        LocalClusterError: a needed part cannot be had.
    """
    why_not = real_node.obstacle(layout) if want_real_node else "not asked for"
    needed = (*NEEDED, *parts_of(features), *(("kwok",) if kwok_nodes else ()))
    parts: dict[str, str] = {}
    if why_not is None:
        try:
            parts = _get((*needed, *real_node.PARTS))  # all in one go, so that what is left to do is told as a whole
        except LocalClusterError as error:
            why_not = str(error)
    parts = parts or _get(needed)
    for optional in ("iptables",) if why_not is None else ("registry", "busybox"):
        parts |= _try(optional, progress)
    if want_real_node and why_not is not None:
        progress.say(f"no real node, only fake ones: {why_not}")
    if why_not is not None and not kwok_nodes:
        progress.say("no nodes at all: pods will wait for ever")
    with choosing_lock(layout):
        others = [s for other in known_layouts() if other != layout and (s := load_settings(other)) is not None]
        layout.create()
        settings = Settings(
            ports=pick_ports(port for other in others for port in other.ports.values()),
            pod_subnet=pick_pod_subnet(other.pod_subnet for other in others),
            kwok_nodes=kwok_nodes,
            parts=parts,
            why_no_real_node=why_not,
            features=features,
        )
        settings.save(layout)
    return settings


def parts_for(features: Iterable[str]) -> dict[str, str]:
    """Return the folders of the parts that features take.

    Raises:
        LocalClusterError: one cannot be had.
    """
    return _get(parts_of(features))


def _get(names: Iterable[str]) -> dict[str, str]:
    try:
        return {name: str(folder) for name, folder in ensure(list(names)).items()}
    except BootstrapError as error:
        raise LocalClusterError(str(error)) from error


def _try(name: str, progress: Progress) -> dict[str, str]:
    try:
        return _get((name,))
    except LocalClusterError as error:
        progress.say(f"going without {name}: {error}")
        return {}
