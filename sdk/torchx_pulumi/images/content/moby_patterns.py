"""Patterns of a `.dockerignore` as moby's patternmatcher compiles them. Pure.

moby checks the syntax of a pattern with Go's `filepath.Match` and then translates it to a regular expression of Go. It
does not escape `|`, `{`, `}`, `^`, escapes of letters, and `*` and `?` inside a class, which affects what Docker sends.
This module therefore implements both steps character by character.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

Match = Callable[[str], object]
"""Function of a path. A true value means a match."""

BLANKS: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
"""Characters that Go trims. Python would also trim \\x1c to \\x1f."""
_BOM: Final = "\ufeff"
_ESCAPED: Final = ".+()$"
"""Characters that moby escapes."""
_INVALID: Final = dict.fromkeys(range(0xDC80, 0xDD00), "\ufffd")
"""Go's expressions treat all bytes that are not UTF-8 as the same character."""
_LAST_RUNE: Final = 0x10FFFF
_CHUNK: Final = re.compile(r"(?:\\.|\[(?:\\.|[^\]\\])*(?:\]|\\?\Z)|[^*])*", re.DOTALL)
_REPETITION: Final = re.compile(r"[*?]|\{(0|[1-9][0-9]*)(?:(,)(0|[1-9][0-9]*)?)?\}")
_CLASS_NAME: Final = re.compile(r"\[:(\^?)(.*?):\]", re.DOTALL)
_BY_NUMBER: Final = re.compile(r"\\(?:(0[0-7]{0,2}|[1-7][0-7]{1,2})|x([0-9a-fA-F]{2}|\{[0-9a-fA-F]+\}))")
_MOST_REPEATS: Final = 1000

Ranges = Sequence[tuple[int, int]]


def _ranges(text: str) -> Ranges:
    return [(ord(first), ord(last)) for first, last in zip(text[::2], text[1::2], strict=True)]


def _without(ranges: Ranges) -> Ranges:
    begin, made = 0, []
    for low, high in sorted(ranges):
        if low > begin:
            made.append((begin, low - 1))
        begin = max(begin, high + 1)
    return [*made, *([(begin, _LAST_RUNE)] if begin <= _LAST_RUNE else [])]


_PERL: Final = {"d": _ranges("09"), "s": _ranges("\t\n\f\r  "), "w": _ranges("09AZ__az")}
_POSIX: Final = {
    "alnum": _ranges("09AZaz"),
    "alpha": _ranges("AZaz"),
    "ascii": _ranges("\0\x7f"),
    "blank": _ranges("\t\t  "),
    "cntrl": _ranges("\0\x1f\x7f\x7f"),
    "digit": _ranges("09"),
    "graph": _ranges("!~"),
    "lower": _ranges("az"),
    "print": _ranges(" ~"),
    "punct": _ranges("!/:@[`{~"),
    "space": _ranges("\t\r  "),
    "upper": _ranges("AZ"),
    "word": _ranges("09AZ__az"),
    "xdigit": _ranges("09AFaf"),
}
_CONTROLS: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ASSERTIONS: Final = {"A": r"\A", "b": r"\b", "B": r"\B", "z": r"\Z"}


def clean(line: str) -> str:
    """Return a line as Docker reads it: trimmed and with a clean path. Empty: Docker skips the line.

    >>> clean(" !/a/./b/../c/ "), clean("."), clean("./x"), clean("/ *")
    ('!a/c', '.', 'x', '*')

    Raises:
        ValueError: The line is an exception without a path.
    """
    line = line.strip(BLANKS)
    sign = "!" if line.startswith("!") else ""
    path = line[len(sign) :].strip(BLANKS)
    if path:
        path = _plain_path(path)
        path = path[1:] if len(path) > 1 and path.startswith("/") else path
    # Docker trims and cleans when it reads the file, and again, with the sign, when it creates patterns.
    line = f"{sign}{path}".strip(BLANKS)
    line = _plain_path(line) if line else ""
    if line == "!":
        raise ValueError("`!` names no path; write the path to keep after it")
    return line


def _plain_path(path: str) -> str:
    # normpath keeps two leading slashes, which Go's Clean does not.
    return posixpath.normpath(re.sub("^/+", "/", path))


def match_of(text: str) -> Match:
    """Return the match function of a pattern: equality, prefix, suffix, or a regular expression.

    Args:
        text: The cleaned pattern without `!`.

    Raises:
        ValueError: Docker refuses the pattern, or it is one of the few that this module does not support.
    """
    _check_syntax(text)
    made, kind = ["^"], "equal"
    runes = text.removeprefix(_BOM).translate(_INVALID)
    index, number = 0, -1
    while index < len(runes):
        rune, index, number = runes[index], index + 1, number + 1
        if runes.startswith("*", index) and rune == "*":
            index += 2 if runes.startswith("/", index + 1) else 1
            if index < len(runes):
                made.append("(.*/)?")
                kind = "expression"
            elif kind == "equal":
                kind = "beginning"
            else:
                made.append(".*")
                kind = "expression"
            kind = "end" if number == 0 else kind
        elif rune in "*?":
            made.append("[^/]*" if rune == "*" else "[^/]")
            kind = "expression"
        elif rune == "\\":
            made.append(runes[index - 1 : index + 1])
            # A backslash at the end makes a character of the `$` that follows.
            index, kind = index + 1, "expression" if index < len(runes) else kind
        else:
            made.append(f"\\{rune}" if rune in _ESCAPED else rune)
            kind = "expression" if rune in "[]" else kind
    if kind == "expression":
        return _searching("".join((*made, "$")))
    return _comparing(kind, text)


def _comparing(kind: str, text: str) -> Match:
    if kind == "equal":
        return text.__eq__
    if kind == "beginning":
        return lambda path: path.startswith(text[:-2])
    if text.startswith(_BOM):
        # moby passes over a mark of the byte order, and then takes the first two bytes off all the same.
        end = os.fsencode(text)[2:]
        return lambda path: os.fsencode(path).endswith(end)
    ending = text[2:]
    # `**.pem` leaves out `a/key.pem`, and `**/bar` is not `rebar`.
    return lambda path: path.endswith(ending) or f"/{path}" == ending


def _searching(text: str) -> Match:
    search = re.compile("".join(_translated(text)), re.ASCII).search
    return lambda path: search(path if path.isascii() else path.translate(_INVALID))


def _check_syntax(text: str) -> None:
    """Refuse what `filepath.Match` refuses when moby tries it with the name `.`: what it gets to see until it fails."""
    name = "."
    while text:
        chunk = text.lstrip("*")
        is_starred, text = chunk != text, ""
        if found := _CHUNK.match(chunk):
            chunk, text = found[0], chunk[found.end() :]
        if is_starred and not chunk:
            return
        left = _match_chunk(chunk, name)
        if left is None or (left and not text):
            return
        name = left


def _match_chunk(chunk: str, name: str) -> str | None:
    """Return what a part of a pattern without stars leaves of a name of one character. None: it does not match."""
    left: str | None = name
    index = 0
    while index < len(chunk):
        if chunk[index] == "[":
            index, matches = _match_class(chunk, index, left or "")
        else:
            escape = chunk[index] == "\\"
            if escape and index + 1 == len(chunk):
                raise ValueError("ends in a backslash; write two of them for one")
            index += 1 if escape else 0
            matches = chunk[index] == left or (chunk[index] == "?" and not escape)
            index += 1
        left = "" if left and matches else None
    return left


def _match_class(chunk: str, begin: int, name: str) -> tuple[int, bool]:
    """Return the end of a class, and whether it contains a character."""
    is_negated = chunk.startswith("^", begin + 1)
    index = begin + (2 if is_negated else 1)
    found, count = False, 0
    while not (count and chunk.startswith("]", index)):
        index, low = _match_class_rune(chunk, index)
        high = low
        if chunk.startswith("-", index):
            index, high = _match_class_rune(chunk, index + 1)
        found = found or low <= name <= high
        count += 1
    return index + 1, found != is_negated


def _match_class_rune(chunk: str, index: int) -> tuple[int, str]:
    if index < len(chunk) and chunk[index] in "-]":
        raise ValueError(f"a class has {chunk[index]!r} where a character must stand; write \\{chunk[index]} for it")
    index += 1 if chunk.startswith("\\", index) else 0
    if index + 1 >= len(chunk):
        raise ValueError("a `[` is not closed by a `]`; write \\[ for the character")
    if ord(chunk[index]) in _INVALID:
        raise ValueError("a class has bytes that are no UTF-8")
    return index + 1, chunk[index]


def _translated(text: str) -> Iterator[str]:
    """Yield the parts of Go's expression in Python's syntax. In Go, `.` matches no newline, and `$` only the end."""
    index, item = 0, ""
    while index < len(text):
        found = _REPETITION.match(text, index)
        if found:
            if item in ("", "|"):
                raise ValueError(f"Docker takes {found[0]!r} for a repetition, and nothing to repeat stands before it")
            yield _repeated(item, found)
            index, item = found.end(), ""
        else:
            yield item
            index, item = _item(text, index)
    yield item


def _repeated(item: str, found: re.Match[str]) -> str:
    if found[0] in "*?":
        return item + found[0]
    least, most = int(found[1]), int(found[3] or found[1])
    if max(least, most) > _MOST_REPEATS or most < least:
        raise ValueError(f"Docker takes {found[0]!r} for a repetition, and does not take these numbers")
    if item in ("^", r"\Z", *_ASSERTIONS.values()):
        # Python cannot repeat an assertion. Once means the same.
        return item if least else ""
    return item + (found[0] if found[2] is None or found[3] else f"{{{least},}}")


def _item(text: str, index: int) -> tuple[int, str]:
    """Return the index of the next item, and this one in Python's syntax."""
    rune = text[index]
    if rune == "(":
        end = text.index(")", index)
        return end + 1, "(?:.*/)"
    if rune == "[":
        return _class(text, index)
    if rune == "\\":
        name = text[index + 1]
        if name in _ASSERTIONS:
            return index + 2, _ASSERTIONS[name]
        if name.lower() in _PERL:
            ranges = _PERL[name.lower()]
            return index + 2, _written(ranges if name.islower() else _without(ranges))
        end, code = _escape(text, index)
        return end, re.escape(chr(code))
    if rune == "$":
        return index + 1, r"\Z"
    return index + 1, rune if rune in "^|." else re.escape(rune)


def _class(text: str, begin: int) -> tuple[int, str]:
    """Return the end of a class, and the class by character codes, because Python reads some signs differently."""
    is_negated = text.startswith("^", begin + 1)
    index = begin + (2 if is_negated else 1)
    ranges: list[tuple[int, int]] = []
    while not (ranges and text.startswith("]", index)):
        named = _CLASS_NAME.match(text, index)
        if named:
            if named[2] not in _POSIX:
                raise ValueError(f"Docker does not know the class {named[0]!r}")
            ranges += _without(_POSIX[named[2]]) if named[1] else _POSIX[named[2]]
            index = named.end()
            continue
        name = text[index + 1] if text.startswith("\\", index) else ""
        if name and name.lower() in _PERL:
            ranges += _PERL[name] if name.islower() else _without(_PERL[name.lower()])
            index += 2
            continue
        index, low = _class_rune(text, index)
        high = low
        if text.startswith("-", index) and not text.startswith("]", index + 1) and index + 1 < len(text):
            index, high = _class_rune(text, index + 1)
            if high < low:
                raise ValueError(f"a class has the range {chr(low)}-{chr(high)}, which ends before it begins")
        ranges.append((low, high))
    return index + 1, _written(_without(ranges) if is_negated else ranges)


def _class_rune(text: str, index: int) -> tuple[int, int]:
    if index >= len(text):
        raise ValueError("Docker finds a `[` without its `]`; write \\[ for the character")
    return _escape(text, index) if text[index] == "\\" else (index + 1, ord(text[index]))


def _escape(text: str, index: int) -> tuple[int, int]:
    """Return the end of an escape, and the code of its character."""
    name = text[index + 1]
    if name in _CONTROLS:
        return index + 2, ord(_CONTROLS[name])
    found = _BY_NUMBER.match(text, index)
    if found:
        code = int(found[1], 8) if found[1] else int(found[2].strip("{}"), 16)
        if code <= _LAST_RUNE:
            return found.end(), code
    if name in "pPQ":
        raise ValueError(f"a backslash before {name!r} is not supported; write the characters themselves")
    if not name.isascii() or name.isalnum():
        raise ValueError(f"a backslash before {name!r} has no meaning; leave it out")
    return index + 2, ord(name)


def _written(ranges: Ranges) -> str:
    """Return a class in Python's syntax."""
    parts = (f"\\U{low:08x}" if low == high else f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges)
    return f"[{''.join(parts)}]" if ranges else "(?!)"
