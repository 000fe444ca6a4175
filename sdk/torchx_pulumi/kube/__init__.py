"""Access to Kubernetes API servers: the client protocol, its implementation for real clusters, and watched clusters."""

from torchx_pulumi.kube.concurrent import run_concurrently
from torchx_pulumi.kube.kubernetes_cluster import KubernetesCluster
from torchx_pulumi.kube.object_watch import Change
from torchx_pulumi.kube.protocol import Cluster, ClusterActions, LiveCluster, LogLines, Selector, WatchEvent
from torchx_pulumi.kube.watched_cluster import WatchedCluster

__all__ = [
    "Change",
    "Cluster",
    "ClusterActions",
    "KubernetesCluster",
    "LiveCluster",
    "LogLines",
    "Selector",
    "WatchEvent",
    "WatchedCluster",
    "run_concurrently",
]
