"""Find the app of an id: in the index, in a backend that is shared with colleagues, or in the cluster."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from torchx_pulumi.apps.app import App, read_apps
from torchx_pulumi.apps.ownership import is_job_object, owns, run_of_object
from torchx_pulumi.model import labels
from torchx_pulumi.model.app_entry import ProgramStack, RunEntry, Stage, UnknownStack
from torchx_pulumi.model.cluster_identity import ClusterIdentity, Match
from torchx_pulumi.model.errors import ClusterError, DeployError, InvalidJobError, Problem, TakenOverError, invalid_job
from torchx_pulumi.model.object_fields import items_at, text_at
from torchx_pulumi.model.progress import ProgressCallback
from torchx_pulumi.model.redaction import is_redacted
from torchx_pulumi.planning.names import HASH_LENGTH
from torchx_pulumi.runs.driver import Still
from torchx_pulumi.runs.handle import delete_command
from torchx_pulumi.runs.index import is_app_id
from torchx_pulumi.runs.lease import claim
from torchx_pulumi.runs.whereabouts import read_job_object
from torchx_pulumi.schedulers import Variant, find_backend
from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects
from torchx_pulumi.stack_state.backend import backend_folder, choose_backend, know_backend, own_backend, stack_name
from torchx_pulumi.stack_state.checkpoint import DAMAGED, parse_components
from torchx_pulumi.stack_state.cli import choose_place
from torchx_pulumi.stack_state.stacks import StackName, open_stacks
from torchx_pulumi.storage.owners import Life, describe_owner, life_of
from torchx_pulumi.torchx_adapter.context import AdapterContext

logger = logging.getLogger(__name__)

BUSY_WAIT_S = 150.0
"""Longest wait for another process or thread that works on the same app: longer than a lease."""

POLL_S = 0.2
"""Time between two reads of the owner of an app."""


def is_shared(entry: RunEntry) -> bool:
    """Return whether others may change the stack of an app: it is kept elsewhere than in this user's own folder."""
    return entry.has_stack and entry.place.backend != own_backend()


@dataclass(slots=True, kw_only=True)
class AppLookup:
    """Lookup of the apps of one scheduler."""

    context: AdapterContext
    scheduler: str
    """`volcano` or `mcad`."""
    _warned: dict[str, str] = field(default_factory=dict)
    """App that was not searched in the cluster, to the reason that was logged last."""

    def full_id(self, app_id: str) -> str:
        """Return an app's id, also if its namespace is left out; see `RunIndex.full_id`."""
        if ":" in app_id:
            return app_id
        namespace = self.context.options().get("namespace") or "default"
        return self.context.index.full_id(app_id, self.scheduler, namespace=namespace)

    def find(self, app_id: str, *, to_change: bool = False) -> RunEntry | None:
        """Return an app, also one whose launch or deletion was interrupted.

        Args:
            app_id: `namespace:name`, or `name` if it is in one namespace only.
            to_change: The app is about to be changed: nothing that was remembered of its stack is used, and that of a
                program whose objects are gone is found by the program's stack.

        Raises:
            InvalidJobError: The id is of several clusters, or of several namespaces.
            DeployError: Its entry or its backend cannot be read.
        """
        app_id = self.full_id(app_id)
        found = self.context.index.find(app_id, self.scheduler, cluster=self.ambient_cluster)
        if found is not None and is_redacted(found.place.backend):
            # The index has no credentials: the option pulumi_backend may.
            know_backend(self.context.options().get("pulumi_backend") or "")
        still = None if to_change else self._is_there
        found = found or self.find_in_backend(app_id, still) or self._find_in_cluster(app_id)
        # Reading the stacks of all programs takes long.
        return found or (self._find_in_programs(app_id) if to_change else None)

    def not_found(self, app_id: str, archives: Sequence[str] = ()) -> InvalidJobError:
        """Return the error about an app that `find` does not find and whose log is in none of some archives."""
        backend = choose_backend(self.context.options().get("pulumi_backend"))
        searched = ["in the local index", *(f"in archive {name}" for name in archives), f"in backend {backend!r}"]
        text = (
            f"app {app_id!r} not found {', '.join(searched[:-1])} or {searched[-1]}; "
            f"`torchx list -s pulumi_{self.scheduler}` lists the apps"
        )
        return invalid_job(app_id, [Problem("app_id", text)])

    def settled(self, app_id: str, progress: ProgressCallback, *, take_over: bool = False) -> RunEntry | None:
        """Return an app that no process works on: wait for one that does, and repair an interrupted one.

        Args:
            app_id: `namespace:name`.
            progress: Takes progress.
            take_over: Take the app over from any owner, without waiting.

        Raises:
            DeployError: Another process works on it for too long, or may work on it still.
            ClusterError: What was interrupted cannot be put right without the cluster.
        """
        until = time.monotonic() + BUSY_WAIT_S
        entry = self.find(app_id, to_change=True)
        while entry is not None and entry.stage is not Stage.LAUNCHED:
            life = life_of(entry.owner)
            # An owner whose lease has expired may be asleep while its engine holds the lock.
            held = self.context.driver().locks(entry) if life is Life.EXPIRED and not take_over else ()
            if held:
                raise DeployError(
                    f"app {app_id} is {entry.stage.value} by {describe_owner(entry.owner)}, and its stack is locked by "
                    f"{'; '.join(held)}. That process may be asleep: wait for it. If it is gone for certain, "
                    f"`{delete_command(entry)} --take-over` takes the app over and removes the lock",
                    retryable=True,
                )
            if take_over or life is not Life.WORKS:
                entry = self.recover(entry, progress, take_over=take_over)
                take_over = False
                continue
            if time.monotonic() > until:
                raise DeployError(
                    f"app {app_id} is {entry.stage.value} by {describe_owner(entry.owner)}, which has not finished in "
                    f"{BUSY_WAIT_S:.0f} s. Wait for it, or end it. If it is gone for certain, "
                    f"`{delete_command(entry)} --take-over` does not wait",
                    retryable=True,
                )
            time.sleep(POLL_S)
            entry = self.find(app_id, to_change=True)
        return entry

    def reread(self, entry: RunEntry) -> RunEntry | None:
        """Read an app again from its stack, because its object is gone or is another one than is known here.

        A colleague may have launched it again, renamed its stack, or deleted it. What is found is noted in the index,
        if the app is in it.

        Returns:
            The app as its stack has it. None: its stack is gone, and the app with it.

        Raises:
            DeployError: The backend cannot be read.
        """
        if not entry.has_stack or entry.stage is not Stage.LAUNCHED:
            return entry
        now = self.context.driver().find(entry.place, known=entry)
        if now is not None and now.uid in (None, entry.uid):
            if (now.place.project, now.place.stack) == (entry.place.project, entry.place.stack):
                return entry
            now = replace(entry, place=now.place)
        here = None if now is None else self.context.reachable(now)

        def noted(known: RunEntry | None) -> RunEntry | None:
            # Another process may have begun to work on the app since it was read.
            same = known is not None and (known.stage, known.uid) == (entry.stage, entry.uid)
            return here if same else known

        self.context.index.update(entry, noted)
        return now

    def reread_or_known(self, entry: RunEntry) -> RunEntry | None:
        """Return the app as `reread` does. If its backend cannot be read, warn and return it as it is known."""
        try:
            return self.reread(entry)
        except DeployError as error:
            logger.warning("whether app %s was deleted or launched again is unknown: %s", entry.app_id, error)
            return entry

    def recover(self, entry: RunEntry, progress: ProgressCallback, *, take_over: bool = False) -> RunEntry | None:
        """Repair an interrupted launch or deletion. The app is claimed before any change.

        Returns:
            The app as it is now, which another process may have claimed first. None: nothing is left of it.

        Raises:
            ClusterError: The truth cannot be found without the cluster.
            DeployError: Another process works on it.
        """
        if self.adopt(entry) is None:
            return self.find(entry.app_id)
        lease = claim(self.context.index, entry)
        if lease is None:
            return self.find(entry.app_id)
        with lease:
            progress(f"{entry.app_id}: {entry.stage.value} was interrupted; putting it right")
            try:
                here = self.context.reachable(entry)
                now = self.context.driver().recover(here, progress, check=lease.check, take_over=take_over)
            except TakenOverError:
                raise
            except BaseException:
                # The next call finds what is left as it was found here; an owner that was pushed out does not return.
                lease.restore_owner(None if take_over else entry.owner)
                raise
            if now is None:
                lease.end(lambda _: None)
                return None
            settled = replace(now, stage=Stage.LAUNCHED, owner=None)
            return lease.end(lambda _: settled)

    def adopt(self, entry: RunEntry) -> RunEntry | None:
        """Add an app to the index if it is missing there, for example a colleague's, with this user's access.

        Returns:
            The app. None: it is neither in the index nor in its backend any more.

        Raises:
            DeployError: The backend cannot be read, or the index cannot be written.
        """
        index = self.context.index
        if not entry.has_stack or index.get(entry) is not None:
            return entry
        if self.context.driver().find(entry.place, known=entry) is None:
            return None
        here = self.context.reachable(entry)
        return index.update(entry, lambda now: now or here)

    def ambient_cluster(self) -> ClusterIdentity | None:
        """Return the identity of the cluster in force. None: no kubeconfig, or no answer."""
        try:
            return self.context.chosen_cluster().identify()
        except ClusterError:
            return None

    def _find_in_cluster(self, app_id: str) -> RunEntry | None:
        """Find an app by its objects in the cluster in force, because its stack is kept elsewhere."""
        namespace, _, name = app_id.partition(":")
        options = self.context.options()
        if not is_app_id(app_id):
            return None
        try:
            cluster = self.context.chosen_cluster()
            for variant in find_backend(self.scheduler).variants.values():
                try:
                    seen = variant.observe(cluster, namespace, name)
                except ClusterError as error:
                    if error.retryable:
                        raise
                    # The cluster does not serve the kind, or the user may not read it.
                    continue
                job_object = seen.job_object or {}
                if is_job_object(job_object) and run_of_object(job_object, variant).launches:
                    return _entry_of_objects(cluster.identity, variant, seen, options)
        except ClusterError as error:
            if self._warned.get(app_id) != str(error):
                self._warned[app_id] = str(error)
                logger.warning("%s is not in the index, and was not searched in the cluster: %s", app_id, error)
        return None

    def find_in_backend(self, app_id: str, still: Still | None) -> RunEntry | None:
        """Return an app of the cluster in force by its stack in a backend that is shared with colleagues.

        Args:
            app_id: `namespace:name`.
            still: As of `Driver.find`.
        """
        namespace, _, name = app_id.partition(":")
        options = self.context.options()
        if not is_app_id(app_id):
            return None
        backend = choose_backend(options.get("pulumi_backend"))
        if backend == own_backend():
            return None
        cluster = self.ambient_cluster()
        if cluster is None:
            return None
        driver, chosen = self.context.driver(), choose_place(options, "")
        for key in cluster.keys:
            place = replace(chosen, stack=stack_name(namespace, name, self.scheduler, key))
            if (entry := driver.find(place, still)) is not None:
                return entry
        if backend_folder(backend) is not None:
            # The launch knew more about the cluster, or another address of it. Listing a folder is fast.
            stem = stack_name(namespace, name, self.scheduler, "")[:-HASH_LENGTH]
            for place in driver.places(backend, chosen.project):
                found = driver.find(place, still) if place.stack.startswith(stem) else None
                if found is None or (found.app_id, found.scheduler) != (app_id, self.scheduler):
                    continue
                # Not an app in another cluster than the one in force.
                if found.match(cluster) is not Match.DIFFERENT:
                    return replace(found, place=replace(found.place, secrets_provider=chosen.secrets_provider))
        return None

    def with_program_stack(self, entry: RunEntry) -> RunEntry:
        """Return the app of a program with its stack, if the backend in force has it."""
        uid = entry.uid
        app = self._of_program(entry.app_id, uid, lambda app: app.uid == uid) if uid else None
        if app is None:
            return entry
        place = app.place
        return replace(entry, place=ProgramStack(backend=place.backend, project=place.project, stack=place.stack))

    def _find_in_programs(self, app_id: str) -> RunEntry | None:
        """Return the app of a program by the program's stack: its objects are gone from the cluster in force."""
        cluster = self.ambient_cluster() if is_app_id(app_id) else None
        if cluster is None:
            return None

        def is_it(app: App) -> bool:
            same = (app.app_id, app.run.variant.scheduler, app.entry) == (app_id, self.scheduler, None)
            # Without a uid, nothing was launched.
            return same and app.uid is not None and app.match(cluster) is not Match.DIFFERENT

        app = self._of_program(app_id, app_id.partition(":")[2], is_it)
        return None if app is None else _entry_of_program(app, cluster.key, self.context.options())

    def _of_program(self, app_id: str, text: str, wanted: Callable[[App], bool]) -> App | None:
        """Return the app that is wanted from the stacks in the backend in force that have a text. None: none has it.

        All stacks are read, unless that takes a process for each: only the engine writes those.
        """

        def find(name: StackName) -> App | None:
            try:
                state = stacks.read(name) or ""
                apps = read_apps(parse_components(state), name.at(backend)) if text in state else ()
                return next((app for app in apps if wanted(app)), None)
            except (DeployError, *DAMAGED) as error:
                logger.debug("stack %s is not searched for app %s: %s", name, app_id, error)
                return None

        backend = choose_backend(self.context.options().get("pulumi_backend"))
        try:
            stacks = open_stacks(backend)
            names = () if stacks.only_cli_writes else list(stacks.versions())
            with ThreadPoolExecutor(stacks.reads_at_once) as pool:
                return next((app for app in pool.map(find, names) if app is not None), None)
        except DeployError as error:
            logger.warning("the stack of app %s was not searched: %s", app_id, error)
            return None

    def _is_there(self, entry: RunEntry) -> bool:
        """Return whether the cluster in force has the object of an entry."""
        try:
            job_object = read_job_object(entry, self.context.chosen_cluster())
        except ClusterError:
            return False
        return entry.uid is not None and App.of(entry).owns(job_object)


def _entry_of_objects(cluster: str, variant: Variant, seen: ObservedObjects, options: Mapping[str, Any]) -> RunEntry:
    """Return the entry of an app that is known by its objects only."""
    job_object = seen.job_object or {}
    metadata, run = job_object["metadata"], run_of_object(job_object, variant)
    own: Mapping[str, str] = metadata.get("labels") or {}
    pods: dict[str, list[str]] = {}
    images: dict[str, str] = {}
    observed = [(pod["metadata"]["name"], pod) for pod in seen.pods or () if owns(run, pod)]
    for pod, template in variant.pod_templates(job_object) or observed:
        role = text_at(template, "metadata", "labels", labels.ROLE_NAME)
        if role:
            container = next(iter(items_at(template, "spec", "containers")), {})
            pods.setdefault(role, []).append(pod)
            images.setdefault(role, str(container.get("image", "")))
    roles = [{"name": role, "image": images[role], "num_replicas": len(names)} for role, names in pods.items()]
    return RunEntry(
        app_id=f"{run.namespace}:{run.job_name}",
        scheduler=variant.scheduler,
        choice=variant.name,
        place=UnknownStack() if own.get(labels.LAUNCHER) == labels.LAUNCHER_VALUE else ProgramStack(),
        cluster=cluster,
        kubeconfig=options.get("kubeconfig"),
        kube_context=options.get("kube_context"),
        session=own.get(labels.SESSION, ""),
        user="",
        name=own.get(labels.KUBE_APP_NAME) or run.job_name,
        queue=(job_object.get("spec") or {}).get("queue"),
        app={"name": run.job_name, "roles": roles, "metadata": {}},
        pods=pods,
        declared={},
        launch=own[labels.LAUNCH],
        run=run.hash or "",
        launched_at=str(metadata.get("creationTimestamp") or ""),
        uid=run.uid,
    )


def _entry_of_program(app: App, cluster: str, options: Mapping[str, Any]) -> RunEntry:
    """Return the entry of an app that is known by the stack of its program only."""
    run = app.run
    return RunEntry(
        app_id=app.app_id,
        scheduler=run.variant.scheduler,
        choice=run.variant.name,
        place=ProgramStack(),
        cluster=cluster,
        cluster_identity=app.cluster,
        kubeconfig=options.get("kubeconfig"),
        kube_context=options.get("kube_context"),
        session="",
        user="",
        name=run.job_name,
        queue=text_at(app.output, "app", "queue"),
        app={"name": run.job_name, "roles": [], "metadata": {}},
        pods={role: list(pods) for role, pods in (run.expected or {}).items()},
        declared=app.declared,
        launch=next(iter(run.launches), ""),
        run=run.hash or "",
        launched_at=app.launched_at or "",
        uid=run.uid,
    )
