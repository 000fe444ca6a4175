"""Docker's rules of `.dockerignore`, and TorchX's simpler ones. Pure: text to patterns, paths to a verdict.

Docker's are those of moby's `ignorefile` and `patternmatcher`: a pattern matches a path or a folder above it, the last
one that matches wins, `**` crosses folders, `!` brings back.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from torchx_pulumi.errors import ImageError

IGNORE_FILE: Final = ".dockerignore"
TORCHX_DOCKERFILE: Final = "Dockerfile.torchx"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One line of the file."""

    text: str
    """The line, cleaned, without its `!`."""
    brings_back: bool
    """Whether it began with `!`."""
    expression: re.Pattern[str]
    """Matches a whole path."""


class DockerRules:
    """Docker's rules.

    >>> rules = DockerRules(["*.log", "!keep.log"])
    >>> rules.ignores("a.log"), rules.ignores("keep.log"), rules.ignores("deep/a.log")
    (True, False, False)
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [_compile(each) for each in patterns]
        self._parents: dict[str, tuple[bool, ...]] = {"": (False,) * len(self._patterns)}

    def ignores(self, path: str) -> bool:
        """Say whether a path, relative and with `/`, is left out."""
        if not self._patterns:
            return False
        matched = False
        for pattern, hit in zip(self._patterns, self._hits(path), strict=True):
            if hit:
                matched = not pattern.brings_back
        return matched

    def may_skip(self, folder: str) -> bool:
        """Say whether a folder that is left out is not looked into.

        Docker looks into it only where an exception names it letter by letter: `!docs/keep.md` brings back a file of
        an ignored `docs`, `!**/keep.md` does not.
        """
        below = f"{folder}/"
        return not any(pattern.brings_back and f"{pattern.text}/".startswith(below) for pattern in self._patterns)

    def _hits(self, path: str) -> tuple[bool, ...]:
        known = self._parents.get(path)
        if known is not None:
            return known
        parent = posixpath.dirname(path)
        above = self._parents.get(parent)
        if above is None:
            above = self._parents[parent] = self._hits(parent)
        return tuple(
            hit or pattern.expression.fullmatch(path) is not None
            for hit, pattern in zip(above, self._patterns, strict=True)
        )


class TorchxRules:
    """TorchX's rules for `.dockerignore` (`torchx.workspace.api.walk_workspace`), for those who rely on them.

    They differ from Docker's: `*` crosses folders, a pattern without a folder matches from the root only, a folder
    that was matched is never entered, and below a folder that `!` brought back earlier patterns do not count.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = list(patterns)
        self._first: dict[str, int | None] = {"": 0}

    def ignores(self, path: str) -> bool:
        """Say whether a path is left out."""
        first = self._start(posixpath.dirname(path))
        return first is None or self._judge(path, first)[1]

    def may_skip(self, folder: str) -> bool:
        """Say that nothing in a folder that is left out is ever brought back."""
        return bool(folder)

    def _start(self, folder: str) -> int | None:
        """Return the first pattern that counts in a folder. None: the folder is left out."""
        if folder in self._first:
            return self._first[folder]
        above = self._start(posixpath.dirname(folder))
        start = None
        if above is not None:
            last, matched = self._judge(folder, above)
            begin = above + last + 1
            if not matched and not self._judge(folder, begin)[1]:
                start = begin
        self._first[folder] = start
        return start

    def _judge(self, path: str, first: int) -> tuple[int, bool]:
        last, matched = -1, False
        if path == TORCHX_DOCKERFILE:
            return last, matched
        for index, pattern in enumerate(self._patterns[first:]):
            if pattern.startswith("!") and fnmatch.fnmatch(path, pattern[1:]):
                last, matched = index, False
            elif fnmatch.fnmatch(path, pattern):
                last, matched = index, True
        return last, matched


Rules = DockerRules | TorchxRules


def docker_rules(text: str) -> DockerRules:
    """Read a `.dockerignore` by Docker's rules.

    Raises:
        ImageError: A line is no pattern; all such lines.
    """
    patterns, wrong = [], []
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        if line.startswith("#") or not line.strip():
            continue
        try:
            patterns.append(clean(line))
            _compile(patterns[-1])
        except ValueError as error:
            wrong.append(f"line {number}, {line.strip()!r}: {error}")
    if wrong:
        raise ImageError(f"{IGNORE_FILE} has lines that Docker does not take:\n" + "\n".join(f"  - {w}" for w in wrong))
    return DockerRules(patterns)


def torchx_rules(text: str) -> TorchxRules:
    """Read a `.dockerignore` by TorchX's rules."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return TorchxRules(line for line in lines if line and line != ".")


def clean(line: str) -> str:
    """Return a line as Docker reads it: trimmed, and its path made plain.

    >>> clean(" !/a/./b/../c/ "), clean("."), clean("./x")
    ('!a/c', '.', 'x')
    """
    line = line.strip()
    sign = "!" if line.startswith("!") else ""
    path = line[len(sign) :].strip()
    if sign and not path:
        raise ValueError("`!` stands alone; name what is to be kept after it")
    path = posixpath.normpath(path)
    # normpath keeps two leading slashes, which Go's Clean does not.
    return sign + (re.sub("^/+", "", path) or "." if len(path) > 1 else path)


def _compile(pattern: str) -> Pattern:
    back = pattern.startswith("!")
    text = pattern[1:] if back else pattern
    # The pattern `.` is the context itself, which no path is.
    expression = re.compile(_expression(_split(text)), re.DOTALL)
    return Pattern(text=text, brings_back=back, expression=expression)


def _split(text: str) -> Sequence[str]:
    """Return a pattern's parts: `*`, `**`, `**/`, `?`, classes, and single characters behind a backslash."""
    parts = re.findall(r"\*\*/?|\*|\?|\[(?:\\.|[^\]\\])+\]|\\.|[^*?\\]", text, re.DOTALL)
    if "".join(parts) != text:
        raise ValueError("ends in a backslash; write two of them for one")
    return parts


def _expression(parts: Sequence[str]) -> str:
    made = []
    for index, part in enumerate(parts):
        if part.startswith("**"):
            made.append(".*" if index == len(parts) - 1 else "(?:.*/)?")
        elif part == "*":
            made.append("[^/]*")
        elif part == "?":
            made.append("[^/]")
        elif part.startswith("[") and len(part) > 1:
            made.append(_class(part))
        elif part == "[":
            raise ValueError("a `[` is not closed by a `]`; write \\[ for the character")
        else:
            made.append(re.escape(part[-1]))
    return "".join(made)


def _class(part: str) -> str:
    inner = part[1:-1]
    negated = inner.startswith("^")
    inner = inner[1:] if negated else inner
    if not inner:
        raise ValueError(f"the class {part!r} is empty")
    # `[` would begin a nested set, and `&&`, `~~`, `||` are reserved in Python.
    inner = re.sub(r"\\(.)|([\[&~|^])", lambda found: re.escape(found[1]) if found[1] else f"\\{found[2]}", inner)
    try:
        re.compile(f"[{inner}]")
    except re.error as error:
        raise ValueError(f"the class {part!r} is none ({error.msg})") from error
    return f"(?!/)[{'^' if negated else ''}{inner}]"
