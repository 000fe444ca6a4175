"""Stacks in a folder: their files, locks and layout, read and cleaned without the engine.

The engine writes these files. Only the first, empty checkpoint of a stack is written here (docs/decisions/0009).
"""

from __future__ import annotations

import contextlib
import errno
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from torchx_pulumi.model.app_entry import ORGANIZATION, StackRef
from torchx_pulumi.model.errors import BackendAbsentError, DeployError
from torchx_pulumi.model.redaction import without_password
from torchx_pulumi.stack_state.backend import backend_folder, own_backend
from torchx_pulumi.stack_state.checkpoint import checkpoint_text
from torchx_pulumi.stack_state.stack_locks import Lock, clear_locks, lock_folder, read_locks
from torchx_pulumi.storage.files import is_file, is_folder, names_in, os_error_reason, replacing, share
from torchx_pulumi.storage.stores import FolderStore

SUFFIXES = (".json", ".json.gz")
"""Suffixes of the checkpoint files that are read directly."""

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


class FolderStack:
    """One stack in a folder. Methods raise DeployError if the folder cannot be read or written."""

    def __init__(self, root: Path, ref: StackRef) -> None:
        self.path = root / ".pulumi" / "stacks" / ref.project / f"{ref.stack}.json"
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
        """
        name, folder = f"{ORGANIZATION}/{self._ref.project}/{self._ref.stack}", self.path.parent
        is_own = self._root == backend_folder(own_backend())
        with _backend_errors(self._ref.backend):
            folder.mkdir(mode=0o700 if is_own else 0o777, parents=True, exist_ok=True)
            share(self._root, self._root / ".pulumi", folder.parent, folder)
            try:
                # Pulumi treats a folder with stacks and without this file as one of the old layout.
                with contextlib.suppress(FileExistsError), replacing(self._root / META_PATH, new=True) as file:
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

    def check_room(self) -> None:
        """Check that the disk has space for a launch: on a full disk the engine retries for minutes.

        Raises:
            DeployError: Less than 1 MB is free.
        """
        with _backend_errors(self._ref.backend):
            folder = next((each for each in (self._root / ".pulumi", *self.path.parents) if is_folder(each)), None)
            if folder is not None and shutil.disk_usage(folder).free < MIN_FREE_BYTES:
                raise OSError(errno.ENOSPC, "", str(folder))

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
            for suffix in (".bak", ".gz.bak", *((".gz", "") if state else ())):
                for attributes in (".attrs", ""):
                    self.path.with_name(f"{self.path.name}{suffix}{attributes}").unlink(missing_ok=True)

    def _present(self) -> Path | None:
        with _backend_errors(self._ref.backend):
            return next(
                (path for path in (self.path, self.path.with_name(f"{self.path.name}.gz")) if is_file(path)), None
            )


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


def check_there(root: Path, backend: str) -> None:
    """Check that a folder holds a backend: a shared folder that is not mounted is empty.

    This user's own backend may be absent: the first launch creates it.

    Raises:
        BackendAbsentError: The folder has no `.pulumi`.
        DeployError: The folder cannot be inspected.
    """
    if root == backend_folder(own_backend()):
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
