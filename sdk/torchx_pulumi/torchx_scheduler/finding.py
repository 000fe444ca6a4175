"""Which app an id means: of the index, of a stack that a colleague made, or none. And who works on it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torchx_pulumi.errors import ClusterError, DeployError
from torchx_pulumi.redaction import is_redacted
from torchx_pulumi.runs.entry import Place, RunEntry, Stage
from torchx_pulumi.runs.index import entry_key, is_app_id
from torchx_pulumi.runs.owner import is_working
from torchx_pulumi.runs.place import DEFAULT_PROJECT, choose_backend, own_backend, stack_name
from torchx_pulumi.torchx_scheduler.doors import Doors
from torchx_pulumi.torchx_scheduler.looking import form_named, is_ours
from torchx_pulumi.torchx_scheduler.unindexed import NOWHERE, find_in_cluster

logger = logging.getLogger(__name__)

BUSY_WAIT_S = 120.0
"""Longest wait for another process or thread that works on the same app."""

POLL_S = 0.2
"""Time between two looks at who works on an app."""

Tell = Callable[[str], None]


def is_shared(entry: RunEntry) -> bool:
    """Return whether others may change the stack of an app: it is kept elsewhere than in this user's own folder."""
    return entry.place.backend not in (NOWHERE.backend, own_backend())


@dataclass(slots=True, kw_only=True)
class Finder:
    """Finds the apps of one scheduler."""

    doors: Doors
    scheduler: str
    """`volcano` or `mcad`."""
    ambient: Callable[[], Mapping[str, Any]]
    """Run options that hold where a call has none: those of `.torchxconfig`."""

    def find(self, app_id: str, *, to_change: bool = False) -> RunEntry | None:
        """Return an app; that a launch or deletion of it was interrupted is still in it.

        Args:
            app_id: `namespace:name`.
            to_change: The app is about to be changed: nothing that was remembered of its stack is used.

        Raises:
            InvalidJobError: The id is of several clusters.
            DeployError: Its entry or its backend cannot be read.
        """
        found = self.doors.index.find(app_id, self.scheduler, cluster=self.ambient_cluster)
        if found is not None and is_redacted(found.place.backend):
            # The index has no credentials: the option pulumi_backend may.
            choose_backend(self.ambient().get("pulumi_backend"))
        return found or self._of_colleague(app_id, to_change=to_change) or self._of_cluster(app_id)

    def settled(self, app_id: str, tell: Tell) -> RunEntry | None:
        """Return an app that nobody works on: waits for who does, and puts right what an interrupted one left.

        Raises:
            DeployError: Another process works on it for too long.
            ClusterError: What was interrupted cannot be put right without the cluster.
        """
        until = time.monotonic() + BUSY_WAIT_S
        entry = self.find(app_id, to_change=True)
        while entry is not None and entry.stage is not Stage.LAUNCHED:
            if not is_working(entry.owner, entry_key(entry)):
                return self.recover(entry, tell)
            if time.monotonic() > until:
                owner = entry.owner
                who = f"process {owner.pid} on {owner.host}" if owner is not None else "another process"
                raise DeployError(
                    f"app {app_id} is {entry.stage.value} by {who}, which has not finished in {BUSY_WAIT_S:.0f} s; "
                    "wait for it, or end it",
                    retryable=True,
                )
            time.sleep(POLL_S)
            entry = self.find(app_id, to_change=True)
        return entry

    def again(self, entry: RunEntry) -> RunEntry | None:
        """Read an app again from its stack, because its object is gone or is another one than is known here.

        A colleague may have launched it again, or deleted it. What is found is noted in the index, if the app is in it.

        Returns:
            The app as its stack has it. None: its stack is gone, and the app with it.

        Raises:
            DeployError: The backend cannot be read.
        """
        if entry.place == NOWHERE or entry.stage is not Stage.LAUNCHED:
            return entry
        now = self.doors.driver().find(entry.place)
        if now is None:
            self.doors.index.remove(entry)
            return None
        if now.uid in (None, entry.uid):
            return entry
        if self.doors.index.get(entry) is not None:
            self.doors.index.put(now)
        return now

    def recover(self, entry: RunEntry, tell: Tell) -> RunEntry | None:
        """Put right what an interrupted launch or deletion left.

        Raises:
            ClusterError: The truth cannot be found without the cluster.
            DeployError: Another process works on it.
        """
        tell(f"{entry.app_id}: {entry.stage.value} was interrupted; putting it right")
        now = self.doors.driver().recover(entry, tell)
        if now is None:
            self.doors.index.remove(entry)
            return None
        settled = replace(now, stage=Stage.LAUNCHED, owner=None)
        self.doors.index.put(settled)
        return settled

    def adopt(self, entry: RunEntry) -> RunEntry:
        """Take an app that is not in the index into it, as a colleague's that is worked on from here."""
        if entry.place != NOWHERE and self.doors.index.get(entry) is None:
            self.doors.index.put(entry)
        return entry

    def ambient_cluster(self) -> str | None:
        """Return the digest of the cluster in force. None: there is none."""
        options = self.ambient()
        try:
            return self.doors.cluster(options.get("kubeconfig"), options.get("kube_context")).identity
        except ClusterError:
            return None

    def _of_cluster(self, app_id: str) -> RunEntry | None:
        """Find an app whose stack is kept elsewhere by its objects in the cluster in force."""
        if not is_app_id(app_id):
            return None
        options = self.ambient()
        kubeconfig, context = options.get("kubeconfig"), options.get("kube_context")
        try:
            entry = find_in_cluster(self.doors.cluster(kubeconfig, context), self.scheduler, app_id)
        except ClusterError as error:
            logger.warning("%s is not in the index, and was not looked for in the cluster: %s", app_id, error)
            return None
        return None if entry is None else replace(entry, kubeconfig=kubeconfig, kube_context=context)

    def _of_colleague(self, app_id: str, *, to_change: bool) -> RunEntry | None:
        namespace, _, name = app_id.partition(":")
        options = self.ambient()
        if not is_app_id(app_id):
            return None
        backend = choose_backend(options.get("pulumi_backend"))
        if backend == own_backend():
            return None
        cluster = self.ambient_cluster()
        if cluster is None:
            return None
        place = Place(
            backend=backend,
            project=options.get("pulumi_project") or DEFAULT_PROJECT,
            stack=stack_name(namespace, name, self.scheduler, cluster),
            secrets_provider=options.get("secrets_provider"),
        )
        return self.doors.driver().find(place, None if to_change else self._is_there)

    def _is_there(self, entry: RunEntry) -> bool:
        """Return whether the cluster in force has the object that an entry tells of."""
        options, form = self.ambient(), form_named(entry.scheduler, entry.choice)
        try:
            cluster = self.doors.cluster(options.get("kubeconfig"), options.get("kube_context"))
            head = cluster.get(form.head, entry.namespace, entry.job_name)
        except ClusterError:
            return False
        return head is not None and entry.uid is not None and is_ours(entry, head)
