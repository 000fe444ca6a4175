"""A Kubernetes cluster with Volcano on this machine: etcd to kubelet, from parts that `tools.bootstrap` provides.

Only the names that others may use are here; what they do is in the modules.
"""

from tools.local_cluster.cluster import Cluster
from tools.local_cluster.errors import ApiError, LocalClusterError
from tools.local_cluster.progress import Progress

__all__ = ["ApiError", "Cluster", "LocalClusterError", "Progress"]
