"""The work of a training job component after its constructor has returned: decide, register, and wait.

`launch` decides, `resources` registers, `stack_state` reads what the last deployment left.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextvars import copy_context
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pulumi
from torchx_pulumi.inputs.appdef import read_app
from torchx_pulumi.kube import PodReader
from torchx_pulumi.model.errors import Problem, TorchxPulumiError, invalid_job
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.job_spec import JobSpec
from torchx_pulumi.model.launch_options import WaitFor
from torchx_pulumi.model.object_fields import at
from torchx_pulumi.model.registration_plan import RECORD
from torchx_pulumi.planning.typed_reader import snake_case
from torchx_pulumi.runs.decision import Action
from torchx_pulumi.schedulers import backend_of, variant_of
from torchx_pulumi.schedulers.registry import component_type
from torchx_pulumi.stack_state.cli import check_provider as check_provider_version

from torchx_pulumi_components.cluster_access import connect, has_provider, is_protected
from torchx_pulumi_components.foreign_edits import foreign_edits
from torchx_pulumi_components.guard import (
    CHOOSING,
    CLUSTER_IDENTIFIER,
    RENDERING,
    UNKNOWN,
    Settings,
    check_provider,
    own_settings,
    registered,
    renamed,
    repeated,
    retyped,
    scheduler_of,
    settings_before,
    settings_of,
    stack_runs,
)
from torchx_pulumi_components.input_resolution import Leaves, copied
from torchx_pulumi_components.launch import Launch, LaunchPlanner
from torchx_pulumi_components.notes import entry_of, record_of
from torchx_pulumi_components.outputs import JobObject, role_outputs, run_outputs, stored_outputs
from torchx_pulumi_components.places import Marks, marks_of, secret_problems, unknown_paths
from torchx_pulumi_components.program_jobs import JobRefusedError, current_deferral, program_jobs
from torchx_pulumi_components.pulumi_runtime import behind_barrier
from torchx_pulumi_components.read_args import read_args
from torchx_pulumi_components.resources import (
    ChildOptions,
    KubernetesObject,
    are_made,
    create_provider,
    dependencies,
    provider_inputs,
    register_notes,
    register_objects,
    type_token,
)
from torchx_pulumi_components.run_objects import check_protected, run_objects, tell_deletion, wait_until_gone
from torchx_pulumi_components.stack_state import (
    PROVIDER,
    StackState,
    component_urns,
    read_outputs,
    read_stack_state,
)
from torchx_pulumi_components.unrecorded import find_unrecorded, import_advice
from torchx_pulumi_components.waiting import missed, wait_until

CREATED_BEFORE = ("namespace", "queue", "local_queue", "priority_class", "service_account", "image_secret")
"""Options whose objects a deployment may create before the job."""


class Construction:
    """One call of a component's constructor, and what it found."""

    plan: JobPlan[Any]
    """The plan that was rendered, or that of the run which is kept."""
    app: Mapping[str, Any] | None
    """Index entry of the app (`model.app_entry`). None: a program launched it."""
    marks: Marks
    """What is secret or unknown of the run."""

    def __init__(
        self,
        component: pulumi.ComponentResource,
        scheduler: str,
        name: str,
        given: Mapping[str, Any],
        app: Any,
        opts: pulumi.ResourceOptions,
    ) -> None:
        """Prepare the construction of a component, which is not registered yet.

        Args:
            component: The component.
            scheduler: Name of its scheduler.
            name: Its name.
            given: Its arguments.
            app: The job as an AppDef; `given` then has no roles. None: the arguments have the job.
            opts: Its options.
        """
        self.component, self.name, self.given, self.opts = component, name, copied(given), opts
        self.leaves, self.scheduler = Leaves(), scheduler
        self.token = component_type(self.scheduler)
        self.now = datetime.now(timezone.utc)
        self.failure: str | None = None
        self.outputs: Mapping[str, Any] = {}
        """Outputs of the component, once they are `noted`."""
        self.spec: JobSpec | None = None
        self._unreadable: pulumi.RunError | None = None
        try:
            # Now: the program may change the AppDef later.
            self.spec = None if app is None else spec_of(app)
        except pulumi.RunError as error:
            self._unreadable = error
        self.decided: asyncio.Future[None] = asyncio.Future()
        """The job may be registered."""
        self.noted: asyncio.Future[None] = asyncio.Future()
        """The objects are registered, and the goal of `wait_for` was reached or missed: `outputs` is complete."""
        self.finished: asyncio.Future[str] = asyncio.Future()
        """URN of the component, once all objects are created. An error also if the goal was missed."""
        self._deferral = current_deferral()
        self._jobs = program_jobs()

    @property
    def kube_context(self) -> str | None:
        """Context of the kubeconfig. None: the current one."""
        return self._known("kube_context")

    @property
    def log_archive(self) -> str | None:
        """URL of the archive of the containers' logs. None: not set, or not known before `up`."""
        return self._known("log_archive")

    def _known(self, setting: str) -> str | None:
        value: str | None = getattr(self.args.settings, setting)
        return None if setting in self.args.unknown else value

    @property
    def is_secret(self) -> bool:
        """Return whether the context or the archive is secret, so that outputs that name it are too."""
        return not self.leaves.secret_arguments.isdisjoint(("kube_context", "log_archive"))

    async def allowed(self) -> None:
        """Wait until the job may be registered.

        Raises:
            JobRefusedError: It is refused.
        """
        await asyncio.shield(self.decided)

    def begin(self) -> None:
        """Decide about the job and register what it takes, in a task for which the program waits."""
        task = asyncio.ensure_future(self._run())
        self._jobs.add(self.component, task, self.finished)
        if self._deferral is not None:
            self._deferral.jobs.append(task)

    async def _run(self) -> None:
        try:
            await self._launch()
            urn = str(await self.component.urn.future())
        except JobRefusedError as error:
            refusal = f"job {self.name!r}: nothing was changed, because it depends on {error.what}"
        except (TorchxPulumiError, pulumi.RunError) as error:
            # Not kept as the cause: it may have what the message hides.
            refusal = self.leaves.hide(str(error))
        except Exception as error:
            # Pulumi reports it: the engine or the provider refused an object, for example.
            self._fail(error)
            raise
        else:
            if self.failure is None or self._deferral is not None:
                self.finished.set_result(urn)
            if self.failure is None:
                return
            refusal = self.leaves.hide(f"job {self.name!r}: {self.failure}")
            if self._deferral is not None:
                self._deferral.failures.append(refusal)
                return
        self._jobs.refuse(self.component, refusal)
        self._fail(JobRefusedError(refusal, f"job {self.name!r}"))

    def _fail(self, error: Exception) -> None:
        """Let everything that depends on the job fail."""
        for future in (self.decided, self.noted, self.finished):
            if not future.done():
                future.set_exception(error)
                # Mark the exception as retrieved, or asyncio logs it.
                future.exception()

    async def _launch(self) -> None:
        """Decide about the job and register what it takes, until its objects are created."""
        opts = self.opts
        check_provider_version(self._jobs.warn_once)
        named = await component_urns(self.token, self.name, opts)
        # A run cannot go over to another scheduler, by no alias.
        of_others = {urn for urn in named if scheduler_of(urn) not in (None, self.scheduler)}
        urns = tuple(urn for urn in named if urn not in of_others)
        self._jobs.declare(self.component, urns)
        await self._read_args()
        args, settings = self.args, self.args.settings
        variants = (variant_of(args.options), *backend_of(args.options).variants.values())
        state = read_stack_state(urns, [variant.job_object for variant in variants])
        own_provider = has_provider(opts)
        chosen = self.component.get_provider(type_token("v1", "Pod")) if own_provider else None
        provider_urn = None if chosen is None else str(await chosen.urn.future())
        cluster, why_not = connect(
            settings.kubeconfig,
            settings.kube_context,
            self._jobs.connections,
            known=not args.unknown & {"kubeconfig", "kube_context"},
            own_provider=own_provider,
        )
        if why_not and settings.wait_for is not WaitFor.CREATED and not pulumi.runtime.is_dry_run():
            message = f"{settings.wait_for.value} cannot be waited for: {why_not}; set kubeconfig, or `created`"
            raise invalid_job(self.name, [Problem("wait_for", message)])
        names_object = settings.job_name is not None or opts.import_ is not None
        runs = stack_runs() if state.record is None or names_object else {}
        planner = LaunchPlanner(
            name=self.name,
            args=args,
            undecided=unknown_paths(self.leaves.unknown_places, args),
            state=state,
            # Mocks have no organization.
            organization=(pulumi.get_organization() or "organization", pulumi.get_project(), pulumi.get_stack()),
            cluster=self._jobs.shared_reads(cluster),
            created_here=self._created_here(),
            importing=opts.import_,
            retaining=bool(opts.retain_on_delete),
            provider=provider_urn,
            stored=read_outputs(),
            others={urn: run for urn, run in runs.items() if urn not in urns},
            retyped=of_others,
            now=self.now,
        )

        archive = self.log_archive if pulumi.runtime.is_dry_run() else None
        hidden = "log_archive" in self.leaves.secret_arguments

        def plan() -> Launch:
            launch = planner.plan()
            lost = None
            if archive and launch.launching:
                lost = self._jobs.find_no_writer(archive, launch.plan.namespace, self.now, secret=hidden)
            launch = replace(launch, warnings=(*launch.warnings, lost) if lost else launch.warnings)
            if not launch.launching and launch.decision.action is not Action.DONE_AND_GONE:
                last = (state.intent if state.interrupted else state.record) or launch.run
                before = settings_before(state, last, provider_urn, planner.stored)
                after, whose = self._provider_settings(launch, state, provider_urn)
                check_provider(self.name, launch.run, before, after, whose=whose)
            return replace(launch, imports=find_unrecorded(self.name, launch, state, planner.cluster, planner.owners()))

        launch = await self._jobs.plan(plan)
        for urn, run in launch.active_elsewhere.items():
            if not await self._jobs.includes(urn):
                raise (renamed if scheduler_of(urn) == self.scheduler else retyped)(self.name, urn, run)
        ended = [urn for urn in launch.ended_elsewhere if scheduler_of(urn) == self.scheduler]
        included = await asyncio.gather(*map(self._jobs.includes, ended))
        gone = [urn for urn, is_there in zip(ended, included, strict=True) if not is_there]
        repeats = [repeated(self.name, urn, launch.ended_elsewhere[urn]) for urn in gone]
        launch = replace(launch, warnings=(*launch.warnings, *repeats))
        check_protected(self.name, launch, protected=is_protected(opts))
        self.leaves.secrets |= launch.former_secrets
        self.plan, self.app, self.marks = launch.plan, state.app, self._marks(launch, state)
        self.decided.set_result(None)
        self._log(launch, why_not)
        if planner.cluster is None and (advice := import_advice(self.name, launch, state)):
            pulumi.log.warn(self.leaves.hide(advice), self.component)
        await self._register(launch, state, cluster, own_provider=own_provider)

    async def _read_args(self) -> None:
        """Wait for the arguments and for the jobs that this one depends on, and read the arguments."""
        if self._unreadable is not None:
            raise self._unreadable
        self.depends_on = await dependencies(self.opts.depends_on)
        resolved = await self.leaves.resolve(self.given)
        await self._jobs.wait_for(self.component, [*self.depends_on, *self.leaves.resources])
        refused = [*secret_problems(self.leaves.secret_places)]
        self.args = read_args(self.name, resolved, self.scheduler, self.spec, refused)
        # By their names in Python, also if they are one Output.
        self.given = {snake_case(str(key)): self.given[key] for key, value in resolved.items() if value is not None}

    def _marks(self, launch: Launch, state: StackState) -> Marks:
        launching, undecided = launch.launching, bool(launch.undecided)
        roles = self.args.spec.roles
        marks = marks_of(self.leaves, roles, launching=launching, undecided=undecided, named=launch.named)
        if not launch.decision.as_launched:
            return marks
        # All is known of a run that ignores its arguments, and what was secret at its launch is secret.
        return Marks(secret=marks.secret or bool(state.secret_texts()))

    async def _register(
        self, launch: Launch, state: StackState, cluster: PodReader | None, *, own_provider: bool
    ) -> None:
        log, loop, context = pulumi.log.info, asyncio.get_running_loop(), copy_context()
        marks = self.marks

        def say(line: str) -> None:
            loop.call_soon_threadsafe(log, self.leaves.hide(line), self.component, context=context)

        with behind_barrier(self.component):
            manifests, children = run_objects(
                self.name, launch, marks, state, self._child_options(launch, state, own_provider=own_provider)
            )
        intent = record_of(launch.intent, launch, marks, state)
        with behind_barrier(self.component):
            begun, objects = register_objects(
                self.component,
                self.name,
                intent,
                manifests,
                children,
                before_companions=lambda: wait_until_gone(launch, cluster, say),
            )
        telling = asyncio.ensure_future(tell_deletion(launch, cluster, objects, say))
        # Readers of the index entry could not read a URL with a secret in it.
        archive = None if "log_archive" in self.leaves.secret_arguments else self.args.settings.log_archive
        if "log_archive" in self.args.unknown:
            archive = at(state.app or {}, "log_options", "log_archive")
        current = await self._wait(launch, objects, cluster)
        are_whole = await are_made(begun, objects, launch.run.attempt)
        # The object of a run that is over is registered in previews only, and its outputs are not used.
        is_over = launch.decision.action is Action.DONE_AND_GONE
        job_object = None if is_over else await JobObject.read(objects[0])
        self.outputs = outputs = marks.of_fields(run_outputs(current, job_object, self.leaves, state, self.now))
        self.noted.set_result(None)
        noted, entry = {"roles": [], **stored_outputs(state)}, state.app
        if are_whole:
            uid = None if job_object is None else job_object.uid
            record = record_of(launch.run, launch, marks, state, uid)
            roles = role_outputs(current, job_object)
            noted = marks.of_fields({"roles": list(roles.values()), **outputs, RECORD: record})
            entry = None if state.app is None else entry_of(state.app, launch, marks, outputs, archive)
        await telling
        with behind_barrier(self.component):
            register_notes(self.component, self.name, objects, outputs=noted, entry=entry)

    def _own_settings(self, launch: Launch, state: StackState, given: Settings) -> Settings:
        before = settings_of(state.children[PROVIDER, "-kubernetes"]) if state.has_provider else None
        ambient = os.environ.get("KUBECONFIG")
        return own_settings(given, before, launch.cluster, ambient, launching=launch.launching)

    def _provider_settings(self, launch: Launch, state: StackState, provider_urn: str | None) -> tuple[Settings, str]:
        """Return the settings of the provider that the job's objects get, and where they come from."""
        if provider_urn is not None:
            return settings_of(registered(provider_urn)), f"that of the program, {provider_urn.rpartition('::')[2]}"
        settings, unknown = self.args.settings, self.args.unknown
        kubeconfig = UNKNOWN if "kubeconfig" in unknown else settings.kubeconfig
        if given := provider_inputs(kubeconfig, UNKNOWN if "kube_context" in unknown else settings.kube_context):
            return self._own_settings(launch, state, given), "that of kubeconfig and kube_context"
        configured = pulumi.Config("kubernetes")
        found = {name: configured.get(name) for name in (*CHOOSING, CLUSTER_IDENTIFIER, RENDERING)}
        return {name: value for name, value in found.items() if value is not None}, "that of the configuration"

    def _child_options(self, launch: Launch, state: StackState, *, own_provider: bool) -> ChildOptions:
        opts, settings, given = self.opts, self.args.settings, self.given
        imports = launch.imports
        if opts.import_ is not None and launch.confirmed is None and not launch.launching:
            imports = {self.name: opts.import_}
        provider = None
        if not own_provider:
            kubeconfig = given.get("kubeconfig")
            hidden = None if kubeconfig is None else pulumi.Output.secret(kubeconfig)
            registered = self._own_settings(launch, state, provider_inputs(hidden, given.get("kube_context")))
            provider = create_provider(self.component, self.name, registered)
        timeouts = opts.custom_timeouts
        if timeouts is None and settings.delete_timeout_s is not None:
            timeouts = pulumi.CustomTimeouts(delete=f"{settings.delete_timeout_s}s")
        return ChildOptions(
            depends_on=[*self.depends_on, *self.leaves.resources],
            provider=provider,
            ignore_changes=opts.ignore_changes or (),
            custom_timeouts=timeouts,
            imports=imports,
            replacement_trigger=None if settings.job_name is None else launch.run.hash,
            retain_on_delete=opts.retain_on_delete,
            secret_outputs=("metadata", "status") if self.marks.secret else (),
        )

    async def _wait(self, launch: Launch, objects: Sequence[KubernetesObject], cluster: PodReader | None) -> Launch:
        """Wait as the arguments ask for; return the launch with the run as last observed, and note a failure."""
        settings = self.args.settings
        if settings.wait_for is WaitFor.CREATED or pulumi.runtime.is_dry_run():
            return launch
        if launch.decision.action is Action.DONE_AND_GONE:
            self.failure = missed(launch, settings.wait_for)
            return launch
        if cluster is None:
            self.failure = f"wait_for {settings.wait_for.value} needs a look at the cluster, which was not possible"
            return launch
        seen, self.failure = await wait_until(
            launch, objects, cluster, settings.wait_for, settings.timeout_s, self.leaves.hide
        )
        return seen

    def _log(self, launch: Launch, why_not: str) -> None:
        component, leaves = self.component, self.leaves
        if launch.decision.message:
            pulumi.log.info(leaves.hide(launch.decision.message), component)
        if launch.undecided:
            paths = ", ".join(launch.undecided)
            pulumi.log.info(f"{paths}: not known before `up`, which decides whether this is a new run", component)
        if why_not:
            pulumi.log.info(why_not, component)
        for warning in launch.warnings:
            pulumi.log.warn(leaves.hide(warning), component)
        if launch.imports:
            pulumi.log.info(
                f"imported, as the last deployment was interrupted after their creation: {', '.join(launch.imports)}. "
                "The state keeps their creation as pending until `pulumi refresh --clear-pending-creates`",
                component,
            )
        # Values that only `up` knows are other values here.
        if not leaves.unknown_places and (edited := foreign_edits(launch, self.opts.ignore_changes or ())):
            pulumi.log.warn(leaves.hide(edited), component)
        for pod in launch.missing_pods():
            pulumi.log.warn(f"pod {pod} of run {launch.run.job_name} is gone; it is not started again", component)

    def _created_here(self) -> frozenset[str]:
        """Return the options whose objects this deployment may create before the job."""
        if self.depends_on:
            return frozenset(CREATED_BEFORE)
        return frozenset(option for option in CREATED_BEFORE if isinstance(self.given.get(option), pulumi.Output))


def spec_of(app: Any) -> JobSpec:
    """Read a TorchX AppDef; a `JobSpec` is returned as it is.

    Raises:
        pulumi.RunError: It cannot be read.
    """
    try:
        return app if isinstance(app, JobSpec) else read_app(app)
    except TorchxPulumiError as error:
        raise pulumi.RunError(str(error)) from error
