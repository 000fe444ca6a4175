"""Rules and warnings for jobs and options in AppWrappers. A rule yields problems and does not raise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from torchx_pulumi.model.errors import Problem
from torchx_pulumi.model.job_spec import JobSpec
from torchx_pulumi.planning import names
from torchx_pulumi.planning.checks.options import check_amount, check_shared_options
from torchx_pulumi.planning.checks.values import (
    MAX_INT32,
    check_object_name,
    check_text,
    found,
    is_text,
)
from torchx_pulumi.planning.quantities import DEFAULT_PORT, is_port
from torchx_pulumi.schedulers.appwrapper.options import AppWrapperVersion, MCADOptions, PodGroupVersion

GROWTHS = ("exponential", "linear", "none")
"""How MCAD lets the time between requeuings grow."""

MAX_POD_SETS = 8
"""Pod sets of an AppWrapper v1beta2 that the operator's webhook lets pass (`internal/webhook/appwrapper_webhook.go`),
for the sake of Kueue; every Pod is one."""


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


def mcad_warnings(spec: JobSpec, options: MCADOptions) -> Sequence[str]:
    """Return hints for the user about a job that passed the checks."""
    retries = {role.name: role.max_retries for role in spec.roles}
    least, replicas = min(retries.values()), sum(role.num_replicas for role in spec.roles)
    said = []
    if least and options.api_version == AppWrapperVersion.V1BETA1:
        said.append(
            f"max_retries {least}: MCAD does not keep to a limit. It queues a failed job again for ever, and one "
            f"that has ended stays Running; its status here counts, and says FAILED (RetriesExhausted) past {least}. "
            f"Delete the job then"
        )
    if least and options.api_version == AppWrapperVersion.V1BETA2:
        said.append(
            f"max_retries {least}: the AppWrapper operator starts a job again if a pod fails. If a pod is deleted, as "
            f"by a drain, a preemption or the loss of its node, the job fails without a retry, and its other pods run "
            f"on for 10 minutes. MCAD (api_version v1beta1) and the scheduler volcano start it again then, too"
        )
    if len(set(retries.values())) > 1:
        listed = ", ".join(f"{name}: {count}" for name, count in retries.items())
        said.append(
            f"roles differ in max_retries ({listed}); an AppWrapper has one count for the job, which is {least}"
        )
    if least and any(role.retry_policy == "REPLICA" for role in spec.roles):
        said.append("retry_policy REPLICA: an AppWrapper is started again as a whole")
    if options.api_version == AppWrapperVersion.V1BETA2 and replicas > MAX_POD_SETS:
        said.append(
            f"{replicas} replicas are {replicas} pod sets of the AppWrapper: the operator's webhook refuses more than "
            f"{MAX_POD_SETS} (Kueue too; newer ones 18). Only an operator without webhooks runs this job; MCAD "
            f"(api_version v1beta1) and the scheduler volcano have no such limit"
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
