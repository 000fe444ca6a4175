"""What a component takes from the record of the last run instead of from its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

from torchx_pulumi.apps.variants import variant_of_run
from torchx_pulumi.model import labels
from torchx_pulumi.model.errors import RelaunchRefusedError
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.job_spec import JobSpec, ResourceSpec, RoleSpec
from torchx_pulumi.model.object_fields import items_at, mapping_at, number_at, text_at
from torchx_pulumi.model.options import rows_of
from torchx_pulumi.model.redaction import texts_in
from torchx_pulumi.model.run_record import RunRecord, are_first_replicas
from torchx_pulumi.planning.layout import RoleTasks
from torchx_pulumi.planning.names import role_names
from torchx_pulumi.runs.registration import Registration
from torchx_pulumi.schedulers import backend_of, plan_job, variant_of
from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects

from torchx_pulumi_components.places import covers
from torchx_pulumi_components.read_args import ParsedArgs
from torchx_pulumi_components.stack_state import StackState, plain


def with_recorded(digests: Mapping[str, str], paths: Set[str], recorded: Mapping[str, str]) -> dict[str, str]:
    """Return digests with the recorded ones for some paths and for all that begins with them."""
    kept = {path: digest for path, digest in digests.items() if not covers(paths, path)}
    return kept | {path: digest for path, digest in recorded.items() if covers(paths, path)}


def plan_as_launched(
    name: str, run: RunRecord, wanted: ParsedArgs, job: Mapping[str, Any] | None, outputs: Mapping[str, Any]
) -> JobPlan[Any]:
    """Plan a run that is kept while its arguments change (`on_running_change: ignore`), for its names and outputs.

    The record has digests only. The values are in the component's outputs and in the job object.

    Args:
        name: Name of the component.
        run: The run.
        wanted: The arguments now; scheduler and app name are taken from them.
        job: The job object in the state.
        outputs: The component's outputs in the state.

    Raises:
        RelaunchRefusedError: The state has neither, because its deployment was interrupted.
    """
    declared, options = outputs.get("declared"), wanted.options
    if not isinstance(declared, Mapping) or job is None:
        raise RelaunchRefusedError(
            f"job {name!r}: run {run.job_name} cannot be kept while its arguments change (on_running_change: "
            "ignore), as the deployment that launched it was interrupted. Undo the change and run `up` once, which "
            "completes it"
        )
    fields = {"priority_class": declared.get("priority")}
    if (option := backend_of(options).variant_option) is not None:
        fields[option] = variant_of_run(run, options).name
    queue = (job.get("spec") or {}).get("queue")
    fields |= {} if queue is None else {"queue": queue}
    rows = rows_of(type(options))
    required = {row.name: getattr(options, row.name) for row in rows if row.required}
    chosen = {row.name: fields[row.name] for row in rows if row.name in fields}
    kept: Any = type(options)(**{**required, "namespace": run.namespace, **chosen})
    spec = JobSpec(name=wanted.spec.name, roles=[_role_as_launched(role) for role in declared["roles"]])
    return plan_job(spec, kept, run.job_name, launched=run.launched, tasks=run.tasks or {})


def former_secrets(state: StackState, wanted: Registration) -> frozenset[str]:
    """Return texts of secrets in the objects of a run that the objects of its changed arguments do not have.

    Texts that outputs show, also as parts of names, are none.

    Args:
        state: The component in the stack's state.
        wanted: What the arguments ask for now.
    """
    found = state.secret_texts()
    if not found:
        return frozenset()
    outputs = {name: value for name, value in plain(state.outputs).items() if name != "observed"}
    shown = "\n".join(texts_in(outputs))
    present = {text for manifest in wanted.objects() for text in texts_in(manifest["spec"])}
    return frozenset(text for text in found - present if text not in shown)


def _role_as_launched(role: Mapping[str, Any]) -> RoleSpec:
    """Return a role as the component's output `declared` has it; its command is not rendered."""
    amounts, least = role.get("resource") or {}, role.get("min_replicas")
    return RoleSpec(
        name=role["name"],
        image=role["image"],
        entrypoint="as-launched",
        num_replicas=int(role["replicas"]),
        min_replicas=None if least is None else int(least),
        resource=ResourceSpec(
            cpu=amounts.get("cpu"),
            gpu=int(amounts.get("gpu") or 0),
            memory_mb=int(amounts.get("memory_mb") or 0),
            devices={device: int(count) for device, count in (amounts.get("devices") or {}).items()},
        ),
    )


def run_as_launched(new: RunRecord, wanted: ParsedArgs, observed: ObservedObjects) -> RunRecord:
    """Return the record of a run that has none, with what its objects have.

    Args:
        new: What a launch would record.
        wanted: The arguments.
        observed: The objects of the run, with its job object.
    """
    job = observed.job_object or {}
    tasks, image_digests = tasks_as_launched(wanted, job), digests_as_launched(wanted, observed)
    return replace(new, uid=observed.uid or new.uid, tasks=tasks, image_digests=image_digests)


def tasks_as_launched(wanted: ParsedArgs, job: Mapping[str, Any]) -> RoleTasks | None:
    """Return the tasks of a job without a record, by the names of its roles. None: each replica is one."""
    found = variant_of(wanted.options).read_tasks(dict(job)) or {}
    roles = [role.name for role in wanted.spec.roles]
    pairs = zip(roles, role_names(roles), strict=True)
    return {role: found[name] for role, name in pairs if are_first_replicas(found.get(name, ()))} or None


def digests_as_launched(wanted: ParsedArgs, observed: ObservedObjects) -> Mapping[str, str] | None:
    """Return the digests in the pods of a job without a record, by the names of its roles. None: they name none.

    Args:
        wanted: The arguments. Only the digest after the image that they name is taken.
        observed: The objects of the run.
    """
    templates = variant_of(wanted.options).pod_templates(dict(observed.job_object or {}))
    live: dict[int | None, str] = {}
    for pod in [pod for _, pod in templates] or observed.pods or ():
        position = number_at(mapping_at(pod, "metadata", "labels"), labels.ROLE_INDEX)
        main = next(iter(items_at(pod, "spec", "containers")), None)
        live.setdefault(position, text_at(main, "image") or "")
    found = {}
    for position, role in enumerate(wanted.spec.roles):
        image, _, pinned = live.get(position, "").rpartition("@")
        if image == role.image:
            found[role.name] = pinned
    return found or None
