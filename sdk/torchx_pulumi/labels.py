"""Every label, annotation and resource key that we write or read, with its range. Constants only."""

from __future__ import annotations

from typing import Final

VERSION: Final = "torchx.pytorch.org/version"
"""Version of the TorchX that made the AppDef; absent where there is no TorchX."""
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
VOLCANO_JOB_NAME: Final = "volcano.sh/job-name"
"""Name of the job, on every pod."""
VOLCANO_JOB_NAMESPACE: Final = "volcano.sh/job-namespace"
"""Namespace of the job, on every pod."""
VOLCANO_QUEUE_NAME: Final = "volcano.sh/queue-name"
"""Queue of the job, on every pod."""
VOLCANO_TASK_SPEC: Final = "volcano.sh/task-spec"
"""Task name, `<role>-<replica>`, on every pod (label and annotation)."""
VOLCANO_TASK_INDEX: Final = "volcano.sh/task-index"
"""Pod in the task; always 0, since every replica is a task of its own."""

LAUNCH: Final = "torchx-pulumi/launch"
"""Label of a job object, never of its pods: digest of the stack and the component that created it."""
RUN: Final = "torchx-pulumi/run"
"""Annotation of a job object, never of its pods: hash of the run (`identity.relaunch_hash`)."""
