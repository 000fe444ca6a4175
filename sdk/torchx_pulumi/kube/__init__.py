"""Access to Kubernetes API servers: the client protocol and its implementation for real clusters."""

from torchx_pulumi.kube.concurrent import run_concurrently
from torchx_pulumi.kube.kubernetes_cluster import KubernetesCluster
from torchx_pulumi.kube.protocol import Cluster, ClusterActions, LiveCluster, LogLines

__all__ = ["Cluster", "ClusterActions", "KubernetesCluster", "LiveCluster", "LogLines", "run_concurrently"]
