"""The stacks of any backend: listed and read as files, as objects, or through the Pulumi CLI.

A folder and an object store are read directly, without a process. The CLI answers for Pulumi services and databases,
for object stores without the fsspec package, and wherever direct access finds nothing or fails: an unreadable stack is
never reported as absent.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from torchx_pulumi.model.app_entry import ORGANIZATION, RunEntry, StackRef
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.registration_plan import APP_SUFFIX
from torchx_pulumi.stack_state.backend import backend_folder, backend_url, know_backend, open_store
from torchx_pulumi.stack_state.checkpoint import (
    DAMAGED,
    Checkpoint,
    UnreadableStateError,
    decode_checkpoint,
    parse_checkpoint,
)
from torchx_pulumi.stack_state.cli import NO_STACK, check_organization, choose_organization, last_lines, query
from torchx_pulumi.stack_state.folder_stack import FolderStack, backend_error, check_there
from torchx_pulumi.stack_state.stack_locks import LOCKS
from torchx_pulumi.storage.stores import READ_TIMEOUT_S, FolderStore, Store, is_object_store

logger = logging.getLogger(__name__)

STACKS = ".pulumi/stacks"
SUFFIXES = (".json", ".json.gz")
"""Suffixes of the checkpoint files that are read directly."""

CLI_SUFFIX = ".json.zst"
"""Suffix of the checkpoint files that only the CLI reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackName:
    """One stack of a backend."""

    project: str
    """Empty: the backend has Pulumi's old layout, without projects."""
    stack: str
    """Name of the stack; `organization/name` for a stack in another organization of a Pulumi service."""

    def __str__(self) -> str:
        return f"{self.project}/{self.stack}" if self.project else self.stack


class ListedStacks(Protocol):
    """What is needed to follow the stacks of a backend."""

    @property
    def reads_at_once(self) -> int:
        """Return how many threads may read at the same time."""

    def versions(self, project: str | None = None) -> Mapping[StackName, str]:
        """Return each stack with the version of its checkpoint; see `StoredStacks.versions`."""

    def export(self, ref: StackRef) -> str | None:
        """Return the checkpoint of a stack. None: it does not exist."""

    def updating(self) -> frozenset[StackName]:
        """Return the stacks with a lock."""


class CliStacks:
    """The stacks of a backend that only the Pulumi CLI can read: one process for each stack.

    Methods raise DeployError also if the CLI is not on PATH.
    """

    reads_at_once = 4
    """A `pulumi` process takes about 100 MB."""

    def __init__(self, backend: str, organization: str | None = None, notice: str | None = None) -> None:
        """Name the backend.

        Args:
            backend: Its URL, without credentials (`choose_backend`).
            organization: Organization of a Pulumi service. None: all that this user may see.
            notice: Why the CLI is used where direct access is possible. None: it is not possible.
        """
        self.notice = notice
        self._backend = backend
        self._organization = organization

    def names(self, project: str | None) -> list[StackName]:
        """Return the stacks of a project; see `StoredStacks.names`."""
        words = ["stack", "ls", "--json", *(["--project", project] if project else ["--all"])]
        if self._organization is not None:
            words += ["--organization", self._organization]
        done = query(self._backend, words, project=project or "")
        if done.returncode:
            raise self._error(words, done.stderr)
        try:
            listed = json.loads(done.stdout or "[]")
        except ValueError as error:
            raise DeployError(
                f"the Pulumi backend {self._backend}: pulumi stack ls printed no JSON: {error}"
            ) from error
        names = (_listed_name(str(item.get("name", "")), project) for item in listed if isinstance(item, dict))
        return sorted(names, key=str)

    def versions(self, project: str | None = None) -> Mapping[StackName, str]:
        """Return the stacks of a project with empty versions: the CLI does not tell whether a stack has changed."""
        return dict.fromkeys(self.names(project), "")

    def read(self, name: StackName) -> str:
        """Export a stack, whose secrets stay encrypted; see `StoredStacks.read`."""
        full = name.stack
        if name.project:
            owner, slash, stack = name.stack.rpartition("/")
            owner = owner if slash else self._organization or choose_organization(self._backend)
            full = f"{owner}/{name.project}/{stack}"
        done = query(self._backend, ["stack", "export", "--stack", full])
        if done.returncode:
            raise UnreadableStateError(f"pulumi stack export says: {last_lines(done.stderr)}")
        return done.stdout

    def export(self, ref: StackRef) -> str | None:
        """Export the stack of an app. None: it does not exist; see `StoredStacks.export`."""
        words = ["stack", "export", "--stack", ref.cli_name]
        done = query(self._backend, words, project=ref.project)
        if done.returncode == 0:
            return done.stdout
        if NO_STACK.search(done.stderr):
            return None
        raise self._error(words, done.stderr)

    def updating(self) -> frozenset[StackName]:
        """Return an empty set: the CLI does not list locks."""
        return frozenset()

    def _error(self, words: list[str], stderr: str) -> DeployError:
        return DeployError(
            f"the Pulumi backend {self._backend} cannot be read: pulumi {' '.join(words)} says: {last_lines(stderr)}; "
            "check the backend (option pulumi_backend, PULUMI_BACKEND_URL) and its credentials"
        )


class StoredStacks:
    """The stacks of a backend in a folder or an object store, read without a process."""

    def __init__(self, backend: str, store: Store, cli: CliStacks | None = None) -> None:
        """Take a store.

        Args:
            backend: URL of the backend, without credentials.
            store: Its files.
            cli: Answers where the store finds nothing or fails, and reads `.zst` files. None: errors are raised.
        """
        self.notice: str | None = None
        self._backend = backend
        self._store = store
        self._cli = cli

    @property
    def reads_at_once(self) -> int:
        """Return how many threads may read at the same time."""
        return self._store.reads_at_once

    def names(self, project: str | None) -> list[StackName]:
        """Return the stacks of a project, sorted. None: of all projects.

        Raises:
            DeployError: The backend cannot be read.
        """
        return list(self.versions(project))

    def versions(self, project: str | None = None) -> Mapping[StackName, str]:
        """Return the stacks of a project, sorted, each with the version of its checkpoint, by one listing.

        A checkpoint whose version is not empty and equal to that of an earlier listing is as it was at that time, so a
        reader that lists first and then reads needs to read again only what has another version.

        Args:
            project: Name of the project. None: all projects.

        Returns:
            Stack to an opaque version. An empty version is not known: the checkpoint has to be read.

        Raises:
            DeployError: The backend cannot be read.
        """
        files: dict[StackName, list[str]] = {}
        for path, version in self._listing(STACKS if project is None else f"{STACKS}/{project}").items():
            place, _, file = path.rpartition("/")
            if project is not None:
                place = f"{project}/{place}".rstrip("/")
            suffix = next((end for end in (*SUFFIXES, CLI_SUFFIX) if file.endswith(end)), None)
            if suffix is None or "/" in place or (suffix == CLI_SUFFIX and self._cli is None):
                continue
            name = StackName(project=place, stack=file.removesuffix(suffix))
            files.setdefault(name, []).append(version and f"{version}{suffix}")
        if not files and self._cli is not None:
            # A bucket or prefix that is misread here looks empty.
            return self._cli.versions(project)
        # While Pulumi changes the compression, a stack can have two files.
        return {name: ",".join(sorted(files[name])) if all(files[name]) else "" for name in sorted(files, key=str)}

    def read(self, name: StackName) -> str:
        """Return the checkpoint of a stack.

        Raises:
            UnreadableStateError: It cannot be read.
        """
        try:
            text = self._text(name)
        except OSError as error:
            raise UnreadableStateError(f"its checkpoint cannot be read: {error}") from error
        if text is not None:
            return text
        if self._cli is not None:
            return self._cli.read(name)
        raise UnreadableStateError("its checkpoint no longer exists; it was removed a moment ago")

    def export(self, ref: StackRef) -> str | None:
        """Return the checkpoint of an app's stack. None: it does not exist.

        Raises:
            UnreadableStateError: The content is not text.
            DeployError: The backend cannot be read.
        """
        try:
            text = self._text(StackName(project=ref.project, stack=ref.stack))
        except OSError as error:
            raise backend_error(self._backend, error) from error
        return text if text is not None or self._cli is None else self._cli.export(ref)

    def updating(self) -> frozenset[StackName]:
        """Return the stacks with a lock.

        Raises:
            DeployError: The locks cannot be read.
        """
        places = [path.split("/") for path in self._listing(LOCKS) if path.endswith(".json")]
        return frozenset(StackName(project="/".join(parts[:-2]), stack=parts[-2]) for parts in places if len(parts) > 1)

    def _listing(self, folder: str) -> Mapping[str, str]:
        """Return path and version of all files below a folder."""
        try:
            return self._store.versions(folder)
        except OSError as error:
            if self._cli is None:
                raise backend_error(self._backend, error) from error
            self.notice = _notice(self._backend, str(error))
            return {}

    def _text(self, name: StackName) -> str | None:
        """Return the text of a checkpoint file. None: it does not exist, or the CLI has to read it."""
        try:
            for suffix in SUFFIXES:
                data = self._store.read_bytes(f"{STACKS}/{name}{suffix}")
                if data is not None:
                    return decode_checkpoint(data, suffix)
        except OSError as error:
            if self._cli is None:
                raise
            logger.debug("stack %s of %s is read through the Pulumi CLI: %s", name, self._backend, error)
        return None


Stacks = StoredStacks | CliStacks


def open_stacks(backend: str, organization: str | None = None) -> Stacks:
    """Return the stacks of a backend.

    Args:
        backend: Its URL, without credentials (`choose_backend`).
        organization: Organization of a Pulumi service. None: all that this user may see.

    Raises:
        InvalidJobError: The backend has no organizations.
    """
    check_organization(backend, organization, "fleet")
    folder = backend_folder(backend)
    if folder is not None:
        return StoredStacks(backend, FolderStore(folder))
    backend = know_backend(backend)
    cli = CliStacks(backend, organization)
    if not is_object_store(backend):
        return cli
    try:
        store = open_store(backend_url(backend), READ_TIMEOUT_S)
        reason = "the package for it is not installed; install `torchx-pulumi[s3]`, gcsfs or adlfs"
    except OSError as error:
        store, reason = None, str(error)
    if store is None:
        return CliStacks(backend, notice=_notice(backend, reason))
    # Where there is no CLI, as in a controller's container, an empty listing is an empty backend.
    return StoredStacks(backend, store, cli if shutil.which("pulumi") else None)


def read_checkpoint(ref: StackRef) -> Checkpoint | None:
    """Return the state of an app's stack. None: the stack does not exist.

    Raises:
        BackendAbsentError: The folder of the backend holds no backend.
        DeployError: The backend or the state cannot be read.
    """
    folder = backend_folder(ref.backend)
    if folder is not None:
        return FolderStack(folder, ref).read()
    try:
        text = open_stacks(ref.backend).export(ref)
        return None if text is None else parse_checkpoint(text)
    except UnreadableStateError as error:
        raise DeployError(f"stack {ref.project}/{ref.stack} in {know_backend(ref.backend)}: {error}") from error


def list_stacks(backend: str, project: str) -> list[StackRef]:
    """Return the stacks of a project in a backend.

    Raises:
        BackendAbsentError: The folder of the backend holds no backend.
        DeployError: The backend cannot be read.
    """
    names, folder = open_stacks(backend).names(project), backend_folder(backend)
    if not names and folder is not None:
        check_there(folder, backend)
    refs = []
    for name in names:
        owner, _, stack = name.stack.rpartition("/")
        refs.append(StackRef(backend=backend, project=project, stack=stack, organization=owner or ORGANIZATION))
    return refs


def find_renamed(root: Path, entry: RunEntry) -> StackRef | None:
    """Return where the stack of an app is after `pulumi stack rename`. None: it is not in this folder.

    Every stack of a project in the folder is read; unreadable ones are skipped.

    Raises:
        DeployError: The folder cannot be read.
    """
    stacks = StoredStacks(entry.place.backend, FolderStore(root))
    for name in stacks.names(None):
        if not name.project:
            continue
        try:
            text = stacks.read(name)
            note = (parse_checkpoint(text).stash(APP_SUFFIX) or {}) if entry.launch in text else {}
            if (note.get("app_id"), note.get("launch")) == (entry.app_id, entry.launch):
                return replace(entry.place, project=name.project, stack=name.stack)
        except DAMAGED:
            continue
    return None


def _listed_name(listed: str, project: str | None) -> StackName:
    """Split a name that `pulumi stack ls` prints: `stack`, `project/stack`, or `organization/project/stack`."""
    parts = listed.split("/")
    if len(parts) == 1:
        return StackName(project=project or "", stack=listed)
    if len(parts) == 2:
        # With a project, the first part is the organization; or it is that project, in the default organization.
        is_organization = project is not None and parts[0] != project
        return StackName(project=project or parts[0], stack=listed if is_organization else parts[1])
    owner, found, stack = parts[0], parts[1], "/".join(parts[2:])
    return StackName(project=found, stack=stack if owner == ORGANIZATION else f"{owner}/{stack}")


def _notice(backend: str, reason: str) -> str:
    return f"backend {backend} is read through the Pulumi CLI, one process for each stack: {reason}"
