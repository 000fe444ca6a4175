"""Decide what a component registers, from its arguments, the stack's state and the cluster. Registers nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from torchx_pulumi.apps.answer import Answer
from torchx_pulumi.apps.judge import judge
from torchx_pulumi.apps.look import Look, look_at, read_objects
from torchx_pulumi.apps.ownership import is_of_launch, owns, run_hash_of, run_of_object, run_of_record
from torchx_pulumi.apps.variants import find_variant, variant_of_run
from torchx_pulumi.kube import PodReader
from torchx_pulumi.model.cluster_identity import ClusterIdentity, Match, compare
from torchx_pulumi.model.errors import (
    ClusterError,
    DeployError,
    InvalidJobError,
    Problem,
    RelaunchRefusedError,
    invalid_job,
)
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.run_record import RunRecord
from torchx_pulumi.model.status import JobState, JobStatus, Reason, read_state
from torchx_pulumi.planning.names import owner_digest
from torchx_pulumi.runs.decision import (
    Action,
    Decision,
    beside_retained,
    decide,
    foreign_object,
    launched_replicas,
    values_of_the_machine,
)
from torchx_pulumi.runs.identity import digest, field_digests, is_in_place, machine_fields
from torchx_pulumi.runs.registration import LaunchState, Registration, app_labels, as_recorded, new_run, prepare
from torchx_pulumi.runs.run_hash import run_hash
from torchx_pulumi.schedulers import Variant, backend_of, replicas_of, variant_of
from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects
from torchx_pulumi.schedulers.preflight import discover, preflight

from torchx_pulumi_components.cluster_access import find_cluster
from torchx_pulumi_components.guard import (
    StackOutputs,
    has_object,
    is_next_to,
    scheduler_of,
    taken,
)
from torchx_pulumi_components.read_args import ParsedArgs, in_words_of_args
from torchx_pulumi_components.recorded_run import former_secrets, plan_as_launched, run_as_launched, with_recorded
from torchx_pulumi_components.stack_state import StackState, plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A decision about a job, with all that a component registers because of it."""

    registration: Registration
    decision: Decision
    intent: RunRecord
    """The record that is registered before the job object."""
    look: Look | None = None
    """What was read of the run. None: it is launched now."""
    judged: Mapping[str, Any] | None = None
    """The result of `judge` for `look`. None: nothing was read, or the state is unknown."""
    answer: Answer = field(default_factory=Answer)
    """What the stack's state says of how the run stands. Empty: it says nothing, or is of another run."""
    ended: RunRecord | None = None
    """The run that is deleted first. None: no run is."""
    confirmed: RunRecord | None = None
    """The record of the run before this deployment. None: its launch was not confirmed yet."""
    stored: bool = False
    """The stack's state has the job object of a run whose object is gone."""
    undecided: tuple[str, ...] = ()
    """Paths of fields that are unknown before `up` and decide whether this is a new run. One of a mapping stands for
    its entries."""
    former_secrets: frozenset[str] = frozenset()
    """Texts of secrets of a kept run that its changed arguments do not have. Explanations of the run may quote them."""
    owners: tuple[str, ...] = ()
    """Launch labels of the component under its URNs, the present one first."""
    named: bool = False
    """The job object has a fixed name."""
    warnings: tuple[str, ...] = ()
    imports: Mapping[str, str] = field(default_factory=dict)
    """Resource name -> import id of the objects that `unrecorded` finds."""
    cluster: ClusterIdentity | None = None
    """The cluster of the run. None: not known."""
    active_elsewhere: Mapping[str, RunRecord] = field(default_factory=dict)
    """URN of another component in the state to its active run, if this launch takes its place once the program does not
    have that component any more."""
    ended_elsewhere: Mapping[str, RunRecord] = field(default_factory=dict)
    """The same for runs that have ended, which this launch repeats."""

    @property
    def plan(self) -> JobPlan[Any]:
        """Return the plan of the run."""
        return self.registration.plan

    @property
    def run(self) -> RunRecord:
        """Return the record of the run."""
        return self.registration.record

    @property
    def observed(self) -> ObservedObjects:
        """Return the run's objects. Without any field: it is launched now, or its objects are gone."""
        objects = None if self.look is None else self.look.objects
        return objects or ObservedObjects()

    @property
    def launching(self) -> bool:
        """Return whether a new run is launched."""
        return self.decision.action in (Action.LAUNCH, Action.RELAUNCH)

    @property
    def replaces_job_object(self) -> bool:
        """Return whether the job object replaces another run's object of the same name."""
        return (
            self.decision.action is Action.RELAUNCH
            and self.ended is not None
            and (self.ended.namespace, self.ended.job_name) == (self.run.namespace, self.run.job_name)
        )

    def missing_pods(self) -> list[str]:
        """Return the pods of a kept run that no longer exist. They are never started again."""
        variant = variant_of(self.plan.options)
        kept = self.decision.action is Action.KEEP
        if not kept or self.confirmed is None or self.observed.pods is None or not variant.makes_pods:
            return []
        present = {pod["metadata"]["name"] for pod in self.observed.pods}
        recorded = self.confirmed.replicas
        pods = [
            variant.pod_name(self.plan, task, position)
            for role in self.plan.roles
            for task, position in replicas_of(role)
            if task.index + position < recorded.get(role.name, 0)
        ]
        return [pod for pod in pods if pod not in present]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlanner:
    """Decides what a component registers."""

    name: str
    """Name of the component."""
    args: ParsedArgs
    state: StackState
    """The component in the stack's state."""
    organization: tuple[str, str, str]
    """Organization, project and stack."""
    cluster: PodReader | None
    """None: no cluster can be read."""
    created_here: frozenset[str]
    """Options whose objects this deployment may create."""
    importing: str | None
    """`namespace/name` of an existing job that is imported. None: none is."""
    now: datetime
    retaining: bool = False
    """The object of the last run stays in the cluster when a new one takes its place."""
    provider: str | None = None
    """URN of the Kubernetes provider that the program chose. None: that of the component, or the default one."""
    stored: StackOutputs = field(default_factory=dict)
    """Outputs of all resources in the stack's state, by URN."""
    others: Mapping[str, RunRecord] = field(default_factory=dict)
    """URN to last run of the other training jobs in the stack's state."""
    retyped: Set[str] = frozenset()
    """URNs of jobs of other schedulers, which the aliases of this component name."""
    compared: dict[Any, tuple[dict[str, str], str]] = field(default_factory=dict)
    """Digests and hash of this job as they are compared with runs: other runs of a stack take the same of it."""
    undecided: Set[str] = frozenset()
    """Paths of the digests of unknown arguments (`places.unknown_paths`)."""

    def plan(self) -> Launch:
        """Return the registration of the component.

        Raises:
            InvalidJobError: The job cannot be planned, or cannot be launched in this cluster.
            RelaunchRefusedError: A change would end an unfinished run.
            DeployError: An object that this stack did not create has the job's name.
            ClusterError: The cluster does not answer, or is not the one of the last run.
        """
        # Options that are discovered in the cluster are rendered, recorded and compared like given ones.
        args = replace(self.args, options=discover(self.cluster, self.args.options, self.args.left_open))
        return replace(self, args=args)._plan_launch()

    def _plan_launch(self) -> Launch:
        args, state = self.args, self.state
        last, observed, interrupted = self._last_run()
        surroundings = self._surroundings()
        new = new_run(args.spec, args.options, surroundings)
        new_name = new.job_name
        others = self.others if last is None else {}
        if last is None or (last.namespace, last.job_name) != (new.namespace, new_name):
            self._refuse_taken(new)
        if last is None:
            observed = self._observe_wanted(new_name)
        desired = new if last is None else self._desired_run(last, new)
        cluster = find_cluster(self.name, self.cluster, last or state.intent, state, observed.job_object)
        answer, look = Answer() if last is None else state.answer(last), self._look(last, observed)
        if self.cluster is None and look.gone and answer.observed:
            # Only a cluster tells that an object is gone.
            look = replace(look, objects=None)
        judged = judge(look, answer.requested, answer.observed or None)
        state_of_run = read_state((judged or {}).get("state"))
        status = None if observed.job_object is None else judged_status(look, judged)
        importing = self.importing is not None
        owned = observed.job_object is None or importing or self._is_ours(last, observed.job_object)
        fixed_name = args.settings.job_name
        decision = decide(
            self._as_compared(last, desired),
            desired,
            status,
            args.settings.on_running_change,
            self.now,
            interrupted=interrupted,
            owned=owned,
            live=self.cluster is not None,
            renamed=last is not None and fixed_name is not None and fixed_name != last.job_name,
            end=state_of_run.value if state_of_run.terminal else None,
            controllers=(
                backend_of(args.options).controller_options
                if self._variant_of(last) is not variant_of(args.options)
                else frozenset()
            ),
        )
        if self.retaining and decision.action is Action.RELAUNCH and last is not None and status is not None:
            decision = beside_retained(decision, last, new_name)
        kept = self._kept_run(decision, last, desired, look)
        # A job that cannot be planned is refused with all its problems, before any message about a change.
        try:
            prepared = prepare(args.spec, args.options, surroundings, new=new, kept=kept)
        except InvalidJobError as error:
            raise invalid_job(self.name, in_words_of_args(error.problems)) from error
        self._refuse(decision, last, new_name, status, owned=owned)
        if decision.action in (Action.LAUNCH, Action.RELAUNCH) or last is None:
            launch = Launch(
                registration=prepared,
                decision=decision,
                intent=replace(prepared.record, uid=None),
                look=None if kept is None else look,
                judged=None if kept is None else judged,
                ended=last if observed.job_object is not None and kept is None else None,
            )
        else:
            launch = replace(self._kept(decision, last, prepared, look), answer=answer, judged=judged)
        launch = self._with_cluster(launch, last, cluster)
        if launch.launching and last is not None and (new.namespace, new_name) != (last.namespace, last.job_name):
            self._refuse_foreign(new_name)
        problems: list[Problem] = []
        warnings: list[str] = []
        if launch.launching:
            problems = in_words_of_args(list(backend_of(args.options).check_size(launch.plan)))
        if launch.launching and self.cluster is not None:
            may_come = self.created_here
            more, warnings = preflight(
                self.cluster, args.options, plan=launch.plan, may_come=may_come, unknown=args.unknown
            )
            problems += more
        if decision.action is Action.KEEP and observed.job_object is not None and "labels" in decision.fields:
            changes = backend_of(args.options).check_change(observed.job_object, args.options)
            problems += in_words_of_args(list(changes))
        if problems:
            raise invalid_job(self.name, problems)
        if last is not None and not launch.launching:
            differing = {path for path in machine_fields(args.spec) if new.digests[path] != last.digests.get(path)}
            warnings += [values_of_the_machine(last.job_name, differing)] if differing else []
        same = {urn: run for urn, run in others.items() if self._is_same(urn, run, new)}
        active = {urn: run for urn, run in same.items() if self._is_active(urn, run)}
        return replace(
            launch,
            active_elsewhere=active,
            ended_elsewhere={urn: run for urn, run in same.items() if urn not in active},
            undecided=tuple(sorted(path for path in self.undecided if not is_in_place(path))),
            owners=tuple(self.owners()),
            named=fixed_name is not None,
            warnings=(*warnings, *launch.plan.warnings),
        )

    def _last_run(self) -> tuple[RunRecord | None, ObservedObjects, bool]:
        """Return the last run, its objects, and whether a later launch was begun that left no object."""
        state, intent = self.state, self.state.intent
        if state.interrupted and intent is not None:
            observed = self._observe(intent.namespace, intent.job_name, intent)
            job_object, job = observed.job_object or {}, state.job or {}
            if run_hash_of(job_object) == intent.hash and self._is_ours(None, job_object):
                return replace(intent, uid=job_object["metadata"].get("uid")), observed, False
            if run_hash_of(job) == intent.hash and job["metadata"].get("uid"):
                # It was created, which the state has and the record has not, and is gone by now.
                return replace(intent, uid=job["metadata"]["uid"]), observed, False
            if state.record is None:
                return None, observed, True
        record = state.record
        if record is None:
            return None, ObservedObjects(), False
        # In the namespace of its launch, not in that of an interrupted move.
        return record, self._observe(record.namespace, record.job_name, record), state.interrupted

    def _observe(self, namespace: str, name: str, run: RunRecord | None) -> ObservedObjects:
        """Read the objects of a run from the cluster, or from the state if no cluster can be read."""
        if self.cluster is not None:
            variant = self._variant_of(run)
            # All pods of a recorded run were created.
            expected = variant.recorded_pods(run) if run is not None and run is self.state.record else None
            return variant.observe(self.cluster, namespace, name, expected)
        job = self.state.job
        metadata = (job or {}).get("metadata") or {}
        if job is None or (metadata.get("name"), metadata.get("namespace", namespace)) != (name, namespace):
            return ObservedObjects()
        return ObservedObjects(job_object=dict(job))

    def _observe_wanted(self, name: str) -> ObservedObjects:
        """Read the objects that have the name of the new job. Empty: only `up` knows the namespace."""
        args = self.args
        return ObservedObjects() if "namespace" in args.unknown else self._observe(args.options.namespace, name, None)

    def _look(self, last: RunRecord | None, observed: ObservedObjects) -> Look:
        """Return the state of the last run, or of one without a record.

        The run is that of the object that is there, if this component made it: a state that was restored may have
        another uid. An object that it did not make is refused apart from this.
        """
        variant, there = self._variant_of(last), observed.job_object
        run = run_of_object(there or {}, variant)
        if there is None and last is not None:
            run = run_of_record(last, variant, self.owners())
        run = replace(run, expected=observed.expected)
        look = look_at(run, observed, self.now, confirmed=self.cluster is not None)
        # This deployment makes what a launch that was not confirmed left out.
        return look.asking_if_changing(lambda: last is None or last is not self.state.record)

    def _variant_of(self, run: RunRecord | None) -> Variant:
        """Return the variant of a recorded run, which can differ from that of the arguments."""
        return variant_of_run(run, self.args.options)

    def _desired_run(self, last: RunRecord, new: RunRecord) -> RunRecord:
        """Return the run that the arguments ask for, with the identity in the version of the last run.

        Fields that are unknown, or left to the cluster or the machine, have the values of the last run, and its images
        their digests.
        """
        args, version = self.args, last.identity_version
        spec, options = as_recorded(args.spec, args.options, last)
        launched = launched_replicas(last, new.replicas) if backend_of(options).resizes else new.replicas
        key = version, *(tuple(sorted(each.items())) for each in (launched, last.image_digests or {}))
        if key not in self.compared:
            digests = field_digests(spec, options, rerun=args.settings.rerun, version=version)
            hash_ = run_hash(digests, launched, spec, options, rerun=args.settings.rerun, version=version)
            self.compared[key] = digests, hash_
        digests, hash_ = self.compared[key]
        digests = with_recorded(digests, {*self.undecided, *args.left_open, *machine_fields(spec)}, last.digests)
        return replace(new, digests=digests, hash=hash_, launched=launched)

    def _as_compared(self, last: RunRecord | None, desired: RunRecord) -> RunRecord | None:
        """Return the last run without the labels by which `torchx list` finds an app, if it has no other ones.

        `torchx run` recorded them, and the job object keeps them in a program that does not name them.
        """
        if last is None or self._session is None:
            return last
        named = {**self.args.options.labels, **app_labels(self._session)}
        if last.digests.get("labels") != digest(named, last.identity_version):
            return last
        return replace(last, digests=with_recorded(last.digests, {"labels"}, desired.digests))

    @property
    def _session(self) -> str | None:
        """TorchX session of an app that `torchx run` launched. None: a program launched it."""
        return None if self.state.app is None else str(self.state.app.get("session") or "")

    def _surroundings(self) -> LaunchState:
        args, state = self.args, self.state
        attempts = [run.attempt for run in (state.record, state.intent) if run is not None]
        roles = (plain(state.outputs).get("declared") or {}).get("roles") or ()
        app = state.app or {}
        return LaunchState(
            name=self.name,
            owner=self.owners()[0],
            at=self.now,
            job_name=args.settings.job_name,
            rerun=args.settings.rerun,
            attempt=max(attempts, default=0) + 1,
            # None: a program launched the app.
            user=app.get("user"),
            session=self._session,
            digests={role["image"]: role["digest"] for role in roles if role.get("digest")},
        )

    def _kept_run(self, decision: Decision, last: RunRecord | None, desired: RunRecord, look: Look) -> RunRecord | None:
        """Return the record of the run that stays. None: a new run is launched, or a change is ignored."""
        if decision.action is Action.DONE_AND_GONE:
            return last
        if decision.action is not Action.KEEP:
            return None
        if last is not None:
            return replace(last, replicas=desired.replicas, digests=desired.digests, uid=look.uid)
        observed = look.objects or ObservedObjects()
        run = desired if observed.job_object is None else run_as_launched(desired, self.args, observed)
        return run if self.importing is None else replace(run, imported=True)

    def _refuse_taken(self, new: RunRecord) -> None:
        """Refuse the name of a job object that another component of the stack has, also for an import."""
        wanted = self.importing or (f"{new.namespace}/{new.job_name}" if self.args.settings.job_name else "")
        for urn, run in self.others.items():
            if f"{run.namespace}/{run.job_name}" == wanted and has_object(run, self.stored):
                raise taken(self.name, urn, run)

    def _is_same(self, urn: str, run: RunRecord, new: RunRecord) -> bool:
        """Return whether this component takes the place of another one: it has its job, or another scheduler's."""
        if scheduler_of(urn) != self.args.options.scheduler:
            return urn in self.retyped or is_next_to(urn, self.state.urn)
        # A run whose object is gone is over only if the same job is asked for.
        wanted, policy = self._desired_run(run, new), self.args.settings.on_running_change
        return decide(run, wanted, None, policy, self.now).action is Action.DONE_AND_GONE

    def _is_active(self, urn: str, run: RunRecord) -> bool:
        """Return whether the run of another component has not finished, by its cluster, else by the stack's state."""
        variant = find_variant(scheduler_of(urn) or "", None, run)
        own = run_of_record(run, variant, ())
        look = look_at(own, None, self.now)
        with contextlib.suppress(ClusterError):
            if self.cluster is not None and (
                run.cluster is None or compare(run.cluster, self.cluster.identify()) is Match.SAME
            ):
                found = read_objects(own, self.cluster)
                # Of a launch that was begun, any object of its name counts: a second launch would repeat it.
                own = own if own.uid else run_of_object(found.job_object or {}, variant)
                look = look_at(own, found, self.now)
        if look.gone:
            return False
        outputs = plain(self.stored[urn])
        # Those of an earlier run tell nothing of a launch that was begun.
        answer = Answer.of(outputs) if run.uid is not None and outputs.get("uid") == run.uid else Answer()
        judged = judge(look, answer.requested, answer.observed or None) or answer.observed
        return not read_state(judged.get("state")).terminal

    def owners(self) -> list[str]:
        """Return the launch labels of this component under its URNs, the present one first."""
        return [owner_digest(*self.organization, urn) for urn in (self.state.urn, *self.state.former_urns)]

    def _is_ours(self, last: RunRecord | None, job_object: Mapping[str, Any]) -> bool:
        """Return whether this component created an object: it has its label, or the uid of its last run."""
        owners = self.owners()
        if is_of_launch(owners, job_object):
            return True
        return last is not None and owns(run_of_record(last, self._variant_of(last), owners), job_object)

    def _refuse(
        self, decision: Decision, last: RunRecord | None, new_name: str, status: JobStatus | None, *, owned: bool
    ) -> None:
        options = self.args.options
        if self.importing is not None and last is None and status is None:
            where = f"{options.namespace}/{new_name}"
            raise invalid_job(self.name, [Problem("job_name", f"there is no job {where} to import")])
        if not owned:
            namespace, name = (last.namespace, last.job_name) if last else (options.namespace, new_name)
            raise DeployError(foreign_object(self._variant_of(last).job_object.kind, namespace, name))
        if decision.action is Action.REFUSE:
            raise RelaunchRefusedError(f"job {self.name!r}: {decision.message}")
        was, wanted = self._variant_of(last), variant_of(options)
        if last is not None and status is not None and not status.state.terminal and was is not wanted:
            raise RelaunchRefusedError(
                f"job {self.name!r}: {backend_of(options).variant_option} cannot change from {was.name} to "
                f"{wanted.name} while run {last.job_name} has not finished: the new run would start before the old one "
                f"is gone. Wait for its end, or destroy it first"
            )

    def _refuse_foreign(self, name: str) -> None:
        """Refuse to launch under the name of an object that this component did not create."""
        options = self.args.options
        observed = ObservedObjects() if self.cluster is None else self._observe_wanted(name)
        if observed.job_object is not None and not self._is_ours(None, observed.job_object):
            raise DeployError(foreign_object(variant_of(options).job_object.kind, options.namespace, name))

    def _kept(self, decision: Decision, last: RunRecord, prepared: Registration, look: Look) -> Launch:
        """Return a run that is kept, ignored, or over and gone."""
        state, intent, former = self.state, self.state.intent, frozenset[str]()
        if decision.as_launched:
            former = former_secrets(state, prepared)
            # Record and outputs are written together. Those of an earlier run tell nothing of this one.
            outputs = plain(state.outputs) if last is state.record else {}
            # The object of a run that is over and gone leaves the state with the next `up`.
            job = state.job or ({} if decision.action is Action.DONE_AND_GONE else None)
            plan = plan_as_launched(self.name, last, self.args, job, outputs)
            prepared = replace(prepared, plan=plan, record=last)
        attempt = prepared.record.attempt
        return Launch(
            registration=prepared,
            decision=decision,
            intent=replace(last, uid=None) if intent is None or intent.attempt != attempt else intent,
            look=look,
            former_secrets=former,
            confirmed=state.record if state.record is not None and state.record.attempt == attempt else None,
            stored=((state.job or {}).get("metadata") or {}).get("name") == prepared.record.job_name,
        )

    def _with_cluster(self, launch: Launch, last: RunRecord | None, known: ClusterIdentity | None) -> Launch:
        """Add the cluster to the record.

        A record of a launch that could read no cluster gets it only if it is written anyway: a preview would show the
        change otherwise.
        """
        run, intent = launch.run, launch.intent
        if last is None or launch.launching:
            run, intent = replace(run, provider=self.provider), replace(intent, provider=self.provider)
        elif last.provider is not None or last.cluster is not None:
            # A record of an earlier release that could read no cluster stays as it is: previews would show the change.
            run = replace(run, provider=self.provider)
        if self.cluster is not None and (last is None or launch.launching):
            run = replace(run, cluster=self.cluster.identify())
            intent = replace(intent, cluster=run.cluster)
        elif run.cluster is None and run != last:
            run = replace(run, cluster=known)
        registration = replace(launch.registration, record=run)
        return replace(launch, registration=registration, intent=intent, cluster=run.cluster or known)


def judged_status(look: Look, judged: Mapping[str, Any] | None) -> JobStatus:
    """Return the status of a run with state, reason and message as they were judged.

    Args:
        look: What was read of the run.
        judged: What `judge` returned for it. None: unknown.
    """
    seen, judged = look.status or JobStatus(state=JobState.UNKNOWN, reason=Reason.NOT_FOUND), judged or {}
    state, reason = read_state(judged.get("state")), judged.get("reason")
    return replace(
        seen,
        state=state,
        reason=next((each for each in Reason if each.value == reason), Reason.UNREADABLE),
        message=str(judged.get("message") or ""),
        diagnoses=seen.diagnoses if state is seen.state else (),
    )
