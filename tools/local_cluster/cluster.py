"""A whole cluster: up, find, down. The names in here are used by the demo, the tests and other tools."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools import images
from tools.local_cluster import leftovers, processes
from tools.local_cluster.api import Api
from tools.local_cluster.certificates import create_credentials
from tools.local_cluster.components import components, units
from tools.local_cluster.control_plane import write_kubeconfig
from tools.local_cluster.errors import LocalClusterError
from tools.local_cluster.features import DEFAULT, chosen, grown
from tools.local_cluster.layout import Layout
from tools.local_cluster.locking import cluster_lock
from tools.local_cluster.progress import Progress
from tools.local_cluster.settings import Settings, load_settings
from tools.local_cluster.startup import Startup
from tools.local_cluster.status import status


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster on this machine that has come up."""

    layout: Layout
    """Its folders."""
    settings: Settings
    """What was chosen for it."""

    @classmethod
    def up(
        cls,
        name: str = "default",
        real_node: bool = True,
        kwok_nodes: int = 4,
        *,
        images: Iterable[str] = ("busybox",),
        features: Iterable[str] = DEFAULT,
        pods_ready_s: int = 300,
        progress: Progress | None = None,
    ) -> Cluster:
        """Bring a cluster up; one that runs is left as it is, but for features and images it lacks.

        Args:
            name: which cluster.
            real_node: have a node that really runs containers, where the machine allows it.
            kwok_nodes: how many fake nodes to have.
            images: short names of images that its registry is to hold.
            features: what to have beside plain Kubernetes: names of `features.FEATURES`.
            pods_ready_s: `Settings.pods_ready_s` of a new cluster.
            progress: where to tell what is going on; stderr by default.

        Raises:
            LocalClusterError: it did not come up, and nothing is left of it; or one that runs cannot get a feature
                or an image.
        """
        tell, layout, wanted, having = progress or Progress(), Layout.of(name), list(images), chosen(features)
        with cluster_lock(layout, tell):
            found = cls.find(name)
            if found is None:
                return _create(layout, real_node, kwok_nodes, having, pods_ready_s, wanted, tell)
            tell.say(f"cluster {name!r} is running")
            found = _add_features(found, having, tell)
            _tell_differences(found.settings, real_node, kwok_nodes, having, tell)
            return _add_images(found, wanted, tell)

    @classmethod
    def find(cls, name: str = "default") -> Cluster | None:
        """Return a cluster that is up. None: there is none, or part of it has died."""
        layout = Layout.of(name)
        settings = load_settings(layout)
        if settings is None or not settings.ready:
            return None
        alive = {p.name for p in processes.recorded(layout) if p.alive}
        wanted = {component.name for component in components(layout, settings)}
        return cls(layout=layout, settings=settings) if wanted <= alive else None

    @property
    def name(self) -> str:
        """Its name."""
        return self.layout.name

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.layout.kubeconfig

    @property
    def registry(self) -> str | None:
        """`localhost:PORT`. None: it has no registry."""
        return self.settings.registry

    @property
    def images(self) -> dict[str, str]:
        """References of the images in its registry, by short name."""
        return dict(self.settings.images)

    @property
    def api(self) -> Api:
        """A thin client of its API server."""
        return Api.of(self.layout, self.settings)

    def status(self) -> dict[str, Any]:
        """Return its state, as `status --json` prints it."""
        return status(self.name)

    def down(self, *, progress: Progress | None = None) -> None:
        """End it and remove everything of it."""
        down(self.name, progress=progress)


def down(name: str, *, progress: Progress | None = None) -> bool:
    """End a cluster and remove everything of it, whatever state it is in.

    Returns:
        False: there was nothing.

    Raises:
        LocalClusterError: something could not be removed.
    """
    tell, layout = progress or Progress(), Layout.of(name)
    with cluster_lock(layout, tell):
        if not leftovers.anything_left(layout):
            return False
        leftovers.clear(layout)
        return True


def _create(
    layout: Layout,
    want_real_node: bool,
    kwok_nodes: int,
    features: tuple[str, ...],
    pods_ready_s: int,
    wanted: list[str],
    tell: Progress,
) -> Cluster:
    # Imported here: `status` and `down` must work whatever state the parts are in.
    from tools.local_cluster.choosing import choose

    begin = time.monotonic()
    if leftovers.anything_left(layout):
        tell.say(f"clearing what an earlier run of cluster {layout.name!r} left behind")
        leftovers.clear(layout)
    try:
        settings = choose(
            layout, want_real_node=want_real_node, kwok_nodes=kwok_nodes, features=features, progress=tell
        )
        settings = dataclasses.replace(settings, pods_ready_s=pods_ready_s)
        if settings.registry is not None:
            settings = _place_images(layout, settings, dict.fromkeys(("busybox", "pause", *wanted)))
        create_credentials(layout, settings.gateway)
        write_kubeconfig(layout, settings)
        tell.say(f"starting cluster {layout.name!r}")
        Startup(layout, units(layout, settings)).run(tell.waiting)
        settings = dataclasses.replace(settings, ready=True)
        settings.save(layout)
    except BaseException:
        tell.say(f"cluster {layout.name!r} did not come up: clearing what was started")
        leftovers.clear(layout)
        raise
    tell.say(f"cluster {layout.name!r} is up after {time.monotonic() - begin:.0f} s")
    return Cluster(layout=layout, settings=settings)


def _place_images(layout: Layout, settings: Settings, names: Iterable[str]) -> Settings:
    placed = dict(settings.images)
    for name in names:
        try:
            reference = images.place(name, layout.data / "registry")
        except images.ImageError as error:
            raise LocalClusterError(str(error)) from error
        placed[name] = f"{settings.registry}/{reference}"
    return dataclasses.replace(settings, images=placed)


def _add_features(cluster: Cluster, features: tuple[str, ...], tell: Progress) -> Cluster:
    from tools.local_cluster.choosing import parts_for

    layout, before = cluster.layout, cluster.settings
    wanted = grown(before.features, features)
    if wanted is None or wanted == before.features:
        return cluster
    settings = dataclasses.replace(before, features=wanted, parts={**before.parts, **parts_for(wanted)})
    ready = {unit.name for unit in units(layout, before)} - {"custom-resources"}
    tell.say(f"adding {', '.join(sorted(set(wanted) - set(before.features)))} to cluster {layout.name!r}")
    try:
        Startup(layout, units(layout, settings), ready=ready).run(tell.waiting)
    except BaseException:
        leftovers.end_others(layout, ready)
        raise
    settings.save(layout)
    return dataclasses.replace(cluster, settings=settings)


def _add_images(cluster: Cluster, names: list[str], tell: Progress) -> Cluster:
    missing = [name for name in names if name not in cluster.settings.images]
    if not missing:
        return cluster
    if cluster.registry is None:
        tell.say(f"no registry, hence without the images {', '.join(missing)}")
        return cluster
    settings = _place_images(cluster.layout, cluster.settings, missing)
    settings.save(cluster.layout)
    return dataclasses.replace(cluster, settings=settings)


def _tell_differences(
    settings: Settings, real_node: bool, kwok_nodes: int, features: tuple[str, ...], tell: Progress
) -> None:
    if real_node and not settings.real_node:
        tell.say(f"  it has no real node: {settings.why_no_real_node}")
    if kwok_nodes != settings.kwok_nodes:
        tell.say(f"  it has {settings.kwok_nodes} fake nodes, not {kwok_nodes}: take it down first to change that")
    if not set(features) <= set(settings.features):
        have, want = ", ".join(settings.features) or "none", ", ".join(features) or "none"
        tell.say(f"  it has the features {have}, not {want}: take it down first to change that")
