"""The scheduler backend of Volcano, with its variants: one Volcano Job, or PodGroup, Service and Pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx_pulumi.kube.kinds import POD, SERVICE
from torchx_pulumi.model import labels
from torchx_pulumi.model.job_plan import JobPlan, TaskPlan
from torchx_pulumi.model.object_fields import items_at, number_at, text_at, version_number
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.run_record import RunRecord
from torchx_pulumi.planning import names
from torchx_pulumi.planning.layout import RoleTasks
from torchx_pulumi.schedulers.protocol import SchedulerBackend, Variant, late
from torchx_pulumi.schedulers.volcano.checks import (
    TASKS_NOTE,
    check_launch,
    check_options,
    volcano_differences,
    volcano_obstacles,
    volcano_warnings,
    whole_roles,
)
from torchx_pulumi.schedulers.volcano.control import CONTROL
from torchx_pulumi.schedulers.volcano.job import render_volcano
from torchx_pulumi.schedulers.volcano.limits import check_size
from torchx_pulumi.schedulers.volcano.names import MAX_PER_TASK, hosts_env, name_tail, pod_name
from torchx_pulumi.schedulers.volcano.objects import (
    VOLCANO_COMMAND,
    VOLCANO_JOB,
    VOLCANO_JOB_NAME,
    VOLCANO_POD_GROUP,
    VOLCANO_QUEUE,
    VOLCANO_TASK_INDEX,
)
from torchx_pulumi.schedulers.volcano.options import GangMode, VolcanoOptions

if TYPE_CHECKING:
    from torchx_pulumi.schedulers.diagnosis.evidence import Expected, ObservedObjects

_CHECKS = "torchx_pulumi.schedulers.volcano.cluster_checks"
_DIAGNOSIS = "torchx_pulumi.schedulers.volcano.diagnosis"
_GANG_PODS = "torchx_pulumi.schedulers.volcano.gang_pods"
_OBSERVE = "torchx_pulumi.schedulers.volcano.observe"
_TASKS = "torchx_pulumi.schedulers.volcano.tasks"

IMMUTABLE_JOB_FIELDS = (
    "spec.schedulerName", "spec.queue", "spec.maxRetry", "spec.plugins", "spec.policies", "spec.volumes",
    "spec.ttlSecondsAfterFinished", "spec.minSuccess", "spec.networkTopology", "spec.runningEstimate",
    "spec.tasks[*].name", "spec.tasks[*].template", "spec.tasks[*].policies", "spec.tasks[*].maxRetry",
    "spec.tasks[*].dependsOn", "spec.tasks[*].topologyPolicy", "spec.tasks[*].partitionPolicy",
)  # fmt: skip
"""Fields that Volcano's webhook `jobs/admission/admit_job.go` does not let a client change."""


def _pod_name(plan: JobPlan, task: TaskPlan, position: int) -> str:
    return pod_name(plan.job_name, task.name, position)


def _recorded_pods(run: RunRecord) -> Expected:
    roles = names.role_names([*run.replicas])
    return {
        name: [pod_name(run.job_name, names.task_name(role, index)) for index in range(count)]
        for role, (name, count) in zip(roles, run.replicas.items(), strict=True)
    }


def _version_of_pods(objects: ObservedObjects) -> str | None:
    """Return the newest version of PodGroup, pods and the list of pods, which also counts pods that were deleted."""
    seen = [text_at(one, "metadata", "resourceVersion") for one in (objects.job_object, *(objects.pods or ()))]
    newest = max((objects.version, *seen), key=version_number)
    return newest if version_number(newest) >= 0 else None


def _read_tasks(job: Manifest) -> RoleTasks | None:
    from torchx_pulumi.schedulers.pods.status import role_of

    tasks = items_at(job, "spec", "tasks")
    if all((number_at(task, "replicas") or 0) <= 1 for task in tasks):
        return None
    found: dict[str, list[int]] = {}
    for task in tasks:
        role, first = role_of(str(task.get("name")), {})
        found.setdefault(role, []).append(first)
    return found


JOB = Variant(
    scheduler="volcano",
    name=GangMode.JOB.value,
    job_object=VOLCANO_JOB,
    render=lambda plan: [render_volcano(plan)],
    observe=late(f"{_OBSERVE}:observe_job"),
    read=late(f"{_OBSERVE}:read_job"),
    describe=late(f"{_DIAGNOSIS}:describe_volcano"),
    diagnose=late(f"{_DIAGNOSIS}:diagnose_volcano"),
    most_per_task=MAX_PER_TASK,
    pod_name=_pod_name,
    service=lambda plan: plan.job_name if "svc" in plan.options.all_plugins else "",
    pod_groups=lambda plan, _roles, uid: [f"{plan.job_name}-{uid}"] if uid else [],
    pod_groups_by_uid=True,
    name_tail=name_tail,
    pod_templates=late(f"{_TASKS}:pod_templates"),
    read_tasks=_read_tasks,
    kept_fields=IMMUTABLE_JOB_FIELDS,
    listed_with_pods=False,
    # An abort ends in Aborted, which is CANCELLED anyway, or with a TerminateJob policy of the job in this phase.
    cancelled_phases=frozenset({"Aborted", "Terminated"}),
    control=CONTROL,
)

PODS = Variant(
    scheduler="volcano",
    name=GangMode.PODS.value,
    job_object=VOLCANO_POD_GROUP,
    render=late(f"{_GANG_PODS}:render_gang_pods"),
    more_env=late(f"{_GANG_PODS}:variables_of_volcano"),
    observe=late(f"{_OBSERVE}:observe_pods"),
    read=late(f"{_OBSERVE}:read_pods"),
    describe=late(f"{_DIAGNOSIS}:describe_volcano"),
    lost_pod_advice="launch again: gang=pods has no retries, gang=job has",
    diagnose=late(f"{_DIAGNOSIS}:diagnose_volcano"),
    most_per_task=MAX_PER_TASK,
    pod_name=_pod_name,
    service=lambda plan: plan.job_name,
    pod_groups=lambda plan, _roles, _uid: [plan.job_name],
    name_tail=name_tail,
    kept_fields=("spec.queue",),
    companions=(SERVICE, POD),
    recorded_pods=_recorded_pods,
    ends_by_pods=True,
    version_of=_version_of_pods,
)

BACKEND = SchedulerBackend(
    name="volcano",
    component="VolcanoTrainingJob",
    component_module="torchx_pulumi_components.volcano_training_job",
    component_text="A gang-scheduled training job, run by Volcano.",
    options=VolcanoOptions,
    variants={variant.name: variant for variant in (JOB, PODS)},
    variant_option="gang",
    check_options=check_options,
    check_launch=check_launch,
    check_size=check_size,
    whole_roles=whole_roles,
    layout_obstacles=volcano_obstacles,
    layout_differences=volcano_differences,
    tasks_note=TASKS_NOTE,
    replica_id_field=f"metadata.labels['{VOLCANO_TASK_INDEX}']",
    warnings=volcano_warnings,
    rank0_env=hosts_env,
    diagnose_refusal=late(f"{_DIAGNOSIS}:diagnose_refusal"),
    kinds=(VOLCANO_JOB, VOLCANO_QUEUE, VOLCANO_POD_GROUP, VOLCANO_COMMAND),
    # Volcano's controller copies the labels of a Job to its PodGroup.
    explaining_kinds=((VOLCANO_POD_GROUP, {labels.LAUNCH: None}), (VOLCANO_QUEUE, None)),
    queue_kind=VOLCANO_QUEUE,
    queue_amounts=late(f"{_OBSERVE}:queue_amounts"),
    absent=late(f"{_CHECKS}:absent"),
    named_objects=late(f"{_CHECKS}:named_objects"),
    permissions=late(f"{_CHECKS}:permissions"),
    check_installed=late(f"{_CHECKS}:check_installed"),
    doctor_checks=(("webhooks", late(f"{_CHECKS}:check_webhooks")), ("queue", late(f"{_CHECKS}:check_queue"))),
    pod_label=VOLCANO_JOB_NAME,
    place_of=late(f"{_TASKS}:place_of"),
    resizes=True,
)
