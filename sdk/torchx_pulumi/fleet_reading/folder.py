"""Stacks of a backend that is a folder: found and read as files, without a process and without a passphrase."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from torchx_pulumi.errors import DeployError
from torchx_pulumi.fleet_reading.checkpoint import UnreadableStateError
from torchx_pulumi.fleet_reading.row import StackName

FILE_SCHEME = "file://"
_SUFFIXES = (".json", ".json.gz")


def folder_of(backend: str) -> Path | None:
    """Return the folder of a `file://` backend. None: the backend is of another kind.

    >>> str(folder_of("file:///var/lib/state?no_tmp_dir=true"))
    '/var/lib/state'
    >>> folder_of("s3://bucket") is None
    True
    """
    if not backend.startswith(FILE_SCHEME):
        return None
    path = unquote(urlsplit(backend).path) if backend.startswith("file:///") else backend[len(FILE_SCHEME) :]
    return Path(path.partition("?")[0] or "/").expanduser()


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
        if not self.folder.is_dir():
            if self.may_be_absent:
                return []
            raise DeployError(
                f"backend {FILE_SCHEME}{self.folder}: there is no such folder; nothing was launched with it, or "
                "--backend and PULUMI_BACKEND_URL name another one than the launch did"
            )
        root = self.folder / ".pulumi" / "stacks"
        try:
            return sorted(set(_found(root, project)), key=str) if root.is_dir() else []
        except OSError as error:
            raise DeployError(f"backend {FILE_SCHEME}{self.folder}: {error}; its owner may read it") from error

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
        """Return the stacks that somebody works on."""
        root = self.folder / ".pulumi" / "locks" / "organization"
        names = set()
        for path in root.rglob("*.json"):
            parts = path.relative_to(root).parts
            names.add(StackName(project="/".join(parts[:-2]), stack=parts[-2] if len(parts) > 1 else ""))
        return frozenset(names)


def _found(root: Path, project: str | None) -> Iterator[StackName]:
    if project is not None:
        yield from _in(root / project, project)
        return
    yield from _in(root, "")
    with os.scandir(root) as entries:
        folders = sorted(entry.name for entry in entries if entry.is_dir())
    for name in folders:
        yield from _in(root / name, name)


def _in(folder: Path, project: str) -> Iterator[StackName]:
    if not folder.is_dir():
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            suffix = next((suffix for suffix in _SUFFIXES if entry.name.endswith(suffix)), None)
            if suffix is not None:
                yield StackName(project=project, stack=entry.name[: -len(suffix)])
