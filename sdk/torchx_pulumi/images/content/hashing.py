"""Hashes of files, and the cache by which a file that did not change is not read again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Final

from torchx_pulumi.images.content.files import Kind, Source
from torchx_pulumi.images.content.tree import Entry
from torchx_pulumi.model.errors import ImageError

CHUNK: Final = 1 << 20
"""Bytes that are read at a time."""
_VERSION: Final = 1
_FINE_NS: Final = 20_000_000
"""A file that was written this short a time ago may change again with the same time: the kernel's clock ticks."""
_COARSE_NS: Final = 2_000_000_000
"""The same where the file system counts in seconds."""
_KEPT_S: Final = 90 * 86_400.0
"""Seconds for which a cache is kept that nothing was added to; afterwards all files are read once."""

Mark = tuple[int, int, int, int]


def cache_folder() -> Path:
    """Return the folder of this user's caches of workspaces."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser().absolute() / "torchx-pulumi" / "workspaces"


class Manifest:
    """What is known of one source's files: mark and hash by path. Only a help: without it all files are read."""

    def __init__(self, source: Source, folder: Path) -> None:
        self._file = folder / f"{hashlib.sha256(os.fsencode(source.name)).hexdigest()[:32]}.json"
        self._known = _load(self._file)
        self._used: dict[str, list[int | str]] = {}

    def get(self, path: str, mark: Mark | None) -> str | None:
        """Return the hash of a file with this mark. None: it must be read."""
        known = self._known.get(path)
        if mark is None or known is None or tuple(known[:4]) != mark:
            return None
        self._used[path] = known
        return str(known[4])

    def put(self, path: str, mark: Mark | None, digest: str, now_ns: int) -> None:
        """Note the hash of a file that was read."""
        if mark is None or max(mark[1], mark[2]) > now_ns - (_COARSE_NS if mark[1] % 1_000_000 == 0 else _FINE_NS):
            return
        self._used[path] = [*mark, digest]

    def save(self) -> None:
        """Keep what was used; files that are gone are forgotten."""
        if self._used == self._known:
            return
        # A cache that cannot be written costs time only: the next run reads the files again.
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(dir=self._file.parent, prefix=f"{self._file.stem}-")
            try:
                with os.fdopen(handle, "w", encoding="ascii") as file:
                    json.dump({"version": _VERSION, "files": self._used}, file, separators=(",", ":"))
                Path(name).replace(self._file)
                _forget_old(self._file.parent)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise


def _forget_old(folder: Path) -> None:
    """Remove what was not written for long: caches of workspaces that are gone."""
    for file in folder.glob("*.json"):
        if file.stat().st_mtime < time.time() - _KEPT_S:
            file.unlink(missing_ok=True)


def _load(file: Path) -> dict[str, list[int | str]]:
    try:
        read = json.loads(file.read_text("ascii"))
        # Half a file, or one of another release, is as good as none.
        return dict(read["files"]) if read["version"] == _VERSION else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def hash_files(entries: Sequence[Entry], folder: Path | None = None) -> dict[str, str]:
    """Return the SHA-256 of every file, by its path in the context. Reads what changed since the last time only.

    Args:
        entries: The context's entries; folders and links are passed over.
        folder: Where the caches are. Unset: in the user's cache folder.

    Raises:
        ImageError: Files cannot be read or change while they are read; all of them.
    """
    manifests: dict[str, Manifest] = {}
    hashes: dict[str, str] = {}
    problems = []
    for entry in entries:
        if entry.found.kind is not Kind.FILE:
            continue
        name = entry.source.name
        if name not in manifests:
            manifests[name] = Manifest(entry.source, folder or cache_folder())
        try:
            hashes[entry.path] = _hash(entry, manifests[name])
        except OSError as error:
            problems.append(f"{entry.path!a}: cannot be read ({error.strerror or error})")
        except _ChangedError:
            problems.append(f"{entry.path!a}: changed while it was read")
    for manifest in manifests.values():
        manifest.save()
    if problems:
        lines = "\n".join(f"  - {line}" for line in problems[:50])
        raise ImageError(
            f"files of the workspace cannot be hashed ({len(problems)} in all):\n{lines}\nmake them readable, add "
            "them to .dockerignore, or run again when nothing writes to them"
        )
    return hashes


class _ChangedError(Exception):
    """A file is not what it was when the reading began."""


def _hash(entry: Entry, manifest: Manifest) -> str:
    found, source = entry.found, entry.source
    known = manifest.get(found.path, found.mark)
    if known is not None:
        return known
    for _ in range(2):  # an editor that saves just now gets a second chance
        before, now_ns = source.mark(found.path), time.time_ns()
        with source.open(found.path) as file:
            size, digest = _digest(file)
        if before == source.mark(found.path) and (before is None or before[0] == size):
            # The walk told the size that goes into the archive.
            if size != found.size:
                raise _ChangedError
            manifest.put(found.path, before, digest, now_ns)
            return digest
    raise _ChangedError


def _digest(file: IO[bytes]) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    for chunk in chunks(file):
        digest.update(chunk)
        size += len(chunk)
    return size, digest.hexdigest()


def chunks(file: IO[bytes]) -> Iterator[bytes]:
    """Yield a file's bytes in pieces."""
    while chunk := file.read(CHUNK):
        yield chunk
