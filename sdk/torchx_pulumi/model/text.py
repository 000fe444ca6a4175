"""Texts in messages and tables: control characters removed, lists shortened, amounts; and the check of a list."""

from __future__ import annotations

import re
from collections.abc import Sequence

_ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
"""Sequences that move a terminal's cursor, change its colours or set its title."""


def printable(text: str) -> str:
    r"""Return a text without terminal sequences and control characters; line breaks and tabs stay.

    >>> printable("a\x1b[31mb\x07\nc")
    'ab\nc'
    """
    if text.isprintable():
        return text
    text = _ESCAPE_SEQUENCE.sub("", text)
    return "".join(character for character in text if character in "\n\t" or character.isprintable())


def one_line(text: str) -> str:
    r"""Return a text on one line, without terminal sequences, control characters and repeated blanks.

    >>> one_line("a\x1b[31mb\n  c")
    'ab c'
    """
    return " ".join(printable(text).split())


def megabytes(count: int) -> str:
    """Return a number of bytes as text.

    >>> megabytes(12_345_678), megabytes(512)
    ('12.3 MB', '0.5 kB')
    """
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"


def listed(names: Sequence[str], most: int) -> str:
    """Return names with commas between them, at most so many, and the number of the others.

    >>> listed(["a", "b", "c"], 2), listed(["a"], 2)
    ('a, b and 1 more', 'a')
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def in_words(texts: Sequence[str], last: str = "or") -> str:
    """Return two or more texts with commas between them, and a word before the last one.

    >>> in_words(["a", "b", "c"])
    'a, b or c'
    """
    return f"{', '.join(texts[:-1])} {last} {texts[-1]}"


def is_text_list(value: object) -> bool:
    """Return whether a value is a list or a tuple of texts."""
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)
