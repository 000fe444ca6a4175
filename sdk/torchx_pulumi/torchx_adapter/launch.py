"""`schedule`: images, index entry, engine, and waiting. A failure leaves nothing half done."""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from torchx_pulumi.inputs.json_values import write_value
from torchx_pulumi.kube import Cluster
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.model import labels
from torchx_pulumi.model.app_entry import RunEntry, Stage
from torchx_pulumi.model.errors import (
    BackendAbsentError,
    ClusterError,
    DeployError,
    RefusedError,
    TakenOverError,
    TorchxPulumiError,
)
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.job_spec import OVERLAY_KEY
from torchx_pulumi.model.launch_options import WaitFor
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.progress import ProgressCallback
from torchx_pulumi.model.status import JobStatus
from torchx_pulumi.planning.names import owner_digest
from torchx_pulumi.runs.lease import Lease
from torchx_pulumi.runs.registration import LaunchState, Registration, prepare, with_image_digests
from torchx_pulumi.runs.whereabouts import ambient
from torchx_pulumi.schedulers import backend_of, variant_of
from torchx_pulumi.schedulers.manifest_objects import objects_of
from torchx_pulumi.schedulers.registry import component_type
from torchx_pulumi.stack_state.backend import stack_name
from torchx_pulumi.stack_state.cli import check_provider, choose_place
from torchx_pulumi.storage.owners import this_process
from torchx_pulumi.torchx_adapter.app_json import write_app
from torchx_pulumi.torchx_adapter.context import AdapterContext, current_user
from torchx_pulumi.torchx_adapter.dryrun import PulumiJob
from torchx_pulumi.torchx_adapter.run_opts import split_options

if TYPE_CHECKING:
    from torchx_pulumi.torchx_adapter.lookup import AppLookup

logger = logging.getLogger(__name__)


class _Earlier(Enum):
    """Earlier launch of the same request."""

    ABSENT = auto()
    KEPT = auto()
    REPLACED = auto()
    """It is deleted as soon as the images of the new launch are in the registry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunLaunch:
    """A launch whose engine has started and waits for the program."""

    request: PulumiJob
    """Its request."""
    manifest: Manifest
    """The objects of the request when it was begun."""
    registration: Registration
    lease: Lease
    ends: contextlib.ExitStack
    """Ends the renewal of the lease."""

    def is_of(self, request: PulumiJob) -> bool:
        """Return whether it launches what a request asks for: nothing was changed in it."""
        begun = self.request
        return (request.app, request.config) == (begun.app, begun.config) and request.manifest() == self.manifest


def begin_launch(
    context: AdapterContext,
    request: PulumiJob,
    plan: JobPlan[Any],
    *,
    session: str,
    lookup: Callable[[], AppLookup],
    meanwhile: Callable[[], None],
) -> BegunLaunch | None:
    """Begin the launch of a request that is not validated yet: the engine needs 0.3 s before it asks for the program.

    Args:
        context: As for `launch_app`.
        request: As for `launch_app`.
        plan: As for `launch_app`.
        session: As for `launch_app`.
        lookup: As for `launch_app`.
        meanwhile: As for `launch_app`.

    Returns:
        None: it has to wait for images or for an earlier launch, or it cannot begin, which `launch_app` tells.
    """
    config = request.config or {}
    if request.images_to_push or config.get("image_repo"):
        return None
    progress = _progress(config, meanwhile)
    with contextlib.ExitStack() as ends, contextlib.suppress(TorchxPulumiError, ValueError):
        app, earlier = _prepared(context, request, plan, session, lookup, progress)
        if earlier is not _Earlier.ABSENT:
            return None
        app, lease = ends.enter_context(_claimed(context, app))
        with _given_up_after(context, app, progress, lease):
            context.driver().begin(app, progress, check=lease.check)
        return BegunLaunch(
            request=copy.copy(request),
            manifest=request.manifest(),
            registration=app,
            lease=lease,
            ends=ends.pop_all(),
        )
    return None


def abandon_launch(context: AdapterContext, begun: BegunLaunch) -> None:
    """Remove what `begin_launch` began. What cannot be removed now is put right by the next call on the app."""
    progress = _progress(begun.request.config or {}, lambda: None)
    with begun.ends:
        try:
            context.driver().abandon(begun.registration)
        except TorchxPulumiError as error:
            progress(f"{begun.registration.app_entry.app_id}: what was begun is not removed yet: {error}")
            _give_up(begun.lease, lambda now: now, progress)
        else:
            _give_up(begun.lease, lambda _: None, progress)


def launch_app(
    context: AdapterContext,
    request: PulumiJob,
    plan: JobPlan[Any],
    *,
    session: str,
    lookup: Callable[[], AppLookup],
    build_images: Callable[[], Mapping[str, str]],
    delete: Callable[[str], None],
    meanwhile: Callable[[], None],
    begun: BegunLaunch | None = None,
) -> str:
    """Launch an app and return its id.

    Args:
        context: The engine, the index and the clusters.
        request: The request, with the AppDef and the resolved run options.
        plan: Its plan.
        session: TorchX session.
        lookup: Returns what finds an earlier launch again, and puts it right. Called if there is one.
        build_images: Builds and pushes what the request needs, and returns image reference to digest.
        delete: Deletes an app by its id.
        meanwhile: Called while the engine creates the job object.
        begun: What `begin_launch` has begun for the same request. None: nothing.

    Raises:
        ValueError: The same request was launched before, and `on_running_change` is `fail`.
        ImageError: An image cannot be built or pushed; nothing was created or deleted.
        DeployError: This process cannot launch, or the engine, the cluster or the index refused; what was begun is
            removed again.
        ClusterError: The cluster cannot be reached; nothing was created.
        JobFailedError: It was launched, and did not reach the state of `wait_for`.
    """
    config = request.config or {}
    progress = _progress(config, meanwhile)
    if begun is not None:
        with begun.ends:
            entry = _launch(context, begun.registration, progress, begun.lease)
    else:
        app, earlier = _prepared(context, request, plan, session, lookup, progress)
        if earlier is _Earlier.KEPT:
            return app.app_entry.app_id
        digests = build_images()
        if earlier is _Earlier.REPLACED:
            delete(app.app_entry.app_id)
        with _claimed(context, with_image_digests(app, digests)) as (app, lease):
            entry = _launch(context, app, progress, lease)
    _wait(context, entry, config, progress)
    return entry.app_id


def _progress(config: Mapping[str, Any], meanwhile: Callable[[], None]) -> ProgressCallback:
    """Return the receiver of progress. The first line comes from an engine that works while this process waits."""
    tell, waits = logger.debug if config.get("quiet") else logger.info, iter([meanwhile])

    def take(line: str) -> None:
        tell("%s", line)
        next(waits, lambda: None)()

    return take


def _prepared(
    context: AdapterContext,
    request: PulumiJob,
    plan: JobPlan[Any],
    session: str,
    lookup: Callable[[], AppLookup],
    progress: ProgressCallback,
) -> tuple[Registration, _Earlier]:
    """Return the registration of a launch, and which launch of the same request there was."""
    context.driver().check_process()
    _, chosen = split_options(request.config or {})
    check_provider(lambda warning: logger.warning("%s", warning))
    cluster = context.chosen_cluster(chosen)
    app = prepare_app(context, request, plan, session, cluster)
    if context.client is None:
        # The same access by its names, under which the status is read.
        context.keep(cluster, *app.app_entry.access)
    kind = variant_of(plan.options).job_object
    return app, _decide(context, lookup, request, app.app_entry, kind, cluster, progress)


@contextlib.contextmanager
def _claimed(context: AdapterContext, app: Registration) -> Iterator[tuple[Registration, Lease]]:
    """Note the app as being launched by this process, and renew the lease, which begins now, until the block ends."""
    owner = this_process()
    entry = replace(app.app_entry, owner=owner)
    with Lease(context.index, entry, owner) as lease:
        context.index.add(entry)
        yield replace(app, entry=entry), lease


def prepare_app(
    context: AdapterContext, request: PulumiJob, plan: JobPlan[Any], session: str, cluster: Cluster
) -> Registration:
    """Return the registration of a launch that is about to begin; one request, for the identity of the cluster.

    Raises:
        DeployError: The first object of the request is not of the kind that the plan is for.
        ClusterError: The cluster cannot be reached.
    """
    objects, kind = [item for _, item in objects_of(request.manifest())], variant_of(plan.options).job_object
    given = objects[0].get("apiVersion"), objects[0].get("kind")
    if given != (kind.api_version, kind.kind):
        raise DeployError(
            f"the request's resource is a {given[1]} of {given[0]}, must be a {kind.kind} of {kind.api_version}; "
            "change what it contains, not what it is"
        )
    identity = cluster.identify()
    app = write_app(request.app)
    for role, planned in zip(app["roles"], plan.spec.roles, strict=True):
        if isinstance((role.get("metadata") or {}).get(OVERLAY_KEY), str):
            # A file of an overlay may change, or be elsewhere later.
            role["pod_overlay"] = write_value(planned.pod_overlay)
    chosen_plan, chosen = split_options(request.config or {})
    scheduler = plan.options.scheduler
    name = str(objects[0]["metadata"]["name"])
    namespace = str(objects[0]["metadata"].get("namespace") or plan.namespace)
    place = choose_place(chosen, stack_name(namespace, name, scheduler, identity.key))
    urn = f"urn:pulumi:{place.stack}::{place.project}::{component_type(scheduler)}::{plan.spec.name}"
    state = LaunchState(
        name=plan.spec.name,
        owner=owner_digest(place.organization, place.project, place.stack, urn),
        at=context.now(),
        job_name=plan.job_name,
        cluster=identity,
        user=current_user(),
        plan=plan,
    )
    # Options that were left open are recorded as they were rendered.
    found = {key: getattr(plan.options, key) for key in backend_of(plan.options).discovered if key in chosen_plan}
    in_force = {**chosen_plan, **{key: getattr(value, "value", value) for key, value in found.items()}}
    named = chosen.get("kubeconfig"), chosen.get("kube_context")
    return replace(prepare(plan.spec, plan.options, state), given=objects).with_entry(
        f"{namespace}:{name}",
        place,
        app=app,
        session=session,
        options=in_force,
        chosen=chosen,
        ambient=(None, None) if context.client is not None else ambient(*named),
    )


def _decide(
    context: AdapterContext,
    lookup: Callable[[], AppLookup],
    request: PulumiJob,
    entry: RunEntry,
    kind: Kind,
    cluster: Cluster,
    progress: ProgressCallback,
) -> _Earlier:
    """Return whether the same request was launched before, and what `on_running_change` makes of that launch.

    Raises:
        ValueError: It exists, and `on_running_change` is `fail`.
    """
    identity = entry.cluster_identity or cluster.identify()
    last = context.index.find_in(identity, entry.app_id, entry.scheduler)
    if last is not None:
        last = lookup().settled(entry.app_id, progress)
    present = cluster.get(kind, entry.namespace, entry.job_name)
    if last is not None and present is None:
        from torchx_pulumi.torchx_adapter.lookup import is_shared

        # A colleague may have deleted it.
        last = lookup().reread(last) if is_shared(last) else last
    if last is None and present is None:
        return _Earlier.ABSENT
    policy = (request.config or {}).get("on_running_change")
    if last is not None and policy == "ignore":
        progress(f"{entry.app_id} was launched before; it is kept, as on_running_change is ignore")
        return _Earlier.KEPT
    if last is not None and policy == "replace":
        return _Earlier.REPLACED
    if last is None:
        owner = (present or {}).get("metadata", {}).get("labels", {}).get(labels.LAUNCH)
        whose = "another stack of torchx-pulumi" if owner else "another program"
        raise ValueError(
            f"{kind.kind} `{entry.job_name}` already exists in namespace {entry.namespace!r}, made by {whose}; "
            "make a new dry run, which has a new name"
        )
    raise ValueError(
        f"Job `{entry.job_name}` already exists: app {entry.app_id} was launched at {last.launched_at}. Make a new dry "
        "run, delete the app first, or set on_running_change to replace or ignore"
    )


def _launch(context: AdapterContext, app: Registration, progress: ProgressCallback, lease: Lease) -> RunEntry:
    with _given_up_after(context, app, progress, lease):
        uid = context.driver().launch(app, progress, check=lease.check)
    done = lease.end(lambda now: replace(now, stage=Stage.LAUNCHED, uid=uid or now.uid))
    return done or app.app_entry


@contextlib.contextmanager
def _given_up_after(
    context: AdapterContext, app: Registration, progress: ProgressCallback, lease: Lease
) -> Iterator[None]:
    """Give the app back if the block fails, in which the driver launches it."""
    entry, driver = app.app_entry, context.driver()
    try:
        yield
    except TakenOverError:
        # What was begun is the new owner's.
        raise
    except TorchxPulumiError as error:
        # The driver removes what was begun. If that failed too, the next call on the app finds it.
        try:
            keep = driver.find(entry.place) is not None
        except BackendAbsentError:
            # The launch made nothing, not even the folder. Of one that did, the order is still here.
            keep = False
        except TorchxPulumiError:
            keep = True
        _give_up(lease, lambda now: now if keep else None, progress)
        if keep and isinstance(error, RefusedError) and isinstance(error.status, JobStatus):
            from torchx_pulumi.outputs.building import build_observed

            refused = build_observed(error.status, observed_at=context.now())
            context.index.observe(entry, lambda _: refused)
        raise
    except BaseException:
        # An interrupt, or an unexpected error: recover the app now, or leave it to the next call.
        _put_right(context, entry, progress, lease)
        raise


def _give_up(lease: Lease, change: Callable[[RunEntry], RunEntry | None], progress: ProgressCallback) -> None:
    """Give the app back after a failure; that it was taken over meanwhile does not hide the failure."""
    try:
        lease.end(change)
    except TakenOverError as error:
        progress(str(error))


def _put_right(context: AdapterContext, entry: RunEntry, progress: ProgressCallback, lease: Lease) -> None:
    try:
        # This process was the owner and has stopped working on the app.
        now = context.driver().recover(replace(entry, owner=None), progress, check=lease.check)
    except TakenOverError as error:
        progress(str(error))
        return
    except (DeployError, ClusterError) as error:
        progress(f"{entry.app_id}: the interrupted launch is not put right yet ({error}); the next call on it will try")
        _give_up(lease, lambda now: now, progress)
        return
    _give_up(lease, lambda _: None if now is None else replace(now, stage=Stage.LAUNCHED), progress)


def _wait(context: AdapterContext, entry: RunEntry, config: Mapping[str, Any], progress: ProgressCallback) -> None:
    """Wait outside the engine, which holds the stack's lock while it works."""
    goal = WaitFor(config.get("wait_for") or WaitFor.CREATED.value)
    if goal is WaitFor.CREATED:
        return
    from torchx_pulumi.runs.waiting import wait_until
    from torchx_pulumi.torchx_adapter.observe import observe_app

    def read() -> JobStatus:
        snapshot = observe_app(context, entry)
        if snapshot.error is not None:
            raise snapshot.error
        return snapshot.status

    wait_until(read, goal, timeout_s=config.get("wait_timeout_s"), progress=progress, job=f"app {entry.app_id}")
