"""The scheduler backend of AppWrappers, with its variants: v1beta1, which MCAD runs, and v1beta2 of its successor."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torchx_pulumi.kube.kinds import JOB, Kind
from torchx_pulumi.model import labels
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.status import LOST_POD_ADVICE, Reason
from torchx_pulumi.planning.checks.job import MAX_REPLICAS
from torchx_pulumi.schedulers.appwrapper.checks import (
    MAX_POD_SETS,
    TASKS_NOTE,
    check_mcad_launch,
    check_mcad_options,
    mcad_differences,
    mcad_obstacles,
    mcad_warnings,
)
from torchx_pulumi.schedulers.appwrapper.limits import check_size
from torchx_pulumi.schedulers.appwrapper.objects import (
    APP_WRAPPER,
    APP_WRAPPER_V1BETA2,
    COMPLETION_INDEX,
    KUEUE_KINDS,
    KUEUE_QUEUE,
    RESOURCE_FLAVOR,
    SIGS_POD_GROUP,
    X_K8S_POD_GROUP,
)
from torchx_pulumi.schedulers.appwrapper.options import AppWrapperVersion, MCADOptions
from torchx_pulumi.schedulers.appwrapper.v1beta1 import render_mcad
from torchx_pulumi.schedulers.appwrapper.v1beta2 import render_mcad_v1beta2
from torchx_pulumi.schedulers.appwrapper.wrapped import hosts_env, pod_group_name, pod_name, rank0_variable
from torchx_pulumi.schedulers.protocol import SchedulerBackend, Variant, late

_CHECKS = "torchx_pulumi.schedulers.appwrapper.cluster_checks"
_DIAGNOSIS = "torchx_pulumi.schedulers.appwrapper.diagnosis"
_KUEUE = "torchx_pulumi.schedulers.appwrapper.kueue_checks"
_OBSERVE = "torchx_pulumi.schedulers.appwrapper.observe"
_TASKS = "torchx_pulumi.schedulers.appwrapper.tasks"

REPLICA_MESSAGES = {
    Reason.WAITING_IN_QUEUE: "the AppWrapper has not been dispatched yet",
    Reason.CANCELLED: "the job was deleted; the pod is gone",
}
"""Reason -> message of a replica without an observed pod, if an AppWrapper has its own."""


def _variant(
    api: AppWrapperVersion,
    kind: Kind,
    render: Callable[[JobPlan], Manifest],
    kept_fields: tuple[str, ...],
    *,
    cancelled_phases: frozenset[str],
    ends_by_pods: bool,
    lost_pod_advice: str = LOST_POD_ADVICE,
    most_per_task: int = 1,
) -> Variant:
    """Make a variant. An AppWrapper passes no change of its kept fields on to its pods."""
    return Variant(
        scheduler="mcad",
        name=api.value,
        job_object=kind,
        render=lambda plan: [render(plan)],
        observe=partial(late(f"{_OBSERVE}:observe_app_wrapper"), kind),
        read=late(f"{_OBSERVE}:read_status"),
        describe=late(f"{_DIAGNOSIS}:describe_mcad"),
        replica_messages=REPLICA_MESSAGES,
        lost_pod_advice=lost_pod_advice,
        diagnose=late(f"{_DIAGNOSIS}:diagnose_mcad"),
        most_per_task=most_per_task,
        # More cannot run without Jobs.
        auto_replicas=MAX_POD_SETS,
        named_replicas=MAX_POD_SETS,
        single_tasks_differ=True,
        more_env=rank0_variable,
        pod_name=pod_name,
        fixed_pod_names=most_per_task == 1,
        service=lambda plan: plan.job_name,
        pod_groups=lambda plan, roles, _uid: (
            [] if plan.options.coscheduler_name is None else [pod_group_name(plan, role) for role in roles]
        ),
        # Names that would be too long have a hash in place of the job's end.
        name_tail=lambda _tasks: 0,
        pod_templates=late(f"{_TASKS}:pod_templates"),
        read_tasks=late(f"{_TASKS}:read_tasks"),
        kept_fields=kept_fields,
        cancelled_phases=cancelled_phases,
        ends_by_pods=ends_by_pods,
    )


V1BETA1 = _variant(
    AppWrapperVersion.V1BETA1,
    APP_WRAPPER,
    render_mcad,
    ("spec.resources", "spec.schedulingSpec"),
    cancelled_phases=frozenset({"Deleted"}),
    ends_by_pods=True,
)
V1BETA2 = _variant(
    AppWrapperVersion.V1BETA2,
    APP_WRAPPER_V1BETA2,
    render_mcad_v1beta2,
    ("spec.components",),
    # Cancelling deletes the AppWrapper, and never suspends it.
    cancelled_phases=frozenset(),
    ends_by_pods=False,
    lost_pod_advice="launch again: max_retries of an AppWrapper v1beta2 does not cover a deleted pod in the layout "
    "replica; in the layout role it does, and that of api_version v1beta1 and of Volcano",
    most_per_task=MAX_REPLICAS,
)

BACKEND = SchedulerBackend(
    name="mcad",
    component="MCADTrainingJob",
    component_module="torchx_pulumi_components.mcad_training_job",
    component_text="A training job in an AppWrapper, run by MCAD or by its successor, the AppWrapper operator.",
    options=MCADOptions,
    foreign_options={
        "queue": "is an option of Volcano, MCAD has one queue; use priority, or local_queue with Kueue",
        "gang": "is an option of Volcano, MCAD makes the pods itself; use coscheduler_name for gangs",
        "network_topology": "is an option of Volcano, MCAD places pods one by one; remove it",
        "success_roles": "is an option of Volcano, an AppWrapper ends when all its pods have; remove it",
        "start_after": "is an option of Volcano, an AppWrapper makes all its pods at once; remove it",
        "plugins": "is an option of Volcano, MCAD has no plugins; remove it",
        "ttl_seconds_after_finished": "is an option of Volcano, MCAD keeps what has finished; remove it",
        "scheduler_name": "is an option of Volcano; use coscheduler_name",
        "image_secrets": "is an option of Volcano; use image_secret, which is one name",
    },
    queue_option="local_queue",
    queue_field=("metadata", "labels", KUEUE_QUEUE),
    discovered={"pod_group_api": "Unset: as the cluster has"},
    variants={variant.name: variant for variant in (V1BETA1, V1BETA2)},
    variant_option="api_version",
    controller_options=frozenset(
        {"api_version", "local_queue", "requeuing_time_s", "requeuing_max_time_s", "requeuing_growth"}
    ),
    check_options=check_mcad_options,
    check_launch=check_mcad_launch,
    check_size=check_size,
    layout_obstacles=mcad_obstacles,
    layout_differences=mcad_differences,
    tasks_note=TASKS_NOTE,
    replica_id_field=f"metadata.annotations['{COMPLETION_INDEX}']",
    warnings=mcad_warnings,
    rank0_env=hosts_env,
    diagnose_refusal=late(f"{_DIAGNOSIS}:diagnose_refusal"),
    kinds=(APP_WRAPPER, APP_WRAPPER_V1BETA2, X_K8S_POD_GROUP, SIGS_POD_GROUP, *KUEUE_KINDS, RESOURCE_FLAVOR),
    explaining_kinds=(
        *((kind, {labels.ORGANIZATION: labels.ORGANIZATION_VALUE}) for kind in (JOB, X_K8S_POD_GROUP, SIGS_POD_GROUP)),
        *((kind, None) for kind in KUEUE_KINDS),
    ),
    absent=late(f"{_CHECKS}:absent"),
    named_objects=late(f"{_CHECKS}:named_objects"),
    permissions=late(f"{_CHECKS}:permissions"),
    check_admission=late(f"{_KUEUE}:check_admission"),
    check_change=late(f"{_KUEUE}:check_change"),
    doctor_checks=(("local-queue", late(f"{_KUEUE}:check_local_queue")),),
    check_installed=late(f"{_CHECKS}:check_installed"),
    discover=late(f"{_CHECKS}:discover"),
    pod_label=labels.UNIQUE_NAME,
    place_of=late(f"{_TASKS}:place_of"),
    # TorchX gives the Service its default port then.
    tolerated=frozenset({"port"}),
)
