"""Arguments of `MCADTrainingJob`, as Pulumi's analyzer reads them; the rules of `args` hold here too."""

from collections.abc import Mapping, Sequence
from enum import Enum

import pulumi
from typing_extensions import NotRequired, TypedDict

from torchx_pulumi_components.args import OnRunningChange, Role, WaitFor


class AppWrapperVersion(str, Enum):
    """Version of the AppWrapper, and with it the controller that runs it."""

    V1BETA1 = "v1beta1"
    """MCAD."""
    V1BETA2 = "v1beta2"
    """The AppWrapper operator, its successor, alone or under Kueue."""


class PodGroupVersion(str, Enum):
    """API of the PodGroups that a coscheduler reads."""

    X_K8S = "scheduling.x-k8s.io/v1alpha1"
    """What scheduler-plugins have served since v0.24."""
    SIGS = "scheduling.sigs.k8s.io/v1alpha1"
    """What older ones serve."""


class MCADTrainingJobArgs(TypedDict):
    """Arguments of a training job in an AppWrapper."""

    roles: Sequence[Role]
    """The groups of replicas, in the order of ranks. At least one. All of them start together."""
    namespace: NotRequired[pulumi.Input[str]]
    """Kubernetes namespace. Unset: `default`."""
    service_account: NotRequired[pulumi.Input[str]]
    """Service account of the pods. Unset: the namespace's default."""
    priority: NotRequired[int]
    """v1beta1: priority of the job in MCAD's queue, higher goes first. Changes in place. Unset: 0."""
    priority_class: NotRequired[pulumi.Input[str]]
    """PriorityClass of the pods."""
    image_secret: NotRequired[pulumi.Input[str]]
    """Name of the pull secret. Unset: none."""
    coscheduler_name: NotRequired[str]
    """Scheduler that binds the pods as gangs, one PodGroup per role. Unset: the cluster's own, without gangs."""
    pod_group_api: NotRequired[PodGroupVersion]
    """API of the coscheduler's PodGroups. Unset: the one that the cluster serves."""
    network: NotRequired[pulumi.Input[str]]
    """Further network of the pods (Multus). Unset: none."""
    api_version: NotRequired[AppWrapperVersion]
    """`v1beta1` (default): MCAD; `v1beta2`: the AppWrapper operator, Kueue."""
    local_queue: NotRequired[pulumi.Input[str]]
    """v1beta2: Kueue's LocalQueue. Unset: not under Kueue."""
    suspend: NotRequired[bool]
    """v1beta2 without Kueue: true holds the job back, or stops it and keeps its AppWrapper. Changes in place."""
    requeuing_time_s: NotRequired[int]
    """v1beta1 with retries: seconds until a job with too few pods is queued again. Unset: 300."""
    requeuing_max_time_s: NotRequired[int]
    """v1beta1 with retries: most seconds that this time grows to. Unset: 0, no limit."""
    requeuing_growth: NotRequired[str]
    """v1beta1 with retries: how this time grows, `exponential` (default), `linear` or `none`."""
    labels: NotRequired[Mapping[str, pulumi.Input[str]]]
    """Labels of the AppWrapper, never of its pods. Change in place."""
    annotations: NotRequired[Mapping[str, pulumi.Input[str]]]
    """Annotations of the AppWrapper, never of its pods. Change in place."""
    reserved_millicpu: NotRequired[int]
    """CPU in millicores that a request leaves to the node. Unset: 100."""
    reserved_memmb: NotRequired[int]
    """Memory in MB that a request leaves to the node. Unset: 1024."""
    efa_device_count: NotRequired[int]
    """EFA devices of each replica. Unset: the resource's own; 0 removes them."""
    on_running_change: NotRequired[OnRunningChange]
    """What a change does that would end a run which has not finished: `fail` (default), `replace` or `ignore`."""
    wait_for: NotRequired[WaitFor]
    """How far the run must have come before `up` ends: `created` (default), `admitted`, `running` or `completed`."""
    timeout_s: NotRequired[int]
    """How long to wait for that, in seconds. The run is left as it is after that. Unset: without limit."""
    rerun: NotRequired[pulumi.Input[str]]
    """Any text; a new value launches a new run on purpose."""
    job_name: NotRequired[str]
    """Fixed name of the AppWrapper. Unset: `<name>-<hash>`, new with every run. Also names a job to import."""
    delete_timeout_s: NotRequired[int]
    """How long a deletion may take, in seconds. Unset: the provider's default, 600."""
    kubeconfig: NotRequired[pulumi.Input[str]]
    """Kubeconfig, contents or path. Unset: the ambient one. Taken as a secret."""
    kube_context: NotRequired[pulumi.Input[str]]
    """Context of the kubeconfig. Unset: its current one."""
    log_archive: NotRequired[pulumi.Input[str]]
    """Archive that keeps the containers' logs: a folder, or an s3://, gs:// or azblob:// URL. Unset: none."""
