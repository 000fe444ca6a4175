"""Arguments of the components, as Pulumi's analyzer reads them: the text under a field is its documentation everywhere.

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


class GangMode(str, Enum):
    """Who makes the pods of a job."""

    JOB = "job"
    """Volcano's job controller, from one Volcano Job object."""
    PODS = "pods"
    """Pulumi: a PodGroup, a Service and one Pod per replica."""


class TaskLayout(str, Enum):
    """How replicas become tasks of a Volcano Job."""

    REPLICA = "replica"
    """One task per replica, as TorchX writes it."""
    ROLE = "role"
    """Replicas of a role that differ only in their index share tasks."""
    AUTO = "auto"
    """`replica` up to 100 replicas of the job, `role` above, where the job can have it."""


class OnRunningChange(str, Enum):
    """What a change does that would end a run which has not finished."""

    FAIL = "fail"
    """Stops in preview, with a message about what would be lost."""
    REPLACE = "replace"
    """Deletes the run, waits until it is gone, and launches the new one."""
    IGNORE = "ignore"
    """Keeps the run as it was launched."""


class WaitFor(str, Enum):
    """How far a run must have come before the deployment ends."""

    CREATED = "created"
    """Its objects are there."""
    ADMITTED = "admitted"
    """Its queue has let it in."""
    RUNNING = "running"
    """It runs."""
    COMPLETED = "completed"
    """It has succeeded."""


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
    read_only: NotRequired[bool]
    """Unset: false. Secrets are always read-only; for devices see `permissions`."""
    permissions: NotRequired[str]
    """Devices only: any of r, w and m. Unset: rwm."""


class SecretEnv(TypedDict):
    """A key of a Kubernetes Secret in the job's namespace."""

    name: pulumi.Input[str]
    """Name of the Secret."""
    key: pulumi.Input[str]
    """Key in the Secret."""
    optional: NotRequired[bool]
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
    """Plain environment, with macros; a value `[FIELD_PATH]metadata.name` reads a field of the pod."""
    secret_env: NotRequired[Mapping[str, SecretEnv]]
    """Environment read from Kubernetes Secrets."""
    num_replicas: NotRequired[int]
    """Pods to run. Unset: 1. Under Volcano fewer than launched is in place; anything else is a new run."""
    min_replicas: NotRequired[int]
    """Volcano: pods that must start together, 1 to `num_replicas`. Unset: all of them. Changes in place."""
    max_retries: NotRequired[int]
    """Retries, by `retry_policy`. Unset or 0: none."""
    retry_policy: NotRequired[RetryPolicy]
    """`APPLICATION` (default) starts the whole job again, `REPLICA` the replica."""
    resource: NotRequired[Resource]
    """What one replica needs. Unset: nothing is requested."""
    port_map: NotRequired[Mapping[str, int]]
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


class Topology(TypedDict):
    """How close together a gang must be placed."""

    mode: NotRequired[str]
    """`hard` (default) or `soft`."""
    highest_tier_allowed: NotRequired[int]
    """Highest HyperNode tier that a hard placement may cross. Unset: Volcano's default."""


class VolcanoTrainingJobArgs(TypedDict):
    """Arguments of a training job that Volcano runs."""

    roles: Sequence[Role]
    """The groups of replicas, in the order of ranks. At least one."""
    queue: pulumi.Input[str]
    """Volcano queue to schedule the job in."""
    namespace: NotRequired[pulumi.Input[str]]
    """Kubernetes namespace. Unset: `default`."""
    service_account: NotRequired[pulumi.Input[str]]
    """Service account of the pods. Unset: the namespace's default."""
    priority_class: NotRequired[pulumi.Input[str]]
    """PriorityClass of the job. Changes in place."""
    image_secrets: NotRequired[Sequence[pulumi.Input[str]]]
    """Names of pull secrets. Unset: none."""
    labels: NotRequired[Mapping[str, pulumi.Input[str]]]
    """Labels of the job object, never of its pods. Change in place."""
    annotations: NotRequired[Mapping[str, pulumi.Input[str]]]
    """Annotations of the job object, never of its pods. Change in place."""
    ttl_seconds_after_finished: NotRequired[int]
    """Seconds until a finished job is deleted; it is not run again. Unset: kept. 0: at once."""
    scheduler_name: NotRequired[str]
    """Scheduler that binds the pods. Unset: `volcano`."""
    reserved_millicpu: NotRequired[int]
    """CPU in millicores that a request leaves to the node. Unset: 100."""
    reserved_memmb: NotRequired[int]
    """Memory in MB that a request leaves to the node. Unset: 1024."""
    efa_device_count: NotRequired[int]
    """EFA devices of each replica. Unset: the resource's own; 0 removes them."""
    gang: NotRequired[GangMode]
    """`job` (default): one Volcano Job; `pods`: PodGroup, Service and Pods as resources. See GangMode."""
    layout: NotRequired[TaskLayout]
    """Tasks of a new run: `replica`, `role` or `auto` (default). A run that is kept keeps its own. See TaskLayout."""
    network_topology: NotRequired[Topology]
    """How close together the gang must be placed. Unset: anywhere."""
    plugins: NotRequired[Mapping[str, Sequence[str]]]
    """Volcano job plugins and their arguments. Unset: svc and env, as TorchX has them."""
    on_running_change: NotRequired[OnRunningChange]
    """What a change does that would end a run which has not finished: `fail` (default), `replace` or `ignore`."""
    wait_for: NotRequired[WaitFor]
    """How far the run must have come before `up` ends: `created` (default), `admitted`, `running` or `completed`."""
    timeout_s: NotRequired[int]
    """How long to wait for that, in seconds. The run is left as it is after that. Unset: without limit."""
    rerun: NotRequired[pulumi.Input[str]]
    """Any text; a new value launches a new run on purpose."""
    job_name: NotRequired[str]
    """Fixed name of the job object. Unset: `<name>-<hash>`, new with every run. Also names a job to import."""
    delete_timeout_s: NotRequired[int]
    """How long a deletion may take, in seconds. Unset: the provider's default, 600."""
    kubeconfig: NotRequired[pulumi.Input[str]]
    """Kubeconfig, contents or path. Unset: the ambient one. Taken as a secret."""
    kube_context: NotRequired[pulumi.Input[str]]
    """Context of the kubeconfig. Unset: its current one."""
    log_archive: NotRequired[pulumi.Input[str]]
    """Archive that keeps the containers' logs: a folder, or an s3://, gs:// or azblob:// URL. Unset: none."""
