"""Picks free loopback ports and a free subnet for pods and Services, beside those of other clusters.

Ports come from below the range that the kernel hands out to outgoing connections, so that none is taken between
picking and listening.
"""

from __future__ import annotations

import contextlib
import ipaddress
import random
import socket
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tools.local_cluster.errors import LocalClusterError

PORTS: Final = (
    "etcd",
    "etcd-peer",
    "kube-apiserver",
    "kube-controller-manager",
    "volcano-scheduler",
    "volcano-scheduler-health",
    "volcano-controllers",
    "volcano-controllers-health",
    "volcano-admission",
    "volcano-admission-health",
    "kube-scheduler",
    "mcad-health",
    "appwrapper-health",
    "appwrapper-webhook",
    "kueue-health",
    "kueue-webhook",
    "kwok",
    "registry",
    "kubelet",
    "kubelet-health",
    "coredns-ready",
)
"""Every listener on loopback."""

POD_RANGE: Final = ipaddress.IPv4Network("10.213.0.0/16")
"""Where the subnets of pods and Services come from."""

API_PORT: Final = 443
"""Port of the Service `kubernetes`; the API server has no flag for another one."""

CLUSTER_DOMAIN: Final = "cluster.local"
"""Domain of the names of Services."""

LOWEST_PORT: Final = 20000


def pick_ports(taken: Iterable[int], names: Iterable[str] = PORTS) -> dict[str, int]:
    """Return a free loopback port for each name, none of them in `taken`."""
    highest = _first_ephemeral_port() - 1
    candidates = list(range(LOWEST_PORT, highest + 1)) if highest - LOWEST_PORT > 1000 else list(range(1024, 65536))
    random.shuffle(candidates)
    avoid, chosen = set(taken), {}
    with contextlib.ExitStack() as held:  # all are held until the last is found, so that they differ
        for name in names:
            while True:
                if not candidates:
                    raise LocalClusterError(f"no free port on 127.0.0.1 for {name}: end something that listens there")
                port = candidates.pop()
                if port not in avoid and (listener := _try_bind(port)) is not None:
                    held.enter_context(listener)
                    chosen[name] = port
                    break
    return chosen


def pick_pod_subnet(taken: Iterable[str]) -> str:
    """Return a /23 for Services and pods that neither another cluster nor a route of this machine covers."""
    used = [*map(ipaddress.IPv4Network, taken), *_routes()]
    subnets = list(POD_RANGE.subnets(new_prefix=23))
    random.shuffle(subnets)
    for subnet in subnets:
        if not any(subnet.overlaps(other) for other in used):
            return str(subnet)
    raise LocalClusterError(f"no free /23 in {POD_RANGE} for pods: take some clusters down")


def _try_bind(port: int) -> socket.socket | None:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.bind(("127.0.0.1", port))
        return listener
    except OSError:
        listener.close()
        return None


def _first_ephemeral_port() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32768


def _routes() -> Iterator[ipaddress.IPv4Network]:
    """Yield what the main routing table covers, the default route left out."""
    try:
        lines = Path("/proc/net/route").read_text().splitlines()[1:]
    except OSError:
        return
    for line in lines:
        fields = line.split()
        target, mask = (struct.pack("<I", int(fields[i], 16)) for i in (1, 7))
        if any(mask):
            yield ipaddress.IPv4Network(f"{socket.inet_ntoa(target)}/{socket.inet_ntoa(mask)}", strict=False)
