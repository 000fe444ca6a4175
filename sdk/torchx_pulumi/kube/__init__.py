"""Access to Kubernetes API servers: the client protocols, and their implementations."""

from torchx_pulumi.kube.cached_reader import CachedReader
from torchx_pulumi.kube.concurrent import run_concurrently
from torchx_pulumi.kube.kubernetes_cluster import KubernetesCluster
from torchx_pulumi.kube.protocol import Cluster, LogLines, Logs, PodReader, Reader, Selector, WatchEvent, Writer

__all__ = [
    "CachedReader",
    "Cluster",
    "KubernetesCluster",
    "LogLines",
    "Logs",
    "PodReader",
    "Reader",
    "Selector",
    "WatchEvent",
    "Writer",
    "run_concurrently",
]
