"""The implementation of TorchX's `Scheduler` and `WorkspaceMixin`: one class for all scheduler backends.

A command uses few of its methods, and each method imports what the others do not need: loading all of it takes longer
than an answer.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from torchx.schedulers.api import Scheduler, Stream
from torchx.specs import AppDryRunInfo
from torchx.workspace.api import WorkspaceMixin

from torchx_pulumi.model.app_entry import RunEntry, Stage
from torchx_pulumi.model.errors import ClusterError, InvalidJobError, Problem, TakenOverError, invalid_job
from torchx_pulumi.model.progress import ProgressCallback
from torchx_pulumi.model.status import JobState, JobStatus, Reason
from torchx_pulumi.torchx_adapter import compat
from torchx_pulumi.torchx_adapter.context import AdapterContext
from torchx_pulumi.torchx_adapter.plain_errors import command_words, is_launch
from torchx_pulumi.torchx_adapter.run_opts import CheckedOptions, scheduler_options, workspace_options
from torchx_pulumi.torchx_adapter.workspaces import Workspaces

if TYPE_CHECKING:
    from torchx_pulumi.kube import Cluster
    from torchx_pulumi.torchx_adapter.app_logs import AppLogs
    from torchx_pulumi.torchx_adapter.cancel import Order
    from torchx_pulumi.torchx_adapter.launch import BegunLaunch
    from torchx_pulumi.torchx_adapter.lookup import AppLookup
    from torchx_pulumi.torchx_adapter.observe import AppSnapshot
    from torchx_pulumi.torchx_adapter.polling import PollLimits, SharedObservations

logger = logging.getLogger(__name__)

Made = TypeVar("Made")


class _made_once(cached_property[Made]):  # noqa: N801  # a decorator
    """A cached property that is made once, also if several threads ask first: Python 3.12 and later do not lock."""

    _lock = threading.RLock()

    def __get__(self, instance: Any, owner: Any = None) -> Made:  # type: ignore[override]
        with self._lock:
            made: Made = super().__get__(instance, owner)
            return made


class PulumiScheduler(WorkspaceMixin, Scheduler):  # type: ignore[misc]
    """Runs apps on Kubernetes by one scheduler backend, each in a separate Pulumi stack."""

    def __init__(
        self,
        scheduler: str,
        session_name: str,
        context: AdapterContext,
        docker_client: Any = None,
    ) -> None:
        """Make a scheduler, without reading a file or starting anything.

        Args:
            scheduler: `volcano` or `mcad`.
            session_name: TorchX session.
            context: Engine, clusters, index and clock.
            docker_client: A docker-py client to build with. None: made when it is needed.
        """
        super().__init__(f"pulumi_{scheduler}", session_name)
        self._kind = scheduler
        self._context = context
        context.options = self._ambient
        self._workspaces = Workspaces(docker_client=docker_client)
        self._begun: BegunLaunch | None = None
        """What a dry run of `torchx run` has begun, until it is scheduled."""

    @_made_once
    def _lookup(self) -> AppLookup:
        from torchx_pulumi.torchx_adapter.lookup import AppLookup

        return AppLookup(context=self._context, scheduler=self._kind)

    @_made_once
    def _observations(self) -> SharedObservations:
        from torchx_pulumi.torchx_adapter.polling import SharedObservations

        return SharedObservations(self._context, self._lookup.reread_or_known)

    @_made_once
    def _poll_limits(self) -> PollLimits:
        from torchx_pulumi.torchx_adapter.polling import PollLimits

        return PollLimits(self._context.clock, command_words())

    @_made_once
    def logs(self) -> AppLogs:
        """Return the reader of the apps' logs."""
        from torchx_pulumi.torchx_adapter.app_logs import AppLogs

        return AppLogs(
            context=self._context,
            scheduler=self._kind,
            lookup=self._lookup,
            observations=self._observations,
            ambient=self._ambient,
        )

    def _run_opts(self) -> CheckedOptions:
        return scheduler_options(self._kind)

    def workspace_opts(self) -> CheckedOptions:
        """Return the run options of patched images; `run_opts` adds them to those of the scheduler."""
        return workspace_options()

    def build_workspace_and_update_role(
        self, role: Any, workspace: str | Mapping[str, str], cfg: Mapping[str, Any]
    ) -> None:
        """Give a role the image that it will have with the workspace in it; it is built when the app is scheduled."""
        self._workspaces.patch(role, workspace, cfg)

    def caching_build_workspace_and_update_role(
        self,
        role: Any,
        cfg: Mapping[str, Any],
        build_cache: dict[object, object],  # noqa: ARG002 - one reference is one build anyway
    ) -> None:
        """Do the same for a role that has its own workspace, which TorchX 0.7.0 does not know."""
        workspace = compat.workspace_of(role)
        if workspace is not None:
            self._workspaces.patch(role, workspace, cfg)

    def build_workspaces(self, roles: Any, cfg: Mapping[str, Any]) -> None:
        """Give roles their images; build and push those, unless a dry run asks. TorchX 0.7.0 does not call it."""
        for role in roles:
            self.caching_build_workspace_and_update_role(role, cfg, {})
        self._workspaces.build(roles, cfg)

    def _pre_build_validate(self, app: Any, scheduler: str, cfg: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Refuse a wrong name, job or option before an image is built for it. TorchX 0.7.0 has no such step."""
        from torchx_pulumi.torchx_adapter.dryrun import check_app

        # Only `Runner.dryrun` comes here, and then has the workspaces of the same roles built.
        self._workspaces.expect_dry_run(app.roles)
        check_app(app, cfg, self._kind)

    def submit_dryrun(self, app: Any, cfg: Mapping[str, Any]) -> Any:
        """Return the request of an app; the app in it names images as pods will, and the caller's is left as it is."""
        from torchx_pulumi.torchx_adapter.dryrun import LOCAL_IMAGE

        if any(role.image.startswith(LOCAL_IMAGE) for role in app.roles):
            app = copy.copy(app)
            app.roles = [copy.copy(role) for role in app.roles]
        return super().submit_dryrun(app, cfg)

    def _submit_dryrun(self, app: Any, cfg: Mapping[str, Any]) -> Any:
        from torchx_pulumi.torchx_adapter.dryrun import LOCAL_IMAGE, make_request, validate

        # TorchX has resolved them.
        config = dict(cfg)
        self._workspaces.warn_of_unpatched(app.roles)

        def cluster() -> Cluster:
            return self._context.chosen_cluster(config)

        request = make_request(
            app, config, self._kind, self.session_name, image_plans=self._workspaces.plans, cluster=cluster
        )
        for role in app.roles:
            if role.image.startswith(LOCAL_IMAGE) and role.image in request.images_to_push:
                role.image = ":".join(request.images_to_push[role.image])
        archive = config.get("log_archive")
        if archive and request.plan:
            from torchx_pulumi.logs.archive_marks import find_no_writer

            if why := find_no_writer(archive, request.plan.namespace, self._context.now()):
                logger.warning("%s", why)
        if is_launch() and request.plan is not None and self._begun is None:
            from torchx_pulumi.torchx_adapter.launch import begin_launch

            # The engine starts while the API server validates the request.
            self._begun = begin_launch(
                self._context,
                request,
                request.plan,
                session=self.session_name,
                lookup=lambda: self._lookup,
                meanwhile=self._load_describe,
            )
        try:
            if config.get("validate_spec"):
                validate(request, cluster, config.get("namespace") or "default")
        except BaseException:
            self._abandon()
            raise
        return AppDryRunInfo(request, repr)

    def _abandon(self) -> None:
        """Remove what a dry run of `torchx run` has begun, if no launch took it."""
        begun, self._begun = self._begun, None
        if begun is not None:
            from torchx_pulumi.torchx_adapter.launch import abandon_launch

            abandon_launch(self._context, begun)

    def _load_describe(self) -> None:
        """Load what `torchx run` needs after the launch, to print the status."""
        import torchx_pulumi.torchx_adapter.polling
        import torchx_pulumi.torchx_adapter.responses  # noqa: F401

    def _validate(self, app: Any, scheduler: str, cfg: Any = None) -> None:
        """Leave the checks to the dry run, which reports all problems at once; an unset resource is allowed."""

    def schedule(self, dryrun_info: Any) -> str:
        """Launch what a dry run returned, as the caller left it, and return the app's id.

        Args:
            dryrun_info: What `submit_dryrun` returned, or an `AppDryRunInfo` made of its request alone.

        Raises:
            ValueError: The same request was launched before.
            ImageError: An image cannot be built or pushed.
            DeployError: The engine or the cluster refused.
            ClusterError: The cluster cannot be reached.
        """
        from torchx_pulumi.torchx_adapter.dryrun import PulumiJob, make_request
        from torchx_pulumi.torchx_adapter.launch import launch_app

        request, app = copy.copy(dryrun_info.request), compat.app_of(dryrun_info)
        if not isinstance(request, PulumiJob):
            raise _no_dry_run()
        app = request.app if app is None else app
        if app is None:
            raise _no_dry_run()
        config = compat.config_of(dryrun_info) or request.config or {}
        if config != request.config:
            # They are not those of the dry run.
            config = self.run_opts().resolve(config)
        plan = request.plan or make_request(app, config, self._kind, self.session_name).plan
        if plan is None:
            raise _no_dry_run()
        request.app, request.config = app, config
        if self._begun is not None and not self._begun.is_of(request):
            self._abandon()
        begun, self._begun = self._begun, None
        return launch_app(
            self._context,
            request,
            plan,
            session=self.session_name,
            lookup=lambda: self._lookup,
            meanwhile=self._load_describe if is_launch() else lambda: None,
            begun=begun,
            build_images=lambda: self._workspaces.make(
                request.images_to_push, request.image_plans, config, named=[role.image for role in app.roles]
            ),
            delete=self.delete,
        )

    def describe(self, app_id: str) -> Any:
        """Describe an app. None: the app is unknown.

        Raises:
            ClusterError: The cluster is not the one of the launch, or calls for this app have not learned its state for
                as long as `polling.PollLimits` allows.
        """
        from torchx_pulumi.torchx_adapter.responses import describe_app

        entry = self._lookup.find(app_id)
        found = None if entry is None else self._snapshot(entry)
        if found is None:
            self._poll_limits.check_absent(app_id)
            return None
        self._poll_limits.check(*found)
        return describe_app(*found, self._context.now())

    def _snapshot(self, entry: RunEntry) -> tuple[RunEntry, AppSnapshot] | None:
        """Observe an app, and recover an interrupted launch or deletion if the object is absent."""
        from torchx_pulumi.storage.owners import Life, life_of
        from torchx_pulumi.torchx_adapter.lookup import is_shared
        from torchx_pulumi.torchx_adapter.observe import observe_app

        snapshot = self._observations.of(entry).now(entry)
        gone = snapshot.status.reason is Reason.NOT_FOUND and snapshot.error is None and is_shared(entry)
        if entry.stage is Stage.LAUNCHED and (snapshot.relaunched or gone):
            now = self._lookup.reread_or_known(entry)
            return None if now is None else (now, snapshot if now is entry else observe_app(self._context, now))
        if entry.stage is Stage.LAUNCHED or snapshot.present:
            return entry, snapshot
        # The owner may still run on another host: only the process table of this machine proves that it ended.
        if life_of(entry.owner) is not Life.ENDED:
            return entry, _in_progress(entry, snapshot)
        try:
            settled = self._lookup.recover(entry, logger.info)
        except (ClusterError, TakenOverError):
            return entry, snapshot
        if settled is not None and settled.stage is not Stage.LAUNCHED:
            return settled, _in_progress(settled, snapshot)
        return None if settled is None else (settled, observe_app(self._context, settled))

    def describe_native(self, app_id: str) -> Any:
        """Read the job object back from the cluster, as a request. None: the app or its object does not exist."""
        from torchx_pulumi.apps.app import App
        from torchx_pulumi.torchx_adapter.app_json import read_app_json
        from torchx_pulumi.torchx_adapter.dryrun import PulumiJob
        from torchx_pulumi.torchx_adapter.observe import read_with_warning

        entry = self._lookup.find(app_id)
        if entry is None:
            return None
        job_object = read_with_warning(entry, self._context.cluster_of(entry))
        if job_object is None or not App.of(entry).owns(job_object):
            return None
        info = AppDryRunInfo(PulumiJob(images_to_push={}, resource=job_object), repr)
        compat.set_app(info, read_app_json(entry.app), {"namespace": entry.namespace, **entry.options})
        return info

    def list(self, cfg: Mapping[str, Any] | None = None) -> list[Any]:
        """List the apps that were launched, by id.

        Args:
            cfg: `namespace` lists one only; kubeconfig and context say where. None: `.torchxconfig` says.
        """
        from torchx_pulumi.torchx_adapter.listing import ListFilter, list_apps

        given = {**self._ambient(), **{key: value for key, value in dict(cfg or {}).items() if value is not None}}
        list_filter = ListFilter(
            namespace=(cfg or {}).get("namespace") or None,
            session=given.get("list_session") or None,
            states=frozenset(given.get("list_states") or ()),
            everything=bool(given.get("list_all")),
        )
        return list_apps(self._lookup, given, list_filter)

    def exists(self, app_id: str) -> bool:
        """Return whether an app was launched and not deleted. Starts no process."""
        return self.entry(app_id) is not None

    def entry(self, app_id: str, *, to_change: bool = False) -> RunEntry | None:
        """Return the entry of an app: of the index, its stack in the backend, or its objects. None: unknown.

        `to_change` as of `AppLookup.find`.
        """
        return self._lookup.find(app_id, to_change=to_change)

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Any = None,
    ) -> Iterable[str]:
        """Return the lines of the k-th replica's log, as TorchX has them: with times, each with its end.

        Raises:
            ValueError: Streams other than COMBINED; or the app, role or replica does not exist.
            ClusterError: The log cannot be read.
        """
        if streams not in (None, Stream.COMBINED):
            raise ValueError(f"{self.backend} has COMBINED log streams only, asked for {streams}; leave streams out")
        return self.logs.read(
            app_id, role_name, k, options={}, regex=regex, since=since, until=until, follow=should_tail
        )

    def cancel(
        self, app_id: str, *, take_over: bool = False, progress: ProgressCallback = logger.info
    ) -> JobState | None:
        """Ask for an app to stop; see `cancel.Order`. An app that has ended or does not exist stays as it is."""
        return self._order(app_id, progress, take_over=take_over).cancel()

    def _cancel_existing(self, app_id: str) -> None:
        self.cancel(app_id)

    def resume(self, app_id: str, *, take_over: bool = False, progress: ProgressCallback = logger.info) -> None:
        """Let a cancelled app of Volcano's run again, unless that would end it; see `cancel.Order`."""
        self._order(app_id, progress, take_over=take_over).resume()

    def delete(
        self,
        app_id: str,
        *,
        forget_unreachable: bool = False,
        take_over: bool = False,
        progress: ProgressCallback = logger.info,
    ) -> None:
        """Delete an app and its stack, if the app exists; see `cancel.Order`."""
        self._order(app_id, progress, take_over=take_over).delete(forget_unreachable=forget_unreachable)

    def _delete_existing(self, app_id: str) -> None:
        self.delete(app_id)

    def _order(self, app_id: str, progress: ProgressCallback, *, take_over: bool) -> Order:
        from torchx_pulumi.torchx_adapter.cancel import Order

        return Order(lookup=self._lookup, app_id=app_id, progress=progress, take_over=take_over)

    def close(self) -> None:
        """Close the engine. May be called more than once."""
        self._abandon()
        self._context.close()

    def _ambient(self) -> Mapping[str, Any]:
        """Return the options of this scheduler's section of `.torchxconfig`."""
        from torchx_pulumi.torchx_adapter import torchxconfig

        options = torchxconfig.section(self.backend, self.run_opts())
        if options.get("pulumi_backend"):
            from torchx_pulumi.stack_state.backend import know_backend

            # The index has the URL without its credentials, which the file has.
            know_backend(options["pulumi_backend"])
        return options


def _in_progress(entry: RunEntry, snapshot: AppSnapshot) -> AppSnapshot:
    """Return the known status of an app that another process works on, or worked on until it gave no sign of life."""
    from torchx_pulumi.runs.handle import delete_command
    from torchx_pulumi.storage.owners import Life, describe_owner, life_of

    doing = {Stage.LAUNCHING: "is being launched", Stage.DELETING: "is being deleted"}[entry.stage]
    message, error = f"it {doing} by {describe_owner(entry.owner)}", snapshot.error
    if life_of(entry.owner) is Life.EXPIRED:
        message += f"; if that is gone for certain, `{delete_command(entry)} --take-over` removes the app"
        # A wait for an owner that gives no sign of life ends as one for a cluster that does not answer.
        error = error or ClusterError(message, retryable=True)
    state = JobState.SUBMITTED if entry.stage is Stage.LAUNCHING else snapshot.status.state
    status = JobStatus(state=state, reason=Reason.SUBMITTED, message=message)
    return replace(snapshot, status=status, error=error)


def _no_dry_run() -> InvalidJobError:
    text = "is not a result of submit_dryrun of this scheduler; pass what that returned"
    return invalid_job("unnamed", [Problem("dryrun_info", text)])
