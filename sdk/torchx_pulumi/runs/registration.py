"""What a launch registers: `prepare` says it for `torchx run`, the components, the stack program and prerendered apps.

`plan_registration` has all of it as plain JSON, for an app that `torchx run` launches. Components register the parts of
a `Registration`, because values of their runs may be secret or unknown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar

from torchx_pulumi.kube.kubeconfig import absolute_kubeconfig
from torchx_pulumi.model import labels
from torchx_pulumi.model.app_entry import RunEntry, StackRef, Stage, write_entry
from torchx_pulumi.model.cluster_identity import ClusterIdentity
from torchx_pulumi.model.job_plan import JobPlan, RolePlan
from torchx_pulumi.model.job_spec import JobSpec
from torchx_pulumi.model.options import Manifest, Options
from torchx_pulumi.model.registration_plan import UID, RegistrationPlan
from torchx_pulumi.model.run_record import IDENTITY_VERSION, RunRecord, write_record
from torchx_pulumi.model.timestamps import format_time
from torchx_pulumi.outputs.building import (
    MAX_REPLICAS_LISTED,
    app_handle,
    assemble,
    build_declared,
    build_observed,
    flatten,
)
from torchx_pulumi.outputs.types import Declared
from torchx_pulumi.outputs.ui_url import fill_ui_url
from torchx_pulumi.planning import names
from torchx_pulumi.runs.identity import field_digests
from torchx_pulumi.runs.run_hash import run_hash
from torchx_pulumi.schedulers import backend_of, plan_job, replicas_of, variant_of
from torchx_pulumi.storage.owners import this_process

OptionsT = TypeVar("OptionsT", bound=Options)


def pod_names(plan: JobPlan[Any], role: RolePlan) -> list[str]:
    """Return the names of a role's pods in rank order."""
    variant = variant_of(plan.options)
    return [variant.pod_name(plan, task, position) for task, position in replicas_of(role)]


def recorded_digests(spec: JobSpec) -> Mapping[str, str] | None:
    """Return the digests that pods name after the tags of their images, for the record. None: they name none."""
    return {role.name: role.image_digest for role in spec.roles if role.image_digest is not None} or None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchState:
    """What a launch takes from its surroundings, beside the job and its options."""

    name: str
    """Name of the component."""
    owner: str
    """Value of the label by which objects are known as the component's (`names.owner_digest`)."""
    at: datetime
    """When the launch was decided."""
    job_name: str | None = None
    """Name of the job object. None: of the name of the component and the hash of the run."""
    rerun: str | None = None
    """Text by which a run is launched again. None: not set."""
    attempt: int = 1
    """Number of the run in the component, from 1."""
    cluster: ClusterIdentity | None = None
    """The cluster. None: not known."""
    user: str | None = None
    """Who launches. None: not known."""
    session: str | None = None
    """TorchX session whose labels the job object gets. None: it gets none, or has them already."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """Image of pods to its digest, for images whose digest is known."""
    plan: JobPlan[Any] | None = None
    """The plan, if it was made already, under `job_name`. None: it is made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What is registered for one run."""

    state: LaunchState
    plan: JobPlan[Any]
    record: RunRecord
    given: Sequence[Manifest] | None = None
    """The objects as the caller left them, the job object first. None: they are rendered from the plan."""
    entry: RunEntry | None = None
    """Index entry of the app, in stage LAUNCHING. None: a program launched the run."""

    def objects(self) -> list[Manifest]:
        """Return the objects, the job object first, with the labels and annotations that say whose they are."""
        owner, session = self.state.owner, self.state.session
        own = {labels.LAUNCH: owner, **({} if session is None else app_labels(session))}
        given = self.given
        if given is None:
            # A Service has the labels of the job object, too.
            options: Any = replace(self.plan.options, labels={**self.plan.options.labels, **own})
            given = variant_of(options).render(replace(self.plan, options=options))
        # Only labels and annotations change; a copy of all tasks would take longer than the rest of the plan.
        job_object, *companions = ({**item, "metadata": dict(item["metadata"])} for item in given)
        job_object["metadata"]["labels"] = {**(job_object["metadata"].get("labels") or {}), **own}
        noted = self.plan.options.annotations.items()
        digests = {key: value for key, value in noted if key == labels.IMAGE_DIGESTS}
        _annotate(job_object, {labels.RUN: self.record.hash, **digests})
        for companion in companions:
            _annotate(companion, {labels.LAUNCH: owner, labels.RUN: self.record.hash})
        return [job_object, *companions]

    def resource_names(self, objects: Sequence[Manifest]) -> list[str]:
        """Return the names of the resources of objects: the component's own, then by kind, a pod by its task."""
        variant = variant_of(self.plan.options)
        pods = (item for role in self.plan.roles for item in replicas_of(role)) if variant.makes_pods else ()
        tasks = {variant.pod_name(self.plan, task, position): task.name for task, position in pods}
        found = [self.state.name]
        for manifest in objects[1:]:
            object_name, kind = str(manifest["metadata"]["name"]), str(manifest["kind"])
            # No name of an object has a dot, so that jobs `a` and `a-b` of a program have different names.
            found.append(f"{self.state.name}.{tasks.get(object_name, object_name) if kind == 'Pod' else kind.lower()}")
        return found

    @property
    def app_entry(self) -> RunEntry:
        """Return the entry of an app. A program's run has none."""
        if self.entry is None:
            raise AssertionError(f"job {self.state.name!r} was launched by a program; it has no entry")
        return self.entry

    def with_entry(
        self,
        app_id: str,
        place: StackRef,
        *,
        app: Mapping[str, Any],
        session: str,
        options: Mapping[str, Any],
        chosen: Mapping[str, Any],
        ambient: tuple[str | None, str | None],
    ) -> Registration:
        """Return the registration with the entry of its app, whose launch this process begins.

        Args:
            app_id: Its id: the job object has that name, which the caller may have changed.
            place: Its stack.
            app: The AppDef as given, as plain JSON values.
            session: TorchX session.
            options: Run options of the scheduler that are in force.
            chosen: Other run options: those of access, link and logs are noted.
            ambient: Path of the ambient kubeconfig and its context, as `whereabouts.ambient` returns them.
        """
        state, fields, scheduler = self.state, self.entry_fields(), self.plan.options.scheduler
        (namespace, _, name), link = app_id.partition(":"), chosen.get("ui_url")
        entry = RunEntry(
            app_id=app_id,
            scheduler=scheduler,
            place=place,
            cluster="" if state.cluster is None else state.cluster.key,
            cluster_identity=state.cluster,
            kubeconfig=absolute_kubeconfig(chosen.get("kubeconfig")),
            kube_context=chosen.get("kube_context"),
            session=session,
            user=state.user or "",
            name=state.name,
            app=app,
            declared=self.declared,
            launch=state.owner,
            launched_at=format_time(state.at),
            stage=Stage.LAUNCHING,
            owner=this_process(),
            ui_url=fill_ui_url(link, namespace=namespace, name=name, scheduler=scheduler, queue=fields["queue"])
            if link
            else None,
            options={key: value for key, value in options.items() if value is not None},
            log_options={key: value for key, value in chosen.items() if key.startswith("log_") and value is not None},
            ambient_kubeconfig=ambient[0],
            ambient_context=ambient[1],
            **fields,
        )
        return replace(self, entry=entry)

    @property
    def declared(self) -> Declared:
        """Return the output `declared`."""
        state = self.state
        return build_declared(self.plan, spec_hash=self.record.hash, created_by=state.user, digests=state.digests)

    def entry_fields(self) -> dict[str, Any]:
        """Return the fields of an app's index entry that depend on the plan and the record alone."""
        plan = self.plan
        return {
            "choice": variant_of(plan.options).name,
            "pods": {role.name: pod_names(plan, role) for role in plan.roles},
            "run": self.record.hash,
            "queue": getattr(plan.options, "queue", None),
        }

    def outputs(self) -> dict[str, Any]:
        """Return the outputs of the component that depend on the plan alone."""
        plan, variant = self.plan, variant_of(self.plan.options)
        return {
            "app_id": f"{plan.namespace}:{plan.job_name}",
            "app_handle": app_handle(plan.options.scheduler, plan.namespace, plan.job_name),
            "job_name": plan.job_name,
            "namespace": plan.namespace,
            "service": variant.service(plan),
            "pod_names": [pod for role in plan.roles for pod in pod_names(plan, role)],
            "rank0_host": variant.rank0_host(plan),
            "images": {role.name: role.image for role in plan.roles},
            "declared": self.declared,
        }


def new_run(spec: JobSpec, options: Options, state: LaunchState) -> RunRecord:
    """Return the record of a new launch of a job: the same whatever ran before it. Arguments as of `prepare`."""
    options = with_named_digests(options, recorded_digests(spec) or {})
    backend, replicas = backend_of(options), {role.name: role.num_replicas for role in spec.roles}
    digests = field_digests(spec, options, rerun=state.rerun)
    hash_ = run_hash(digests, replicas, spec, options, rerun=state.rerun, version=IDENTITY_VERSION)
    job_name = state.job_name or names.job_name(state.name, hash_, state.owner, tail=backend.name_tail(spec, options))
    tasks = backend.choose_layout(spec, options).tasks or {}
    is_single = all(len(tasks.get(role, ())) in (0, count) for role, count in replicas.items())
    if is_single and not variant_of(options).single_tasks_differ:
        # Layout `role` with single replicas is layout `replica`, which renders the same.
        tasks = {}
    return RunRecord(
        app_id=job_name,
        job_name=job_name,
        namespace=options.namespace,
        hash=hash_,
        digests=digests,
        launched=replicas,
        replicas=replicas,
        attempt=state.attempt,
        launched_at=state.at.isoformat(timespec="seconds"),
        identity_version=IDENTITY_VERSION,
        cluster=state.cluster,
        tasks=tasks or None,
        image_digests=recorded_digests(spec),
    )


def prepare(
    spec: JobSpec,
    options: Options,
    state: LaunchState,
    *,
    new: RunRecord | None = None,
    kept: RunRecord | None = None,
) -> Registration:
    """Return the registration of a launch of a job.

    The job is planned once; only the hash of the run renders a job of other names and fewer replicas.

    Args:
        spec: The job.
        options: Its options in force, those that were discovered in the cluster included.
        state: Surroundings of the launch.
        new: Record of the new run, as `new_run` returns it. None: it is made.
        kept: Record of a run that stays as it was launched: its names, its layout and the digests of its images. None:
            a new run is launched.

    Raises:
        InvalidJobError: The job cannot be planned; all problems at once.
    """
    run = kept or new or new_run(spec, options, state)
    spec, options = as_recorded(spec, options, run)
    plan = state.plan
    if kept is not None:
        # The namespace of a kept run counts, also while the option is unknown.
        own: Any = replace(options, namespace=kept.namespace)
        launched = {role.name: kept.launched[role.name] for role in spec.roles if role.name in kept.launched}
        plan = plan_job(spec, own, kept.job_name, launched=launched, tasks=kept.tasks or {})
    elif plan is None:
        plan = plan_job(spec, options, run.job_name)
    return Registration(state=state, plan=plan, record=run)


def as_recorded(spec: JobSpec, options: OptionsT, run: RunRecord) -> tuple[JobSpec, OptionsT]:
    """Return a job and its options with the digests of images that a run names: its own, whatever is planned now."""
    recorded = run.image_digests or {}
    roles = [replace(role, image_digest=recorded.get(role.name)) for role in spec.roles]
    return replace(spec, roles=roles), with_named_digests(options, recorded)


def app_labels(session: str) -> dict[str, str]:
    """Return the labels of the job object by which `torchx list` finds an app that `torchx run` launched."""
    return {labels.LAUNCHER: labels.LAUNCHER_VALUE, labels.SESSION: names.label_value(session)}


def with_image_digests(registration: Registration, digests: Mapping[str, str]) -> Registration:
    """Return a registration with digests of its images: in its outputs, on the job object, in record and entry.

    Args:
        registration: The registration of an app.
        digests: Image of pods to its digest. Images without an entry have no known digest.
    """
    plan, entry = registration.plan, registration.entry
    note = digest_note({role.name: digests[role.image] for role in plan.roles if role.image in digests})
    annotations = {**plan.options.annotations, **note}
    options: Any = replace(plan.options, annotations=annotations)
    if note and entry is not None:
        entry = replace(entry, options={**entry.options, "annotations": annotations})
    return replace(
        registration,
        plan=replace(plan, options=options),
        record=replace(registration.record, digests=field_digests(plan.spec, options)),
        state=replace(registration.state, digests=digests),
        entry=entry,
    )


def digest_note(digests: Mapping[str, str]) -> dict[str, str]:
    """Return the annotation of a job object with the digests of the images of its roles. Empty: none is known."""
    return {labels.IMAGE_DIGESTS: json.dumps(digests, sort_keys=True)} if digests else {}


def read_digest_note(annotations: Mapping[str, str]) -> Mapping[str, Any]:
    """Return role name to digest from the annotations of a job object. Empty: they have none that is ours."""
    try:
        noted = json.loads(annotations.get(labels.IMAGE_DIGESTS) or "{}")
    except ValueError:
        # The user set an annotation of this name.
        return {}
    return noted if isinstance(noted, Mapping) else {}


def with_named_digests(options: OptionsT, named: Mapping[str, str]) -> OptionsT:
    """Return options whose noted digests are those that pods name.

    Args:
        options: Options of a job.
        named: Role name to the digest that its pods name.
    """
    noted = read_digest_note(options.annotations)
    if not noted.keys() & named.keys():
        return options
    note = digest_note({role: named.get(role, digest) for role, digest in noted.items()})
    return replace(options, annotations={**options.annotations, **note})


def planned_role(plan: JobPlan[Any], role: RolePlan, uids: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the outputs of a role that depend on the plan alone: its requests, its pods and its Service.

    The pods of a role of more than `MAX_REPLICAS_LISTED` replicas are not listed; `omitted` is their number. Otherwise
    there is no `omitted`.

    Args:
        plan: The plan.
        role: A role of it.
        uids: Pod name to uid, for pods that were observed.
    """
    resources = {"requests": dict(role.requests), "limits": dict(role.limits)}
    all_pods = pod_names(plan, role)
    is_listed = len(all_pods) <= MAX_REPLICAS_LISTED
    pods = [
        {
            "kind": "Pod",
            "name": pod,
            **({"uid": uid} if (uid := (uids or {}).get(pod)) else {}),
            "image": role.image,
            "resources": resources,
        }
        for pod in (all_pods if is_listed else ())
    ]
    service = variant_of(plan.options).service(plan)
    return {
        "name": role.name,
        "image": role.image,
        "replicas": role.replicas,
        "min_replicas": role.min_replicas,
        "resources": resources,
        "objects": [*pods, *([{"kind": "Service", "name": service}] if service else [])],
        **({} if is_listed else {"omitted": len(all_pods)}),
    }


def pod_group_objects(names: Sequence[str]) -> list[dict[str, str]]:
    """Return the output `pod_groups` of a role."""
    return [{"kind": "PodGroup", "name": name} for name in names]


def plan_registration(registration: Registration) -> RegistrationPlan:
    """Return the registration of an app that `torchx run` launches."""
    from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects

    plan, record, entry = registration.plan, registration.record, registration.app_entry
    at = datetime.fromisoformat(record.launched_at)
    variant, objects = variant_of(plan.options), registration.objects()
    new = {key: value for key, value in objects[0].items() if key != "status"}
    observed = build_observed(variant.read_status(ObservedObjects(job_object=new, pods=())), observed_at=at)
    outputs, scheduler = registration.outputs(), plan.options.scheduler
    whole = assemble(
        plan,
        outputs["declared"],
        observed,
        scheduler=scheduler,
        queue=entry.queue,
        kube_context=entry.kube_context,
        ui_url=entry.ui_url,
        log_archive=entry.log_archive,
    )
    return RegistrationPlan(
        scheduler=scheduler,
        name=registration.state.name,
        objects=objects,
        names=registration.resource_names(objects),
        intent=write_record(record),
        record=write_record(record),
        entry=write_entry(replace(entry, stage=Stage.LAUNCHED, owner=None, uid=None)),
        outputs={
            **outputs,
            "uid": UID,
            "pod_groups": variant.pod_groups(plan, plan.roles, UID),
            "observed": observed,
        },
        roles={
            role.dns_name: {
                **planned_role(plan, role),
                "pod_groups": pod_group_objects(variant.pod_groups(plan, [role], UID)),
            }
            for role in plan.roles
        },
        exports={"torchx": whole, **flatten(whole)},
        kubeconfig=entry.kubeconfig,
        kube_context=entry.kube_context,
    )


def _annotate(manifest: dict[str, Any], own: Mapping[str, str]) -> None:
    metadata = manifest["metadata"]
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **own}
