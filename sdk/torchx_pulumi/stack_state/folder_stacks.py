"""Stacks of a backend that is a folder: found and read as files, without a process and without a passphrase."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torchx_pulumi.fleet.collect.row import StackName
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.stack_state.checkpoint import UnreadableStateError
from torchx_pulumi.stack_state.places import FILE_SCHEME
from torchx_pulumi.stack_state.presence import ABSENT, is_folder, names_in

_SUFFIXES = (".json", ".json.gz")


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderStacks:
    """Stacks of a backend that is a folder."""

    folder: Path
    """The folder of the backend's URL; Pulumi's own `.pulumi` is in it."""
    may_be_absent: bool = False
    """A folder that is not there holds no stacks; otherwise it is an error."""

    def names(self, project: str | None) -> list[StackName]:
        """Find the stacks of a project, of all projects without one.

        Raises:
            DeployError: There is no such folder, or it cannot be read.
        """
        try:
            if is_folder(self.folder):
                return sorted(set(_found(self.folder / ".pulumi" / "stacks", project)), key=str)
        except OSError as error:
            raise self._refused(error) from error
        if self.may_be_absent:
            return []
        raise DeployError(
            f"backend {FILE_SCHEME}{self.folder}: there is no such folder; nothing was launched with it, or it is not "
            "mounted, or --backend and PULUMI_BACKEND_URL name another one than the launch did"
        )

    def read(self, name: StackName) -> str:
        """Read the checkpoint of a stack.

        Raises:
            UnreadableStateError: It cannot be read.
        """
        place = self.folder / ".pulumi" / "stacks" / name.project / name.stack
        problem: Exception | None = None
        for suffix in _SUFFIXES:
            try:
                content = Path(f"{place}{suffix}").read_bytes()
                return (gzip.decompress(content) if suffix.endswith(".gz") else content).decode()
            except FileNotFoundError as error:  # Deleted since, or written the other way
                problem = problem or error
            except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
                raise UnreadableStateError(f"its checkpoint cannot be read: {error}") from error
        raise UnreadableStateError("its checkpoint is gone; it was removed a moment ago") from problem

    def updating(self) -> frozenset[StackName]:
        """Return the stacks that somebody works on.

        Raises:
            DeployError: The folder cannot be read.
        """
        names = set()
        try:
            for folder, _, files in os.walk(self.folder / ".pulumi" / "locks" / "organization", onerror=_raise):
                if any(name.endswith(".json") for name in files):
                    parts = Path(folder).relative_to(self.folder / ".pulumi" / "locks" / "organization").parts
                    names.add(StackName(project="/".join(parts[:-1]), stack=parts[-1] if parts else ""))
        except OSError as error:
            raise self._refused(error) from error
        return frozenset(names)

    def _refused(self, error: OSError) -> DeployError:
        return DeployError(
            f"backend {FILE_SCHEME}{self.folder} cannot be read: {error.strerror or error} ({error.filename}); its "
            "owner may read it, or give this user the permission"
        )


def _raise(error: OSError) -> None:
    """Raise what keeps a folder from being read; a folder that is gone has no locks."""
    if not isinstance(error, ABSENT):
        raise error


def _found(root: Path, project: str | None) -> Iterator[StackName]:
    if project is not None:
        yield from _in(root / project, project)
        return
    yield from _in(root, "")
    for name in names_in(root):
        if is_folder(root / name):
            yield from _in(root / name, name)


def _in(folder: Path, project: str) -> Iterator[StackName]:
    for name in names_in(folder):
        suffix = next((suffix for suffix in _SUFFIXES if name.endswith(suffix)), None)
        if suffix is not None:
            yield StackName(project=project, stack=name[: -len(suffix)])
