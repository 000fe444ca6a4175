"""Logs of apps: from the pods, else from the archives that may have them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from torchx_pulumi.log_archive import Archive, ArchivedJob, open_archive
from torchx_pulumi.log_archive.replica_log import (
    ArchivedReplica,
    archived_job,
    archived_replicas,
)
from torchx_pulumi.model.app_entry import RunEntry
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.torchx_adapter.context import AdapterContext
from torchx_pulumi.torchx_adapter.log_iter import read_log
from torchx_pulumi.torchx_adapter.lookup import AppLookup
from torchx_pulumi.torchx_adapter.observe import observe_app
from torchx_pulumi.torchx_adapter.polling import SharedObservations

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class AppLogs:
    """Reads the logs of the apps of one scheduler."""

    context: AdapterContext
    scheduler: str
    """`volcano` or `mcad`."""
    lookup: AppLookup
    observations: SharedObservations
    ambient: Callable[[], Mapping[str, Any]]
    """Run options that hold where a call has none: those of `.torchxconfig`."""
    reread: Callable[[RunEntry], RunEntry]
    """Returns an app as it is after it was launched again."""

    def read(
        self,
        app_id: str,
        role: str,
        replica: int,
        *,
        options: Mapping[str, Any],
        run: str | None = None,
        **query: Any,
    ) -> Iterator[str]:
        """Return the lines of a replica's log.

        Args:
            app_id: `namespace:name`.
            role: Name of the role.
            replica: Replica in the role, from 0.
            options: Options of reading, before those of the launch; `log_archive` names the archive to ask first.
            run: Beginning of the uid of an archived run. None: the present one, or the last one of a deleted app.
            query: The other arguments of `log_iter.read_log`.

        Raises:
            InvalidJobError: The app does not exist, and no archive has it.
            ClusterError: The log cannot be read.
        """
        ambient = {key: value for key, value in self.ambient().items() if key.startswith("log_")}
        entry = self.lookup.find(app_id)
        archives = _archives(entry, ambient, options)
        chosen = {**(entry.log_options if entry is not None else {}), **ambient, **options}
        kept = ArchivedReplica(
            archives=archives,
            job=self._job(app_id, entry, archives, run),
            role=role,
            replica=replica,
            say=query.get("progress") or logger.warning,
        )
        observation = None if entry is None or run is not None else self.observations.of(entry)
        return read_log(self.context, entry, kept, options=chosen, observation=observation, **query)

    def replicas(
        self,
        app_id: str,
        role: str | None = None,
        replica: int | None = None,
        *,
        options: Mapping[str, Any] = MappingProxyType({}),
        run: str | None = None,
    ) -> Sequence[tuple[str, int]]:
        """Return role and number of the selected replicas; without a role, of all roles. Arguments as of `read`.

        Raises:
            InvalidJobError: The app does not exist, and no archive has it.
        """
        entry = self.lookup.find(app_id)
        if entry is None or run is not None:
            archives = _archives(entry, self.ambient(), options)
            there = archived_replicas(archives, self._job(app_id, entry, archives, run))
        else:
            try:
                entry = self.reread(entry) if observe_app(self.context, entry).relaunched else entry
            except ClusterError as error:
                logger.warning("whether app %s was launched again is unknown: %s", app_id, error)
            there = [(name, index) for name, pods in entry.pods.items() for index in range(len(pods))]
        if role is not None and (replica is not None or role not in {name for name, _ in there}):
            return [(role, replica or 0)]
        return [(name, index) for name, index in there if role in (None, name)]

    def _job(self, app_id: str, entry: RunEntry | None, archives: Sequence[Archive], run: str | None) -> ArchivedJob:
        if entry is not None and run is None:
            return ArchivedJob(app_id=app_id, scheduler=self.scheduler, uid=entry.uid or "")
        job = archived_job(archives, self.scheduler, app_id, run)
        if job is None:
            raise self.lookup.not_found(app_id, archives=[archive.name for archive in archives])
        return job


def _archives(entry: RunEntry | None, ambient: Mapping[str, Any], options: Mapping[str, Any]) -> list[Archive]:
    launched = None if entry is None else entry.log_archive
    urls = (options.get("log_archive"), launched, ambient.get("log_archive"))
    return [open_archive(url) for url in dict.fromkeys(urls) if url]
