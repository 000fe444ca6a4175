"""The log of a replica's pod in a watched cluster, which ends when its reader does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from torchx_pulumi.apps.app import App
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.logs.query import LogQuery, chosen_containers, containers_of
from torchx_pulumi.logs.reading import read_source
from torchx_pulumi.logs.replica_log import ReplicaLog
from torchx_pulumi.logs.sources import PodSource
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.status import Reason
from torchx_pulumi.model.timestamps import SECOND_NS, to_nanoseconds
from torchx_pulumi.planning.names import label_value
from torchx_pulumi.schedulers.pods.observe import has_secrets
from torchx_pulumi.schedulers.replicas import replica_of

from torchx_pulumi_fleet.archive.archive_rules import ArchiveRules
from torchx_pulumi_fleet.tracker.live_fleet import LiveApp
from torchx_pulumi_fleet.tracker.observing import ClusterView

LAST_S = 60.0
"""Seconds for which a container that still runs is followed after its run is over."""


def pods_of_run(view: ClusterView, app: App) -> list[Manifest]:
    """Return the pods of the present run of an app, without those of an earlier job object of the name.

    Raises:
        ClusterError: The cluster does not answer, or pods are not watched and cannot be listed.
    """
    view.check_there()
    pods = view.watched.list(POD, app.run.namespace, app.run.pod_selector)
    return [pod for pod in pods if app.owns(pod)]


@dataclass(slots=True)
class AppEnd:
    """Tells when the run of an app is over, by what the controller knows; no request is made."""

    app: LiveApp
    view: ClusterView | None
    """Its cluster. None: the controller does not watch it."""
    find: Callable[[str], LiveApp | None]
    """Returns an app by its id as it is now. None: its stack is gone."""
    now: Callable[[], datetime]
    _uid: str | None = None
    _was_there: bool = False
    """The job object was seen."""

    def why(self) -> str:
        """Return how the run ended, in words. Empty: it is not over."""
        found = self.find(self.app.id)
        if found is None:
            return "its stack is gone"
        self._uid = self._uid or self.app.app.uid or found.app.uid
        if found.app.uid != self._uid:
            return "it was launched again"
        row = found.row(self.now())
        if row.state.terminal or row.reason == Reason.NOT_FOUND.value:
            return f"it is {row.state.value} ({row.reason})"
        view = self.view
        if view is None or not view.is_synced(found.app):
            return ""
        there = view.job_object(found.app) is not None
        gone = self._was_there and not there
        self._was_there = self._was_there or there
        return "its objects are gone" if gone else ""

    def state(self) -> str:
        """Return the state of the app in words, for who waits for its pods."""
        found = self.find(self.app.id) or self.app
        row = found.row(self.now())
        return f"{row.state.value} ({row.reason}){f': {row.message}' if row.message else ''}"


@dataclass(kw_only=True)
class PodLog(ReplicaLog):
    """The log of a replica whose app a controller tracks."""

    end: AppEnd
    """The app, and when its run is over."""
    rules: ArchiveRules
    """Whether logs of pods with Secrets may be read: if the launch chose an archive, or for everybody."""
    _over_since: float | None = None

    def pod(self, query: LogQuery) -> Manifest | None:  # noqa: ARG002 - the replica decides
        """Return the newest pod of the replica, if its log may be shown."""
        view, app, kept = self._view_there(), self.end.app.app, self.kept
        roles = (kept.role, label_value(kept.role))
        mine = [
            pod for pod in pods_of_run(view, app) if (place := replica_of(pod))[0] in roles and place[1] == kept.replica
        ]
        pod = max(mine, key=lambda one: text_at(one, "metadata", "creationTimestamp") or "", default=None)
        if pod is None or not has_secrets(pod) or self.rules.secret_pods:
            return pod
        if self.rules.of_launch(app, view.seen_job_object(app)) is None:
            raise ClusterError(
                f"the log of {kept.name} of app {app.app_id} is not shown: its pods have secrets, and the launch "
                "named no log_archive that this controller allows; a controller with --archive-secret-pods shows such "
                "logs to everybody who may open its page",
                reason="Forbidden",
            )
        return pod

    def began_since(self, query: LogQuery) -> bool:
        """Return whether the present run of the replica's container began after `query.since`, and not as the first.

        Raises:
            ClusterError: As `pod`.
        """
        pod = self.pod(query)
        if pod is None or query.since is None:
            return False
        container = chosen_containers(containers_of(pod), query)[0]
        present = next((run for run in container.runs if run.identity == container.current), None)
        if present is None or present.started_at is None:
            return False
        # The node cuts the start to seconds.
        is_later = to_nanoseconds(present.started_at) + SECOND_NS > to_nanoseconds(query.since)
        # An earlier pod of the replica has a log in an archive only.
        return is_later and (container.previous is not None or bool(self.kept.archives))

    def lines(self, query: LogQuery) -> Iterator[str]:
        """Return the lines of the newest pod."""
        kept, view, pod = self.kept, self._view_there(), self.pod(query)
        if pod is None:
            raise ClusterError(f"replica {kept.name} of app {kept.app_id} has no pod", reason="NotFound")
        name = str(text_at(pod, "metadata", "name"))
        query = replace(query, pod=name)
        container = chosen_containers(containers_of(pod), query)[0].name
        source = PodSource(
            view.watched,
            query,
            ended=lambda: self._is_over(view, name, container),
            clock=self.clock,
            instead=partial(kept.of_pod, name),
        )
        lines = read_source(source, query, clock=self.clock, stop=self.stop)
        kept.say(f"the log of {kept.name} is read from pod {name}, container {container}")
        return lines

    def _view_there(self) -> ClusterView:
        if self.end.view is None:
            text = f"the cluster of app {self.kept.app_id} is not one that this controller watches, or is not known"
            raise ClusterError(text, reason="NotFound")
        return self.end.view

    def _is_over(self, view: ClusterView, pod: str, container: str) -> bool:
        """Return whether the run is over and its container has ended; it may write while its pod is being deleted."""
        if not self.end.why():
            return False
        now = self.clock.monotonic()
        self._over_since = now if self._over_since is None else self._over_since
        found = view.watched.get(POD, self.end.app.app.run.namespace, pod)
        running = found is not None and any(item.running for item in containers_of(found) if item.name == container)
        return not running or now - self._over_since > LAST_S
