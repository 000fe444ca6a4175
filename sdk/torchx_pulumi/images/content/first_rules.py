"""Docker's rules of `.dockerignore` as release 0.1.0 read them. Frozen: tags of images that it made depend on them.

Only used to find the tag that 0.1.0 gave to a workspace (docs/decisions/0008). Everything else uses `ignore`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pattern:
    """One line of the file."""

    text: str
    """The line, cleaned, without its `!`."""
    brings_back: bool
    """Whether it began with `!`."""
    expression: re.Pattern[str]
    """Matches a whole path."""


class FirstRules:
    """The rules of one file."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._patterns = [_compile(_clean(each)) for each in lines]
        self._parents: dict[str, tuple[bool, ...]] = {"": (False,) * len(self._patterns)}

    def ignores(self, path: str) -> bool:
        """Return whether a path, relative and with `/`, is left out."""
        if not self._patterns:
            return False
        matched = False
        for pattern, hit in zip(self._patterns, self._hits(path), strict=True):
            if hit:
                matched = not pattern.brings_back
        return matched

    def may_skip(self, folder: str) -> bool:
        """Return whether a folder that is left out is not looked into."""
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


def _clean(line: str) -> str:
    line = line.strip()
    sign = "!" if line.startswith("!") else ""
    path = line[len(sign) :].strip()
    if sign and not path:
        raise ValueError("`!` stands alone")
    path = posixpath.normpath(path)
    return sign + (re.sub("^/+", "", path) or "." if len(path) > 1 else path)


def _compile(pattern: str) -> _Pattern:
    back = pattern.startswith("!")
    text = pattern[1:] if back else pattern
    # The pattern `.` is the context itself, which no path is.
    expression = re.compile(_expression(_split(text)), re.DOTALL)
    return _Pattern(text=text, brings_back=back, expression=expression)


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
