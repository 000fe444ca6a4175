"""Rules and warnings for jobs and options in AppWrappers. A rule yields problems and does not raise."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from torchx_pulumi.model.errors import Problem
from torchx_pulumi.model.job_spec import JobSpec
from torchx_pulumi.model.options import TaskLayout
from torchx_pulumi.planning import names
from torchx_pulumi.planning.checks.options import check_amount, check_shared_options
from torchx_pulumi.planning.checks.values import (
    MAX_INT32,
    check_object_name,
    check_text,
    found,
    is_text,
)
from torchx_pulumi.planning.layout import texts, uses_replica_id
from torchx_pulumi.planning.macros import RANK0_HOST_ENV
from torchx_pulumi.planning.quantities import DEFAULT_PORT, is_port
from torchx_pulumi.schedulers.appwrapper.options import AppWrapperVersion, MCADOptions, PodGroupVersion

GROWTHS = ("exponential", "linear", "none")
"""How MCAD lets the time between requeuings grow."""

MAX_POD_SETS = 8
"""Pod sets of an AppWrapper v1beta2 that the operator's webhook lets pass (`internal/webhook/appwrapper_webhook.go`),
for the sake of Kueue; every Pod and every Job is one."""

TASKS_NOTE = (
    "pods are made by Jobs and called <job>-<role>-<first replica of the Job>-<index>-<five letters>, other ones after "
    "a retry, and their hosts the same without the letters; set layout to role, or to replica for one pod per replica"
)
"""The effect of the layout `role` on every process, and how to choose."""


def check_mcad_options(options: MCADOptions) -> Iterator[Problem]:
    """Check every option by itself, and then those that fit one version of the AppWrapper only."""
    yield from check_shared_options(options)
    for field in ("priority_class", "image_secret", "coscheduler_name"):
        value = getattr(options, field)
        if value is not None:
            yield from check_object_name(f"options.{field}", value)
    if options.priority is not None and not abs(options.priority) <= MAX_INT32:
        yield Problem("options.priority", f"{found(options.priority)}, must be a whole number; higher goes first")
    if options.network is not None:
        yield from check_text("options.network", options.network)
    for field in ("requeuing_time_s", "requeuing_max_time_s"):
        yield from check_amount(field, getattr(options, field))
    if options.requeuing_growth is not None and options.requeuing_growth not in GROWTHS:
        yield Problem("options.requeuing_growth", f"{found(options.requeuing_growth)}, must be {', '.join(GROWTHS)}")
    if options.local_queue is not None and not names.is_dns_label(options.local_queue):
        yield Problem("options.local_queue", f"{found(options.local_queue)}, must be at most 63 of a-z, 0-9 and '-'")
    yield from _check_version(options)


def _check_version(options: MCADOptions) -> Iterator[Problem]:
    """Refuse options that the chosen controller does not read."""
    if options.api_version == AppWrapperVersion.V1BETA2:
        for field in ("requeuing_time_s", "requeuing_max_time_s", "requeuing_growth"):
            if getattr(options, field) is not None:
                yield Problem(f"options.{field}", "must be unset with api_version=v1beta2; set its grace annotations")
        if options.priority is not None:
            yield Problem(
                "options.priority", "must be unset with api_version=v1beta2, which has none; use priority_class"
            )
        if options.local_queue is not None and options.suspend is True:
            yield Problem("options.suspend", "must be false with local_queue: Kueue suspends and resumes the job")
        return
    if options.layout == TaskLayout.ROLE:
        yield Problem(
            "options.layout",
            "must be replica or auto with api_version=v1beta1: MCAD counts a Job of n pods as one, and makes it again "
            "while its old pods run; use api_version=v1beta2",
        )
    if options.local_queue is not None:
        yield Problem("options.local_queue", "must be unset with api_version=v1beta1, which Kueue does not know")
    if options.suspend is True:
        yield Problem("options.suspend", "must be false with api_version=v1beta1, which MCAD cannot suspend")


def check_mcad_launch(
    spec: JobSpec, _options: MCADOptions, app_id: object, _tasks: Mapping[str, int]
) -> Iterator[Problem]:
    """Check the rules for job and options together."""
    yield from check_mcad_app_id(app_id)
    for index, role in enumerate(spec.roles):
        if role.min_replicas is not None and role.min_replicas != role.num_replicas:
            yield Problem(
                f"roles[{index}].min_replicas",
                f"{found(role.min_replicas)}, must be unset or {role.num_replicas} (num_replicas): MCAD starts all "
                f"replicas or none, and changes their number by a new launch only; Volcano can do with fewer",
            )


def check_mcad_app_id(app_id: object) -> Iterator[Problem]:
    """Check an app id, which names the AppWrapper, a label, and the Service by which replicas find each other."""
    if not is_text(app_id) or not names.is_service_name(app_id):
        yield Problem(
            "app_id",
            f"{found(app_id)}, must be at most 63 of a-z, 0-9 and inner dashes, a letter first; it is never changed "
            f"for you",
        )


def mcad_obstacles(spec: JobSpec, _options: MCADOptions) -> Iterator[str]:
    """Yield why Indexed Jobs cannot run a job."""
    for index, role in enumerate(spec.roles):
        overlaid = (role.pod_overlay or {}).get("spec")
        policy = overlaid.get("restartPolicy", "Never") if isinstance(overlaid, Mapping) else "Never"
        if policy != "Never":
            yield f"roles[{index}].pod_overlay has restartPolicy {policy}, and the pods of the Jobs need Never"


def mcad_differences(spec: JobSpec, _options: MCADOptions) -> Iterator[str]:
    """Yield what processes see by something that the job names, and that the layout `role` changes."""
    first = spec.roles[0]
    if first.num_replicas > 1 and uses_replica_id(first):
        yield f"roles[0] uses ${{replica_id}}, so its replicas are one Job: rank 0 has no {RANK0_HOST_ENV}"
    dns_names = names.role_names([role.name for role in spec.roles])
    pods = re.compile("|".join(rf"-{re.escape(name)}-\d+(?![-\d])" for name in dns_names))
    for position, role in enumerate(spec.roles):
        overlay = [] if role.pod_overlay is None else [("pod_overlay", json.dumps(role.pod_overlay, default=str))]
        for path, text in [*texts(role), *overlay]:
            for pod in dict.fromkeys(pods.findall(text)):
                yield f"roles[{position}].{path} names <job>{pod}, a pod that only the layout replica has"


def mcad_warnings(spec: JobSpec, options: MCADOptions, tasks: Mapping[str, int]) -> Sequence[str]:
    """Return hints for the user about a job that passed the checks, with its tasks and their replicas."""
    retries = {role.name: role.max_retries for role in spec.roles}
    least = min(retries.values())
    said = []
    if least and options.api_version == AppWrapperVersion.V1BETA1:
        said.append(
            f"max_retries {least}: MCAD does not keep to a limit. It queues a failed job again for ever, and one "
            f"that has ended stays Running; its status here counts, and says FAILED (RetriesExhausted) past {least}. "
            f"Delete the job then"
        )
    has_jobs = options.layout == TaskLayout.ROLE or any(count > 1 for count in tasks.values())
    if least and options.api_version == AppWrapperVersion.V1BETA2 and not has_jobs:
        said.append(
            f"max_retries {least}: the AppWrapper operator starts a job again if a pod fails. If a pod is deleted, as "
            f"by a drain, a preemption or the loss of its node, the job fails without a retry, and its other pods run "
            f"on for 10 minutes. Set layout to role, in which Jobs make the pods: it is started again then, as by MCAD "
            f"(api_version v1beta1) and by the scheduler volcano"
        )
    if len(set(retries.values())) > 1:
        listed = ", ".join(f"{name}: {count}" for name, count in retries.items())
        said.append(
            f"roles differ in max_retries ({listed}); an AppWrapper has one count for the job, which is {least}"
        )
    if least and any(role.retry_policy == "REPLICA" for role in spec.roles):
        said.append("retry_policy REPLICA: an AppWrapper is started again as a whole")
    if options.api_version == AppWrapperVersion.V1BETA2 and len(tasks) > MAX_POD_SETS:
        advice = "ask for fewer roles" if has_jobs else "set layout to role or auto, in which replicas share a Job"
        said.append(
            f"{'Jobs' if has_jobs else 'pods'} of the AppWrapper: {len(tasks)}, each of them a pod set; the operator's "
            f"webhook refuses more than {MAX_POD_SETS} (Kueue 18). Only an operator without webhooks runs this job; "
            f"{advice}. MCAD (api_version v1beta1) and the scheduler volcano have no such limit"
        )
    for role in spec.roles:
        said += [
            f"port {name!r} of role {role.name!r} is {port}, which is not 1 to 65535: the Service has port "
            f"{DEFAULT_PORT} if it would have had this one, and the container does not name it"
            for name, port in role.port_map.items()
            if not is_port(port)
        ]
    if options.image_secret is not None and options.service_account is not None:
        said.append(
            "image_secret and service_account are both given: the service account may have pull secrets of its own; "
            "see that the two agree"
        )
    if options.coscheduler_name is None and options.pod_group_api != PodGroupVersion.X_K8S:
        said.append("pod_group_api has no effect without coscheduler_name")
    return said
