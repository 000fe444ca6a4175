"""The way through a component's constructor, the same for every scheduler: decide, then register.

What it decides is in `launch`, what it registers in `gangs`, what it remembers in `memory` and `records`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from typing import Any

import pulumi
from pulumi.runtime.resource import collapse_alias_to_urn, create_urn
from torchx_pulumi.inputs.appdef import read_app
from torchx_pulumi.kube import Cluster
from torchx_pulumi.model import labels
from torchx_pulumi.model.errors import InvalidJobError, Problem, TorchxPulumiError, invalid_job
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.job_spec import JobSpec
from torchx_pulumi.planning import names
from torchx_pulumi.runs.decision import Action
from torchx_pulumi.runs.identity import owner_digest
from torchx_pulumi.schedulers import variant_of

from torchx_pulumi_components.args import WaitFor
from torchx_pulumi_components.cluster_access import connect
from torchx_pulumi_components.input_resolution import Leaves, ValuePath, is_placeholder, path_of, with_other_unknowns
from torchx_pulumi_components.kubernetes_objects import ChildOptions, TrainingRole, dependencies
from torchx_pulumi_components.launch import Launch, Request, plan_launch
from torchx_pulumi_components.marks import Marks, marks_of
from torchx_pulumi_components.outputs import view_as_launched, view_job
from torchx_pulumi_components.read_args import ArgsReader, ParsedArgs, read_args
from torchx_pulumi_components.record_writer import keep_app, note_intent, write_run
from torchx_pulumi_components.resources import Gang as RegisteredGang
from torchx_pulumi_components.resources import register_as_launched, register_gang
from torchx_pulumi_components.stack_state import StackState, plain, read_past, real_parent
from torchx_pulumi_components.waiting import fail, wait_until
from torchx_pulumi_components.whereabouts import check_provider

COMING = ("namespace", "queue", "priority_class", "service_account", "image_secret")
"""Options whose objects a deployment may create before the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentType:
    """One component class, as far as its constructor differs from others."""

    type: str
    """Type token."""
    dialect: ArgsReader
    """Its arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What a constructor found out beside the outputs of its component."""

    plan: JobPlan[Any]
    """The plan that was rendered, or that of the run which is kept."""
    kube_context: str | None
    """Context that was chosen. None: the current one."""
    app: Mapping[str, Any] | None
    """What `torchx run` noted of the app (`runs.entry`). None: a program launched it."""
    is_secret: bool
    """The queue or the context is secret, and so is what is made of the plan."""


def spec_of(app: Any) -> JobSpec:
    """Read a TorchX AppDef; a `JobSpec` is taken as it is.

    Raises:
        pulumi.RunError: It cannot be read.
    """
    try:
        return app if isinstance(app, JobSpec) else read_app(app)
    except TorchxPulumiError as error:
        raise pulumi.RunError(str(error)) from error


def construct(
    component: pulumi.ComponentResource,
    door: ComponentType,
    name: str,
    args: Mapping[str, Any],
    spec: JobSpec | None,
    opts: pulumi.ResourceOptions | None,
) -> Made:
    """Decide about a job and register what it takes; outputs become attributes of the component.

    Args:
        component: Not registered yet.
        door: Of its class.
        name: Its name.
        args: Its arguments.
        spec: The job, where it came as an AppDef; `args` then holds no roles.
        opts: Its options.

    Returns:
        What is known beside the outputs.

    Raises:
        pulumi.RunError: The job cannot be launched, or a wait failed.
    """
    leaves = Leaves()
    try:
        return _decide_and_register(component, door, name, args, spec, opts or pulumi.ResourceOptions(), leaves)
    except TorchxPulumiError as error:
        shown = leaves.without_values(error) if isinstance(error, InvalidJobError) else error
        # With a secret among the arguments, the error is not kept as the cause: it may hold what the message hides.
        raise pulumi.RunError(leaves.hide(str(shown))) from (None if leaves.secret_places else error)


def _decide_and_register(
    component: pulumi.ComponentResource,
    door: ComponentType,
    name: str,
    args: Mapping[str, Any],
    spec: JobSpec | None,
    opts: pulumi.ResourceOptions,
    leaves: Leaves,
) -> Made:
    resolved = leaves.resolve(args)
    wanted = read_args(name, resolved, door.dialect, spec)
    other = _read_other(name, with_other_unknowns(resolved), door, spec) if leaves.unknown else None
    past = _past(door, name, wanted, opts)
    settings, own_provider = wanted.settings, _has_provider(opts)
    cluster, note = connect(settings.kubeconfig, settings.kube_context, own_provider=own_provider)
    _refuse_blind_wait(name, wanted, cluster, note)
    now = datetime.now(timezone.utc)
    launch = plan_launch(
        Request(
            name=name,
            wanted=wanted,
            other=other,
            unknown=bool(leaves.unknown),
            memory=past.memory,
            owners=_owners(past),
            cluster=cluster,
            may_come=_may_come(args, opts),
            importing=opts.import_ is not None,
            shown=plain(past.outputs),
            launcher=_launcher(past.app),
            now=now,
            origin=past.origin,
            end_of=past.end_of,
        )
    )
    if not launch.launching and launch.decision.action is not Action.DONE_AND_GONE:
        check_provider(name, launch.run, past.origin, given=args, own_provider=own_provider, cluster=cluster)
    as_launched = launch.decision.action is Action.IGNORE
    if as_launched:
        marks = Marks(leaves=leaves, plan=launch.plan, changed=None, kept=past.outputs)
    else:
        changed = partial(_read_other, name, leaves.changed(resolved), door, spec)
        marks = marks_of(leaves, launch, wanted, changed, other)
    pulumi.ComponentResource.__init__(component, door.type, name, {}, _component_options(opts))
    _say(component, launch, note, leaves)
    provider = None if own_provider else _own_provider(component, name, args)
    intent = note_intent(name, launch, marks, component)
    children = ChildOptions(
        parent=component,
        depends_on=[*dependencies(opts), *leaves.resources, intent],
        provider=provider,
        ignore_changes=opts.ignore_changes or (),
        custom_timeouts=_timeouts(opts, wanted),
        import_id=opts.import_ if launch.confirmed is None and not launch.launching else None,
        replacement_trigger=None if settings.job_name is None else launch.run.hash,
        retain_on_delete=opts.retain_on_delete,
        secret_outputs=("metadata", "status") if leaves.secret_places else (),
    )
    gang: RegisteredGang | None
    if as_launched:
        gang = register_as_launched(name, launch, past.children, children)
    else:
        gang = register_gang(name, launch, marks, children, cluster)
    launch, problem = _wait(launch, gang, cluster, wanted, leaves)
    user = None if past.app is None else past.app.get("user")
    view = view_job(launch, gang, marks, plain(past.outputs), now, created_by=user)
    if as_launched:
        view = view_as_launched(view, launch, past.outputs, past.children)
    for dns_name, outputs in view.roles.items():
        TrainingRole(f"{name}-{dns_name}", outputs, pulumi.ResourceOptions(parent=component))
    write_run(name, launch, gang, marks, component)
    if past.app is not None:
        keep_app(name, past.app, launch, view.outputs, component)
    for output, value in view.outputs.items():
        setattr(component, output, pulumi.Output.from_input(value))
    component.register_outputs(view.outputs)
    if problem is not None:
        fail(leaves.hide(f"job {name!r}: {problem}"))
    context = settings.kube_context
    return Made(
        plan=launch.plan,
        kube_context=None if is_placeholder(context) else context,
        app=past.app,
        is_secret=any(place in leaves.secret_places for place in (("queue",), ("kube_context",))),
    )


def _read_other(name: str, resolved: Mapping[str, Any], door: ComponentType, spec: JobSpec | None) -> ParsedArgs | None:
    """Return what is wanted with other values in some places. None: it is refused, as the given values are not."""
    try:
        return read_args(name, resolved, door.dialect, spec)
    except InvalidJobError:
        return None


def _say(component: pulumi.Resource, launch: Launch, note: str, leaves: Leaves) -> None:
    if launch.decision.message:
        pulumi.log.info(leaves.hide(launch.decision.message), component)
    if launch.undecided:
        paths = ", ".join(launch.undecided)
        pulumi.log.info(f"{paths}: not known before `up`, which decides whether this is a new run", component)
    if note:
        pulumi.log.info(note, component)
    for warning in launch.warnings:
        pulumi.log.warn(leaves.hide(warning), component)
    shown = [path_of(place) for place in leaves.secret_places if _names_objects(place)]
    if shown:
        pulumi.log.warn(
            f"{', '.join(shown)}: is secret, and names objects or counts them, so that it shows in their names",
            component,
        )


def _names_objects(place: ValuePath) -> bool:
    """Return whether a value shows in names or numbers of objects, which Pulumi cannot hide."""
    return place == ("job_name",) or (place[:1] == ("roles",) and place[2:] in (("name",), ("num_replicas",)))


def _own_provider(component: pulumi.Resource, name: str, args: Mapping[str, Any]) -> pulumi.ProviderResource | None:
    """Make a provider of the kubeconfig and context among the arguments. None: there are none."""
    kubeconfig, context = args.get("kubeconfig"), args.get("kube_context")
    if kubeconfig is None and context is None:
        return None
    from pulumi_kubernetes import Provider

    hidden = None if kubeconfig is None else pulumi.Output.secret(kubeconfig)
    opts = pulumi.ResourceOptions(parent=component)
    return Provider(f"{name}-kubernetes", kubeconfig=hidden, context=context, opts=opts)  # type: ignore[no-any-return]


def _wait(
    launch: Launch, gang: RegisteredGang | None, cluster: Cluster | None, wanted: ParsedArgs, leaves: Leaves
) -> tuple[Launch, str | None]:
    """Wait as far as was asked for; return the launch with what was seen, and what went wrong."""
    goal = wanted.settings.wait_for
    if goal is WaitFor.CREATED or gang is None or pulumi.runtime.is_dry_run():
        return launch, None
    if cluster is None:
        return launch, f"wait_for {goal.value} needs a look at the cluster, which was not possible"
    seen, status, problem = wait_until(launch.plan, gang, cluster, goal, wanted.settings.timeout_s, leaves.hide)
    return replace(launch, seen=seen, status=status), problem


def _refuse_blind_wait(name: str, wanted: ParsedArgs, cluster: Cluster | None, note: str) -> None:
    if cluster is None and note and wanted.settings.wait_for is not WaitFor.CREATED and not pulumi.runtime.is_dry_run():
        message = f"{wanted.settings.wait_for.value} cannot be waited for: {note}; set kubeconfig, or `created`"
        raise invalid_job(name, [Problem("wait_for", message)])


def _past(door: ComponentType, name: str, wanted: ParsedArgs, opts: pulumi.ResourceOptions) -> StackState:
    """Read what the stack's state holds of the component, which is not registered yet."""
    parent = real_parent(opts)
    aliases = [collapse_alias_to_urn(alias, name, door.type, parent) for alias in opts.aliases or []]
    head = variant_of(wanted.options).job_object
    return read_past(create_urn(name, door.type, parent), aliases, name, parent, head)


def _timeouts(opts: pulumi.ResourceOptions, wanted: ParsedArgs) -> pulumi.CustomTimeouts | None:
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
    if dependencies(opts):
        return frozenset(COMING)
    return frozenset(option for option in COMING if isinstance(args.get(option), pulumi.Output))


def _launcher(app: Mapping[str, Any] | None) -> dict[str, str]:
    if app is None:
        return {}
    return {labels.LAUNCHER: labels.LAUNCHER_VALUE, labels.SESSION: names.label_value(str(app.get("session") or ""))}


def _owners(past: StackState) -> tuple[str, ...]:
    # Under mocks there is no organization.
    where = (pulumi.get_organization() or "organization", pulumi.get_project(), pulumi.get_stack())
    return tuple(owner_digest(*where, urn) for urn in (past.urn, *past.former_urns))
