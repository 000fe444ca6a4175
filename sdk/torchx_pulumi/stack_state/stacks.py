"""The stacks of any backend: listed and read as files, as objects, or through the Pulumi CLI.

A folder and an object store are read directly, without a process. The CLI answers for Pulumi services and databases,
for object stores without the fsspec package, and wherever direct access finds nothing or fails: an unreadable stack is
never reported as absent. The engine writes these files. Only the first, empty checkpoint of a stack in a folder is
written here (docs/decisions/0009).
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from torchx_pulumi.model.app_entry import ORGANIZATION, StackRef
from torchx_pulumi.model.errors import BackendAbsentError, DeployError
from torchx_pulumi.model.object_fields import number_at, text_at
from torchx_pulumi.model.redaction import without_password
from torchx_pulumi.stack_state.backend import backend_folder, backend_url, know_backend, open_store, own_backend
from torchx_pulumi.stack_state.checkpoint import (
    Checkpoint,
    UnreadableStateError,
    checkpoint_text,
    decode_checkpoint,
    parse_checkpoint,
)
from torchx_pulumi.stack_state.cli import check_organization, query
from torchx_pulumi.stack_state.stack_locks import LOCKS, Lock, clear_locks, lock_folder, read_locks
from torchx_pulumi.storage.files import is_file, is_folder, names_in, os_error_reason, replacing, share
from torchx_pulumi.storage.stores import READ_TIMEOUT_S, FolderStore, Store, object_scheme

logger = logging.getLogger(__name__)

STACKS = ".pulumi/stacks"

SUFFIXES = (".json", ".json.gz")
"""Suffixes of the checkpoint files that are read directly."""

HISTORY = ".pulumi/history"
HISTORY_SUFFIXES = (".history.json", ".history.json.gz")

UPDATES_AT_ONCE = 8
"""Updates that are read at the same time."""

CLI_SUFFIX = ".json.zst"
"""Suffix of the checkpoint files that only the CLI reads."""

NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EINVAL}
"""Error numbers of a file system without hard links."""

MIN_FREE_BYTES = 1_000_000
"""Free space that a launch requires. Its state and history take a tenth of it."""

META_PATH = ".pulumi/meta.yaml"
META = b"version: 1\n"
"""Content of that file in the layout with one folder per project."""

_VERSION = re.compile(rb"^version:\s*(\d+)\s*$", re.MULTILINE)

_STATES = re.compile(r"\.(json|yaml|yml)(\.gz|\.zst)?$")
"""Suffixes of all state files that Pulumi writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackName:
    """One stack of a backend."""

    project: str
    """Empty: the backend has Pulumi's old layout, without projects."""
    stack: str
    """Name of the stack; `organization/name` for a stack in another organization of a Pulumi service."""

    def __str__(self) -> str:
        return f"{self.project}/{self.stack}" if self.project else self.stack

    @property
    def names(self) -> tuple[str, str]:
        """Its names in a command: with its project, and without."""
        return str(self), self.stack

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

    @property
    def only_cli_writes(self) -> bool:
        """Return whether only the Pulumi CLI can write the stacks."""

    @property
    def notice(self) -> str | None:
        """Return why the CLI reads a backend that could be read without it. None: it does not, or it has to."""

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
        """Return the checkpoint of a stack, whose secrets stay encrypted, or None if it does not exist.

        Raises:
            UnreadableStateError: The content is not text.
            DeployError: The backend cannot be read.
        """

    def updating(self) -> frozenset[StackName]:
        """Return the stacks with a lock; empty if the CLI reads the backend, which does not list locks.

        Raises:
            DeployError: The locks cannot be read.
        """


class CliStacks:
    """The stacks of a backend that only the Pulumi CLI can read: one process for a listing, and one for each stack.

    The version of a stack is the time of its last update and the number of its resources. During an update, a Pulumi
    service names no time. In PostgreSQL, a state that `pulumi stack import` edits without a change of that number keeps
    its version until the next update. Methods raise DeployError also if the CLI is not on PATH.
    """

    reads_at_once = 4
    """A `pulumi` process takes about 100 MB."""

    only_cli_writes = True

    def __init__(self, backend: str, organization: str | None = None, notice: str | None = None) -> None:
        """Name the backend.

        Args:
            backend: Its URL, without credentials (`choose_backend`).
            organization: Organization of a Pulumi service. None: all that this user may see.
            notice: Why the CLI is used in spite of possible direct access. None: it is not possible.
        """
        self.notice = notice
        self._backend = backend
        self._organization = organization

    def versions(self, project: str | None = None) -> Mapping[StackName, str]:
        words = ["stack", "ls", "--json", *(["--project", project] if project else ["--all"])]
        if self._organization is not None:
            words += ["--organization", self._organization]
        try:
            listed = json.loads(query(self._backend, words, project=project or "") or "[]")
        except ValueError as error:
            raise DeployError(
                f"the Pulumi backend {self._backend}: pulumi stack ls printed no JSON: {error}"
            ) from error
        found = {
            _listed_name(str(item.get("name", "")), project): f"{item['lastUpdate']},{item.get('resourceCount')}"
            if item.get("lastUpdate")
            else ""
            for item in listed
            if isinstance(item, dict)
        }
        return {name: found[name] for name in sorted(found, key=str)}

    def read(self, name: StackName) -> str | None:
        place = name.at(self._backend)
        # Without a name, the CLI takes the default organization.
        if place.organization == ORGANIZATION and self._organization is not None:
            place = replace(place, organization=self._organization)
        return query(self._backend, ["stack", "export", "--stack", place.cli_name], project=name.project)

    def updating(self) -> frozenset[StackName]:
        return frozenset()


class StoredStacks:
    """The stacks of a backend in a folder or an object store, read without a process."""

    only_cli_writes = False

    def __init__(self, backend: str, store: Store, cli: CliStacks | None = None) -> None:
        """Take a store.

        Args:
            backend: URL of the backend, without credentials.
            store: Its files.
            cli: Answers if the store finds nothing or fails. None: errors are raised.
        """
        self.notice: str | None = None
        self.reads_at_once = store.reads_at_once
        self._backend = backend
        self._store = store
        self._cli = cli

    def versions(self, project: str | None = None) -> Mapping[StackName, str]:
        suffixes = (*SUFFIXES, CLI_SUFFIX)
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
        listed = sorted(files.items(), key=lambda item: str(item[0]))
        return {name: ",".join(sorted(found)) if all(found) else "" for name, found in listed}

    def read(self, name: StackName) -> str | None:
        try:
            for suffix in SUFFIXES:
                data = self._store.read_bytes(f"{STACKS}/{name}{suffix}")
                if data is not None:
                    return decode_checkpoint(data, suffix)
            if self._cli is None and self._store.read_bytes(f"{STACKS}/{name}{CLI_SUFFIX}") is not None:
                return CliStacks(self._backend).read(name)
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
    scheme = object_scheme(backend)
    if scheme is None:
        return cli
    try:
        store = open_store(backend_url(backend), READ_TIMEOUT_S)
        reason = f"the package {scheme.package} is not installed; install `{scheme.install}`"
    except OSError as error:
        store, reason = None, str(error)
    if store is None:
        return CliStacks(backend, notice=_notice(backend, reason))
    # Where there is no CLI, as in a controller's container, an empty listing is an empty backend.
    return StoredStacks(backend, store, cli if shutil.which("pulumi") else None)


def read_checkpoint(ref: StackRef) -> Checkpoint | None:
    """Return the state of an app's stack, or None if there is no such stack; in a folder, the state before one cut off.

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
    check_there(ref.backend)
    return None


def list_stacks(backend: str, project: str) -> list[StackRef]:
    """Return the stacks of a project in a backend.

    Raises:
        BackendAbsentError: The folder of the backend holds no backend.
        DeployError: The backend cannot be read.
    """
    names = open_stacks(backend).versions(project)
    if not names:
        check_there(backend)
    return [name.at(backend) for name in names]


@dataclass(frozen=True, slots=True, kw_only=True)
class StackUpdate:
    """One update of a stack."""

    kind: str
    """`update`, `refresh`, `destroy`, `import` or `rename`, as Pulumi writes it."""
    result: str
    """`succeeded`, `failed` or `in-progress`."""
    started_at: datetime | None
    """None: not known."""
    finished_at: datetime | None
    """None: it has not ended, or that is not known."""
    message: str
    """Text of `--message`, or the commit. Empty: there is none."""
    started_by: str = ""
    """`cli`, `auto.local` or `auto.inline`, as Pulumi writes it; empty if unknown."""


def read_updates(store: Store, name: StackName, most: int) -> list[StackUpdate]:
    """Return the last updates of a stack, the newest first. Entries that are damaged are left out.

    Args:
        store: The backend's files.
        name: The stack.
        most: Number of updates to return at most; so many files are read.

    Raises:
        OSError: The backend cannot be read.
    """
    folder = f"{HISTORY}/{name}"
    files = [file for file in store.paths(folder) if file.endswith(HISTORY_SUFFIXES)]
    newest = sorted(files, key=_written_at, reverse=True)[:most]
    with ThreadPoolExecutor(UPDATES_AT_ONCE) as pool:
        found = pool.map(lambda file: _read_update(store.read_bytes(f"{folder}/{file}"), file), newest)
        return [update for update in found if update is not None]


def _written_at(file: str) -> tuple[int, str]:
    """Return the time in a file's name, `STACK-NANOSECONDS.history.json`; names of a stack differ in length."""
    digits = file.partition(".history.")[0].rpartition("-")[2]
    return (int(digits) if digits.isdecimal() else 0), file


def _read_update(data: bytes | None, file: str) -> StackUpdate | None:
    """Return an update, or None if its file was removed after it was listed or is damaged."""
    try:
        value: Any = None if data is None else json.loads(decode_checkpoint(data, file))
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, Mapping):
        return None
    return StackUpdate(
        kind=text_at(value, "kind") or "",
        result=text_at(value, "result") or "",
        started_at=_time(value, "startTime"),
        finished_at=_time(value, "endTime"),
        message=text_at(value, "message") or "",
        started_by=text_at(value, "environment", "exec.kind") or "",
    )


def _time(value: Mapping[str, Any], name: str) -> datetime | None:
    seconds = number_at(value, name)
    try:
        return datetime.fromtimestamp(seconds, timezone.utc) if seconds else None
    except (ValueError, OverflowError, OSError):
        return None


class FolderStack:
    """One stack in a folder. Methods raise DeployError if the folder cannot be read or written."""

    def __init__(self, root: Path, ref: StackRef) -> None:
        self.path = root / STACKS / ref.project / f"{ref.stack}.json"
        """Path of its checkpoint."""
        self._root = root
        self._store = FolderStore(root)
        self._ref = ref
        self._locks = lock_folder(ref)

    def exists(self) -> bool:
        """Return whether the stack exists."""
        return self._present() is not None

    def seed(self) -> bool:
        """Create the stack with an empty checkpoint, which the next `up` completes.

        This user's own backend is readable by its owner only. Elsewhere the umask decides, as for all files that
        Pulumi writes there: the folder may be shared.

        Returns:
            Whether it was created. False: the file system has no hard links, which it takes not to replace a stack.

        Raises:
            FileExistsError: The stack exists.
            DeployError: Less than 1 MB is free: on a full disk the engine retries for minutes.
        """
        name, folder = f"{ORGANIZATION}/{self._ref.project}/{self._ref.stack}", self.path.parent
        is_own = self._root == backend_folder(own_backend())
        with _backend_errors(self._ref.backend):
            found = next((each for each in (self._root / ".pulumi", *folder.parents) if is_folder(each)), None)
            if found is not None and shutil.disk_usage(found).free < MIN_FREE_BYTES:
                raise OSError(errno.ENOSPC, "", str(found))
            folder.mkdir(mode=0o700 if is_own else 0o777, parents=True, exist_ok=True)
            share(self._root, self._root / ".pulumi", folder.parent, folder)
            try:
                # Pulumi treats a folder with stacks and without this file as one of the old layout.
                meta = replacing(self._root / META_PATH, new=True, sync=True)
                with contextlib.suppress(FileExistsError), meta as file:
                    file.write(META)
                with replacing(self.path, new=True, sync=True) as file:
                    file.write(checkpoint_text(name).encode())
            except OSError as error:
                if error.errno in NO_LINKS:
                    return False
                raise
            share(self._root, self._root / META_PATH, self.path)
            return True

    def restore(self) -> None:
        """Replace a state that was cut off by the state before it."""
        path = self._present()
        if path is not None:
            with _backend_errors(self._ref.backend):
                path.with_name(f"{path.name}.bak").replace(path)

    def locks(self) -> list[Lock]:
        """Return the locks on the stack."""
        with _backend_errors(self._ref.backend):
            return read_locks(self._store, self._locks)

    def clear_locks(self, is_dead: Callable[[Lock], bool]) -> list[Lock]:
        """Remove locks of dead engines, and attribute files, which a kill may have cut off; return the other locks.

        Args:
            is_dead: Returns whether the engine of a lock has ended.
        """
        with _backend_errors(self._ref.backend):
            for path in self.path.parent.glob(f"{self._ref.stack}.json*.attrs"):
                # Nothing reads them, but an engine refuses one that is cut off.
                path.unlink(missing_ok=True)
            return clear_locks(self._store, self._locks, is_dead)

    def sweep(self, *, state: bool) -> None:
        """Remove the files that the engine leaves of a stack: history, backups, lock folder, unfinished files.

        Args:
            state: Also remove the state, which forgets the stack.
        """
        with _backend_errors(self._ref.backend):
            # The state last: while it exists, an interrupted sweep is repeated.
            for folder in ("history", "backups"):
                shutil.rmtree(self._root / ".pulumi" / folder / self._ref.project / self._ref.stack, ignore_errors=True)
            # Pulumi writes each file under such a name; of a killed engine it stays.
            unfinished = (self._root / self._locks).glob("*.tmp"), self.path.parent.glob(f"{self.path.name}*.tmp")
            for path in chain(*unfinished):
                path.unlink(missing_ok=True)
            self._store.remove_if_empty(self._locks)
            for suffix in (".bak", ".gz.bak", ".zst.bak", *((".zst", ".gz", "") if state else ())):
                for attributes in (".attrs", ""):
                    self.path.with_name(f"{self.path.name}{suffix}{attributes}").unlink(missing_ok=True)

    def _present(self) -> Path | None:
        with _backend_errors(self._ref.backend):
            paths = (self.path.with_suffix(suffix) for suffix in (*SUFFIXES, CLI_SUFFIX))
            return next((path for path in paths if is_file(path)), None)


def check_layout(root: Path, backend: str) -> None:
    """Check that a folder has the layout with one folder per project.

    In the old layout, Pulumi does not see a new stack. With a file that declares the new layout, it does not see the
    existing stacks.

    Raises:
        DeployError: The folder has another layout, or cannot be read.
    """
    where, meta = f"the Pulumi backend {without_password(backend)}", root / META_PATH
    with _backend_errors(backend):
        found = _VERSION.search(meta.read_bytes()) if is_file(meta) else None
        version = int(found[1]) if found is not None else None
        old = [] if version else [name for name in names_in(root / ".pulumi/stacks") if _STATES.search(name)]
    if old or version == 0:
        stacks = f" ({', '.join(old[:3])}{', ...' if len(old) > 3 else ''})" if old else ""
        raise DeployError(
            f"{where} has Pulumi's old layout, which does not know projects{stacks}: run `pulumi state upgrade` "
            "there, with PULUMI_DIY_BACKEND_IGNORE_DEPRECATION_ERROR=1, which moves its stacks to the new layout; or "
            "name another backend by the option pulumi_backend"
        )
    if version is not None and version > 1:
        raise DeployError(
            f"{where} has layout version {version}, and this release of torchx-pulumi knows version 1; install a "
            "newer release, or name another backend by the option pulumi_backend"
        )


def check_there(backend: str) -> None:
    """Check that the folder of a backend holds one: a shared folder that is not mounted is empty.

    This user's own backend may be absent: the first launch creates it. Other backends than folders are not checked.

    Raises:
        BackendAbsentError: The folder has no `.pulumi`.
        DeployError: The folder cannot be inspected.
    """
    root = backend_folder(backend)
    if root is None or root == backend_folder(own_backend()):
        return
    with _backend_errors(backend):
        found, what = is_folder(root / ".pulumi"), "has no folder .pulumi" if is_folder(root) else "is not there"
    if not found:
        raise BackendAbsentError(
            f"the Pulumi backend {without_password(backend)} cannot be read: the folder {root} {what}, so its "
            "stacks are unknown, not deleted. Mount it, or correct the option "
            f"pulumi_backend or PULUMI_BACKEND_URL; if its contents are lost for good, make {root / '.pulumi'}"
        )


@contextlib.contextmanager
def _backend_errors(backend: str) -> Iterator[None]:
    """Raise errors of a folder as errors of the backend in it, but for FileExistsError."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        raise backend_error(backend, error) from error


def backend_error(backend: str, error: OSError) -> DeployError:
    """Return the error of a backend in a folder, with the reason and what to do."""
    reason = os_error_reason(error, "choose another folder")
    where = f" ({error.filename}{_permissions(error)})" if error.filename else ""
    return DeployError(
        f"the Pulumi backend {without_password(backend)} cannot be used: {reason}{where}. "
        "The option pulumi_backend or PULUMI_BACKEND_URL names another one"
    )


def _permissions(error: OSError) -> str:
    """Return mode and owner of a file without permission, or of the first folder above it that can be inspected."""
    if error.errno not in (errno.EACCES, errno.EPERM):
        return ""
    for path in (Path(error.filename), *Path(error.filename).parents):
        try:
            found = path.stat()
        except OSError:
            continue
        what = "" if path == Path(error.filename) else f"{path} "
        owner = f"user {found.st_uid}, group {found.st_gid}"
        return f": {what}has mode {stat.S_IMODE(found.st_mode):04o} and belongs to {owner}"
    return ""


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
