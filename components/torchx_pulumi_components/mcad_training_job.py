"""Component MCADTrainingJob and its arguments. Written by `python -m tools.components`."""

from collections.abc import Mapping, Sequence

import pulumi
from torchx_pulumi.model.launch_options import OnRunningChange, WaitFor
from torchx_pulumi.model.options import TaskLayout
from torchx_pulumi.outputs.types import Declared, Observed, UserRequest
from torchx_pulumi.schedulers.appwrapper.options import AppWrapperVersion, NeverAdmitted, PodGroupVersion
from typing_extensions import NotRequired, TypedDict

from torchx_pulumi_components.args import Role
from torchx_pulumi_components.training_job import TrainingJob


class MCADTrainingJobArgs(TypedDict):
    """Arguments of MCADTrainingJob."""

    roles: Sequence[Role]
    """The groups of replicas, in the order of ranks. At least one."""
    namespace: NotRequired[pulumi.Input[str]]
    """Kubernetes namespace to schedule job in. Unset: `default`."""
    service_account: NotRequired[pulumi.Input[str]]
    """The service account name to set on the pod specs."""
    reserved_millicpu: NotRequired[int]
    """CPU in millicores that a request leaves to the node. Unset: `100`."""
    reserved_memmb: NotRequired[int]
    """Memory in MB that a request leaves to the node. Unset: `1024`."""
    efa_device_count: NotRequired[int]
    """EFA devices of each replica: unset keeps the resource's own number, 0 removes them, N sets N."""
    labels: NotRequired[Mapping[str, pulumi.Input[str]]]
    """Labels of the job object, never of its pods; they change in place."""
    annotations: NotRequired[Mapping[str, pulumi.Input[str]]]
    """Annotations of the job object, never of its pods; they change in place."""
    priority: NotRequired[int]
    """The priority level to set on the job specs, changed in place. Higher integer value means higher priority."""
    priority_class: NotRequired[pulumi.Input[str]]
    """Pod specific priority level: the name of the PriorityClass to set on the pod specs."""
    image_secret: NotRequired[pulumi.Input[str]]
    """The name of the Kubernetes secret set up for private images."""
    coscheduler_name: NotRequired[str]
    """Scheduler that binds the pods as gangs, one PodGroup per role. Unset: the cluster's own, without gangs."""
    network: NotRequired[pulumi.Input[str]]
    """Name of additional pod-to-pod network beyond default Kubernetes network (Multus)."""
    pod_group_api: NotRequired[PodGroupVersion]
    """PodGroup API: `scheduling.x-k8s.io/v1alpha1` or `scheduling.sigs.k8s.io/v1alpha1`. Unset: as the cluster has."""
    api_version: NotRequired[AppWrapperVersion]
    """Version of the AppWrapper: `v1beta1` (MCAD) or `v1beta2` (AppWrapper operator, Kueue). Unset: `v1beta1`."""
    layout: NotRequired[TaskLayout]
    """v1beta2, new run: `replica` (pods), `role` (Indexed Jobs). Unset: `auto`, Jobs above 8 replicas."""
    local_queue: NotRequired[pulumi.Input[str]]
    """v1beta2: Kueue's LocalQueue to schedule job in. Unset: not under Kueue."""
    on_never_admitted: NotRequired[NeverAdmitted]
    """v1beta2 under Kueue: `refuse` a launch that its queue can never admit, or `warn` of it. Unset: `refuse`."""
    suspend: NotRequired[bool]
    """v1beta2 without Kueue: hold the job back, or stop it and keep its AppWrapper; changes in place."""
    requeuing_time_s: NotRequired[int]
    """v1beta1 with retries: seconds until a job whose pods are too few is queued again. Unset: 300."""
    requeuing_max_time_s: NotRequired[int]
    """v1beta1 with retries: most seconds that this time grows to. Unset: 0, which is no limit."""
    requeuing_growth: NotRequired[str]
    """v1beta1 with retries: how this time grows, `exponential`, `linear` or `none`. Unset: exponential."""
    on_running_change: NotRequired[OnRunningChange]
    """A launch that would end an unfinished run: `fail`, `replace` the run, or `ignore` the launch. Unset: `fail`."""
    wait_for: NotRequired[WaitFor]
    """State of the run that a launch waits for: `created`, `admitted`, `running` or `completed`. Unset: `created`."""
    timeout_s: NotRequired[int]
    """Seconds that wait_for waits at most; the run goes on after it. Unset: no limit."""
    kubeconfig: NotRequired[pulumi.Input[str]]
    """Path of the kubeconfig, or in programs its contents, kept secret. Unset: KUBECONFIG or ~/.kube/config."""
    kube_context: NotRequired[pulumi.Input[str]]
    """Context of the kubeconfig. Unset: its current one."""
    log_archive: NotRequired[pulumi.Input[str]]
    """Archive that a controller fills with logs: a folder, or an s3://, gs:// or azblob:// URL. Unset: none."""
    rerun: NotRequired[pulumi.Input[str]]
    """Any text; a new value launches a new run on purpose."""
    job_name: NotRequired[str]
    """Fixed name of the job object, also of one to import. Unset: `<name>-<hash>`, new with every run."""
    delete_timeout_s: NotRequired[int]
    """Seconds that a deletion may take. Unset: the provider's default, 600."""


class MCADTrainingJob(TrainingJob):
    """A training job in an AppWrapper, run by MCAD or by its successor, the AppWrapper operator."""

    _scheduler = "mcad"

    app_id: pulumi.Output[str]
    """Id of the app in TorchX's words: `namespace:job_name`."""
    app_handle: pulumi.Output[str]
    """Handle by which TorchX finds the app."""
    job_name: pulumi.Output[str]
    """Name of the job object."""
    namespace: pulumi.Output[str]
    """Namespace of all objects."""
    uid: pulumi.Output[str]
    """Uid of the job object; a new one is a new run."""
    service: pulumi.Output[str]
    """Name of the headless Service by which replicas find each other. Empty: none."""
    pod_groups: pulumi.Output[list[str]]
    """Names of the PodGroups. Empty: there is no gang scheduler."""
    pod_names: pulumi.Output[list[str]]
    """Names of the pods, in the order of ranks."""
    rank0_host: pulumi.Output[str]
    """Host name of rank 0 inside the job."""
    images: pulumi.Output[dict[str, str]]
    """Role name to image."""
    declared: pulumi.Output[Declared]
    """What was asked for: `declared` of the stack output `torchx`."""
    observed: pulumi.Output[Observed]
    """What was seen: `observed` of the stack output `torchx`."""
    requested: pulumi.Output[UserRequest | None]
    """Last request to cancel or resume the run: `requested` of the stack output `torchx`. None: none."""

    def __init__(self, name: str, args: MCADTrainingJobArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Launch the job, keep it, or launch it again: docs/decisions/0005 says when.

        The job is decided after the constructor has returned. The program fails at its end if the arguments are wrong
        (all problems in one message), the cluster cannot take the job, or a change would end a run that has not
        finished; nothing of the job is registered then.

        Args:
            name: Name of the component; the job object is called `<name>-<hash>`.
            args: What to run and how.
            opts: Provider, parent, aliases, protect, depends_on, ignore_changes, custom_timeouts and import are
                passed on to the objects that the component registers.

        Raises:
            pulumi.RunError: The state of the stack cannot be read.
        """
        self._construct(name, args, None, opts)
