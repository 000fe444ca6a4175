"""Docker's rules of `.dockerignore`, TorchX's simpler ones, and the default exclusions. Pure.

Docker's rules are those of moby's `ignorefile` and `patternmatcher`: a pattern matches a path or a folder above it, the
last match wins, `**` matches several folders, and `!` includes a path again.
"""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Sequence
from typing import Final, NamedTuple

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


class _Pattern(NamedTuple):
    """One line of the file."""

    text: str
    """The cleaned line without `!`."""
    includes: bool
    """Whether the line began with `!`."""
    matches: Match
    names: Sequence[tuple[Match, Match]]
    """For each prefix up to a `/` whose last part has letters, the match of the prefix and of that part: of `*/cache/*`
    `*/cache` and `cache`."""


def _pattern(line: str) -> _Pattern:
    text = line.removeprefix("!")
    parts = text.split("/")
    names = [
        (match_of("/".join(parts[: index + 1])), match_of(last))
        for index, last in enumerate(parts)
        if not _is_wildcard(last)
    ]
    return _Pattern(text, line != text, match_of(text), names)


def _is_wildcard(part: str) -> bool:
    return not part.strip("*?.")


class DockerPatterns:
    """The lines of a `.dockerignore` by Docker's rules.

    Raises:
        ValueError: A line is not valid or not supported.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        self._patterns = [_pattern(line) for line in lines]
        self._folders: dict[str, tuple[bool, ...]] = {"": (False,) * len(lines)}

    def ignores(self, path: str) -> bool:
        """Return whether a relative path with `/` is excluded."""
        return self._result(path)[0]

    def may_skip(self, folder: str) -> bool:
        """Return whether an excluded folder is not read.

        Docker reads it only if an exception begins with its literal path: `!docs/keep.md` includes a file of an
        excluded `docs`, `!**/keep.md` does not.
        """
        return not any(each.includes and f"{each.text}/".startswith(f"{folder}/") for each in self._patterns)

    def names(self, excluded: str, path: str) -> bool:
        """Return whether an exception names an excluded path and matches `path`, which is the same or below it."""
        name = posixpath.basename(excluded)
        below = [path[:at] for at in range(len(excluded), len(path)) if path[at] == "/"] + [path]
        return any(
            pattern.includes
            and any(matches(excluded) and matches_name(name) for matches, matches_name in pattern.names)
            and any(pattern.matches(each) for each in below)
            for pattern in self._patterns
        )

    def _result(self, path: str) -> tuple[bool, tuple[bool, ...]]:
        """Return whether a path is excluded, and the patterns that match it or a folder above it.

        As in moby (`MatchesUsingParentResults`), a pattern that cannot change the result is not evaluated, and counts
        as no match for the paths below.
        """
        ignored, hits = False, []
        for matched, pattern in zip(self._above(posixpath.dirname(path)), self._patterns, strict=True):
            hit = matched or (pattern.includes == ignored and bool(pattern.matches(path)))
            hits.append(hit)
            if hit:
                ignored = not pattern.includes
        return ignored, tuple(hits)

    def _above(self, folder: str) -> tuple[bool, ...]:
        if folder not in self._folders:
            self._folders[folder] = self._result(folder)[1]
        return self._folders[folder]


class TorchxPatterns:
    """The lines of a `.dockerignore` by TorchX's rules (`torchx.workspace.api.walk_workspace`).

    They differ from Docker's: `*` matches `/`, a pattern without a folder matches from the root only, a matched folder
    is never read, and below a folder that `!` includes earlier patterns do not apply.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._first: dict[str, int | None] = {"": 0}

    def ignores(self, path: str) -> bool:
        """Return whether a path is excluded."""
        first = self._start(posixpath.dirname(path))
        return first is None or self._result(path, first)[1]

    def may_skip(self, folder: str) -> bool:
        """Return True: no exception includes a path of an excluded folder."""
        return bool(folder)

    def names(self, excluded: str, path: str) -> bool:  # noqa: ARG002  what is below comes with the folder
        """Return whether an exception names an excluded path."""
        return any(
            not _is_wildcard(posixpath.basename(pattern))
            and fnmatch.fnmatch(posixpath.basename(excluded), posixpath.basename(pattern))
            and fnmatch.fnmatch(excluded, pattern)
            for pattern in (line[1:] for line in self._lines if line.startswith("!"))
        )

    def _start(self, folder: str) -> int | None:
        """Return the index of the first pattern that applies in a folder, or None if the folder is excluded."""
        if folder not in self._first:
            start = None
            above = self._start(posixpath.dirname(folder))
            if above is not None:
                last, is_excluded = self._result(folder, above)
                begin = above + last + 1
                if not is_excluded and not self._result(folder, begin)[1]:
                    start = begin
            self._first[folder] = start
        return self._first[folder]

    def _result(self, path: str, first: int) -> tuple[int, bool]:
        """Return the index of the last pattern that matches, from the first one that applies, and the result."""
        last, is_excluded = -1, False
        for index, line in enumerate(self._lines[first:] if path != TORCHX_DOCKERFILE else ()):
            if line.startswith("!") and fnmatch.fnmatch(path, line[1:]):
                last, is_excluded = index, False
            elif fnmatch.fnmatch(path, line):
                last, is_excluded = index, True
        return last, is_excluded


class Rules:
    r"""The lines of a `.dockerignore`, and default exclusions unless an exception names a path.

    An exception names a path or folder if it matches it, and if its last part is more than wildcards and matches the
    last part of the path. `!src`, `!src/**` and `!*` name no `src/.git`.

    >>> rules = docker_rules("*.log\n!keep.log")
    >>> rules.ignores("a.log"), rules.ignores("keep.log"), rules.ignores("deep/a.log")
    (True, False, False)
    >>> docker_rules("!vendor/.git", DEFAULTS).ignores("vendor/.git")
    False
    """

    def __init__(self, own: DockerPatterns | TorchxPatterns, defaults: Sequence[str]) -> None:
        self._own = own
        self._defaults = [match_of(each) for each in defaults]
        self._environments: set[str] = set()
        self._matched: dict[str, tuple[str, ...]] = {"": ()}

    def leave_out(self, folder: str) -> None:
        """Exclude a virtual environment by default."""
        self._environments.add(folder)
        self._matched.pop(folder, None)

    def ignores(self, path: str) -> bool:
        """Return whether a relative path with `/` is excluded."""
        return self._own.ignores(path) or self._ignores_by_default(path)

    def by_default(self, path: str) -> bool:
        """Return whether a path is excluded by default only, not by the file."""
        return not self._own.ignores(path) and self._ignores_by_default(path)

    def may_skip(self, folder: str) -> bool:
        """Return whether an excluded folder is not read."""
        return self._own.may_skip(folder)

    def _ignores_by_default(self, path: str) -> bool:
        matched = self._above(posixpath.dirname(path)) + self._match(path)
        return any(not self._own.names(each, path) for each in matched)

    def _match(self, path: str) -> tuple[str, ...]:
        return (path,) if path in self._environments or any(matches(path) for matches in self._defaults) else ()

    def _above(self, folder: str) -> tuple[str, ...]:
        """Return the folder and the folders above it that match a default."""
        if folder not in self._matched:
            self._matched[folder] = self._above(posixpath.dirname(folder)) + self._match(folder)
        return self._matched[folder]


def docker_rules(text: str, defaults: Sequence[str] = ()) -> Rules:
    """Parse a `.dockerignore` by Docker's rules.

    Args:
        text: Text of the file.
        defaults: Patterns of paths that are excluded unless an exception of the file names them.

    Raises:
        ImageError: Lines are not valid or not supported. The message lists them.
    """
    lines, wrong = [], []
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        try:
            cleaned = "" if line.startswith("#") else clean(line)
            lines += [cleaned] if cleaned else []
            match_of(cleaned.removeprefix("!"))
        except ValueError as error:
            wrong.append(f"line {number}, {line.strip()!r}: {error}")
    if wrong:
        raise ImageError(f"{IGNORE_FILE} has lines that cannot be used:\n" + "\n".join(f"  - {w}" for w in wrong))
    return Rules(DockerPatterns(lines), defaults)


def torchx_rules(text: str, defaults: Sequence[str] = ()) -> Rules:
    """Parse a `.dockerignore` by TorchX's rules (option `ignore_rules=torchx`); see `docker_rules`."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return Rules(TorchxPatterns([line for line in lines if line and line != "."]), defaults)
