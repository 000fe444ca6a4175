"""Which Dockerfiles can be built without a daemon. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from torchx_pulumi.images.dockerfile import SEPARATORS, Instruction, directives, instructions
from torchx_pulumi.images.variables import BLANKS

SUPPORTED: Final = ("FROM", "ARG", "COPY", "ADD", "ENV", "WORKDIR", "LABEL", "USER", "ENTRYPOINT", "CMD", "EXPOSE")
"""Instructions that need no daemon."""
_CHOWN: Final = "--chown="
_URL: Final = re.compile(r"(https?://|git@|git://|ssh://)|.*\.git(#.*)?$", re.IGNORECASE)


class UnsupportedError(Exception):
    """An image that cannot be built without a daemon."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = tuple(reasons)
        """Texts that name the place and what the daemon is needed for."""


def unsupported(text: str, where: str) -> list[str]:
    """Return why a Dockerfile needs the daemon, one text for each line. Empty: as far as its text says, it does not.

    Args:
        text: Text of the Dockerfile.
        where: Name of the file in the texts.
    """
    found = [f"{where} line {line}: {reason}" for line, reason in sorted(_reasons(text))]
    return [f"{each}, which needs the builder docker" for each in found]


def is_url(source: str) -> bool:
    """Return whether the source of an ADD is downloaded."""
    return _URL.match(source) is not None


def _reasons(text: str) -> Iterator[tuple[int, str]]:
    for name, value in directives(text).items():
        if name != "escape":
            yield 1, f"`# {name}=` chooses the frontend of BuildKit"
        elif value not in ("\\", "`"):
            yield 1, "`# escape=` is neither \\ nor `"
    escape = directives(text).get("escape", "\\")
    for number, line in enumerate(text.split("\n"), 1):
        is_comment = line.lstrip(BLANKS).startswith("#")
        if line.rstrip("\r\t ").endswith(2 * escape) and not is_comment:
            yield number, f"the line ends in `{2 * escape}`, which releases of Docker read differently"
    stages = 0
    for step in instructions(text):
        stages += step.word == "FROM"
        if any("\ud800" <= character <= "\udfff" for character in step.text):
            yield step.line, f"{step.word} has bytes that are not UTF-8"
        elif step.word not in SUPPORTED:
            yield step.line, _why_not(step)
        elif step.word == "FROM" and stages > 1:
            yield step.line, "FROM begins a second stage"
        elif stages == 0 and step.word != "ARG":
            yield step.line, f"{step.word} is before the first FROM"
        else:
            yield from ((step.line, reason) for reason in _reasons_of(step))


def _why_not(step: Instruction) -> str:
    if step.word == "RUN":
        return "RUN runs a program"
    return f"{step.word} is not one of {', '.join(SUPPORTED)}"


def _reasons_of(step: Instruction) -> Iterator[str]:
    for flag in step.flags:
        is_copy = step.word in ("COPY", "ADD")
        if not is_copy or not flag.startswith(_CHOWN):
            yield f"{step.word} has the option {flag.partition('=')[0]}"
        elif "$" not in flag and not is_numeric_owner(flag.removeprefix(_CHOWN)):
            yield f"{step.word} has {flag}, and the numbers of names are in the base's files"
    words = SEPARATORS.split(step.rest)
    if not step.rest and step.word not in ("CMD", "ENTRYPOINT"):
        yield f"{step.word} has no argument"
    elif step.word == "FROM" and not (len(words) == 1 or (len(words) == 3 and words[1].lower() == "as")):
        yield "FROM is not `FROM IMAGE` or `FROM IMAGE AS NAME`"
    elif step.word in ("COPY", "ADD"):
        if any(word.startswith("<<") for word in words):
            yield f"{step.word} has a here-document"
        if any(is_url(word) for word in words[:-1]):
            yield f"{step.word} downloads a source"


def is_numeric_owner(owner: str) -> bool:
    """Return whether an owner is a number, or a number of a user and one of a group."""
    return re.fullmatch(r"[0-9]{1,9}(:[0-9]{1,9})?", owner) is not None
