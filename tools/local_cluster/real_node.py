"""The node that really runs containers: containerd, bridge network and kubelet."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.images import PAUSE
from tools.local_cluster import control_groups, network, private_mounts
from tools.local_cluster.addresses import API_PORT, CLUSTER_DOMAIN
from tools.local_cluster.api import Api
from tools.local_cluster.certificates import Credentials
from tools.local_cluster.fake_nodes import NODE_LABEL, node_ready
from tools.local_cluster.layout import LONGEST_ROOT, Layout
from tools.local_cluster.settings import Settings
from tools.local_cluster.startup import Component, Step, Unit

NODE_NAME: Final = "localhost"
"""Also the name under which the API server reaches the kubelet, hence over loopback."""
PARTS: Final = ("kubelet", "containerd", "cni", "coredns", "registry", "busybox", "socat")
"""Parts without which there is no real node."""

_CONTAINERD: Final = """\
version = 2
root = "{data}/containerd"
state = "{run}/containerd"
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]
[grpc]
  address = "{socket}"
[debug]
  level = "warn"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  disable_apparmor = true
  # runc cannot lower the score below its own where the machine itself is a guest.
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  max_concurrent_downloads = 4
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  BinaryName = "{runc}"
  Root = "{run}/runc"
  SystemdCgroup = false
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{cni}"
  conf_dir = "{config}/cni"
[plugins."io.containerd.grpc.v1.cri".registry.mirrors."{registry}"]
  endpoint = ["http://{registry}"]
"""


def obstacle(layout: Layout) -> str | None:
    """Say why this machine cannot have a real node, as far as can be seen without the parts. None: it can."""
    if not sys.platform.startswith("linux"):
        return "this is not Linux"
    if os.geteuid() != 0:
        return "not root"
    if len(str(layout.root)) > LONGEST_ROOT:
        return f"the state folder's path is longer than {LONGEST_ROOT} characters: {layout.root}"
    if (trouble := control_groups.obstacle() or private_mounts.obstacle()) is not None:
        return trouble
    probe = f"txq{layout.identity}"
    try:
        network.create_bridge(probe, "192.0.2.0/30")
        try:
            taken = not network.can_listen("192.0.2.1", API_PORT)
        finally:
            network.delete_bridge(probe)
    except OSError as error:
        return f"may not make a network bridge ({error.strerror})"
    if taken:
        return f"a program listens on port {API_PORT} of every address, where pods expect the API server"
    return None


def real_node(layout: Layout, settings: Settings) -> Iterator[Unit]:
    """Yield containerd, the kubelet and the node they make, if there is to be one."""
    if not settings.real_node:
        return
    api, socket = Api.of(layout, settings), layout.run / "containerd.sock"
    _write_network(layout, settings)
    yield Component(
        name="containerd",
        command=private_mounts.opening(
            layout, settings.program("containerd"), "--config", str(_write_containerd(layout, settings, socket))
        ),
        ready=socket.exists,
        needs=("pods-network", "control-groups"),
        environment={"PATH": f"{settings.parts['containerd']}:{os.environ.get('PATH', os.defpath)}"},
    )
    yield Step(name="pods-network", run=lambda: _make_network(layout, settings))
    yield Step(name="control-groups", run=lambda: control_groups.create(layout.cgroup))
    yield Component(
        name="kubelet",
        command=private_mounts.joining(
            layout,
            settings.program("kubelet"),
            f"--config={_write_kubelet(layout, settings, socket)}",
            f"--kubeconfig={layout.kubeconfig}",
            f"--root-dir={layout.kubelet}",
            f"--hostname-override={NODE_NAME}",
            f"--node-ip={settings.gateway}",
            f"--node-labels={NODE_LABEL}=real",
            "--v=1",
        ),
        ready=lambda: node_ready(api.get(f"/api/v1/nodes/{NODE_NAME}")),
        needs=("containerd", "kube-apiserver", "registry"),
    )


def _make_network(layout: Layout, settings: Settings) -> None:
    network.create_bridge(layout.bridge, settings.pod_subnet)
    part = settings.parts.get("iptables")
    iptables = network.iptables_program(Path(part) if part else None)
    if iptables is not None:
        network.accept_traffic(iptables, layout.bridge)


def _write_network(layout: Layout, settings: Settings) -> None:
    first, last = str(settings.pod_range[1]), str(settings.pod_range[-2])
    addresses = {
        "subnet": settings.pod_subnet,
        "rangeStart": first,
        "rangeEnd": last,
        "gateway": settings.gateway,
    }
    bridge = {
        "type": "bridge",
        "bridge": layout.bridge,
        # The bridge has its address already; with isGateway the plugin would turn on forwarding for the whole machine.
        "isGateway": False,
        "ipMasq": False,
        "ipam": {
            "type": "host-local",
            "ranges": [[addresses]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": str(layout.run / "addresses"),
        },
    }
    content = {"cniVersion": "0.4.0", "name": layout.bridge, "plugins": [bridge]}
    layout.write_config("cni", "10-bridge.conflist", json.dumps(content, indent=2))


def _write_containerd(layout: Layout, settings: Settings, socket: Path) -> Path:
    text = _CONTAINERD.format(
        data=layout.data,
        run=layout.run,
        socket=socket,
        pause=f"{settings.registry}/{PAUSE}",
        runc=settings.program("containerd", "runc"),
        cni=settings.parts["cni"],
        config=layout.config,
        registry=settings.registry,
    )
    return layout.write_config("containerd", "config.toml", text)


def _write_kubelet(layout: Layout, settings: Settings, socket: Path) -> Path:
    made = Credentials.of(layout)
    resolver = layout.write_config("kubelet", "resolv.conf", f"nameserver {settings.gateway}\n")
    content = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "port": settings.ports["kubelet"],
        "readOnlyPort": 0,
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": settings.ports["kubelet-health"],
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(made.ca)},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "tlsCertFile": str(made.certificate),
        "tlsPrivateKeyFile": str(made.key),
        "containerRuntimeEndpoint": f"unix://{socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": True,
        "cgroupRoot": layout.cgroup,
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDNS": [settings.gateway],
        "clusterDomain": CLUSTER_DOMAIN,
        "resolvConf": str(resolver),
        "makeIPTablesUtilChains": False,
        "podLogsDir": str(layout.data / "pod-logs"),
        "volumePluginDir": str(layout.data / "volume-plugins"),
        "serializeImagePulls": False,
        "registryPullQPS": 0,
        "eventRecordQPS": 0,
        "maxPods": 250,
        # A developer's disk is often nearly full; pods are not to be evicted for that.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%"},
    }
    return layout.write_config("kubelet", "config.yaml", json.dumps(content, indent=2))
