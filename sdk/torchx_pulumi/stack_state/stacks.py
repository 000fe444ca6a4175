"""The stacks of any backend: listed and read as files, as objects, or through the Pulumi CLI.

A folder and an object store are read directly, without a process. The CLI answers for Pulumi services and databases,
for object stores without the fsspec package, and wherever direct access finds nothing or fails: an unreadable stack is
never reported as absent.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from torchx_pulumi.apps.answer import Answer
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
    read_app,
)
from torchx_pulumi.stack_state.cli import NO_STACK, check_organization, last_lines, query
from torchx_pulumi.stack_state.folder_stack import SUFFIXES, backend_error, check_there
from torchx_pulumi.stack_state.stack_locks import LOCKS
from torchx_pulumi.storage.stores import READ_TIMEOUT_S, FolderStore, Store, is_object_store

logger = logging.getLogger(__name__)

STACKS = ".pulumi/stacks"

CLI_SUFFIX = ".json.zst"
"""Suffix of the checkpoint files that only the CLI reads."""

PAUSE_S = 30.0
"""A backend that could not be read is read again after so long: a list of apps would wait for it once for each app."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackName:
    """One stack of a backend."""

    project: str
    """Empty: the backend has Pulumi's old layout, without projects."""
    stack: str
    """Name of the stack; `organization/name` for a stack in another organization of a Pulumi service."""

    def __str__(self) -> str:
        return f"{self.project}/{self.stack}" if self.project else self.stack

    @classmethod
    def of(cls, ref: StackRef) -> StackName:
        """Return the name of a stack in its backend."""
        owner = "" if ref.organization == ORGANIZATION else f"{ref.organization}/"
        return cls(project=ref.project, stack=f"{owner}{ref.stack}")

    def at(self, backend: str) -> StackRef:
        """Return the stack of this name in a backend."""
        owner, _, stack = self.stack.rpartition("/")
        return StackRef(backend=backend, project=self.project, stack=stack, organization=owner or ORGANIZATION)


class ListedStacks(Protocol):
    """The stacks of a backend: StoredStacks and CliStacks."""

    @property
    def reads_at_once(self) -> int:
        """Return how many threads may read at the same time."""

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

    def read(self, name: StackName) -> str | None:
        """Return the checkpoint of a stack, whose secrets stay encrypted. None: it does not exist.

        Raises:
            UnreadableStateError: The content is not text.
            DeployError: The backend cannot be read.
        """

    def updating(self) -> frozenset[StackName]:
        """Return the stacks with a lock. Empty: none, or the CLI reads the backend, which does not list locks.

        Raises:
            DeployError: The locks cannot be read.
        """


class CliStacks:
    """The stacks of a backend that only the Pulumi CLI can read: one process for each stack, and no versions.

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

    def versions(self, project: str | None = None) -> Mapping[StackName, str]:
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
        return dict.fromkeys(sorted(names, key=str), "")

    def read(self, name: StackName) -> str | None:
        place = name.at(self._backend)
        # Without a name, the CLI takes the default organization.
        if place.organization == ORGANIZATION and self._organization is not None:
            place = replace(place, organization=self._organization)
        words = ["stack", "export", "--stack", place.cli_name]
        done = query(self._backend, words, project=name.project)
        if done.returncode == 0:
            return done.stdout
        if NO_STACK.search(done.stderr):
            return None
        raise self._error(words, done.stderr)

    def updating(self) -> frozenset[StackName]:
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
        self.reads_at_once = store.reads_at_once
        self._backend = backend
        self._store = store
        self._cli = cli

    def versions(self, project: str | None = None) -> Mapping[StackName, str]:
        suffixes = SUFFIXES if self._cli is None else (*SUFFIXES, CLI_SUFFIX)
        start = "" if project is None else f"{project}/"
        files: dict[StackName, list[str]] = {}
        for path, version in self._listing(f"{STACKS}/{start}".rstrip("/")).items():
            place, _, file = f"{start}{path}".rpartition("/")
            suffix = next((end for end in suffixes if file.endswith(end)), None)
            if suffix is not None and "/" not in place:
                name = StackName(project=place, stack=file.removesuffix(suffix))
                files.setdefault(name, []).append(version and f"{version}{suffix}")
        if not files and self._cli is not None:
            # A bucket or prefix that is misread here looks empty.
            return self._cli.versions(project)
        # While Pulumi changes the compression, a stack can have two files.
        return {name: ",".join(sorted(files[name])) if all(files[name]) else "" for name in sorted(files, key=str)}

    def read(self, name: StackName) -> str | None:
        try:
            for suffix in SUFFIXES:
                data = self._store.read_bytes(f"{STACKS}/{name}{suffix}")
                if data is not None:
                    return decode_checkpoint(data, suffix)
        except OSError as error:
            if self._cli is None:
                raise backend_error(self._backend, error) from error
            logger.debug("stack %s of %s is read through the Pulumi CLI: %s", name, self._backend, error)
        return None if self._cli is None else self._cli.read(name)

    def updating(self) -> frozenset[StackName]:
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
    """Return the state of an app's stack; in a folder, the state before one that was cut off. None: no such stack.

    Raises:
        BackendAbsentError: The folder of the backend holds no backend.
        DeployError: The backend or the state cannot be read.
    """
    name, folder = StackName.of(ref), backend_folder(ref.backend)
    try:
        text = open_stacks(ref.backend).read(name)
        if text is not None:
            return parse_checkpoint(text)
    except UnreadableStateError as error:
        if folder is None:
            raise DeployError(f"stack {name} in {know_backend(ref.backend)}: {error}") from error
        for suffix in SUFFIXES:
            with contextlib.suppress(OSError, UnreadableStateError):
                data = (folder / f"{STACKS}/{name}{suffix}.bak").read_bytes()
                return parse_checkpoint(decode_checkpoint(data, suffix), outdated=True)
        raise DeployError(
            f"the state {folder}/{STACKS}/{name}.json cannot be read: {error}; it was edited, or is being written",
            retryable=True,
        ) from error
    if folder is not None:
        check_there(folder, ref.backend)
    return None


def list_stacks(backend: str, project: str) -> list[StackRef]:
    """Return the stacks of a project in a backend.

    Raises:
        BackendAbsentError: The folder of the backend holds no backend.
        DeployError: The backend cannot be read.
    """
    names, folder = open_stacks(backend).versions(project), backend_folder(backend)
    if not names and folder is not None:
        check_there(folder, backend)
    return [name.at(backend) for name in names]


def find_renamed(root: Path, entry: RunEntry) -> StackRef | None:
    """Return where the stack of an app is after `pulumi stack rename`. None: it is not in this folder.

    Every stack of a project in the folder is read; unreadable ones are skipped.

    Raises:
        DeployError: The folder cannot be read.
    """
    stacks = StoredStacks(entry.place.backend, FolderStore(root))
    for name in stacks.versions():
        # The engine does not see a stack without a project.
        if name.project:
            with contextlib.suppress(DeployError, *DAMAGED):
                text = stacks.read(name) or ""
                note = (parse_checkpoint(text).stash(APP_SUFFIX) or {}) if entry.launch in text else {}
                if (note.get("app_id"), note.get("launch")) == (entry.app_id, entry.launch):
                    return replace(entry.place, project=name.project, stack=name.stack)
    return None


class LastObservedReader:
    """Reads what the output `torchx` of single stacks says of their runs, without a process.

    The stacks may be of any number of backends, each of which is opened once. For use by several threads.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._opened: dict[str, StoredStacks | None] = {}
        self._failed_at: dict[str, float] = {}

    def read(self, ref: StackRef) -> Answer | None:
        """Return what the output `torchx` says, by at most one read of a checkpoint.

        Args:
            ref: The stack.

        Returns:
            What was observed and requested last. None: the stack is absent, or has no such output, or only the CLI
            reads its backend.

        Raises:
            DeployError: The backend or the stack cannot be read, or the backend could not be read a moment ago.
        """
        backend = know_backend(ref.backend)
        failed_at = self._failed_at.get(backend)
        if failed_at is not None and self._clock() - failed_at < PAUSE_S:
            raise DeployError(f"the Pulumi backend {backend} could not be read a moment ago", retryable=True)
        try:
            if backend not in self._opened:
                store = open_store(backend_url(backend))
                self._opened[backend] = None if store is None else StoredStacks(backend, store)
            stacks = self._opened[backend]
            text = None if stacks is None else stacks.read(StackName.of(ref))
            app = None if text is None else read_app(text)
        except DAMAGED as error:
            raise DeployError(f"stack {ref.project}/{ref.stack} in {backend} cannot be read: {error}") from error
        except (OSError, DeployError) as error:
            self._failed_at[backend] = self._clock()
            # The credentials of the backend may be renewed.
            self._opened.pop(backend, None)
            raise DeployError(f"the Pulumi backend {backend} cannot be read: {error}", retryable=True) from error
        answer = Answer() if app is None else Answer.of(app.output)
        return answer if answer.observed else None


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
