"""Patterns of paths: of Go's `filepath.Match`, and of `.dockerignore` as moby reads them. Pure.

moby checks a line with `filepath.Match` and then translates it to a regular expression of Go, in which some characters
and escapes get another meaning. Patterns that mean the same in both are read as Docker reads them; others are refused.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from typing import Final

Match = Callable[[str], object]
"""Function of a path. A true value means a match."""

_PART: Final = re.compile(
    r"\*\*/?|[*?]|\[(?:\^|(?!\^))(?:(?:\\.|[^\\\]-])(?:-(?:\\.|[^\\\]-]))?)+\]|\\.|[^\\\[*?]", re.DOTALL
)
_MEMBER: Final = re.compile(r"(\\?.)(?:-(\\?.))?", re.DOTALL)
"""A character of a class, or a range of them."""
_PLAIN: Final = re.compile(r"[^*?\[\]\\]*")
_INVALID: Final = dict.fromkeys(range(0xDC80, 0xDD00), "\ufffd")
"""Go's expressions treat all bytes that are not UTF-8 as the same character."""
_CONTROL: Final = re.compile("[\0-\x08\x0e-\x1f\x7f\ufeff]")


def parts_of(pattern: str) -> list[str]:
    """Return the parts of a pattern: `**`, `**/`, `*`, `?`, classes, escaped and single characters.

    >>> parts_of("**/a?[b-d]")
    ['**/', 'a', '?', '[b-d]']

    Raises:
        ValueError: The pattern is not valid for `filepath.Match`.
    """
    parts, end = [], 0
    while end < len(pattern):
        found = _PART.match(pattern, end)
        if found is None:
            if pattern[end] == "\\":
                raise ValueError("ends in a backslash; write two of them for one")
            raise ValueError("after a `[`, characters and ranges must stand, and a `]`; write \\[ for the character")
        parts.append(found[0])
        end = found.end()
    return parts


def expression_of(part: str) -> str:
    """Return a part of a pattern as an expression. Two stars mean no more than one."""
    if part.startswith("*"):
        return f"[^/]*{part.lstrip('*')}"
    if part == "?":
        return "[^/]"
    if not part.startswith("["):
        return re.escape(part[-1])
    # A range that ends before it begins contains nothing.
    whole = "".join(f"{re.escape(low[-1])}-{re.escape(high[-1])}" for low, high in members(part) if low[-1] <= high[-1])
    negation = "^" if part.startswith("[^") else ""
    return f"[{negation}{whole}]" if whole else "." if negation else "(?!)"


def members(part: str) -> list[tuple[str, str]]:
    """Return the first and the last character of each range of a class, with their backslashes."""
    return [(low, high or low) for low, high in _MEMBER.findall(part[1:-1].removeprefix("^"))]


def clean(line: str) -> str:
    """Return a line of a `.dockerignore` as Docker reads it, trimmed and with a clean path; empty if Docker skips it.

    >>> clean(" !/a/./b/../c/ "), clean("."), clean("./x"), clean("/ *")
    ('!a/c', '.', 'x', '*')

    Raises:
        ValueError: The line has control characters, or is an exception without a path.
    """
    # Go trims other control characters than Python.
    if _CONTROL.search(line):
        raise ValueError("has control characters, which are not supported; write `?` for them")
    line = line.strip()
    sign = "!" if line.startswith("!") else ""
    path = line[len(sign) :].strip()
    if path:
        path = _plain_path(path)
        path = path[1:] if len(path) > 1 and path.startswith("/") else path
    # Docker trims and cleans when it reads the file, and again, with the sign, when it creates patterns.
    line = f"{sign}{path}".strip()
    line = _plain_path(line) if line else ""
    if line == "!":
        raise ValueError("`!` names no path; write the path to keep after it")
    return line


def _plain_path(path: str) -> str:
    # normpath keeps two leading slashes, which Go's Clean does not.
    return posixpath.normpath(re.sub("^/+", "/", path))


def match_of(text: str) -> Match:
    """Return the match function of a pattern of `.dockerignore`: equality, beginning, end, or an expression.

    Args:
        text: The cleaned pattern without `!`.

    Raises:
        ValueError: The pattern is not valid, or means something else in moby's expression.
    """
    parts = parts_of(text)
    if _PLAIN.fullmatch(text):
        return text.__eq__
    if text.endswith("**") and _PLAIN.fullmatch(text[:-2]):
        return lambda path: path.startswith(text[:-2])
    if text.startswith("**") and _PLAIN.fullmatch(text[2:]):
        ending = text[2:]
        # `**.pem` leaves out `a/key.pem`, and `**/bar` is not `rebar`.
        return lambda path: path.endswith(ending) or f"/{path}" == ending
    for part in parts:
        _check(part)
    made = ["(?:.*/)?" if part.startswith("**") else expression_of(part.translate(_INVALID)) for part in parts]
    if parts[-1] == "**":
        made[-1] = ".*"
    matches = re.compile("".join(made)).fullmatch
    return lambda path: matches(path if path.isascii() else path.translate(_INVALID))


def _check(part: str) -> None:
    """Refuse what moby's expression reads differently from `filepath.Match`.

    Raises:
        ValueError: The part is such a one.
    """
    if part in tuple("^|{}"):
        raise ValueError(f"{part!r} is not supported beside wildcards; write \\{part} for the character")
    ranges = members(part) if part.startswith("[") else []
    for each in (part, *(each for pair in ranges for each in pair)):
        if each.startswith("\\") and (each[1] == "/" or each[1].isalnum() or not each[1].isascii()):
            raise ValueError(f"a backslash before {each[1]!r} is not supported; leave it out")
    for low, high in ranges:
        for each in (low, high):
            if each in tuple("*?/[^\ufffd") or ord(each[-1]) in _INVALID:
                raise ValueError(f"{each!a} in a class is not supported; write a pattern without it")
        if low[-1] > high[-1]:
            raise ValueError(f"a class has the range {low}-{high}, which ends before it begins")
