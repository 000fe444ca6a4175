"""The only door to an API server: what is read of a cluster, what is done to it, and the real one."""

from torchx_pulumi.kube.concurrent import run_concurrently
from torchx_pulumi.kube.kubernetes_cluster import KubernetesCluster
from torchx_pulumi.kube.protocol import Cluster, ClusterActions, LiveCluster, LogLines

__all__ = ["Cluster", "ClusterActions", "KubernetesCluster", "LiveCluster", "LogLines", "run_concurrently"]
