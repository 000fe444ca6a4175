"""A job as requested: roles before macros, defaults and names. Data only.

It is read from a TorchX AppDef, an AppDef file (`inputs`), or component arguments (`torchx_pulumi_components`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

EXTRAS_KEY = "torchx_pulumi"
"""Key of a role's metadata for settings without a field in an AppDef."""

OVERLAY_KEY = "kubernetes"
"""Key of a role's metadata for the pod overlay, or for the path or URI of its file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceSpec:
    """The resources of one replica (TorchX `Resource`)."""

    cpu: float | None = None
    """Cores. None, zero or less: no request and no limit."""
    gpu: float | None = None
    """GPUs (`nvidia.com/gpu`). None, zero or less: none."""
    memory_mb: float | None = None
    """Memory in MB (10^6 bytes; TorchX `memMB`). None, zero or less: no request and no limit."""
    devices: Mapping[str, int] = field(default_factory=dict)
    """Named devices and their number, for example `{"vpc.amazonaws.com/efa": 1}`. Rendered as limits only."""
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    """Properties of the node; `node.kubernetes.io/instance-type` becomes a node selector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MountSpec:
    """One mount of a role (TorchX `BindMount`, `VolumeMount`, `DeviceMount`; secrets are ours)."""

    kind: str
    """`bind` (host path), `volume` (PersistentVolumeClaim), `device` (host device) or `secret` (Kubernetes Secret)."""
    src: str
    """Host path, claim name, device path or Secret name."""
    dst: str
    """Path in the container."""
    read_only: bool = False
    """Ignored for devices (see `permissions`) and for secrets, which are always read-only."""
    permissions: str = "rwm"
    """Devices only: any of r, w and m. Read-only if and only if neither w nor m is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRef:
    """A key of a Kubernetes Secret in the job's namespace (`secretKeyRef`)."""

    name: str
    """Name of the Secret."""
    key: str
    """Key in the Secret."""
    optional: bool = False
    """True: the container starts without the variable if the Secret or the key is absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSpec:
    """One group of identical replicas (TorchX `Role`)."""

    name: str
    image: str
    """Image reference. It identifies the image: a change of it is a new run."""
    image_digest: str | None = None
    """Digest that pods name after the reference, for an image whose tag already identifies its content. It is not part
    of the run's identity. None: pods name the reference alone."""
    entrypoint: str
    """First word of the command."""
    args: Sequence[str] = ()
    """Further words. Macros are substituted."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Plain environment; macros are substituted, `[FIELD_PATH]metadata.name` reads a field of the pod."""
    secret_env: Mapping[str, SecretRef] = field(default_factory=dict)
    """Environment read from Kubernetes Secrets; no value ever enters the plan."""
    num_replicas: int = 1
    """Pods to run. At least 1."""
    min_replicas: int | None = None
    """Pods that must start together, 1 to `num_replicas`. None: all of them."""
    max_retries: int = 0
    """Retries of the job or of the replica, by `retry_policy`. Zero: none."""
    retry_policy: str = "APPLICATION"
    """`APPLICATION` (restart the job) or `REPLICA` (restart the replica)."""
    resource: ResourceSpec = field(default_factory=ResourceSpec)
    port_map: Mapping[str, int] = field(default_factory=dict)
    """Port name to container port."""
    mounts: Sequence[MountSpec] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """TorchX metadata; carried along, not rendered."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Labels that the node must have, in addition to the instance type."""
    tolerations: Sequence[Mapping[str, Any]] = ()
    """Kubernetes tolerations."""
    pod_overlay: Mapping[str, Any] | None = None
    """Fields laid over the pod template by TorchX's overlay rules (PUT, JOIN, DEL). Already read when given as URI.

    JOIN of containers on `name` reaches the main container of every replica by `<role>-${replica_id}`.
    """

    @property
    def pod_image(self) -> str:
        """Return the image reference of the pods: with the digest, if there is one."""
        return self.image if self.image_digest is None else f"{self.image}@{self.image_digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A distributed job (TorchX `AppDef`)."""

    name: str
    """App name as the user wrote it."""
    roles: Sequence[RoleSpec]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    torchx_version: str | None = None
    """Value of the version label, set by the readers in `inputs`. None: no label (TorchX is not installed)."""
    machine_values: Mapping[str, str] = field(default_factory=dict, compare=False)
    """What TorchX's components take from the machine that calls them, by the path in a role (`image`, `env[LOGLEVEL]`).
    Nobody chose such a value: a role that has it keeps that of its recorded run. Empty: all values are chosen."""
