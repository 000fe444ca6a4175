"""The `SchedulerBackend` protocol: everything that differs between schedulers, reached through one object each.

A scheduler is one package with a `BACKEND` of this type, and one line in `registry`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Protocol

from torchx_pulumi.kube.kinds import POD, Kind
from torchx_pulumi.model.errors import Problem, invalid_job
from torchx_pulumi.model.job_plan import JobPlan, OptionsT, RolePlan, TaskPlan
from torchx_pulumi.model.job_spec import JobSpec
from torchx_pulumi.model.options import Manifest, Observed, Options, TaskLayout
from torchx_pulumi.model.run_record import RunRecord
from torchx_pulumi.model.status import LOST_POD_ADVICE, Diagnosis, JobStatus, Reason
from torchx_pulumi.planning.checks.job import check_job_rules, misplaced_metadata
from torchx_pulumi.planning.layout import (
    AUTO_REPLICAS,
    LARGE_REPLICAS,
    RoleTasks,
    layout_obstacles,
    task_counts,
    tasks_per_role,
)
from torchx_pulumi.planning.planner import make_plan
from torchx_pulumi.planning.typed_reader import TypedReader, uncovered
from torchx_pulumi.schedulers.pods.template import overlay_problems, reference_warnings

if TYPE_CHECKING:
    from torchx_pulumi.kube import Cluster, PodReader, Reader, Selector
    from torchx_pulumi.model.finding import DoctorScope, Finding
    from torchx_pulumi.schedulers.diagnosis.evidence import Evidence, Expected, ObservedObjects
    from torchx_pulumi.schedulers.permissions import Permission


def late(place: str) -> Callable[..., Any]:
    """Return a function of a module that its first call imports: a launch neither observes nor diagnoses.

    >>> late("torchx_pulumi.planning.names:normalize")("My job")
    'myjob'
    """
    return partial(call_late, place)


def call_late(place: str, /, *args: Any, **options: Any) -> Any:
    """Call the function of a place, `module:name`."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)(*args, **options)


class Observe(Protocol):
    """Reads the objects of a run from a cluster; without its job object, no pods.

    A healthy run takes two requests. A run that waits or failed takes more, for what can explain that.
    """

    def __call__(self, cluster: PodReader, namespace: str, name: str, expected: Expected = None, /) -> ObservedObjects:
        """Read the objects of a run.

        Raises:
            ClusterError: No answer, or the credentials may not read the job object.
        """


class Control(Protocol):
    """Suspends and resumes a run whose job object stays."""

    def suspend(self, cluster: Cluster, namespace: str, name: str, uid: str) -> None:
        """Stop the pods of a run and keep its job object.

        Args:
            cluster: The cluster of the run.
            namespace: Namespace of the job object.
            name: Its name.
            uid: Its uid; another object of that name is not changed.

        Raises:
            ClusterError: No answer or no permission.
        """

    def resume(self, cluster: Cluster, namespace: str, name: str, uid: str) -> None:
        """Start the pods of a suspended run again; arguments and errors as `suspend`."""

    def is_suspended(self, phase: str | None) -> bool:
        """Return whether a job object of this phase is suspended, or is being suspended."""

    def restarts_left(self, job_object: Observed) -> int | None:
        """Return how often a run may be started again, for which each resume counts too. None: resumes do not count.

        Below 1: a resume would end the run.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way in which a scheduler runs a job: which object stands for the run, and how it is rendered and observed."""

    scheduler: str
    """Name of the scheduler."""
    name: str
    """Value of the option that chooses it. Stored with each run."""
    job_object: Kind
    """Kind of the object that stands for the run."""
    render: Callable[[JobPlan], list[Manifest]]
    """Render the objects of a plan, the job object first. The same plan gives the same bytes."""
    more_env: Callable[[JobPlan], Sequence[tuple[str, str]]] = lambda _plan: ()
    """Return name and value of the variables that `render` adds to every container; a controller adds others later."""
    observe: Observe
    """Read the objects of a run, by namespace and job name."""
    read: Callable[[ObservedObjects], JobStatus]
    """Read the status of a run from its objects, without messages and diagnoses."""
    describe: Callable[[Evidence], str | None] = lambda _evidence: None
    """Return the statement of the scheduler's own objects about a run in one line. None: reason and pods say it all."""
    replica_messages: Mapping[Reason, str] = field(default_factory=dict)
    """Reason -> message of a replica without a pod, if the general one does not fit."""
    lost_pod_advice: str = LOST_POD_ADVICE
    """What to do about a pod that was deleted before its end: drained, lost with its node, or deleted by somebody. It
    says whether `max_retries` covers that."""
    diagnose: Callable[[Evidence], Iterator[Diagnosis]] = lambda _evidence: iter(())
    """Yield why a run waits or failed by the scheduler's own objects. Pods are diagnosed for all schedulers."""
    most_per_task: int = 1
    """Replicas that one task can have. 1: there is no layout `role`."""
    auto_replicas: int = AUTO_REPLICAS
    """Most replicas of a job for which the layout `auto` is `replica`."""
    named_replicas: int = LARGE_REPLICAS
    """The same for a job that names something that the layout `role` changes."""
    single_tasks_differ: bool = False
    """A task of one replica is rendered otherwise in the layout `role` than in the layout `replica`."""
    pod_name: Callable[[JobPlan, TaskPlan, int], str]
    """Name the pod of a replica, by its task and its place in the task, from 0."""
    fixed_pod_names: bool = True
    """Pods have exactly these names. False: a controller may add to them, and logs are read from the observed pod."""
    service: Callable[[JobPlan], str] = lambda _plan: ""
    """Name the headless Service. Empty: the run has none."""
    pod_groups: Callable[[JobPlan, Sequence[RolePlan], str], list[str]] = lambda _plan, _roles, _uid: []
    """Name the PodGroups of some roles; the last argument is the uid of the job object."""
    pod_groups_by_uid: bool = False
    """The controller puts the uid of the job object into the names of PodGroups."""
    name_tail: Callable[[Mapping[str, int]], int] = lambda _tasks: 0
    """Return the characters of a pod name that the job's name must leave free, by task names with their replicas."""
    pod_templates: Callable[[Manifest], list[tuple[str, Observed]]] = lambda _job_object: []
    """Return pod name and pod of every replica in an observed job object; empty if it does not have them."""
    read_tasks: Callable[[Manifest], RoleTasks | None] = lambda _job_object: None
    """Return the tasks in a job object by the role's name in object names, or None for the layout `replica`."""
    kept_fields: tuple[str, ...] = ()
    """Fields of the job object that keep the values of the launch while the run is kept."""
    companions: tuple[Kind, ...] = ()
    """Kinds of the objects that are created next to the job object and are not owned by it."""
    recorded_pods: Callable[[RunRecord], Expected] = lambda _run: None
    """Return the pods that were created for a recorded run, or None if a controller creates them."""
    listed_with_pods: bool = True
    """A list of runs reads their pods as well: the job object does not have the state of its pods."""
    cancelled_phases: frozenset[str] = frozenset()
    """Phases of a job object that are the end of a run whose cancellation was requested."""
    ends_by_pods: bool = False
    """The pods show the end of the run. False: the job object does."""
    version_of: Callable[[ObservedObjects], str | None] = lambda _objects: None
    """Return the version of what was read, or None if it is that of the job object."""
    control: Control | None = None
    """How a run is cancelled and resumed. None: cancelling deletes the job object, and no run can be resumed."""

    @property
    def makes_pods(self) -> bool:
        """Return whether pods are created by the launch and not by a controller."""
        return POD in self.companions

    def rank0_host(self, plan: JobPlan) -> str:
        """Name the host of rank 0, as the other replicas resolve it."""
        pod, service = self.pod_name(plan, plan.roles[0].tasks[0], 0), self.service(plan)
        return f"{pod}.{service}" if service else pod

    def read_status(self, observed: ObservedObjects, now: datetime | None = None) -> JobStatus:
        """Return the status of a run with its diagnoses. Reason and message are those of the first one.

        Args:
            observed: The objects of the run.
            now: The current time, aware. None: the time of the observation; if that is unknown as well,
                diagnoses that depend on the time are left out (no controller has acted on the job for a minute).
        """
        from torchx_pulumi.schedulers.diagnosis.evidence import Evidence
        from torchx_pulumi.schedulers.diagnosis.explain import explain

        observed = replace(observed, at=now or observed.at)
        status = replace(self.read(observed), uid=observed.uid)
        return explain(
            Evidence.of(observed, status=status, lost_pod_advice=self.lost_pod_advice),
            describe=self.describe,
            diagnose=self.diagnose,
            replica_messages=self.replica_messages,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedObject:
    """An object that an option names and a launch needs."""

    option: str
    kind: Kind
    name: str | None
    """None: the option is not set."""
    required: bool = True
    """False: its absence is a warning; pods are created when it exists."""
    check: Callable[[Manifest], str] = lambda _found: ""
    """Return the problem of the object that was found; empty if it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutChoice:
    """The tasks of a new launch."""

    tasks: RoleTasks | None = None
    """None: layout `replica`."""
    warnings: Sequence[str] = ()
    """Hints for the user: why the layout is not `role`, or which differences processes see."""
    problems: Sequence[Problem] = ()
    """Why no layout is possible."""


def _not_one_task(roles: Collection[str], advice: str) -> Problem:
    several = ", ".join(map(repr, roles))
    text = f"names {several}, whose replicas have to be one task of the scheduler, as it ends a job with one; {advice}"
    return Problem("options.success_roles", text)


def named_kinds(kinds: Iterable[Kind]) -> str:
    """Return kinds with their versions, for messages."""
    return ", ".join(f"{kind.kind} {kind.api_version}" for kind in kinds)


def _no_check(_cluster: Cluster, _asked: DoctorScope) -> Finding:
    from torchx_pulumi.model.finding import skipped

    return skipped("kinds", "no check")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerBackend(Generic[OptionsT]):
    """One scheduler: its options, rules, variants, and its needs of a cluster."""

    name: str
    """Name for users, for example `volcano`. App handles begin with `pulumi_<name>://`."""
    options: type[OptionsT]
    """Class of its options, a frozen dataclass. The text under each field is the option's help."""
    component: str = "TrainingJob"
    """Class name of its Pulumi component, which is part of URNs. The default: it has none."""
    component_module: str = ""
    """Module of the component, which `python -m tools.components` writes. Empty: there is none."""
    component_text: str = ""
    """Description of the component in one sentence, for its documentation."""
    foreign_options: Mapping[str, str] = field(default_factory=dict)
    """Options of other schedulers that users try, and what to do instead."""
    discovered: Mapping[str, str] = field(default_factory=dict)
    """Options that are read from the cluster if they are unset, and the text about it in their help."""
    variants: Mapping[str, Variant]
    """Variants by name, the default first."""
    variant_option: str | None = None
    """Option that chooses the variant. None: there is one variant."""
    controller_options: frozenset[str] = frozenset()
    """Options by which another controller runs the same job: that of the variant, and those that only one has."""
    check_options: Callable[[OptionsT], Iterator[Problem]]
    """Rules for every option by itself."""
    check_launch: Callable[[JobSpec, OptionsT, object, Mapping[str, int]], Iterator[Problem]]
    """Rules for job, options and app id together; the last argument is the name of each task and its replicas."""
    check_size: Callable[[JobPlan[OptionsT]], Iterator[Problem]] = lambda _plan: iter(())
    """Rules for the size of a new launch."""
    layout_obstacles: Callable[[JobSpec, OptionsT], Iterator[str]] = lambda _spec, _options: iter(())
    """Yield why the scheduler cannot run a job in the layout `role`."""
    whole_roles: Callable[[JobSpec, OptionsT], Collection[str]] = lambda _spec, _options: ()
    """Return the roles of several replicas that have to be one task, because `success_roles` names them."""
    layout_differences: Callable[[JobSpec, OptionsT], Iterator[str]] = lambda _spec, _options: iter(())
    """Yield what a job names and the layout `role` changes, next to `tasks_note`."""
    tasks_note: str = ""
    """The effect of the layout `role` on every job."""
    replica_id_field: str = ""
    """Field of a pod that has its place in its task. Empty: tasks have one replica each."""
    warnings: Callable[[JobSpec, OptionsT, Mapping[str, int]], Sequence[str]] = lambda _spec, _options, _tasks: ()
    """Hints for the user about a job that passed the checks, with the names of its tasks and their replicas."""
    rank0_env: Callable[[str], str]
    """Role name in object names -> variable with the host of rank 0."""
    diagnose_refusal: Callable[[str], Diagnosis | None] = lambda _message: None
    """Return why one of the scheduler's webhooks refused an object, or None if the message is from elsewhere."""
    kinds: tuple[Kind, ...]
    """Kinds of the scheduler's own API groups that it reads or writes."""
    explaining_kinds: tuple[tuple[Kind, Selector | None], ...] = ()
    """Kinds of objects, besides job objects, pods and events, that say why a job waits, and the labels of those that
    belong to jobs of this package. None: all objects of the kind."""
    queue_option: str = "queue"
    """Option that names the queue of a job; it need not exist."""
    queue_field: tuple[str, ...] = ("spec", "queue")
    """The same in the job object."""
    queue_kind: Kind | None = None
    """Kind of its queues, one of `explaining_kinds`. None: it has none."""
    queue_amounts: Callable[[Manifest], tuple[Mapping[str, float], Mapping[str, float]]] = lambda _queue: ({}, {})
    """Return limits and allocation of a queue, as `cpu` and `gpu`. Left out: no limit."""
    absent: Callable[[Reader, OptionsT], list[Problem]] = lambda _cluster, _options: []
    """Return the parts of the scheduler that the cluster lacks; empty if a job can be created."""
    named_objects: Callable[[OptionsT], list[NamedObject]] = lambda _options: []
    """Return the objects that options name and a launch needs."""
    check_admission: Callable[[Reader, JobPlan[OptionsT]], tuple[list[Problem], list[str]]] = lambda _c, _p: ([], [])
    """Return why the queue of a planned job can never let it in, and warnings. No request for a job without one."""
    check_change: Callable[[Manifest, OptionsT], Iterator[Problem]] = lambda _job_object, _options: iter(())
    """Yield what the cluster refuses of a change in place of a live job object, and only `up` would show."""
    discover: Callable[[Reader, OptionsT, Collection[str]], OptionsT] = lambda _cluster, options, _unset: options
    """Return options in which unset ones have the values of the cluster."""
    permissions: Callable[[Reader], Sequence[Permission]] = lambda _cluster: ()
    """Return the permissions that launching, reading and ending a job needs, if the cluster has the scheduler."""
    check_installed: Callable[[Cluster, DoctorScope], Finding] = _no_check
    """Check for the doctor whether the cluster has the scheduler. The check has the name of the scheduler."""
    doctor_checks: Sequence[tuple[str, Callable[[Cluster, DoctorScope], Finding]]] = ()
    """Names and functions of its other checks."""
    pod_label: str
    """Label of every pod whose value is the job's name."""
    place_of: Callable[[Observed], tuple[str, int] | None] = lambda _labels: None
    """Return the task of a pod and its place in the task, from 0, by its labels; None if they do not say."""
    tolerated: frozenset[str] = frozenset()
    """Rules of `check_job` that give a warning here, and a refusal for other schedulers."""
    resizes: bool = False
    """Fewer replicas are the same run."""

    def pod_selector(self, job_name: str) -> dict[str, str]:
        """Return the labels by which the pods of a job are listed."""
        return {self.pod_label: job_name}

    def variant_of(self, options: Options) -> Variant:
        """Return the chosen variant."""
        if self.variant_option is None:
            return next(iter(self.variants.values()))
        return self.variants[getattr(options, self.variant_option)]

    def find_problems(
        self,
        spec: JobSpec,
        options: OptionsT,
        unread: Sequence[Problem] = (),
        *,
        app_id: object,
        is_named: bool = True,
        launched: Mapping[str, int] | None = None,
        tasks: RoleTasks | None = None,
    ) -> list[Problem]:
        """Return all problems of a job and its options, without those that this scheduler tolerates.

        Args:
            spec: The job, with typed values.
            options: Its options, with typed values.
            unread: Values of both that could not be read. Rules are not checked on them.
            app_id: Name of the job object.
            is_named: False: the name is made later; the rules that need it are not checked.
            launched: As for `plan`.
            tasks: As for `plan`.
        """
        found = [*check_job_rules(spec), *self.check_options(options)]
        if is_named:
            if tasks is None:
                choice = self.choose_layout(spec, options)
                tasks, found = choice.tasks, [*found, *choice.problems]
            found += self.check_launch(spec, options, app_id, task_counts(spec, tasks, launched))
        problems = [*unread, *uncovered(found, unread)]
        return [problem for problem in problems if problem.rule not in self.tolerated]

    def choose_layout(self, spec: JobSpec, options: OptionsT) -> LayoutChoice:
        """Return the tasks of a new launch, as the option `layout` says and the job allows."""
        asked = getattr(options, "layout", TaskLayout.REPLICA) or TaskLayout.AUTO
        replicas = sum(role.num_replicas for role in spec.roles)
        is_auto = asked == TaskLayout.AUTO
        variant, whole = self.variant_of(options), self.whole_roles(spec, options)
        most = variant.most_per_task
        if most == 1 or asked == TaskLayout.REPLICA or (is_auto and replicas <= variant.auto_replicas and not whole):
            return LayoutChoice(problems=[_not_one_task(whole, "set layout to role or auto")] if whole else [])
        obstacles = [*self.layout_obstacles(spec, options), *layout_obstacles(spec, most, whole)]
        differences = [] if obstacles else [*self.layout_differences(spec, options)]
        if whole and obstacles:
            advice = (
                f"and cannot be: {'; '.join(obstacles)}; name a role of one replica, for example one of rank 0 alone"
            )
            return LayoutChoice(problems=[_not_one_task(whole, advice)])
        if is_auto and replicas <= variant.named_replicas and (obstacles or differences) and not whole:
            return LayoutChoice()
        if obstacles:
            return LayoutChoice(warnings=[f"layout replica, one task per replica: {reason}" for reason in obstacles])
        tasks = tasks_per_role(spec, most, whole)
        if is_auto and any(count > 1 for count in task_counts(spec, tasks).values()):
            differences.append(self.tasks_note)
        return LayoutChoice(tasks=tasks, warnings=[f"layout role, shared tasks: {each}" for each in differences])

    def name_tail(self, spec: JobSpec, options: OptionsT) -> int:
        """Return the characters that the name of a new launch must leave free, of those of a pod name."""
        counts = task_counts(spec, self.choose_layout(spec, options).tasks, least=1)
        return self.variant_of(options).name_tail(counts)

    def plan(
        self,
        spec: JobSpec,
        options: OptionsT,
        app_id: str,
        *,
        launched: Mapping[str, int] | None = None,
        tasks: RoleTasks | None = None,
    ) -> JobPlan[OptionsT]:
        """Plan a job by the rules of this scheduler.

        Args:
            spec: The job as requested.
            options: Options of the launch.
            app_id: Name of the job object; a DNS label, used unchanged.
            launched: Replicas of each role when the job object was created, by role name. More than the spec has: the
                surplus stays in the plan, and is rendered with 0 replicas. None: it is a new launch with the replicas
                that the spec says, and its size is checked.
            tasks: Tasks of a run that is kept (`RunRecord.tasks`). Empty: layout `replica`. None: as options say.

        Raises:
            InvalidJobError: The job cannot be planned; all problems at once.
        """
        reader = TypedReader()
        read, chosen = reader.read(JobSpec, spec, ""), reader.read(type(options), options, "options")
        choice = self.choose_layout(read, chosen) if tasks is None else LayoutChoice(tasks=tasks)
        problems = self.find_problems(
            read, chosen, reader.problems, app_id=app_id, launched=launched, tasks=choice.tasks or {}
        )
        problems += choice.problems
        if problems:
            raise invalid_job(spec.name, problems)
        hints = self.warnings(spec, options, task_counts(spec, choice.tasks, launched))
        made = make_plan(
            spec,
            options,
            app_id,
            launched=launched or {},
            tasks=choice.tasks,
            replica_id_field=self.replica_id_field,
            rank0_env=self.rank0_env,
            warnings=[*misplaced_metadata(spec), *hints, *choice.warnings],
        )
        if launched is None:
            problems = [*self.check_size(made), *(overlay_problems(made) if tasks is None else ())]
            if problems:
                raise invalid_job(spec.name, problems)
        references = reference_warnings(made, self.variant_of(options).more_env)
        return replace(made, warnings=(*made.warnings, *references))


def replicas_of(role: RolePlan) -> Iterator[tuple[TaskPlan, int]]:
    """Yield the requested replicas of a role in rank order: the task of each, and its place in the task."""
    for task in role.tasks:
        yield from ((task, position) for position in range(task.requested))
