"""Docker's rules of `.dockerignore`, and TorchX's simpler ones. Pure.

Docker's rules are those of moby's `ignorefile` and `patternmatcher`: a pattern matches a path or a folder above it, the
last match wins, `**` matches several folders, and `!` includes a path again.
"""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from torchx_pulumi.images.content.patterns import Match, clean, match_of
from torchx_pulumi.model.errors import ImageError

IGNORE_FILE: Final = ".dockerignore"
TORCHX_DOCKERFILE: Final = "Dockerfile.torchx"
ENVIRONMENT_FILE: Final = "pyvenv.cfg"
"""A folder with this file is a virtual environment."""
DEFAULTS: Final = (
    "**/.git",
    "**/__pycache__",
    "**/*.pyc",
    "**/.mypy_cache",
    "**/.pytest_cache",
    "**/.ruff_cache",
    "**/.pulumi",
    "**/Pulumi.*.yaml",
    "**/Pulumi.*.yml",
    "**/Pulumi.*.json",
)
"""Excluded unless an exception names them: Git history with its credentials, caches, and settings of stacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One line of the file."""

    text: str
    """The cleaned line without `!`."""
    includes: bool
    """Whether the line began with `!`."""
    matches: Match
    """Function of a path. A true value means a match."""


class _Defaults:
    """Default exclusions, unless an exception names a path.

    An exception names a path or folder if it matches it, and if its last part is more than wildcards and matches the
    last part of the path. `!src`, `!src/**` and `!*` name no `src/.git`.
    """

    def __init__(self, defaults: Iterable[str], named: Callable[[str, str], bool]) -> None:
        self._patterns = [_compile(each) for each in defaults]
        self._named = named
        self._environments: set[str] = set()
        self._matched: dict[str, tuple[str, ...]] = {"": ()}

    def leave_out(self, folder: str) -> None:
        """Exclude a virtual environment."""
        self._environments.add(folder)
        self._matched.pop(folder, None)

    def ignores(self, path: str) -> bool:
        """Return whether a path is excluded by default."""
        matched = self._above(posixpath.dirname(path)) + self._match(path)
        return any(not self._named(each, path) for each in matched)

    def _match(self, path: str) -> tuple[str, ...]:
        found = path in self._environments or any(pattern.matches(path) for pattern in self._patterns)
        return (path,) if found else ()

    def _above(self, folder: str) -> tuple[str, ...]:
        """Return the folder and the folders above it that match a default."""
        if folder not in self._matched:
            self._matched[folder] = self._above(posixpath.dirname(folder)) + self._match(folder)
        return self._matched[folder]


def _is_wildcard(part: str) -> bool:
    return not part.strip("*?.")


class DockerRules:
    """Docker's rules, after the default exclusions.

    >>> rules = DockerRules(["*.log", "!keep.log"])
    >>> rules.ignores("a.log"), rules.ignores("keep.log"), rules.ignores("deep/a.log")
    (True, False, False)
    >>> DockerRules(["!vendor/.git"], DEFAULTS).ignores("vendor/.git")
    False
    """

    def __init__(self, patterns: Iterable[str], defaults: Sequence[str] = ()) -> None:
        self._patterns = [_compile(each) for each in patterns]
        exceptions = [(each, _names(each.text)) for each in self._patterns if each.includes]
        self._defaults = _Defaults(defaults, lambda excluded, path: _included(exceptions, excluded, path))
        self._folders: dict[str, tuple[bool, ...]] = {}

    def leave_out(self, folder: str) -> None:
        """Exclude a virtual environment by default."""
        self._defaults.leave_out(folder)

    def ignores(self, path: str) -> bool:
        """Return whether a relative path with `/` is excluded."""
        return self._result(path)[0] or self._defaults.ignores(path)

    def by_default(self, path: str) -> bool:
        """Return whether a path is excluded by default only, not by the file."""
        return not self._result(path)[0] and self._defaults.ignores(path)

    def may_skip(self, folder: str) -> bool:
        """Return whether an excluded folder is not read.

        Docker reads it only if an exception begins with its literal path: `!docs/keep.md` includes a file of an
        excluded `docs`, `!**/keep.md` does not.
        """
        below = f"{folder}/"
        return not any(pattern.includes and f"{pattern.text}/".startswith(below) for pattern in self._patterns)

    def _result(self, path: str) -> tuple[bool, tuple[bool, ...]]:
        """Return whether a path is excluded, and the patterns that match it or a folder above it.

        As in moby (`MatchesUsingParentResults`), a pattern that cannot change the result is not evaluated, and counts
        as no match for the paths below.
        """
        parent = posixpath.dirname(path)
        above = self._above(parent) if parent else (False,) * len(self._patterns)
        ignored, hits = False, []
        for matched, pattern in zip(above, self._patterns, strict=True):
            hit = matched or (pattern.includes == ignored and bool(pattern.matches(path)))
            hits.append(hit)
            if hit:
                ignored = not pattern.includes
        return ignored, tuple(hits)

    def _above(self, folder: str) -> tuple[bool, ...]:
        if folder not in self._folders:
            self._folders[folder] = self._result(folder)[1]
        return self._folders[folder]


class TorchxRules:
    """TorchX's rules for `.dockerignore` (`torchx.workspace.api.walk_workspace`), (option `ignore_rules=torchx`).

    They differ from Docker's: `*` matches `/`, a pattern without a folder matches from the root only, a matched folder
    is never read, and below a folder that `!` includes earlier patterns do not apply.
    """

    def __init__(self, patterns: Iterable[str], defaults: Sequence[str] = ()) -> None:
        self._patterns = list(patterns)
        self._own = TorchxRules(self._patterns) if defaults else self
        self._defaults = _Defaults(defaults, lambda excluded, _: self._names(excluded))
        self._first: dict[str, int | None] = {"": 0}

    def leave_out(self, folder: str) -> None:
        """Exclude a virtual environment by default."""
        self._defaults.leave_out(folder)
        self._first.pop(folder, None)

    def by_default(self, path: str) -> bool:
        """Return whether a path is excluded by default only, not by the file."""
        return self.ignores(path) and not self._own.ignores(path)

    def ignores(self, path: str) -> bool:
        """Return whether a path is excluded."""
        first = self._start(posixpath.dirname(path))
        return first is None or self._result(path, first)[1] or self._defaults.ignores(path)

    def may_skip(self, folder: str) -> bool:
        """Return True: no exception includes a path of an excluded folder."""
        return bool(folder)

    def _start(self, folder: str) -> int | None:
        """Return the index of the first pattern that applies in a folder. None: the folder is excluded."""
        if folder in self._first:
            return self._first[folder]
        above = self._start(posixpath.dirname(folder))
        start = None
        if above is not None and not self._defaults.ignores(folder):
            last, matched = self._result(folder, above)
            begin = above + last + 1
            if not matched and not self._result(folder, begin)[1]:
                start = begin
        self._first[folder] = start
        return start

    def _result(self, path: str, first: int) -> tuple[int, bool]:
        last, matched = -1, False
        if path == TORCHX_DOCKERFILE:
            return last, matched
        for index, pattern in enumerate(self._patterns[first:]):
            if pattern.startswith("!") and fnmatch.fnmatch(path, pattern[1:]):
                last, matched = index, False
            elif fnmatch.fnmatch(path, pattern):
                last, matched = index, True
        return last, matched

    def _names(self, path: str) -> bool:
        """Return whether an exception names a path; see `_Defaults`."""
        exceptions = [(each[1:], posixpath.basename(each)) for each in self._patterns if each.startswith("!")]
        return any(
            not _is_wildcard(last := part.removeprefix("!"))
            and fnmatch.fnmatch(posixpath.basename(path), last)
            and fnmatch.fnmatch(path, pattern)
            for pattern, part in exceptions
        )


Rules = DockerRules | TorchxRules


def docker_rules(text: str, defaults: Sequence[str] = ()) -> DockerRules:
    """Parse a `.dockerignore` by Docker's rules.

    Args:
        text: Text of the file.
        defaults: Patterns of paths that are excluded unless an exception of the file names them.

    Raises:
        ImageError: Lines are not valid or not supported. The message lists them.
    """
    patterns, wrong = [], []
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        if line.startswith("#"):
            continue
        try:
            pattern = clean(line)
            if pattern:
                _compile(pattern)
                patterns.append(pattern)
        except ValueError as error:
            wrong.append(f"line {number}, {line.strip()!r}: {error}")
    if wrong:
        raise ImageError(f"{IGNORE_FILE} has lines that cannot be used:\n" + "\n".join(f"  - {w}" for w in wrong))
    return DockerRules(patterns, defaults)


def torchx_rules(text: str, defaults: Sequence[str] = ()) -> TorchxRules:
    """Parse a `.dockerignore` by TorchX's rules; see `docker_rules`."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return TorchxRules((line for line in lines if line and line != "."), defaults)


def _compile(pattern: str) -> Pattern:
    back = pattern.startswith("!")
    text = pattern[1:] if back else pattern
    return Pattern(text=text, includes=back, matches=match_of(text))


_Names = Sequence[tuple[Match, Match]]
"""Match functions of a folder (by a prefix of a pattern) and of its name (by the last part of that prefix)."""


def _names(text: str) -> _Names:
    """Return match functions for the paths that a pattern, or a prefix of it up to a `/`, names; see `_Defaults`."""
    parts = text.split("/")
    return [
        (match_of("/".join(parts[: index + 1])), match_of(last))
        for index, last in enumerate(parts)
        if not _is_wildcard(last)
    ]


def _included(exceptions: Iterable[tuple[Pattern, _Names]], excluded: str, path: str) -> bool:
    """Return whether an exception names an excluded path and matches `path`, which is the same or below it."""
    name = posixpath.basename(excluded)
    ends = [at for at in range(len(excluded), len(path)) if path[at] == "/"]
    below = [*(path[:end] for end in ends), path]
    return any(
        any(matches(excluded) and matches_name(name) for matches, matches_name in names)
        and any(pattern.matches(each) for each in below)
        for pattern, names in exceptions
    )
