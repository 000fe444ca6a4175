"""Where finished parts are kept, under which key, and how exactly one process makes each of them.

No part is built here; the caller passes in what fills the folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tools.bootstrap.part import DebianSource, GoSource, Part

RECIPE: Final = "1"
"""Raised when the way of building changes what comes out."""

DEBIAN_RECIPE: Final = "2"
"""Raised when the way of unpacking Debian packages changes what comes out."""


def default_cache() -> Path:
    """Return the project's cache folder: `$XDG_CACHE_HOME/torchx-pulumi`, or the same below `~/.cache`."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification wants relative paths to be ignored.
    root = Path(configured) if Path(configured).is_absolute() else Path.home() / ".cache"
    return root / "torchx-pulumi"


def machine() -> str:
    """Return system and processor, as far as they decide whether a part runs here."""
    return f"{platform.system()}-{platform.machine()}".lower()


def distribution() -> str:
    """Return the system of a Debian part, for example `debian-12`; `unknown` where the system does not say."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return "unknown"
    return f"{release.get('ID', 'linux')}-{release.get('VERSION_ID', 'rolling')}"


def _go_inputs(source: GoSource) -> Iterator[Path]:
    """Yield the files that decide what a Go build gives, in a fixed order."""
    for path in sorted(source.folder.rglob("*")):
        below = path.relative_to(source.folder)
        hidden = any(word.startswith((".", "_")) or word in ("testdata", "node_modules") for word in below.parts)
        if path.is_file() and not hidden and not path.name.endswith(("_test.go", ".md")):
            yield path


def part_key(part: Part) -> str:
    """Return 8 hex digits of all that determines the finished part."""
    digest = hashlib.sha256(f"{RECIPE}\0{machine()}\0{part.version}".encode())
    if isinstance(part.source, GoSource):
        digest.update(repr((part.source.targets, part.source.files)).encode())
        if part.source.added is not None:
            digest.update(
                repr(part.source.added).encode() + (part.source.folder.parent / part.source.added.file).read_bytes()
            )
        for path in _go_inputs(part.source):
            digest.update(f"\0{path.relative_to(part.source.folder)}\0".encode() + path.read_bytes())
    elif isinstance(part.source, DebianSource):
        digest.update(repr((DEBIAN_RECIPE, distribution(), part.source)).encode())
    else:
        digest.update(repr(part.source).encode())
    return digest.hexdigest()[:8]


class PartCache:
    """Finished parts in folders of their own; what is there is complete."""

    def __init__(self, root: Path, *, say: Callable[[str], None]) -> None:
        self.root = root
        self._say = say

    def folder(self, part: Part) -> Path:
        """Return where the part is, or will be: `<root>/parts/<name>-<version>-<key>`."""
        return self.root / "parts" / f"{part.name}-{part.version}-{part_key(part)}"

    def find(self, part: Part) -> Path | None:
        """Return the finished part's folder, or None when it was not made yet."""
        folder = self.folder(part)
        return folder if folder.is_dir() else None

    def make(self, part: Part, fill: Callable[[Path], None]) -> Path:
        """Return the part's folder; call `fill` with an empty one if it was not made yet.

        Other processes that want the same part wait for this one and take its result. A crash or an error in `fill`
        leaves nothing under the final name, and the next one to come clears the rest.
        """
        final = self.folder(part)
        with self.locked(part.name, waiting_for=f"{part.name}, which another process is making"):
            if final.is_dir():
                return final
            final.parent.mkdir(parents=True, exist_ok=True)
            for left_over in final.parent.glob(f".{part.name}.making-*"):
                shutil.rmtree(left_over)
            unfinished = Path(tempfile.mkdtemp(prefix=f".{part.name}.making-", dir=final.parent))
            try:
                fill(unfinished)
                unfinished.chmod(0o755)
                unfinished.rename(final)
            except BaseException:
                shutil.rmtree(unfinished, ignore_errors=True)
                raise
        return final

    def clear_outdated(self, current: Iterable[Part]) -> list[Path]:
        """Remove what was made for other versions or sources than the `current` ones; return what was removed."""
        keep = {self.folder(part) for part in current}
        removed = [path for path in sorted((self.root / "parts").glob("*")) if path not in keep]
        for path in [*removed, self.root / "bundles", self.root / "links", self.root / "downloads"]:
            shutil.rmtree(path, ignore_errors=True)
        return removed

    @contextmanager
    def locked(self, name: str, *, waiting_for: str) -> Iterator[None]:
        """Hold the lock `name` of this cache; say what is waited for when somebody else holds it."""
        folder = self.root / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{name}.lock").open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._say(f"waiting for {waiting_for}")
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield
