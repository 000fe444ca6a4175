"""Decide for each part where it comes from, and get it.

The order: installed on the machine; in the cache; the official release, where the internet is there; Go modules or
Debian packages. How each of these works is in modules of their own, passed in from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from tools.bootstrap.cache import PartCache
from tools.bootstrap.installed import Found, link
from tools.bootstrap.part import DebianSource, GoSource, OfficialSource, Part
from tools.bootstrap.progress import Progress


class NotOffered(Exception):  # noqa: N818 - it is an answer, not a mistake
    """This way of getting a part is closed on this machine; the next one is taken. The text says why."""


Tick: TypeAlias = Callable[[], None]
"""Called about once a second while something long goes on."""


class Finder(Protocol):
    """Looks for a part that is installed on the machine."""

    def find(self, part: Part) -> Found | None:
        """Return it, or None."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Makers:
    """The ways of getting a part: each puts the executables into `bin` of the folder it is given."""

    official: Callable[[Part, OfficialSource, Path, Tick], None]
    """Downloads; raises NotOffered to leave the part to the next way."""
    go: Callable[[Part, GoSource, Path, Tick], None]
    """Builds from Go modules."""
    debian: Callable[[Part, DebianSource, Path, Tick], None]
    """Unpacks Debian packages."""

    def make(self, part: Part, folder: Path, tick: Tick) -> None:
        """Get the part in the way that its source calls for."""
        match part.source:
            case OfficialSource():
                self.official(part, part.source, folder, tick)
            case GoSource():
                self.go(part, part.source, folder, tick)
            case DebianSource():
                self.debian(part, part.source, folder, tick)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Where a part is, or would be, taken from."""

    part: Part
    """The part."""
    origin: str
    """Where from, in a few words."""
    folder: Path | None
    """Folder of its executables. None: it has to be made first."""


class Provisioner:
    """Gets parts. One for a process is enough; several processes may ask for the same parts at the same time."""

    def __init__(self, cache: PartCache, finder: Finder, makers: Makers, progress: Progress) -> None:
        self._cache = cache
        self._finder = finder
        self._makers = makers
        self._progress = progress

    def choose(self, part: Part) -> Choice:
        """Say where a part is taken from, without making it."""
        found = self._finder.find(part)
        if found is not None:
            return Choice(part=part, origin=found.origin, folder=link(found, part, self._cache.root / "links"))
        for variant in _variants(part):
            folder = self._cache.find(variant)
            if folder is not None:
                origin = f"{variant.version}, {variant.origin}, in the cache"
                return Choice(part=part, origin=origin, folder=folder / "bin")
        ways = ", else ".join(variant.origin for variant in _variants(part))
        return Choice(part=part, origin=f"{part.version}, not here yet: {ways}", folder=None)

    def ensure(self, parts: Sequence[Part]) -> dict[str, Path]:
        """Return the folder of each part's executables, by the part's name; make what is missing.

        Raises:
            BootstrapError: A part cannot be had.
        """
        choices = [self.choose(part) for part in parts]
        for choice in choices:
            if choice.folder is not None:
                self._progress.once(f"{choice.part.name}: {choice.origin}")
        missing = [choice.part for choice in choices if choice.folder is None]
        self._progress.plan({part.name: part.expected_s for part in missing})
        try:
            made = {part.name: self._make(part) for part in missing}
        finally:
            self._progress.close()
        folders = {choice.part.name: choice.folder for choice in choices}
        return {name: folder or made[name] for name, folder in folders.items()}

    def clear_outdated(self, parts: Iterable[Part]) -> list[Path]:
        """Remove made parts that the given table does not name any more; return what was removed."""
        return self._cache.clear_outdated(variant for part in parts for variant in _variants(part))

    def _make(self, part: Part) -> Path:
        variants = list(_variants(part))
        for variant in variants[:-1]:
            try:
                return self._make_variant(variant)
            except NotOffered as closed:
                self._progress.once(f"{part.name}: no {variant.origin} ({closed})")
        return self._make_variant(variants[-1])

    def _make_variant(self, part: Part) -> Path:
        self._progress.start(part.name, _DOING[type(part.source)])
        folder = self._cache.make(part, lambda unfinished: self._makers.make(part, unfinished, self._progress.tick))
        self._progress.finish(f"{part.version}, {part.origin}")
        return folder / "bin"


_DOING: Final = {OfficialSource: "downloading", GoSource: "building", DebianSource: "unpacking"}


def _variants(part: Part) -> Iterable[Part]:
    if part.official is not None:
        yield part.official
    yield part
