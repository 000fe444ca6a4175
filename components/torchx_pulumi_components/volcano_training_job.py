"""VolcanoTrainingJob: a gang-scheduled training job as one Pulumi component. Here: the way through a constructor.

What it decides is in `launch`, what it registers in `gangs`, what it remembers in `memory` and `records`.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pulumi
from pulumi.runtime.resource import collapse_alias_to_urn, create_urn
from torchx_pulumi.cluster import Cluster
from torchx_pulumi.errors import Problem, TorchxPulumiError, invalid_job
from torchx_pulumi.identity import owner_digest
from torchx_pulumi.kinds import VOLCANO_JOB, VOLCANO_POD_GROUP
from torchx_pulumi.options import Gang
from torchx_pulumi.plan import JobPlan
from torchx_pulumi.spec import JobSpec

from torchx_pulumi_components.args import VolcanoTrainingJobArgs, WaitFor
from torchx_pulumi_components.gangs import Gang as RegisteredGang
from torchx_pulumi_components.gangs import register_gang
from torchx_pulumi_components.launch import Launch, Request, plan_launch
from torchx_pulumi_components.leaves import Leaves
from torchx_pulumi_components.live import connect
from torchx_pulumi_components.memory import Past, read_past, real_parent
from torchx_pulumi_components.objects import ChildOptions, TrainingRole, dependencies
from torchx_pulumi_components.read_args import Wanted, read_args
from torchx_pulumi_components.records import note_intent, write_run
from torchx_pulumi_components.views import view_job
from torchx_pulumi_components.waiting import fail, wait_until

TYPE = "torchx:index:VolcanoTrainingJob"


class VolcanoTrainingJob(pulumi.ComponentResource):
    """A gang-scheduled training job, run by Volcano."""

    app_id: pulumi.Output[str]
    """Id of the app in TorchX's words: `namespace:job_name`."""
    app_handle: pulumi.Output[str]
    """Handle by which TorchX finds the app."""
    job_name: pulumi.Output[str]
    """Name of the job object."""
    namespace: pulumi.Output[str]
    """Namespace of all objects."""
    uid: pulumi.Output[str]
    """Uid of the job object; a new one is a new run."""
    service: pulumi.Output[str]
    """Name of the headless Service by which replicas find each other. Empty: there is none."""
    pod_groups: pulumi.Output[list[str]]
    """Names of the PodGroups."""
    pod_names: pulumi.Output[list[str]]
    """Names of the pods, in the order of ranks."""
    rank0_host: pulumi.Output[str]
    """Host name of rank 0 inside the job."""
    images: pulumi.Output[dict[str, str]]
    """Role name to image."""
    declared: pulumi.Output[dict[str, Any]]
    """What was asked for: `declared` of the stack output `torchx`."""
    observed: pulumi.Output[dict[str, Any]]
    """What was seen: `observed` of the stack output `torchx`."""

    def __init__(self, name: str, args: VolcanoTrainingJobArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Launch the job, keep it, or launch it anew: docs/decisions/0005 says when.

        Args:
            name: Name of the component; the job object is called `<name>-<hash>`.
            args: What to run and how.
            opts: Provider, parent, aliases, protect, depends_on, ignore_changes, custom_timeouts and import are
                passed on to the objects that the component makes.

        Raises:
            pulumi.RunError: The arguments are wrong (all problems in one message), the cluster cannot take the job, or
                a change would end a run that has not finished. Nothing was registered.
        """
        self._begin(name, args, None, opts)

    @classmethod
    def from_app(
        cls,
        name: str,
        app: Any,
        *,
        app_id: str | None = None,
        opts: pulumi.ResourceOptions | None = None,
        **options: Any,
    ) -> "VolcanoTrainingJob":
        """Make the job of a TorchX AppDef.

        Args:
            name: Name of the component.
            app: AppDef of TorchX 0.7.0 or nightly, or a `JobSpec`. It is not changed.
            app_id: Name of the job object, taken as it is. Unset: `<name>-<hash>`.
            opts: As for the constructor.
            **options: Fields of `VolcanoTrainingJobArgs` beside `roles`.

        Raises:
            pulumi.RunError: As for the constructor.
        """
        from torchx_pulumi.appdef import read_app

        job = cls.__new__(cls)
        try:
            spec = app if isinstance(app, JobSpec) else read_app(app)
        except TorchxPulumiError as error:
            raise pulumi.RunError(str(error)) from error
        if app_id is not None:
            options["job_name"] = app_id
        job._begin(name, options, spec, opts)
        return job

    def _begin(
        self, name: str, args: Mapping[str, Any], spec: JobSpec | None, opts: pulumi.ResourceOptions | None
    ) -> None:
        try:
            self._decide_and_register(name, args, spec, opts or pulumi.ResourceOptions())
        except TorchxPulumiError as error:
            raise pulumi.RunError(str(error)) from error

    def _decide_and_register(
        self, name: str, args: Mapping[str, Any], spec: JobSpec | None, opts: pulumi.ResourceOptions
    ) -> None:
        leaves = Leaves()
        wanted = read_args(name, leaves.resolve(args), spec)
        past = _past(name, wanted, opts)
        settings, own_provider = wanted.settings, _has_provider(opts)
        cluster, note = connect(settings.kubeconfig, settings.kube_context, own_provider=own_provider)
        _refuse_blind_wait(name, wanted, cluster, note)
        now = datetime.now(timezone.utc)
        launch = plan_launch(
            Request(
                name=name,
                wanted=wanted,
                memory=past.memory,
                owners=_owners(past),
                cluster=cluster,
                may_come=_may_come(args, opts),
                importing=opts.import_ is not None,
                now=now,
            )
        )
        super().__init__(TYPE, name, {}, _component_options(opts))
        self._plan = launch.plan
        self._say(launch, note)
        provider = None if own_provider else self._own_provider(name, args)
        intent = note_intent(name, launch, self)
        children = ChildOptions(
            parent=self,
            depends_on=[*dependencies(opts), *leaves.resources, intent],
            provider=provider,
            ignore_changes=opts.ignore_changes or (),
            custom_timeouts=_timeouts(opts, wanted),
            import_id=opts.import_ if launch.confirmed is None and not launch.launching else None,
            replacement_trigger=None if settings.job_name is None else launch.run.hash,
            retain_on_delete=opts.retain_on_delete,
        )
        gang = register_gang(name, launch, leaves, children, cluster)
        launch, problem = _wait(launch, gang, cluster, wanted)
        view = view_job(launch, gang, leaves, past.observed, now)
        for dns_name, outputs in view.roles.items():
            TrainingRole(f"{name}-{dns_name}", outputs, pulumi.ResourceOptions(parent=self))
        write_run(name, launch, gang, view.seen, self)
        for output, value in view.outputs.items():
            setattr(self, output, pulumi.Output.from_input(value))
        self.register_outputs(view.outputs)
        if problem is not None:
            fail(f"job {name!r}: {problem}")

    @property
    def plan(self) -> JobPlan:
        """The plan that was rendered, for what is built on it; not an output."""
        return self._plan

    def _say(self, launch: Launch, note: str) -> None:
        if launch.decision.message:
            pulumi.log.info(launch.decision.message, self)
        if launch.undecided:
            paths = ", ".join(launch.undecided)
            pulumi.log.info(f"{paths}: not known before `up`, which decides whether this is a new run", self)
        if note:
            pulumi.log.info(note, self)
        for warning in launch.warnings:
            pulumi.log.warn(warning, self)

    def _own_provider(self, name: str, args: Mapping[str, Any]) -> pulumi.ProviderResource | None:
        """Make a provider of the kubeconfig and context among the arguments. None: there are none."""
        kubeconfig, context = args.get("kubeconfig"), args.get("kube_context")
        if kubeconfig is None and context is None:
            return None
        from pulumi_kubernetes import Provider

        hidden = None if kubeconfig is None else pulumi.Output.secret(kubeconfig)
        opts = pulumi.ResourceOptions(parent=self)
        return Provider(f"{name}-kubernetes", kubeconfig=hidden, context=context, opts=opts)  # type: ignore[no-any-return]


def _wait(
    launch: Launch, gang: RegisteredGang | None, cluster: Cluster | None, wanted: Wanted
) -> tuple[Launch, str | None]:
    """Wait as far as was asked for; return the launch with what was seen, and what went wrong."""
    goal = wanted.settings.wait_for
    if goal is WaitFor.CREATED or gang is None or pulumi.runtime.is_dry_run():
        return launch, None
    if cluster is None:
        return launch, f"wait_for {goal.value} needs a look at the cluster, which was not possible"
    seen, status, problem = wait_until(launch.plan, gang, cluster, goal, wanted.settings.timeout_s)
    return replace(launch, seen=seen, status=status), problem


def _refuse_blind_wait(name: str, wanted: Wanted, cluster: Cluster | None, note: str) -> None:
    if cluster is None and note and wanted.settings.wait_for is not WaitFor.CREATED and not pulumi.runtime.is_dry_run():
        message = f"{wanted.settings.wait_for.value} cannot be waited for: {note}; set kubeconfig, or `created`"
        raise invalid_job(name, [Problem("wait_for", message)])


def _past(name: str, wanted: Wanted, opts: pulumi.ResourceOptions) -> Past:
    """Read what the stack's state holds of the component, which is not registered yet."""
    parent = real_parent(opts)
    aliases = [collapse_alias_to_urn(alias, name, TYPE, parent) for alias in opts.aliases or []]
    head = VOLCANO_POD_GROUP if wanted.options.gang is Gang.PODS else VOLCANO_JOB
    return read_past(create_urn(name, TYPE, parent), aliases, name, parent, head)


def _timeouts(opts: pulumi.ResourceOptions, wanted: Wanted) -> pulumi.CustomTimeouts | None:
    if opts.custom_timeouts is not None or wanted.settings.delete_timeout_s is None:
        return opts.custom_timeouts
    return pulumi.CustomTimeouts(delete=f"{wanted.settings.delete_timeout_s}s")


def _component_options(opts: pulumi.ResourceOptions) -> pulumi.ResourceOptions:
    """Return what is the component's own of its options; the rest is meant for what it makes."""
    own = pulumi.ResourceOptions.merge(None, opts)
    own.import_, own.ignore_changes, own.custom_timeouts = None, None, None
    return own


def _has_provider(opts: pulumi.ResourceOptions) -> bool:
    """Say whether the program chose a Kubernetes provider for this component or one of its parents."""
    given: Any = opts.providers or []
    listed = list(given.values()) if isinstance(given, Mapping) else list(given)
    if opts.provider is not None:
        listed.append(opts.provider)
    inherited = getattr(opts.parent, "_providers", None) or {}
    return "kubernetes" in inherited or any(provider.package == "kubernetes" for provider in listed)


def _may_come(args: Mapping[str, Any], opts: pulumi.ResourceOptions) -> frozenset[str]:
    """Return the options whose objects this deployment may create before the job."""
    options = ("namespace", "queue", "priority_class", "service_account")
    if dependencies(opts):
        return frozenset(options)
    return frozenset(option for option in options if isinstance(args.get(option), pulumi.Output))


def _owners(past: Past) -> tuple[str, ...]:
    # Under mocks there is no organization.
    where = (pulumi.get_organization() or "organization", pulumi.get_project(), pulumi.get_stack())
    return tuple(owner_digest(*where, urn) for urn in (past.urn, *past.former_urns))
