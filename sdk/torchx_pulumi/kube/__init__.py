"""Access to Kubernetes API servers: the client protocols, and their implementations."""

from torchx_pulumi.kube.concurrent import run_concurrently
from torchx_pulumi.kube.kubernetes_cluster import KubernetesCluster
from torchx_pulumi.kube.object_watch import Change
from torchx_pulumi.kube.protocol import Cluster, LogLines, Logs, PodReader, Reader, Selector, WatchEvent, Writer
from torchx_pulumi.kube.watched_cluster import CachedReader, WatchedCluster

__all__ = [
    "CachedReader",
    "Change",
    "Cluster",
    "KubernetesCluster",
    "LogLines",
    "Logs",
    "PodReader",
    "Reader",
    "Selector",
    "WatchEvent",
    "WatchedCluster",
    "Writer",
    "run_concurrently",
]
