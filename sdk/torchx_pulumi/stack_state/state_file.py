"""Stacks in a folder, read without a process: checkpoints, locks, and what is left of a stack that is gone.

Only what Pulumi itself writes there is relied on, and a stack is made here in one case: its first, empty checkpoint
(docs/decisions/0009). Everything else is the engine's.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torchx_pulumi.model.app_entry import ORGANIZATION, StackRef
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.registration_plan import APP_SUFFIX
from torchx_pulumi.stack_state.files import write_new
from torchx_pulumi.stack_state.folder_backend import backend_refused, check_there
from torchx_pulumi.stack_state.owned_locks import Lock, read_lock
from torchx_pulumi.stack_state.places import backend_folder, own_backend
from torchx_pulumi.stack_state.presence import is_file, is_folder, names_in
from torchx_pulumi.stack_state.shared_folder import share

STASH = "pulumi:index:Stash"
STACK = "pulumi:pulumi:Stack"
STASH_PROVIDER = "pulumi:providers:pulumi"
KUBERNETES_PROVIDER = "pulumi:providers:kubernetes"
STASH_PROVIDER = "pulumi:providers:pulumi"
OWN_TYPES = "torchx:index:"
"""Begins the types of our components."""
OWN_NOTES = ("-intent", "-record", APP_SUFFIX)
"""Ends of the names of the stashes that our components keep."""
ROOM_BYTES = 1_000_000
"""The states and the history of a launch take a tenth of it."""

BROKEN = (ValueError, KeyError, AttributeError, TypeError, EOFError)
"""What is raised by a state that is none."""

META = "version: 1\n"
"""What Pulumi writes to `.pulumi/meta.yaml` where stacks lie in folders of their projects."""


class Checkpoint:
    """The state of a stack as the engine last wrote it."""

    def __init__(self, latest: Mapping[str, Any] | None, *, outdated: bool = False) -> None:
        self._latest = latest or {}
        self.outdated = outdated
        """The last state was cut off, by a full disk for example, and this is the one before it."""

    @property
    def deployment(self) -> Mapping[str, Any]:
        """The deployment as `pulumi stack export` shows it."""
        return self._latest

    @property
    def resources(self) -> Sequence[Mapping[str, Any]]:
        """The resources of the stack."""
        return self._latest.get("resources") or []

    @property
    def pending(self) -> Sequence[Mapping[str, Any]]:
        """Operations that were begun and not ended."""
        return self._latest.get("pending_operations") or []

    @property
    def outputs(self) -> Mapping[str, Any]:
        """The stack's outputs."""
        return next((item.get("outputs") or {} for item in self.resources if item.get("type") == STACK), {})

    def objects(self) -> Iterator[Mapping[str, Any]]:
        """Yield the Kubernetes objects that the state knows of, those with a pending operation included."""
        yield from (item for item in self.resources if is_object(item))
        for operation in self.pending:
            if is_object(operation.get("resource") or {}):
                yield operation["resource"]

    def others(self) -> Iterator[Mapping[str, Any]]:
        """Yield what a program of the user's own put into the stack, operations that were begun included.

        Everything but Kubernetes objects, their provider, and what our components register.
        """
        begun = [operation.get("resource") or {} for operation in self.pending]
        yield from (item for item in (*self.resources, *begun) if not is_object(item) and not _is_own(item))

    def provider_inputs(self) -> Iterator[Mapping[str, Any]]:
        """Yield the inputs of the providers of the Kubernetes objects."""
        used = {str(item.get("provider")).rpartition("::")[0] for item in self.objects()}
        yield from (item.get("inputs") or {} for item in self.resources if item.get("urn") in used)

    def stash(self, suffix: str) -> Any:
        """Return the value of the stash whose name ends so. None: there is none."""
        for item in self.resources:
            if item.get("type") == STASH and str(item.get("urn")).endswith(suffix):
                value = (item.get("outputs") or {}).get("input")
                return (item.get("inputs") or {}).get("input") if value is None else value
        return None


class FileStack:
    """A stack in a folder."""

    def __init__(self, root: Path, place: StackRef) -> None:
        self._folder = root / ".pulumi"
        self._place = place
        self._is_own = root == backend_folder(own_backend())

    @property
    def path(self) -> Path:
        """The file of its state."""
        return self._folder / "stacks" / self._place.project / f"{self._place.stack}.json"

    def exists(self) -> bool:
        """Say whether there is such a stack."""
        return self._present() is not None

    def seed(self) -> None:
        """Make the stack: an empty checkpoint, to which the next `up` adds what a stack has.

        The backend of this user alone is readable by its owner only. Anywhere else the umask decides, as it does for
        all that Pulumi writes there: the folder may be shared.

        Raises:
            FileExistsError: There is such a stack.
            DeployError: The folder cannot be written.
        """
        name = f"{ORGANIZATION}/{self._place.project}/{self._place.stack}"
        text = json.dumps({"version": 3, "checkpoint": {"stack": name, "latest": None}})
        try:
            self.path.parent.mkdir(mode=0o700 if self._is_own else 0o777, parents=True, exist_ok=True)
            share(self._folder.parent, self._folder, self.path.parent.parent, self.path.parent)
            # A folder without it would be taken for one of the old layout as soon as a stack lies in it.
            with contextlib.suppress(FileExistsError):
                write_new(self._folder / "meta.yaml", META)
            write_new(self.path, text)
            share(self._folder.parent, self._folder / "meta.yaml", self.path)
        except FileExistsError:
            raise
        except OSError as error:
            raise backend_refused(self._place.backend, error) from error

    def read(self) -> Checkpoint | None:
        """Return the state. None: there is no such stack.

        Raises:
            BackendAbsentError: There is no backend in the folder.
            DeployError: It cannot be read.
        """
        path = self._present()
        if path is None:
            check_there(self._folder.parent, self._place.backend)
            return None
        try:
            return Checkpoint(read_latest(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise backend_refused(self._place.backend, error) from error
        except BROKEN as error:
            try:
                return Checkpoint(read_latest(path.with_name(f"{path.name}.bak")), outdated=True)
            except (OSError, *BROKEN):
                raise DeployError(
                    f"the state {path} cannot be read: {error}; it was changed by hand, or is being written",
                    retryable=True,
                ) from error

    def restore(self) -> None:
        """Put the state before it in the place of one that was cut off.

        Raises:
            DeployError: The folder cannot be written.
        """
        path = self._present()
        if path is None:
            return
        try:
            path.with_name(f"{path.name}.bak").replace(path)
        except OSError as error:
            raise backend_refused(self._place.backend, error) from error

    def check_room(self) -> None:
        """Refuse to begin on a disk that is as good as full: the engine would try for minutes.

        Raises:
            DeployError: It is.
        """
        try:
            folder = next((each for each in (self._folder, *self._folder.parents) if is_folder(each)), None)
        except OSError as error:
            raise backend_refused(self._place.backend, error) from error
        if folder is not None and shutil.disk_usage(folder).free < ROOM_BYTES:
            raise backend_refused(self._place.backend, OSError(errno.ENOSPC, "", str(folder)))

    def locks(self) -> list[Lock]:
        """Return the locks on the stack.

        Raises:
            DeployError: They cannot be read.
        """
        folder = self._lock_folder()
        try:
            names = names_in(folder)
        except OSError as error:
            raise backend_refused(self._place.backend, error) from error
        found = (read_lock(folder / name) for name in names if name.endswith(".json"))
        return [lock for lock in found if lock is not None]

    def clear_locks(self, is_dead: Callable[[Lock], bool]) -> list[Lock]:
        """Remove what dead engines left: their locks, and attributes cut off in the middle. Return the other locks.

        Raises:
            DeployError: The folder cannot be written.
        """
        stay = []
        try:
            for path in self.path.parent.glob(f"{self._place.stack}.json*.attrs"):
                if not _is_json(path):
                    path.unlink(missing_ok=True)
            for lock in self.locks():
                if lock.path is None or not is_dead(lock):
                    stay.append(lock)
                    continue
                lock.path.unlink(missing_ok=True)
                lock.path.with_name(f"{lock.path.name}.attrs").unlink(missing_ok=True)
        except OSError as error:
            raise backend_refused(self._place.backend, error) from error
        return stay

    def sweep(self, *, state: bool) -> None:
        """Remove what the engine leaves of a stack.

        Args:
            state: Also a state that is still there, which forgets the stack.

        Raises:
            DeployError: The folder cannot be written.
        """
        project, stack = self._place.project, self._place.stack
        try:
            # The state goes last: as long as it is there, an interrupted sweep is seen and done again.
            for folder in ("history", "backups"):
                shutil.rmtree(self._folder / folder / project / stack, ignore_errors=True)
            with contextlib.suppress(FileNotFoundError, OSError):
                self._lock_folder().rmdir()
            names = [f"{stack}.json.bak", f"{stack}.json.gz.bak"]
            for name in [*names, *([f"{stack}.json.gz", f"{stack}.json"] if state else [])]:
                for suffix in (".attrs", ""):
                    (self.path.parent / f"{name}{suffix}").unlink(missing_ok=True)
        except OSError as error:
            raise backend_refused(self._place.backend, error) from error

    def _present(self) -> Path | None:
        paths = (self.path, self.path.with_name(f"{self.path.name}.gz"))
        try:
            return next((path for path in paths if is_file(path)), None)
        except OSError as error:
            raise backend_refused(self._place.backend, error) from error

    def _lock_folder(self) -> Path:
        return self._folder / "locks" / ORGANIZATION / self._place.project / self._place.stack


def is_object(resource: Mapping[str, Any]) -> bool:
    """Say whether a resource is a Kubernetes object."""
    return str(resource.get("type") or "").startswith("kubernetes:")


def _is_own(resource: Mapping[str, Any]) -> bool:
    """Return whether a resource is one that a launch registers, and that nothing outside of the state belongs to."""
    kind, urn = str(resource.get("type") or ""), str(resource.get("urn"))
    if kind == STASH:
        return f"::{OWN_TYPES}" in urn and urn.endswith(OWN_NOTES)
    return kind in (STACK, KUBERNETES_PROVIDER, STASH_PROVIDER) or kind.startswith(OWN_TYPES)


def read_latest(path: Path, *, holds: str = "") -> Any:
    """Return the deployment in a state; None where a text is not in it."""
    data = path.read_bytes()
    whole = gzip.decompress(data) if ".gz" in path.suffixes else data
    return json.loads(whole)["checkpoint"].get("latest") if holds.encode() in whole else None


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except FileNotFoundError:
        return True
    except ValueError:
        return False
    return True
