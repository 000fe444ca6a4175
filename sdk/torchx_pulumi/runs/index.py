"""The local index: one file per launched app and cluster, and one for its last observation."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchx_pulumi.model.app_entry import RunEntry, read_entry, write_entry
from torchx_pulumi.model.cluster_identity import ClusterIdentity, Match
from torchx_pulumi.model.errors import DeployError, Problem, invalid_job
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.status import Reason
from torchx_pulumi.runs.observation import Noted, read_noted, write_noted
from torchx_pulumi.runs.whereabouts import describe_access
from torchx_pulumi.stack_state.backend import state_folder
from torchx_pulumi.storage.files import file_errors, names_in, path_exists, read_json, remove_file, write_json
from torchx_pulumi.storage.owners import locked

logger = logging.getLogger(__name__)

_APP_ID = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?:[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def is_app_id(text: str) -> bool:
    """Return whether a text has the form of an app id.

    >>> is_app_id("default:train-1"), is_app_id("train-1")
    (True, False)
    """
    return _APP_ID.fullmatch(text) is not None


class RunIndex:
    """The apps that were launched from this machine, in files. Safe for threads and processes."""

    def __init__(self, folder: Path | None = None) -> None:
        """Set the folder. The first call reads or creates files.

        Args:
            folder: Folder of the files. None: `runs` in the user's state folder.
        """
        self._folder = folder or state_folder() / "runs"

    @property
    def folder(self) -> Path:
        """Return the folder of the files."""
        return self._folder

    def add(self, entry: RunEntry) -> None:
        """Add an app.

        Raises:
            DeployError: It exists, or cannot be written.
        """
        with locked(self._folder):
            path = self._path(entry)
            if self._is_there(path):
                raise DeployError(f"app {entry.app_id} is already in the index: {path}")
            write_json(path, write_entry(entry))

    def change(self, entry: RunEntry, change: Callable[[RunEntry], RunEntry]) -> RunEntry | None:
        """Change an entry as it is now, which may be newer than the one in hand. None: it is gone, and stays gone.

        Raises:
            DeployError: It cannot be written. An error of `change` passes, and the entry stays.
        """
        return self.update(entry, lambda now: None if now is None else change(now))

    def update(self, entry: RunEntry, decide: Callable[[RunEntry | None], RunEntry | None]) -> RunEntry | None:
        """Read an entry, decide what it becomes, and write that, while no other process can change it.

        Args:
            entry: Which one.
            decide: Takes the entry as it is now (None: it is gone) and returns the one to be kept (None: none).

        Returns:
            The entry that is kept. None: it was removed.

        Raises:
            DeployError: It cannot be written. An error of `decide` passes, and the entry stays.
        """
        with locked(self._folder):
            before = self._read(self._path(entry))
            now = decide(before)
            if now is None and before is not None:
                remove_file(self._observed_path(before))
                remove_file(self._path(before))
            elif now is not None and now != before:
                write_json(self._path(now), write_entry(now))
            return now

    def get(self, entry: RunEntry) -> RunEntry | None:
        """Return an entry as it is now. None: it is gone."""
        return self._read(self._path(entry))

    def find(
        self, app_id: str, scheduler: str, *, cluster: Callable[[], ClusterIdentity | None] | None = None
    ) -> RunEntry | None:
        """Return an app by its id. None: it was not launched from here.

        Args:
            app_id: `namespace:name`, or `name` if it is in one namespace only.
            scheduler: `volcano` or `mcad`.
            cluster: Returns the cluster in force; called only if several clusters have the id.

        Raises:
            InvalidJobError: Several clusters have the id, and the one in force does not; or several namespaces have it.
            DeployError: The entry cannot be read.
        """
        app_id = self.full_id(app_id, scheduler)
        found = self._named(app_id, scheduler)
        if len(found) < 2:
            return found[0] if found else None
        wanted = cluster() if cluster is not None else None
        meant = None if wanted is None else _in_cluster(found, wanted)
        if meant is not None:
            return meant
        places = "; ".join(describe_access(entry) for entry in found)
        text = (
            f"{app_id!r} was launched in {len(found)} clusters: {places}. Say which is meant with the kubeconfig or "
            "the context in force (KUBECONFIG, `kubectl config use-context`)"
        )
        raise invalid_job(app_id, [Problem("app_id", text)])

    def full_id(self, app_id: str, scheduler: str, *, namespace: str = "default") -> str:
        """Return an app's id; without its namespace, as in TORCHX_JOB_ID of a pod, that of the one app of this name.

        Args:
            app_id: `namespace:name`, or `name`.
            scheduler: `volcano` or `mcad`.
            namespace: Namespace of a name that was not launched from here.

        Raises:
            InvalidJobError: Apps in several namespaces have the name.
        """
        if ":" in app_id:
            return app_id
        files = (name.partition("@")[0] for name in self._names(self._folder / scheduler))
        known = sorted({known for known in files if known.partition(":")[2] == app_id})
        if len(known) > 1:
            text = f"{app_id!r} is in {len(known)} namespaces: {', '.join(known)}; write one of them"
            raise invalid_job(app_id, [Problem("app_id", text)])
        return known[0] if known else f"{namespace}:{app_id}"

    def find_in(self, cluster: ClusterIdentity, app_id: str, scheduler: str) -> RunEntry | None:
        """Return the app of an id that was launched in a cluster. None: no entry belongs to that cluster.

        Raises:
            DeployError: An entry cannot be read.
        """
        return _in_cluster(self._named(app_id, scheduler), cluster)

    def all(self, scheduler: str | None = None, *, problem: Callable[[str], None] = logger.warning) -> list[RunEntry]:
        """Return every app, by id, except those that are removed meanwhile and those with a damaged file.

        Args:
            scheduler: Only of this one. None: of all.
            problem: Takes why an app is left out: its entry is damaged, or of a newer release.

        Raises:
            DeployError: The folder or a file cannot be read.
        """

        def read(path: Path) -> RunEntry | None:
            try:
                return self._read(path)
            except DeployError as error:
                if isinstance(error.__cause__, OSError):
                    raise
                problem(f"an app is left out: {error}")
                return None

        folders = [self._folder / name for name in ([scheduler] if scheduler else self._names(self._folder, ends=""))]
        paths = [folder / name for folder in folders for name in self._names(folder) if "@" in name]
        return [entry for path in paths if (entry := read(path)) is not None]

    def observe(
        self, entry: RunEntry, decide: Callable[[Mapping[str, Any] | None], Mapping[str, Any] | None]
    ) -> Noted | None:
        """Decide from the last observation of an app which one is kept, while no other process can write one.

        Of an app that is not in the index, for example a colleague's, only the end is written. That objects are gone
        is not kept: what was seen before says more.

        Args:
            entry: The app.
            decide: Takes the last observation (None: there is none) and returns the one to keep: the last one itself,
                or another one. None: there is none.

        Returns:
            What was decided. None: nothing.

        Raises:
            DeployError: It cannot be read or written.
        """
        now = self._decided(entry, decide)
        if now is None or now[1]:
            return now and now[0]
        with locked(self._folder):
            now = self._decided(entry, decide)
            is_kept = now is not None and (now[0].state.terminal and entry.has_stack)
            if now is not None and not now[1] and (is_kept or self._is_there(self._path(entry))):
                write_json(self._observed_path(entry), write_noted(now[0]))
            return now and now[0]

    def _decided(
        self, entry: RunEntry, decide: Callable[[Mapping[str, Any] | None], Mapping[str, Any] | None]
    ) -> tuple[Noted, bool] | None:
        """Return the decision about an app, and whether nothing has to be written for it."""
        last = self.noted(entry)
        found = decide(None if last is None else last.observed)
        if found is None:
            return None
        if last is not None and found is last.observed:
            return last, True
        now = Noted(observed=found)
        if last is not None and last.of_end == now.of_end:
            now = replace(now, recorded=last.recorded, recorded_at=last.recorded_at)
        return now, found.get("reason") == Reason.NOT_FOUND.value

    def note_recorded(self, entry: RunEntry, noted: Noted, recorded: str, at: str) -> None:
        """Write the outcome of recording an end in the app's stack.

        Args:
            entry: The app.
            noted: The end, as `observe` returned it.
            recorded: The outcome (`driver.Recorded`).
            at: When it was tried, ISO 8601 in UTC.

        Raises:
            DeployError: It cannot be written.
        """
        with locked(self._folder):
            last = self.noted(entry)
            if last is not None and last.of_end == noted.of_end:
                write_json(
                    self._observed_path(entry),
                    write_noted(replace(last, recorded=recorded, recorded_at=at)),
                )

    def observation(self, entry: RunEntry) -> Mapping[str, Any] | None:
        """Return the last observation of an app, as `noted` does, in the shape of the output `torchx.observed`."""
        noted = self.noted(entry)
        return None if noted is None else noted.observed

    def noted(self, entry: RunEntry) -> Noted | None:
        """Return the last observation of an app. None: it was not observed yet, or the observation is of another run.

        Raises:
            DeployError: It cannot be read.
        """
        path = self._observed_path(entry)
        value = read_json(path)
        if value is None:
            return None
        found = read_noted(value, str(path))
        return None if entry.uid and text_at(found.observed, "uid") not in (None, entry.uid) else found

    def _named(self, app_id: str, scheduler: str) -> list[RunEntry]:
        """Return the apps of an id, one for each cluster."""
        if not is_app_id(app_id):
            return []
        folder = self._folder / scheduler
        paths = [folder / name for name in self._names(folder) if name.startswith(f"{app_id}@")]
        return [entry for path in paths if (entry := self._read(path)) is not None]

    def _path(self, entry: RunEntry) -> Path:
        return self._folder / entry.scheduler / f"{entry.app_id}@{entry.cluster}.json"

    def _observed_path(self, entry: RunEntry) -> Path:
        return self._folder / "observed" / entry.scheduler / f"{entry.app_id}@{entry.cluster}.json"

    def _names(self, folder: Path, *, ends: str = ".json") -> list[str]:
        """Return the names in a folder with an ending. Empty: the folder is absent."""
        with file_errors(folder, "read"):
            return [name for name in names_in(folder) if name.endswith(ends) and not name.startswith(".")]

    def _is_there(self, path: Path) -> bool:
        with file_errors(path, "read"):
            return path_exists(path)

    def _read(self, path: Path) -> RunEntry | None:
        value: Mapping[str, Any] | None = read_json(path)
        return None if value is None else read_entry(value, str(path))


def _in_cluster(entries: list[RunEntry], cluster: ClusterIdentity) -> RunEntry | None:
    here = [entry for entry in entries if entry.match(cluster) is Match.SAME]
    # An app that was launched again since the uid of the cluster can be read has the preferred key.
    return next((entry for entry in here if entry.cluster == cluster.key), here[0] if here else None)
