"""Hashes of files with a cache for unchanged files, and the content address of an image."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Final

from torchx_pulumi.images.content.files import Entry, FileKind, Mark
from torchx_pulumi.model.errors import ImageError
from torchx_pulumi.storage.files import replacing

CHUNK: Final = 1 << 20
"""Bytes of one read."""
_CACHE_VERSION: Final = 3
"""First value of a cache. It changes with the format."""
_DIGITS: Final = 64
"""Length of a hash."""
_FINE_NS: Final = 20_000_000
"""A file modified less than this time ago may change again with the same time: the kernel's clock ticks."""
_COARSE_NS: Final = 2_000_000_000
"""The same for file systems whose times have whole seconds."""
_KEPT_S: Final = 90 * 86_400.0
"""Seconds after the last write until a cache is removed. All files are then read once more."""
_ADDRESS_VERSION: Final = "torchx-pulumi image 2"
"""Part of every address. It changes if the same inputs make another image: version 2 has times of files."""


def cache_folder() -> Path:
    """Return the folder of the user's workspace caches."""
    return in_home(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "torchx-pulumi" / "workspaces"


def in_home(path: str) -> Path:
    """Return a path that may begin with `~`. Without a home, as of a pod's user, it is one that cannot exist."""
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError:
        return Path(os.devnull, path)


def write_cache(file: Path, content: Iterable[bytes]) -> None:
    """Write the parts of a file of a cache, and remove files of its folder that were not written for a long time.

    A file that cannot be written is not an error: the next run computes its content again.
    """
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with replacing(file, mode=0o600) as opened:
            opened.writelines(content)
    for old in file.parent.glob("*.json"):
        # Other threads and processes may remove it as well.
        with contextlib.suppress(OSError):
            if old.stat().st_mtime < time.time() - _KEPT_S:
                old.unlink()


class HashCache:
    """Marks and hashes of one source's files by path. Without the cache, all files are read."""

    def __init__(self, name: str) -> None:
        self._file = cache_folder() / f"{hashlib.sha256(os.fsencode(name)).hexdigest()[:32]}.json"
        # One text per file takes half the memory of its numbers.
        self._known: dict[str, str] = {}
        self._used: dict[str, str] = {}
        with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
            version, found = json.loads(self._file.read_bytes())
            is_current = version == _CACHE_VERSION and isinstance(found, dict)
            # A file of another release is ignored, and one that is damaged.
            if is_current and all(isinstance(each, str) for each in found.values()):
                self._known = found

    def get(self, path: str, mark: Mark | None) -> str | None:
        """Return the hash of a file with this mark, or None if the file must be read."""
        known = self._known.get(path)
        if mark is None or known is None or known != _noted(mark, known[-_DIGITS:]):
            return None
        self._used[path] = known
        return known[-_DIGITS:]

    def put(self, path: str, mark: Mark | None, digest: str, now_ns: int) -> None:
        """Store the hash of a file that was read."""
        if mark is None or max(mark[1], mark[2]) > now_ns - (_COARSE_NS if mark[1] % 1_000_000 == 0 else _FINE_NS):
            return
        self._used[path] = _noted(mark, digest)

    def save(self) -> None:
        """Write the used entries. Entries of deleted files are dropped."""
        if self._used != self._known:
            # In pieces: the whole text would take as much memory as all entries of the workspace.
            pieces = json.JSONEncoder(separators=(",", ":")).iterencode([_CACHE_VERSION, self._used])
            write_cache(self._file, (piece.encode("ascii") for piece in pieces))


def _noted(mark: Mark, digest: str) -> str:
    size, changed, status_changed, file = mark
    return f"{size} {changed} {status_changed} {file} {digest}"


def hash_files(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries of a context with the hashes of files. Only files that changed are read.

    Raises:
        ImageError: Files cannot be read, or change while they are read. The message lists them.
    """
    caches: dict[str, HashCache] = {}
    hashed, problems = [], []
    for entry in entries:
        digest = ""
        if entry.kind is FileKind.FILE:
            name = entry.source.name
            if name not in caches:
                caches[name] = HashCache(name)
            try:
                digest = _hash(entry, caches[name])
            except OSError as error:
                problems.append(f"{entry.path!a}: cannot be read ({error.strerror or error})")
            except _ChangedError:
                problems.append(f"{entry.path!a}: changed while it was read")
        hashed.append(replace(entry, sha256=digest) if digest else entry)
    for cache in caches.values():
        cache.save()
    if problems:
        lines = "\n".join(f"  - {line}" for line in problems[:50])
        raise ImageError(
            f"files of the workspace cannot be hashed ({len(problems)} in all):\n{lines}\nmake them readable, add "
            "them to .dockerignore, or run again when nothing writes to them"
        )
    return hashed


class _ChangedError(Exception):
    """A file changed while it was read."""


def _hash(entry: Entry, cache: HashCache) -> str:
    known = cache.get(entry.inside, entry.mark)
    if known is not None:
        return known
    for _ in range(2):  # an editor may save the file at the same time
        before, now_ns = entry.source.mark(entry.inside), time.time_ns()
        digest, size = hashlib.sha256(), 0
        with entry.open() as file:
            for chunk in chunks(file):
                digest.update(chunk)
                size += len(chunk)
        if before == entry.source.mark(entry.inside) and (before is None or before[0] == size):
            # The header in the archive has the size that the walk found.
            if size != entry.size:
                raise _ChangedError
            cache.put(entry.inside, before, digest.hexdigest(), now_ns)
            return digest.hexdigest()
    raise _ChangedError


def chunks(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a file in chunks."""
    while chunk := file.read(CHUNK):
        yield chunk


def files_address(entries: Iterable[Entry]) -> str:
    """Return the address of hashed files, 64 hex digits: a hash of their paths, kinds, executable bits and bytes."""
    digest = hashlib.sha256()
    for entry in entries:
        if entry.kind is FileKind.FOLDER:
            what, content = b"d", b""
        elif entry.kind is FileKind.LINK:
            what, content = b"l", os.fsencode(entry.target)
        else:
            what, content = b"x" if entry.executable else b"f", entry.sha256.encode()
        # Names and targets contain no NUL.
        digest.update(b"\0".join((what, os.fsencode(entry.path), content, b"")))
    return digest.hexdigest()


def image_address(**parts: Any) -> str:
    """Return the content address of an image, 64 hex digits: a hash of its parts, which are plain JSON values."""
    text = json.dumps({"version": _ADDRESS_VERSION, **parts}, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
