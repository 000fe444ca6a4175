"""Words of a Dockerfile: quotes, escapes and variables, as Docker's `shell.Lex` processes them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

BLANKS: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
"""Characters that Go trims. Python would also trim \\x1c to \\x1f."""
_SPECIAL: Final = "@*#?-$!0"
"""Special parameters of a shell. They are names of one character."""


class ExpansionError(ValueError):
    """A word that cannot be expanded. The text says why, without any value."""


def expand(word: str, values: Mapping[str, str], escape: str = "\\") -> str:
    r"""Return a word without quotes and escapes, with its variables replaced.

    >>> expand("$a-${b:-x}-${a:+y}-'$a'-\\$a", {"a": "1"})
    '1-x-y-$a-$a'

    Args:
        word: The word as it is written.
        values: Values of variables. The value of an unknown variable is empty.
        escape: Escape character of the Dockerfile.

    Raises:
        ExpansionError: Quotes or braces are not closed, or a form of `${...}` is not supported.
    """
    return "".join(text for text, _ in _read(word, values, escape))


def expand_words(word: str, values: Mapping[str, str], escape: str = "\\") -> list[str]:
    """Return the words of a text after expansion. Blanks of unquoted variables separate words, too.

    >>> expand_words("$ports '1 2'", {"ports": "80 443"})
    ['80', '443', '1 2']

    Raises:
        ExpansionError: As `expand`.
    """
    words, current, begun = [], "", False
    for text, is_quoted in _read(word, values, escape):
        for character in text:
            if is_quoted or character not in BLANKS:
                current, begun = current + character, True
            elif begun and current:
                words.append(current)
                current, begun = "", False
    return [*words, *([current] if current else [])]


def _read(word: str, values: Mapping[str, str], escape: str) -> list[tuple[str, bool]]:
    try:
        return _Words(word, values, escape).read()
    except RecursionError as error:
        raise ExpansionError("`${...}` are nested too deeply") from error


class _Words:
    """A word that is read from left to right."""

    def __init__(self, word: str, values: Mapping[str, str], escape: str) -> None:
        self._word, self._values, self._escape = word, values, escape
        self._at = 0

    def read(self, stop: str = "") -> list[tuple[str, bool]]:
        """Return the pieces up to a character, and whether each one is quoted or escaped."""
        pieces: list[tuple[str, bool]] = []
        while self._at < len(self._word):
            character = self._next()
            if character == stop:
                return pieces
            if character == "'":
                pieces.append((self._single_quoted(), True))
            elif character == '"':
                pieces.append((self._double_quoted(), True))
            elif character == "$":
                pieces.append((self._variable(), False))
            elif character == self._escape:
                pieces.append((self._next(), True))
            else:
                pieces.append((character, False))
        if stop:
            raise ExpansionError("a `${` has no `}`")
        return pieces

    def _next(self) -> str:
        character = self._word[self._at : self._at + 1]
        self._at += 1
        return character

    def _peek(self) -> str:
        return self._word[self._at : self._at + 1]

    def _single_quoted(self) -> str:
        end = self._word.find("'", self._at)
        if end < 0:
            raise ExpansionError("a quote `'` is not closed")
        begin, self._at = self._at, end + 1
        return self._word[begin:end]

    def _double_quoted(self) -> str:
        made: list[str] = []
        while self._at < len(self._word):
            character = self._next()
            if character == '"':
                return "".join(made)
            if character == "$":
                made.append(self._variable())
            elif character == self._escape and not self._peek():
                break
            elif character == self._escape and self._peek() in f'"${self._escape}':
                made.append(self._next())
            else:
                made.append(character)
        raise ExpansionError('a quote `"` is not closed')

    def _variable(self) -> str:
        if self._peek() != "{":
            name = self._name()
            return self._values.get(name, "") if name else "$"
        self._at += 1
        name = self._name() if self._peek() not in ("", "{", "}", ":") else ""
        how = self._next()
        if not name or not how:
            raise ExpansionError("`${` is not followed by a name and `}`")
        value = self._values.get(name, "")
        if how == "}":
            return value
        how += self._next() if how == ":" else ""
        if how not in (":-", ":+"):
            # Releases of Docker differ in the other forms.
            raise ExpansionError(
                f"`${{{name}{how}...}}` is not one of `${{NAME}}`, `${{NAME:-WORD}}`, `${{NAME:+WORD}}`"
            )
        word = "".join(text for text, _ in self.read("}"))
        return (value or word) if how == ":-" else (word if value else "")

    def _name(self) -> str:
        begin = self._at
        if self._peek().isdigit():
            while self._peek().isdigit():
                self._at += 1
        elif self._peek() and self._peek() in _SPECIAL:
            self._at += 1
        else:
            while self._peek().isalnum() or self._peek() == "_":
                self._at += 1
        return self._word[begin : self._at]
