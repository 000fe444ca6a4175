"""The scheduler backend of Indexed Jobs: everything that the rest of the project asks for."""

from __future__ import annotations

from torchx_pulumi.kube.kinds import SERVICE
from torchx_pulumi.model import labels
from torchx_pulumi.planning.macros import RANK0_HOST_ENV
from torchx_pulumi.schedulers.protocol import SchedulerBackend, Variant

from tests.third_scheduler.indexed_job import checks, cluster_checks, manifests, observe
from tests.third_scheduler.indexed_job.options import IndexedJobOptions

# region backend
_JOB = Variant(
    scheduler="indexed_job",
    name="job",
    job_object=manifests.JOB,
    render=manifests.render,
    observe=observe.observe,
    read=observe.read_status,
    describe=observe.describe,
    pod_name=manifests.pod_name,
    fixed_pod_names=False,
    service=lambda plan: plan.job_name,
    name_tail=lambda _tasks: checks.LONGEST_SUFFIX,
    kept_fields=("spec.completions", "spec.completionMode", "spec.selector", "spec.template"),
    companions=(SERVICE,),
)

BACKEND = SchedulerBackend(
    name="indexed_job",
    component="IndexedTrainingJob",
    component_module="tests.third_scheduler.indexed_job.component",
    component_text="A training job that runs as an Indexed Job.",
    options=IndexedJobOptions,
    variants={_JOB.name: _JOB},
    check_options=checks.check_options,
    check_launch=checks.check_launch,
    # Every pod has the variable, rank 0 as well: all pods have the same environment.
    rank0_env=lambda _role: RANK0_HOST_ENV,
    kinds=(manifests.JOB,),
    named_objects=cluster_checks.named_objects,
    permissions=cluster_checks.permissions,
    pod_label=labels.UNIQUE_NAME,
)
# endregion
