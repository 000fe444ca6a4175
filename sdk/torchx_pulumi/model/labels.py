"""Labels, annotations and resource keys of this package, with their ranges. Constants only."""

from __future__ import annotations

from typing import Final

VERSION: Final = "torchx.pytorch.org/version"
"""Version of the TorchX that made the AppDef; absent without TorchX."""
APP_NAME: Final = "torchx.pytorch.org/app-name"
"""App name as the user wrote it, made a valid label value."""
ROLE_INDEX: Final = "torchx.pytorch.org/role-index"
"""Position of the role in the AppDef, from 0."""
ROLE_NAME: Final = "torchx.pytorch.org/role-name"
"""Role name as the user wrote it, made a valid label value."""
REPLICA_ID: Final = "torchx.pytorch.org/replica-id"
"""Replica in the role, 0 to replicas-1."""
KUBE_APP_NAME: Final = "app.kubernetes.io/name"
"""The same as `APP_NAME`."""
ORGANIZATION: Final = "app.kubernetes.io/managed-by"
"""Always `torchx.pytorch.org`."""
UNIQUE_NAME: Final = "app.kubernetes.io/instance"
"""The job's app id."""

ORGANIZATION_VALUE: Final = "torchx.pytorch.org"

ISTIO_SIDECAR: Final = "sidecar.istio.io/inject"
"""Annotation; always `false`: a sidecar would keep a finished pod alive."""

INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
"""Capability of a resource, and label of a node."""

GPU: Final = "nvidia.com/gpu"
EFA: Final = "vpc.amazonaws.com/efa"

GROUP_NAME: Final = "scheduling.k8s.io/group-name"
"""Annotation of a pod: its PodGroup."""

LAUNCH: Final = "torchx-pulumi/launch"
"""Label of a job object, never of its pods: digest of the stack and the component that created it.

With gang=pods it is an annotation of the Service and of each Pod, which nothing else ties to the PodGroup."""
RUN: Final = "torchx-pulumi/run"
"""Annotation of a job object: hash of the run (`run_hash.run_hash`).

With gang=pods it is an annotation of the Service and of each Pod too."""
OWNER: Final = "torchx-pulumi/owner"
"""Label of an object that a program registers next to its jobs: digest of the stack and the resource."""
LAUNCHER: Final = "torchx-pulumi/launcher"
"""Label of a job object, never of its pods: `torchx`, if `torchx run` launched it."""
LAUNCHER_VALUE: Final = "torchx"
SESSION: Final = "torchx-pulumi/session"
"""Label of a job object, never of its pods: TorchX session that launched it, made a valid label value."""
IMAGE_DIGESTS: Final = "torchx-pulumi/image-digests"
"""Annotation of a job object, never of its pods: JSON object of role name to the digest of its patched image."""
