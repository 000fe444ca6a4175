"""Dockerfiles: their instructions, and the external images that they name. Pure.

The rules are those of Docker's parser, which joins continued lines without a blank and trims fewer characters than
Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from torchx_pulumi.images.variables import BLANKS, ExpansionError, expand
from torchx_pulumi.model.errors import ImageError

DEFAULT: Final = "ARG IMAGE\nFROM $IMAGE\n\nCOPY . .\n"
"""Default Dockerfile: copies the workspace into the base's working directory, as TorchX does."""
WORKSPACE: Final = "workspace"
"""Value of the build argument WORKSPACE. A constant, so that the image is the same on every machine."""
SHOWN_ARGUMENTS: Final = ("IMAGE", "WORKSPACE")
"""Build arguments that this package sets. Their values may be shown."""
SEPARATORS: Final = re.compile(r"[\t\v\f\r ]+")
"""Blanks between words of an instruction."""
_DIRECTIVE: Final = re.compile(r"^#\s*([a-zA-Z][a-zA-Z0-9]*)\s*=\s*(.+?)\s*$", re.ASCII)
_DIRECTIVES: Final = ("escape", "syntax", "check")
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
    escape: str
    """Escape character of the Dockerfile."""


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
    escape = directives(text).get("escape", "\\")
    begin, joined = 0, ""
    continued = re.compile(re.escape(escape) + r"[ \t]*$")
    lines = text.removeprefix("\ufeff").split("\n")
    for number, line in enumerate(lines, 1):
        line = line.removesuffix("\r")
        blank = not line.strip(BLANKS)
        if (blank and number < len(lines)) or line.lstrip(BLANKS).startswith("#"):
            continue
        if not blank:
            begin = begin or number
        cut = continued.sub("", line)
        joined += cut
        if cut != line and number < len(lines):
            continue
        if joined.strip(BLANKS):
            yield _instruction(begin, joined.strip(BLANKS), escape)
        begin, joined = 0, ""
    if joined.strip(BLANKS):
        yield _instruction(begin, joined.strip(BLANKS), escape)


def _instruction(line: int, text: str, escape: str) -> Instruction:
    word, rest = [*SEPARATORS.split(text, maxsplit=1), ""][:2]
    rest, flags = rest.strip(BLANKS), []
    while found := _FLAG.match(rest):
        flags.append(found[1])
        rest = rest[found.end() :]
    return Instruction(line=line, word=word.upper(), flags=tuple(flags), rest=rest, text=text, escape=escape)


def assignments(rest: str, escape: str) -> list[tuple[str, str | None]]:
    """Return the names and values of an ARG as they are written. A name without `=` has None."""
    pairs = (word.partition("=") for word in split_words(rest, escape))
    return [(name, value if equals else None) for name, equals, value in pairs]


def split_words(rest: str, escape: str) -> list[str]:
    r"""Split a text at blanks that are neither quoted nor escaped. Quotes and escapes stay.

    >>> split_words("a='b c' d\\ e", "\\")
    ["a='b c'", 'd\\ e']
    """
    words, word, quote, index = [], "", "", 0
    while index < len(rest):
        character = rest[index]
        index += 1
        if character == escape and quote != "'":
            if index < len(rest):
                word += character + rest[index]
                index += 1
        elif quote:
            word += character
            quote = "" if character == quote else quote
        elif character in BLANKS:
            words += [word] if word else []
            word = ""
        else:
            word += character
            quote = character if character in "'\"" else ""
    return [*words, *([word] if word else [])]


def images_of(text: str, build_args: Mapping[str, str], where: str) -> list[str]:
    """Return the external images of a build, in order, each once.

    Args:
        text: Text of the Dockerfile.
        build_args: Build arguments.
        where: Name of the file in messages.

    Raises:
        ImageError: There is no FROM, or the argument of one has no value.
    """
    known: dict[str, str] = {}
    stages: list[str] = []
    images: list[str] = []
    begun = False
    for step in instructions(text):
        if step.word == "ARG" and not begun:
            known.update(first_arguments(step, known, build_args, where))
        elif step.word == "FROM":
            begun = True
            parts = SEPARATORS.split(step.rest)
            image = _expanded(step, parts[0], known, where)
            if not image:
                raise ImageError(f"{where}: `FROM {step.rest}` names no image; set its argument with build_args")
            if image.isdigit() and image not in images:
                images.append(image)  # stages have numbers in COPY only
            _add(images, image, stages)
            stages.append(parts[2].lower() if len(parts) > 2 and parts[1].lower() == "as" else str(len(stages)))
        elif step.word == "COPY":
            for flag in step.flags:
                if flag.startswith("--from="):
                    _add(images, flag.removeprefix("--from="), stages)
    if not begun:
        raise ImageError(
            f"{where}: has no FROM; begin it with `ARG IMAGE` and `FROM $IMAGE` to build on the role's image"
        )
    return images


def first_arguments(
    step: Instruction, known: Mapping[str, str], build_args: Mapping[str, str], where: str
) -> dict[str, str]:
    """Return the values of an ARG before the first FROM.

    Raises:
        ImageError: A value cannot be expanded.
    """
    found: dict[str, str] = {}
    for name, default in assignments(step.rest, step.escape):
        value = build_args.get(name)
        if value is None and default is not None:
            value = _expanded(step, default, known, where)
        if value is not None:
            found[name] = value
    return found


def _expanded(step: Instruction, word: str, values: Mapping[str, str], where: str) -> str:
    try:
        return expand(word, values, step.escape)
    except ExpansionError as error:
        raise ImageError(f"{where} line {step.line}: {step.word}: {error}; write it in another form") from error


def _add(images: list[str], image: str, stages: list[str]) -> None:
    if image.lower() not in stages and not image.isdigit() and image != "scratch" and image not in images:
        images.append(image)
