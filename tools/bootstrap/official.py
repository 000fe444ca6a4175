"""Download official releases, where the internet is there; every archive is checked against the release's checksums.

Which releases there are stands in `parts`.
"""

from __future__ import annotations

import hashlib
import http.client
import platform
import shutil
import tarfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from tools.bootstrap.errors import BootstrapError
from tools.bootstrap.part import OfficialSource, Part

REACH_TIMEOUT_S: Final = 4.0
"""Seconds after which a host counts as not reachable."""


class NotReachable(Exception):  # noqa: N818 - it is an answer, not a mistake
    """The release cannot be downloaded from here; the text says why."""


class Fetch(Protocol):
    """How bytes come from the internet."""

    def read(self, url: str) -> bytes:
        """Return a small file, soon; raise NotReachable otherwise."""
        ...

    def save(self, url: str, to: Path, tick: Callable[[], None]) -> None:
        """Write a large file; raise NotReachable when the server does not give it."""
        ...


class Https:
    """The internet itself."""

    def read(self, url: str) -> bytes:
        """Return a small file within the timeout, name look-up included."""
        answer: list[bytes] = []
        problem: list[str] = []

        def ask() -> None:
            try:
                with urllib.request.urlopen(url, timeout=REACH_TIMEOUT_S) as response:  # noqa: S310 - https, from the table
                    answer.append(response.read())
            except (OSError, http.client.HTTPException) as error:
                problem.append(_reason(error))

        # A name look-up knows no timeout, so that it is waited for from outside.
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(2 * REACH_TIMEOUT_S)
        if answer:
            return answer[0]
        raise NotReachable(problem[0] if problem else f"no answer in {2 * REACH_TIMEOUT_S:.0f} s")

    def save(self, url: str, to: Path, tick: Callable[[], None]) -> None:
        """Write a large file piece by piece."""
        try:
            with urllib.request.urlopen(url, timeout=30) as response, to.open("wb") as file:  # noqa: S310 - as above
                while piece := response.read(1 << 20):
                    file.write(piece)
                    tick()
        except (OSError, http.client.HTTPException) as error:
            raise NotReachable(_reason(error)) from error


def _reason(error: Exception) -> str:
    # urllib wraps the system's error, whose text is the one that helps; an answer of the server speaks for itself.
    known = isinstance(error, urllib.error.HTTPError)
    return str(error if known else getattr(error, "reason", error))


class OfficialReleases:
    """Official releases over one way to the internet; a host that did not answer is not asked again."""

    def __init__(self, fetch: Fetch, downloads: Path) -> None:
        self._fetch = fetch
        self._downloads = downloads
        self._unreachable: dict[str, str] = {}

    def checksum(self, part: Part, source: OfficialSource) -> str:
        """Return the archive's SHA-256 as the release states it, which also shows that the internet is there.

        Raises:
            NotReachable: It cannot be had, or the release has nothing for this machine.
        """
        url, archive = source.checksums_url, _archive_url(source).rsplit("/", 1)[1]
        host = url.split("/")[2]
        if host in self._unreachable:
            raise NotReachable(self._unreachable[host])
        try:
            listed = self._fetch.read(url).decode(errors="replace")
        except NotReachable as error:
            self._unreachable[host] = f"{host}: {error}"
            raise NotReachable(self._unreachable[host]) from error
        for line in listed.splitlines():
            words = line.split()
            if len(words) == 2 and words[1].lstrip("*") == archive:
                return words[0].lower()
        raise NotReachable(f"{part.name} {part.version} is not released as {archive}")

    def download(
        self, part: Part, source: OfficialSource, checksum: str, folder: Path, tick: Callable[[], None]
    ) -> None:
        """Put the release's executables into `folder/bin`.

        Raises:
            NotReachable: The archive cannot be downloaded.
            BootstrapError: It has another checksum, or lacks an executable.
        """
        # Several parts are in the same archive, so it is kept.
        archive = self._downloads / f"{checksum}.tar.gz"
        if not archive.is_file():
            self._downloads.mkdir(parents=True, exist_ok=True)
            unchecked = folder / "unchecked"
            self._fetch.save(_archive_url(source), unchecked, tick)
            _check(part, source, unchecked, checksum)
            unchecked.replace(archive)
        _unpack(archive, source, folder / "bin")


def _check(part: Part, source: OfficialSource, archive: Path, checksum: str) -> None:
    digest = hashlib.sha256()
    with archive.open("rb") as content:
        while piece := content.read(1 << 20):
            digest.update(piece)
    if digest.hexdigest() != checksum:
        raise BootstrapError(
            f"{part.name}: {_archive_url(source)} has SHA-256 {digest.hexdigest()},"
            f" but {source.checksums_url} says {checksum};"
            " nothing was installed; next: try again, and if it stays so, do not use this network"
        )


def _archive_url(source: OfficialSource) -> str:
    processor = dict(source.processors).get(platform.machine().lower())
    if processor is None:
        raise NotReachable(f"no release for the processor {platform.machine()}")
    return source.archive_url.format(system=platform.system().lower(), processor=processor)


def _unpack(archive: Path, source: OfficialSource, bin_folder: Path) -> None:
    bin_folder.mkdir()
    with tarfile.open(archive) as content:
        for member in content:
            name = Path(member.name).name
            stream = content.extractfile(member) if member.isfile() and name in source.executables else None
            if stream is None:
                continue
            with stream, (bin_folder / name).open("wb") as file:
                shutil.copyfileobj(stream, file)
            (bin_folder / name).chmod(0o755)
    missing = [name for name in source.executables if not (bin_folder / name).is_file()]
    if missing:
        raise BootstrapError(f"{archive.name}: holds no {', '.join(missing)}; next: report this, with the version")
