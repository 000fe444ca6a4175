"""The only door to an API server: what is read of a cluster, what is done to it, and the real one."""

from torchx_pulumi.cluster.kubernetes_cluster import KubernetesCluster
from torchx_pulumi.cluster.parallel import together
from torchx_pulumi.cluster.seam import Cluster, ClusterActions, LiveCluster, LogLines

__all__ = ["Cluster", "ClusterActions", "KubernetesCluster", "LiveCluster", "LogLines", "together"]
