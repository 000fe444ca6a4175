"""From what is wanted, what is remembered and what is seen, to what a component registers. No resource is made here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from torchx_pulumi.kube import Cluster
from torchx_pulumi.model import labels
from torchx_pulumi.model.cluster_identity import ClusterIdentity
from torchx_pulumi.model.errors import DeployError, InvalidJobError, Problem, RelaunchRefusedError, invalid_job
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.job_spec import JobSpec
from torchx_pulumi.model.run_record import FIRST_VERSION, IDENTITY_VERSION, RunHistory, RunRecord
from torchx_pulumi.model.status import JobStatus
from torchx_pulumi.planning import names
from torchx_pulumi.runs.decision import (
    GONE,
    Action,
    Decision,
    DesiredRun,
    ObservedRun,
    decide,
    foreign_object,
    launched_replicas,
)
from torchx_pulumi.runs.identity import field_digests, is_in_place, job_name, run_hash_of, variant_of_run
from torchx_pulumi.runs.run_hash import run_hash
from torchx_pulumi.schedulers import (
    ObservedObjects,
    Variant,
    backend_of,
    plan_job,
    variant_of,
)
from torchx_pulumi.schedulers.preflight import discover, preflight

from torchx_pulumi_components.as_launched import plan_as_launched
from torchx_pulumi_components.input_resolution import is_placeholder
from torchx_pulumi_components.read_args import ParsedArgs, in_words_of_args
from torchx_pulumi_components.undecided import as_recorded, undecided_fields
from torchx_pulumi_components.whereabouts import Origin, find_cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """All that a decision is made of."""

    name: str
    """The component's name."""
    wanted: ParsedArgs
    memory: RunHistory
    owners: tuple[str, ...]
    """Launch labels of this component, under its present and its former URNs; the present one first."""
    cluster: Cluster | None
    """None: nothing can be looked at now."""
    may_come: frozenset[str]
    """Options whose objects this deployment may create."""
    importing: bool
    """An existing job is to be taken over."""
    shown: Mapping[str, Any]
    """The component's outputs as of the last deployment. Empty: there are none."""
    launcher: Mapping[str, str]
    """Labels by which `torchx list` finds an app that `torchx run` launched. Empty: a program launched it."""
    now: datetime
    end_of: Callable[[RunRecord], Mapping[str, Any] | None]
    """Returns the end of a run as it was last seen. None: it was not seen."""
    origin: Origin = field(default_factory=Origin)
    """Where the last run was launched, as far as its record does not say it."""
    unknown: bool = False
    """Something among the arguments is not known yet."""
    other: ParsedArgs | None = None
    """What is wanted with other values in the place of unknown ones. None: it is refused, or all is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What a component registers."""

    plan: JobPlan[Any]
    decision: Decision
    run: RunRecord
    """The run, to be recorded."""
    intent: RunRecord
    """The launch, to be noted before the job is made."""
    seen: ObservedObjects
    """The run's objects as they are now. Empty: a launch, or gone."""
    status: JobStatus | None
    """The run as seen. None: there is nothing to see yet."""
    ended: RunRecord | None
    """The run that is deleted first. None: there is none."""
    confirmed: RunRecord | None = None
    """The run as it was recorded before. None: its launch was not confirmed yet."""
    end: Mapping[str, Any] | None = None
    """The end of a run whose object is gone, in the shape of the output `observed`. None: it was not seen."""
    stored: bool = False
    """The stack's state has the job object of a run whose object is gone."""
    undecided: tuple[str, ...] = ()
    """Paths that are not known before `up`, of those that decide whether this is a new run."""
    named: bool = False
    """The job object has a fixed name."""
    warnings: tuple[str, ...] = ()
    cluster: ClusterIdentity | None = None
    """The cluster of the run. None: not known."""

    @property
    def launching(self) -> bool:
        """Say whether a new run is launched."""
        return self.decision.action in (Action.LAUNCH, Action.RELAUNCH)

    def may_make(self, role: str, index: int, pod: str) -> bool:
        """Say whether a replica's own pod may be made: a pod of a recorded run is never started again."""
        if self.launching or self.confirmed is None or self.seen.pods is None:
            return True
        present = any(item["metadata"]["name"] == pod for item in self.seen.pods)
        return present or index >= self.confirmed.replicas.get(role, 0)


def plan_launch(request: Request) -> Launch:
    """Decide what a component registers.

    Raises:
        InvalidJobError: The job cannot be planned, or not be launched in this cluster.
        RelaunchRefusedError: A change would end an unfinished run.
        DeployError: An object of somebody else has the job's name.
        ClusterError: The cluster does not answer, or is not the one of the last run.
    """
    given = request.wanted
    # What was left to the cluster counts as found there: it is rendered, recorded and compared.
    wanted = replace(given, options=discover(request.cluster, given.options, given.left_open))
    request = replace(request, wanted=wanted)
    last, seen, interrupted = _last_run(request)
    new = _new_run(request, IDENTITY_VERSION)
    if last is None:
        new, seen = _without_record(request, new)
    new_name = new.job_name
    # A job that cannot be planned is refused with all its problems before anything is said about change.
    _plan(wanted.spec, new, request)
    undecided = undecided_fields(new.digests, request.other, IDENTITY_VERSION) if request.unknown else set()
    wish = _wish(request, last, new, undecided)
    begun = last or request.memory.intent
    cluster = find_cluster(request.name, request.cluster, begun, request.origin, seen.job_object)
    look = _judge(request, last, seen)
    known = last if last is None else replace(last, observed=request.end_of(last))
    decision = decide(known, wish, look, wanted.settings.on_running_change, request.now, interrupted=interrupted)
    _refuse(request, decision, last, new_name, look)
    launch = _with_cluster(request, _launch(request, decision, last, new, wish, seen), last, cluster)
    moved = last is not None and (new.namespace, new_name) != (last.namespace, last.job_name)
    if launch.launching and moved:
        _refuse_foreign(request, new_name)
    problems: list[Problem] = []
    warnings: list[str] = []
    if launch.launching and request.cluster is not None:
        problems, warnings = preflight(
            request.cluster, wanted.options, may_come=request.may_come, not_known=is_placeholder
        )
    if problems:
        raise invalid_job(request.name, problems)
    return replace(
        launch,
        undecided=tuple(sorted(path for path in undecided if not is_in_place(path))),
        named=wanted.settings.job_name is not None,
        warnings=(*warnings, *launch.plan.warnings),
    )


def _last_run(request: Request) -> tuple[RunRecord | None, ObservedObjects, bool]:
    """Return the last run, its objects, and whether a later launch was begun of which nothing is there."""
    memory = request.memory
    if memory.interrupted and memory.intent is not None:
        seen = _look_at(request, memory.intent)
        head = seen.job_object or {}
        if run_hash_of(head) == memory.intent.hash and _is_ours(request, None, head):
            return replace(memory.intent, uid=head["metadata"].get("uid")), seen, False
        if run_hash_of(memory.job or {}) == memory.intent.hash and (memory.job or {})["metadata"].get("uid"):
            # It was made, which the state knows and the record does not, and it is gone by now.
            return replace(memory.intent, uid=(memory.job or {})["metadata"]["uid"]), seen, False
        if memory.record is None:
            return None, seen, True
    if memory.record is None:
        return None, ObservedObjects(), False
    return memory.record, _look_at(request, memory.record), memory.interrupted


def _look_at(request: Request, run: RunRecord) -> ObservedObjects:
    """Read the objects of a recorded run where it was launched, which is not where an interrupted move went."""
    return _look(request, run.namespace, run.job_name, run)


def _look(request: Request, namespace: str, name: str, run: RunRecord | None) -> ObservedObjects:
    """Read the objects of a run from the cluster, or from the state where nothing can be read."""
    if is_placeholder(namespace):
        return ObservedObjects()
    if request.cluster is not None:
        # Of a run that is recorded all pods were made.
        variant = _variant_of(request, run)
        expected = variant.recorded_pods(run) if run is not None and run is request.memory.record else None
        return variant.observe(request.cluster, namespace, name, expected)
    job = request.memory.job
    metadata = (job or {}).get("metadata") or {}
    if job is None or (metadata.get("name"), metadata.get("namespace", namespace)) != (name, namespace):
        return ObservedObjects()
    return ObservedObjects(job_object=dict(job))


def _variant_of(request: Request, run: RunRecord | None) -> Variant:
    """Return the variant of a recorded run, which the wanted one may differ from."""
    return variant_of_run(run, request.wanted.options)


def _wish(request: Request, last: RunRecord | None, new: RunRecord, undecided: Set[str]) -> DesiredRun:
    """Return what is wanted, in terms of the version that the last run's identity is of.

    What is not known yet, or is left to the cluster, is what the last run has.
    """
    wanted = request.wanted
    if last is None:
        return DesiredRun(digests=new.digests, hash=new.hash, job_name=wanted.settings.job_name)
    replicas = new.replicas
    launched = launched_replicas(last, replicas) if backend_of(wanted.options).resizes else replicas
    version, rerun = last.identity_version, wanted.settings.rerun
    digests = field_digests(wanted.spec, wanted.options, rerun=rerun, version=version)
    digests = as_recorded(digests, {*undecided, *wanted.left_open}, last.digests)
    wished = run_hash(digests, launched, wanted.spec, wanted.options, rerun=rerun, version=version)
    return DesiredRun(digests=digests, hash=wished, launched=launched, job_name=wanted.settings.job_name)


def _without_record(request: Request, new: RunRecord) -> tuple[RunRecord, ObservedObjects]:
    """Look for a run that no record is of, also under the name that an earlier release gave it."""
    seen = _look(request, new.namespace, new.job_name, None)
    if seen.job_object is not None or request.wanted.settings.job_name is not None:
        return new, seen
    earlier = _new_run(request, FIRST_VERSION)
    found = _look(request, earlier.namespace, earlier.job_name, None)
    if found.job_object is not None and _is_ours(request, None, found.job_object):
        return earlier, found
    return new, seen


def _job_name(request: Request, run: str, version: int) -> str:
    wanted = request.wanted
    roles = names.role_names([role.name for role in wanted.spec.roles])
    tasks = [
        names.task_name(dns_name, index)
        for dns_name, role in zip(roles, wanted.spec.roles, strict=True)
        for index in range(max(role.num_replicas, 1))
    ]
    tail = variant_of(wanted.options).name_tail(tasks)
    return job_name(request.name, run, request.owners[0], version=version, tail=tail)


def _new_run(request: Request, version: int) -> RunRecord:
    """Return the run that a launch would make: the same whatever ran before it."""
    wanted, memory = request.wanted, request.memory
    rerun = wanted.settings.rerun
    replicas = {role.name: role.num_replicas for role in wanted.spec.roles}
    digests = field_digests(wanted.spec, wanted.options, rerun=rerun, version=version)
    run = run_hash(digests, replicas, wanted.spec, wanted.options, rerun=rerun, version=version)
    name = wanted.settings.job_name or _job_name(request, run, version)
    attempts = [run.attempt for run in (memory.record, memory.intent) if run is not None]
    return RunRecord(
        app_id=name,
        job_name=name,
        namespace=wanted.options.namespace,
        hash=run,
        digests=digests,
        launched=replicas,
        replicas=replicas,
        attempt=max(attempts, default=0) + 1,
        launched_at=request.now.isoformat(timespec="seconds"),
        identity_version=version,
    )


def _judge(request: Request, last: RunRecord | None, seen: ObservedObjects) -> ObservedRun:
    if seen.job_object is None:
        return GONE
    status = _variant_of(request, last).read_status(seen, request.now)
    return ObservedRun(
        exists=True,
        owned=request.importing or _is_ours(request, last, seen.job_object),
        finished=status.state.terminal,
        state=status.state.value,
        started_at=status.started_at or status.queued_at,
        live=request.cluster is not None,
    )


def _is_ours(request: Request, last: RunRecord | None, head: Mapping[str, Any]) -> bool:
    metadata = head.get("metadata") or {}
    if (metadata.get("labels") or {}).get(labels.LAUNCH) in request.owners:
        return True
    return last is not None and last.uid is not None and metadata.get("uid") == last.uid


def _refuse(request: Request, decision: Decision, last: RunRecord | None, new_name: str, look: ObservedRun) -> None:
    options = request.wanted.options
    if request.importing and last is None and not look.exists:
        where = f"{options.namespace}/{new_name}"
        raise invalid_job(request.name, [Problem("job_name", f"there is no job {where} to import")])
    if decision.action is Action.REFUSE and look.exists and not look.owned:
        namespace, name = (last.namespace, last.job_name) if last else (options.namespace, new_name)
        raise DeployError(foreign_object(_variant_of(request, last).job_object.kind, namespace, name))
    if decision.action is Action.REFUSE:
        raise RelaunchRefusedError(f"job {request.name!r}: {decision.message}")
    unfinished = look.exists and not look.finished
    was, wanted = variant_of_run(last, options), variant_of(options)
    if last is not None and unfinished and was is not wanted:
        raise RelaunchRefusedError(
            f"job {request.name!r}: {backend_of(options).variant_option} cannot change from {was.name} to "
            f"{wanted.name} while run {last.job_name} has not finished: the new run would start before the old one is "
            f"gone. Wait for its end, or destroy it first"
        )


def _refuse_foreign(request: Request, name: str) -> None:
    if request.cluster is None:
        return
    options = request.wanted.options
    seen = _look(request, options.namespace, name, None)
    if seen.job_object is not None and not _is_ours(request, None, seen.job_object):
        raise DeployError(foreign_object(variant_of(options).job_object.kind, options.namespace, name))


def _launch(
    request: Request,
    decision: Decision,
    last: RunRecord | None,
    new: RunRecord,
    wish: DesiredRun,
    seen: ObservedObjects,
) -> Launch:
    """Put together what a decision comes to."""
    wanted, memory = request.wanted, request.memory
    spec = wanted.spec
    status = None if seen.job_object is None else _variant_of(request, last).read_status(seen, request.now)
    if decision.action in (Action.LAUNCH, Action.RELAUNCH) or last is None:
        run = new if seen.job_object is None or decision.action is not Action.KEEP else _with_uid(new, seen)
        plan = _plan(spec, run, request)
        kept = decision.action is Action.KEEP
        if kept and request.importing:
            run = replace(run, imported=True)
        ended = last if seen.job_object is not None and not kept else None
        return Launch(
            plan=plan,
            decision=decision,
            run=run,
            intent=replace(run, uid=None),
            seen=seen if kept else ObservedObjects(),
            status=status if kept else None,
            ended=ended,
        )
    run = last
    if decision.action is Action.KEEP:
        run = _with_uid(replace(last, replicas=new.replicas, digests=wish.digests), seen)
    intent = memory.intent
    if intent is None or intent.attempt != run.attempt:
        intent = replace(last, uid=None, observed=None)
    ignoring = decision.action is Action.IGNORE
    plan = (
        plan_as_launched(request.name, last, request.wanted, memory.job, request.shown)
        if ignoring
        else _plan(spec, run, request)
    )
    confirmed = memory.record if memory.record is not None and memory.record.attempt == run.attempt else None
    return Launch(
        plan=plan,
        decision=decision,
        run=run,
        intent=intent,
        seen=seen,
        status=status,
        ended=None,
        confirmed=confirmed,
        end=request.end_of(run),
        stored=((memory.job or {}).get("metadata") or {}).get("name") == run.job_name,
    )


def _with_cluster(request: Request, launch: Launch, last: RunRecord | None, known: ClusterIdentity | None) -> Launch:
    """Add the cluster to the record. One of 0.1.0 gets it only where it is written anyway: else previews show it."""
    run, intent = launch.run, launch.intent
    if request.cluster is not None and (last is None or launch.launching):
        run = replace(run, cluster=request.cluster.identify())
        intent = replace(intent, cluster=run.cluster)
    elif run.cluster is None and run != last:
        run = replace(run, cluster=known)
    return replace(launch, run=run, intent=intent, cluster=run.cluster or known)


def _with_uid(run: RunRecord, seen: ObservedObjects) -> RunRecord:
    return replace(run, uid=((seen.job_object or {}).get("metadata") or {}).get("uid") or run.uid)


def _plan(spec: JobSpec, run: RunRecord, request: Request) -> JobPlan[Any]:
    """Plan a run, with our own label and annotation on the job object."""
    options = request.wanted.options
    own: Any = replace(
        options,
        # A run that is kept is where it is, also while the wanted namespace is not known.
        namespace=run.namespace,
        labels={**options.labels, **request.launcher, labels.LAUNCH: request.owners[0]},
        annotations={**options.annotations, labels.RUN: run.hash},
    )
    known: Iterable[str] = [role.name for role in spec.roles]
    launched = {name: count for name, count in run.launched.items() if name in known}
    try:
        return plan_job(spec, own, run.job_name, launched=launched)
    except InvalidJobError as error:
        raise invalid_job(request.name, in_words_of_args(error.problems)) from error
