"""Roles as arguments of the components, as Pulumi's analyzer reads them: the text under a field is its documentation.

Structure is plain, leaves are `Input`. No inheritance (inherited fields lose their text), no `from __future__ import
annotations` (the analyzer needs real types), and no name that ends in Args but those of the components themselves.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import pulumi
from typing_extensions import NotRequired, TypedDict


class RetryPolicy(str, Enum):
    """What is started again when a replica fails."""

    APPLICATION = "APPLICATION"
    """The whole job."""
    REPLICA = "REPLICA"
    """The replica."""


class MountKind(str, Enum):
    """What is mounted."""

    BIND = "bind"
    """A path of the node."""
    VOLUME = "volume"
    """A PersistentVolumeClaim."""
    DEVICE = "device"
    """A device of the node."""
    SECRET = "secret"  # noqa: S105 - a kind, not a secret
    """A Kubernetes Secret."""


class Resource(TypedDict):
    """What one replica needs."""

    cpu: NotRequired[pulumi.Input[float]]
    """Cores. Unset or 0: no request and no limit."""
    gpu: NotRequired[pulumi.Input[int]]
    """GPUs (`nvidia.com/gpu`). Unset or 0: none."""
    memory_mb: NotRequired[pulumi.Input[int]]
    """Memory in MB (10^6 bytes). Unset or 0: no request and no limit."""
    devices: NotRequired[Mapping[str, pulumi.Input[int]]]
    """Named devices and their number, for example `vpc.amazonaws.com/efa: 1`."""
    capabilities: NotRequired[Mapping[str, Any]]
    """Properties of the node; `node.kubernetes.io/instance-type` becomes a node selector."""


class Mount(TypedDict):
    """Something from outside the container at a path in it."""

    kind: MountKind
    """`bind`, `volume`, `device` or `secret`."""
    src: pulumi.Input[str]
    """Path on the node, name of the claim, device, or name of the Secret."""
    dst: pulumi.Input[str]
    """Path in the container."""
    read_only: NotRequired[pulumi.Input[bool]]
    """Unset: false. Secrets are always read-only; for devices see `permissions`."""
    permissions: NotRequired[str]
    """Devices only: any of r, w and m. Unset: rwm."""


class SecretEnv(TypedDict):
    """A key of a Kubernetes Secret in the job's namespace."""

    name: pulumi.Input[str]
    """Name of the Secret."""
    key: pulumi.Input[str]
    """Key in the Secret."""
    optional: NotRequired[pulumi.Input[bool]]
    """True: the container starts without the variable where the Secret or the key is absent. Unset: false."""


class Role(TypedDict):
    """One group of identical replicas. The first role's replica 0 is rank 0."""

    name: str
    """Name, unique in the job."""
    image: pulumi.Input[str]
    """Image reference."""
    entrypoint: pulumi.Input[str]
    """First word of the command."""
    args: NotRequired[Sequence[pulumi.Input[str]]]
    """Further words. The macros `${img_root}`, `${app_id}`, `${replica_id}` and `${rank0_env}` are substituted."""
    env: NotRequired[Mapping[str, pulumi.Input[str]]]
    """Plain environment, with macros; `[FIELD_PATH]metadata.name` is a field of the pod, `$(NAME)` another variable."""
    secret_env: NotRequired[Mapping[str, SecretEnv]]
    """Environment read from Kubernetes Secrets."""
    num_replicas: NotRequired[pulumi.Input[int]]
    """Pods to run. Unset: 1. Under Volcano fewer than launched is in place; anything else is a new run."""
    min_replicas: NotRequired[pulumi.Input[int]]
    """Volcano: pods that must start together, 1 to `num_replicas`. Unset: all of them. Changes in place."""
    max_retries: NotRequired[pulumi.Input[int]]
    """Retries, by `retry_policy`. Unset or 0: none."""
    retry_policy: NotRequired[RetryPolicy]
    """`APPLICATION` (default) starts the whole job again, `REPLICA` the replica."""
    resource: NotRequired[Resource]
    """What one replica needs. Unset: nothing is requested."""
    port_map: NotRequired[Mapping[str, pulumi.Input[int]]]
    """Port name to container port."""
    mounts: NotRequired[Sequence[Mount]]
    """What is mounted, in addition to `/dev/shm`."""
    metadata: NotRequired[Mapping[str, Any]]
    """TorchX metadata; carried along, not rendered."""
    node_selector: NotRequired[Mapping[str, pulumi.Input[str]]]
    """Labels that the node must have."""
    tolerations: NotRequired[Sequence[Mapping[str, Any]]]
    """Kubernetes tolerations."""
    pod_overlay: NotRequired[Any]
    """Fields laid over the pod template by TorchX's overlay rules (PUT, JOIN, DEL), or the path or URI of them."""
