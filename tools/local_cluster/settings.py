"""What was chosen for one cluster, as it is kept in its state folder. No choosing here."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.local_cluster.layout import Layout, write_private


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Choices that stay the same as long as the cluster runs."""

    ports: Mapping[str, int]
    """Loopback port of each listener, by name."""
    pod_subnet: str
    """Addresses on the bridge of the real node: the lower half for Services, the upper one for pods."""
    kwok_nodes: int
    """Fake nodes."""
    parts: Mapping[str, str]
    """Folder with the executables of each part, by name of the part."""
    why_no_real_node: str | None = None
    """Why there is no real node. None: there is one."""
    ready: bool = False
    """False until the first `up` has succeeded."""
    features: tuple[str, ...] = ("volcano",)
    """What it has beside plain Kubernetes."""
    pods_ready_s: int = 300
    """Seconds in which the pods of a job that Kueue admitted become ready, or it is evicted."""
    images: Mapping[str, str] = field(default_factory=dict)
    """Reference of each image in the registry, by short name."""

    @property
    def real_node(self) -> bool:
        """Whether a real kubelet belongs to the cluster."""
        return self.why_no_real_node is None

    @property
    def gateway(self) -> str:
        """Address of the bridge, where DNS listens. It is the first one for Services, hence that of `kubernetes`."""
        return str(self.service_range[1])

    @property
    def service_range(self) -> ipaddress.IPv4Network:
        """Addresses of Services that are not headless."""
        return next(ipaddress.IPv4Network(self.pod_subnet).subnets())

    @property
    def pod_range(self) -> ipaddress.IPv4Network:
        """Addresses of pods."""
        _, upper = ipaddress.IPv4Network(self.pod_subnet).subnets()
        return upper

    @property
    def registry(self) -> str | None:
        """`host:port` of the registry as images are named. None: there is none."""
        return f"localhost:{self.ports['registry']}" if "registry" in self.parts else None

    def program(self, part: str, executable: str | None = None) -> str:
        """Return the path of an executable of a part."""
        return str(Path(self.parts[part]) / (executable or part))

    def share(self, part: str) -> Path:
        """Return the folder with a part's data files."""
        return Path(self.parts[part]).parent / "share"

    def save(self, layout: Layout) -> None:
        """Write the record, whole or not at all."""
        text = json.dumps(dataclasses.asdict(self), indent=2)
        write_private(layout.settings.with_suffix(".new"), text + "\n").replace(layout.settings)


def load_settings(layout: Layout) -> Settings | None:
    """Read a cluster's record. None: there is no such cluster, or its `up` did not get that far."""
    try:
        stored: dict[str, Any] = json.loads(layout.settings.read_text("utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    known = {f.name for f in dataclasses.fields(Settings)}
    if not set(stored) <= known:
        return None
    if "features" in stored:
        stored["features"] = tuple(stored["features"])
    return Settings(**stored)
