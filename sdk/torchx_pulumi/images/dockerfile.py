"""Dockerfiles: their instructions, words and variables, and the external images that they name. Pure.

The rules are those of Docker's parser, which joins continued lines without a blank and trims fewer characters than
Python, and of its `shell.Lex`, which reads quotes, escapes and variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from torchx_pulumi.model.errors import ImageError

DEFAULT: Final = "ARG IMAGE\nFROM $IMAGE\n\nCOPY . .\n"
"""Default Dockerfile: copies the workspace into the base's working directory, as TorchX does."""
WORKSPACE: Final = "workspace"
"""Value of the build argument WORKSPACE. A constant, so that the image is the same on every machine."""
SHOWN_ARGUMENTS: Final = ("IMAGE", "WORKSPACE")
"""Build arguments that this package sets. Their values may be shown."""
SEPARATORS: Final = re.compile(r"[\t\v\f\r ]+")
"""Blanks between words of an instruction."""
BLANKS: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
"""Characters that Go trims. Python would also trim \\x1c to \\x1f."""
_NAME: Final = re.compile(r"[0-9]+|[@*#?$!-]|\w+")
"""Name of a variable, or a special parameter of a shell."""
_DIRECTIVE: Final = re.compile(r"^#\s*([a-zA-Z][a-zA-Z0-9]*)\s*=\s*(.+?)\s*$", re.ASCII)
_DIRECTIVES: Final = ("escape", "syntax", "check")
_CONTINUED: Final = re.compile(r"\\[ \t]*$")
_WORD: Final = re.compile(rf"""(?:\\.|'[^']*(?:'|$)|"(?:\\.|[^"\\])*(?:"|\\?$)|[^{BLANKS}'"\\])+""", re.DOTALL)
"""A word with its quotes and escapes. A quote that is not closed takes the rest."""
_FLAG: Final = re.compile(r"(--\S*)[\t\v\f\r ]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One instruction with its continued lines joined."""

    line: int
    """Number of its first line."""
    word: str
    """Name in upper case, for example `COPY`."""
    flags: tuple[str, ...]
    """Its options, for example `--chown=1000`."""
    rest: str
    """The text after the name and the options."""
    text: str
    """The whole instruction as it is written."""


def directives(text: str) -> dict[str, str]:
    r"""Return the parser directives at the beginning of a Dockerfile.

    >>> directives("# escape=`\n# syntax=docker/dockerfile:1\nFROM a")
    {'escape': '`', 'syntax': 'docker/dockerfile:1'}
    """
    found: dict[str, str] = {}
    for line in text.removeprefix("\ufeff").split("\n"):
        match = _DIRECTIVE.match(line.strip(BLANKS))
        if match is None or match[1].lower() not in _DIRECTIVES:
            break
        found[match[1].lower()] = match[2]
    return found


def instructions(text: str) -> Iterator[Instruction]:
    """Yield the instructions of a Dockerfile. Comments and empty lines are skipped."""
    begin, joined = 0, ""
    lines = text.removeprefix("\ufeff").split("\n")
    for number, line in enumerate(lines, 1):
        line = line.removesuffix("\r")
        blank = not line.strip(BLANKS)
        if (blank and number < len(lines)) or line.lstrip(BLANKS).startswith("#"):
            continue
        if not blank:
            begin = begin or number
        cut = _CONTINUED.sub("", line)
        joined += cut
        if cut != line and number < len(lines):
            continue
        if joined.strip(BLANKS):
            yield _instruction(begin, joined.strip(BLANKS))
        begin, joined = 0, ""
    if joined.strip(BLANKS):
        yield _instruction(begin, joined.strip(BLANKS))


def _instruction(line: int, text: str) -> Instruction:
    word, rest = [*SEPARATORS.split(text, maxsplit=1), ""][:2]
    rest, flags = rest.strip(BLANKS), []
    while found := _FLAG.match(rest):
        flags.append(found[1])
        rest = rest[found.end() :]
    return Instruction(line=line, word=word.upper(), flags=tuple(flags), rest=rest, text=text)


def assignments(rest: str) -> list[tuple[str, str | None]]:
    """Return the names and values of an ARG as they are written. A name without `=` has None."""
    pairs = (word.partition("=") for word in split_words(rest))
    return [(name, value if equals else None) for name, equals, value in pairs]


def split_words(rest: str) -> list[str]:
    r"""Split a text at blanks that are neither quoted nor escaped. Quotes and escapes stay.

    >>> split_words("a='b c' d\\ e")
    ["a='b c'", 'd\\ e']
    """
    return _WORD.findall(rest)


def images_of(text: str, build_args: Mapping[str, str], where: str) -> list[str]:
    """Return the external images of a build, in order, each once; `where` is the name of the Dockerfile in messages.

    Raises:
        ImageError: There is no FROM, the argument of one has no value, or the file has another escape character.
    """
    if directives(text).get("escape", "\\") != "\\":
        raise ImageError(f"{where}: has another escape character (`# escape=`), which is not supported; use `\\`")
    known: dict[str, str] = {}
    stages: list[str] = []
    images: list[str] = []
    for step in instructions(text):
        named: list[str] = []
        if step.word == "ARG" and not stages:
            known.update(first_arguments(step, known, build_args, where))
        elif step.word == "FROM":
            parts = SEPARATORS.split(step.rest)
            image = _expanded(step, parts[0], known, where)
            if not image:
                raise ImageError(f"{where}: `FROM {step.rest}` names no image; set its argument with build_args")
            # Stages have numbers in COPY only.
            named = [] if image.lower() in stages and not image.isdigit() else [image]
            stages.append(parts[2].lower() if len(parts) > 2 and parts[1].lower() == "as" else str(len(stages)))
        elif step.word == "COPY":
            given = [flag.removeprefix("--from=") for flag in step.flags if flag.startswith("--from=")]
            named = [image for image in given if image.lower() not in stages and not image.isdigit()]
        images += [image for image in named if image != "scratch" and image not in images]
    if not stages:
        raise ImageError(
            f"{where}: has no FROM; begin it with `ARG IMAGE` and `FROM $IMAGE` to build on the role's image"
        )
    return images


def uses_role_image(text: str) -> bool:
    r"""Return whether the name of the role's image, the argument IMAGE, is used for more than a FROM.

    >>> uses_role_image(DEFAULT), uses_role_image("ARG IMAGE\nFROM $IMAGE\nARG IMAGE\nENV RUNS_ON=$IMAGE")
    (False, True)
    """
    begun = False
    for step in instructions(text):
        begun = begun or step.word == "FROM"
        is_declared = step.word == "ARG" and not begun and [name for name, _ in assignments(step.rest)]
        if step.word != "FROM" and is_declared != ["IMAGE"] and re.search(r"\bIMAGE\b", step.rest):
            return True
    return False


def first_arguments(
    step: Instruction, known: Mapping[str, str], build_args: Mapping[str, str], where: str
) -> dict[str, str]:
    """Return the values of an ARG before the first FROM.

    Raises:
        ImageError: A value cannot be expanded.
    """
    found: dict[str, str] = {}
    for name, default in assignments(step.rest):
        value = build_args.get(name)
        if value is None and default is not None:
            value = _expanded(step, default, known, where)
        if value is not None:
            found[name] = value
    return found


def _expanded(step: Instruction, word: str, values: Mapping[str, str], where: str) -> str:
    try:
        return expand(word, values)
    except ExpansionError as error:
        raise ImageError(f"{where} line {step.line}: {step.word}: {error}; write it in another form") from error


class ExpansionError(ValueError):
    """A word that cannot be expanded. The text says why, without any value."""


def expand(word: str, values: Mapping[str, str]) -> str:
    r"""Return a word without quotes and escapes, with its variables replaced.

    >>> expand("$a-${b:-x}-${a:+y}-'$a'-\\$a", {"a": "1"})
    '1-x-y-$a-$a'

    Args:
        word: The word as it is written.
        values: Values of variables. The value of an unknown variable is empty.

    Raises:
        ExpansionError: Quotes or braces are not closed, or a form of `${...}` is not supported.
    """
    try:
        return _expand(word, 0, values, "")[0]
    except RecursionError as error:
        raise ExpansionError("`${...}` are nested too deeply") from error


def _expand(word: str, at: int, values: Mapping[str, str], stop: str) -> tuple[str, int]:
    """Return the text from a position up to a character after expansion, and the position behind it."""
    made = ""
    while at < len(word):
        character = word[at]
        at += 1
        if character == stop:
            return made, at
        if character == "'":
            end = word.find("'", at)
            if end < 0:
                raise ExpansionError("a quote `'` is not closed")
            text, at = word[at:end], end + 1
        elif character == '"':
            text, at = _double_quoted(word, at, values)
        elif character == "$":
            text, at = _variable(word, at, values)
        elif character == "\\":
            text, at = word[at : at + 1], at + 1
        else:
            text = character
        made += text
    if stop:
        raise ExpansionError("a `${` has no `}`")
    return made, at


def _double_quoted(word: str, at: int, values: Mapping[str, str]) -> tuple[str, int]:
    made = ""
    while at < len(word):
        character, following = word[at], word[at + 1 : at + 2]
        at += 1
        if character == '"':
            return made, at
        if character == "$":
            text, at = _variable(word, at, values)
            made += text
        elif character == "\\" and following and following in '"$\\':
            made += following
            at += 1
        elif character == "\\" and not following:
            break
        else:
            made += character
    raise ExpansionError('a quote `"` is not closed')


def _variable(word: str, at: int, values: Mapping[str, str]) -> tuple[str, int]:
    """Return the value of the variable whose `$` is before a position."""
    if word[at : at + 1] != "{":
        found = _NAME.match(word, at)
        return (values.get(found[0], ""), found.end()) if found else ("$", at)
    found = _NAME.match(word, at + 1)
    if found is None or found.end() == len(word):
        raise ExpansionError("`${` is not followed by a name and `}`")
    name, at = found[0], found.end() + 1
    how, value = word[at - 1], values.get(name, "")
    if how == "}":
        return value, at
    how += word[at : at + 1] if how == ":" else ""
    if how not in (":-", ":+"):
        # Releases of Docker differ in the other forms.
        raise ExpansionError(f"`${{{name}{how}...}}` is not one of `${{NAME}}`, `${{NAME:-WORD}}`, `${{NAME:+WORD}}`")
    other, at = _expand(word, at + 1, values, "}")
    return ((value or other) if how == ":-" else (other if value else "")), at
