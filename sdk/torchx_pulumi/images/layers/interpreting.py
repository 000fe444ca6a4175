"""Dockerfiles that need no daemon: checks, the configuration of the image, and its copies. Pure.

The rules are those of the daemon's classic builder.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from torchx_pulumi.images.dockerfile import (
    BLANKS,
    SEPARATORS,
    ExpansionError,
    Instruction,
    assignments,
    directives,
    expand,
    first_arguments,
    instructions,
)
from torchx_pulumi.images.dockerfile import split_words as split

SUPPORTED: Final = ("FROM", "ARG", "COPY", "ADD", "ENV", "WORKDIR", "LABEL", "USER", "ENTRYPOINT", "CMD", "EXPOSE")
"""Instructions that need no daemon."""
DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH of an image whose base has none."""
_ALWAYS_ALLOWED: Final = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY")
"""Build arguments that need no ARG, also in lower case."""
_CHOWN: Final = "--chown="
_OWNER: Final = re.compile(r"([0-9]{1,9})(?::([0-9]{1,9}))?")
_URL: Final = re.compile(r"(https?://|git@|git://|ssh://)|.*\.git(#.*)?$", re.IGNORECASE)
_PORT: Final = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?(?:/(tcp|udp|sctp))?", re.IGNORECASE)


class UnsupportedError(Exception):
    """An image that cannot be built without a daemon."""

    def __init__(self, reasons: Sequence[str], warnings: Sequence[str] = ()) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = tuple(reasons)
        """Texts that name the place and what the daemon is needed for."""
        self.warnings = tuple(warnings)
        """Warnings about the image that the daemon makes instead."""


class NeedsDaemonError(Exception):
    """An instruction that depends on the files of the base, or that the daemon refuses. The text says why."""


class HidesLinkError(NeedsDaemonError):
    """A copy that would hide a link of the base. The daemon replaces the link as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One COPY or ADD, expanded."""

    word: str
    sources: Sequence[str]
    destination: str
    """As it is written; relative paths begin at the working directory."""
    folder: str
    """Working directory. Empty: none is set."""
    owner: tuple[int, int] | None
    """User and group of what is copied. None: 0, and existing parents are not asked about."""


def unsupported(text: str, where: str) -> list[str]:
    """Return why a Dockerfile needs the daemon, one text for each line; empty if its text gives no reason.

    Args:
        text: Text of the Dockerfile.
        where: Name of the file in the texts.
    """
    return [f"{where} line {line}: {reason}, which needs the builder docker" for line, reason in sorted(_reasons(text))]


def _reasons(text: str) -> Iterator[tuple[int, str]]:
    for name in directives(text).keys() - {"escape"}:
        yield 1, f"`# {name}=` chooses the frontend of BuildKit"
    for number, line in enumerate(text.split("\n"), 1):
        is_comment = line.lstrip(BLANKS).startswith("#")
        if line.rstrip("\r\t ").endswith("\\\\") and not is_comment:
            yield number, "the line ends in `\\\\`, which releases of Docker read differently"
    stages = 0
    for step in instructions(text):
        stages += step.word == "FROM"
        reason = _reason_of(step, stages)
        if reason:
            yield step.line, reason


def _reason_of(step: Instruction, stages: int) -> str | None:
    words = SEPARATORS.split(step.rest)
    is_copy = step.word in ("COPY", "ADD")
    flags = [flag.partition("=")[0] for flag in step.flags if not (is_copy and flag.startswith(_CHOWN))]
    if any("\ud800" <= character <= "\udfff" for character in step.text):
        return f"{step.word} has bytes that are not UTF-8"
    if step.word == "RUN":
        return "RUN runs a program"
    if step.word not in SUPPORTED:
        return f"{step.word} is not one of {', '.join(SUPPORTED)}"
    if step.word == "FROM" and stages > 1:
        return "FROM begins a second stage"
    if stages == 0 and step.word != "ARG":
        return f"{step.word} is before the first FROM"
    if flags:
        return f"{step.word} has the option {flags[0]}"
    if not step.rest and step.word not in ("CMD", "ENTRYPOINT"):
        return f"{step.word} has no argument"
    if step.word == "FROM" and not (len(words) == 1 or (len(words) == 3 and words[1].lower() == "as")):
        return "FROM is not `FROM IMAGE` or `FROM IMAGE AS NAME`"
    if is_copy and any(word.startswith("<<") for word in words):
        return f"{step.word} has a here-document"
    return None


class Interpreter:
    """Runs the instructions of one Dockerfile one after the other."""

    def __init__(self, config: Mapping[str, Any], build_args: Mapping[str, str], where: str) -> None:
        self.config: dict[str, Any] = deepcopy(dict(config))
        """The part `config` of the image's configuration."""
        self.folders: dict[str, int] = {}
        """Working directories of the instructions so far, with their lines."""
        self.is_begun = False
        """The base is known: FROM was run."""
        self._given, self._where = build_args, where
        self._first: dict[str, str] = {}
        self._declared: dict[str, str | None] = {}
        self._has_cmd = False
        environment: list[str] = list(self.config.get("Env") or [])
        if not any(each.startswith("PATH=") for each in environment):
            environment.append(f"PATH={DEFAULT_PATH}")
        self.config["Env"] = environment

    def run(self, step: Instruction) -> Copy | None:
        """Run an instruction. Return its copy, if it is COPY or ADD.

        Raises:
            NeedsDaemonError: The instruction is not supported with these values, or is not valid.
            ImageError: An argument before the first FROM cannot be expanded.
        """
        try:
            if step.word in ("COPY", "ADD"):
                return self._copy(step)
            run: Callable[[Instruction], None] = getattr(self, f"_{step.word.lower()}")
            run(step)
        except ExpansionError as error:
            raise NeedsDaemonError(f"is not valid: {error}") from error
        return None

    def _values(self) -> dict[str, str]:
        values = {name: value for name, value in self._given.items() if name.upper() in _ALWAYS_ALLOWED}
        for name, default in self._declared.items():
            value = self._given.get(name, default if default is not None else self._first.get(name))
            if value is not None:
                values[name] = value
        for each in self.config["Env"]:
            name, _, value = each.partition("=")
            values[name] = value
        return values

    def _expand(self, word: str) -> str:
        return expand(word, self._values())

    def _from(self, step: Instruction) -> None:  # noqa: ARG002  the base is known
        self.is_begun = True

    def _arg(self, step: Instruction) -> None:
        if not self.is_begun:
            self._first.update(first_arguments(step, self._first, self._given, self._where))
            return
        self._declared |= self._expanded(assignments(step.rest))

    def _expanded(self, pairs: Sequence[tuple[str, str | None]]) -> dict[str, str | None]:
        """Return names and values after expansion, all of them with the values before the instruction."""
        values = self._values()
        found = {expand(name, values): None if value is None else expand(value, values) for name, value in pairs}
        if "" in found:
            raise NeedsDaemonError("has an empty name")
        return found

    def _env(self, step: Instruction) -> None:
        for name, value in self._pairs(step).items():
            names = [each.partition("=")[0] for each in self.config["Env"]]
            if name in names:
                self.config["Env"][names.index(name)] = f"{name}={value}"
            else:
                self.config["Env"].append(f"{name}={value}")

    def _label(self, step: Instruction) -> None:
        self.config["Labels"] = {**(self.config.get("Labels") or {}), **self._pairs(step)}

    def _pairs(self, step: Instruction) -> dict[str, str | None]:
        """Return the pairs of ENV or LABEL: `NAME=VALUE ...`, or `NAME VALUE`."""
        if "=" in split(step.rest)[0]:
            written = assignments(step.rest)
            if not all(value is not None for _, value in written):
                raise NeedsDaemonError("has a word without `=`")
            return self._expanded(written)
        name, *value = SEPARATORS.split(step.rest, maxsplit=1)
        if not value:
            raise NeedsDaemonError("has a name without a value")
        return self._expanded([(name, value[0])])

    def _workdir(self, step: Instruction) -> None:
        folder = self._expand(step.rest)
        if not folder:
            raise NeedsDaemonError("has an empty path")
        if not folder.startswith("/"):
            folder = posixpath.normpath(posixpath.join("/", self.config.get("WorkingDir") or "", folder))
        self.config["WorkingDir"] = folder
        self.folders[absolute(folder)] = step.line

    def _user(self, step: Instruction) -> None:
        self.config["User"] = self._expand(step.rest)

    def _expose(self, step: Instruction) -> None:
        ports = dict(self.config.get("ExposedPorts") or {})
        for port in self._expand(step.rest).split():
            found = _PORT.fullmatch(port)
            first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
            if found is None or not 0 < first <= last < 1 << 16:
                raise NeedsDaemonError(
                    f"has the port {port!r}, which is not NUMBER, FIRST-LAST, or one of these with /tcp or /udp"
                )
            protocol = (found[3] or "tcp").lower()
            ports.update({f"{number}/{protocol}": {} for number in range(first, last + 1)})
        self.config["ExposedPorts"] = ports

    def _entrypoint(self, step: Instruction) -> None:
        self.config["Entrypoint"] = self._command(step) or None
        if not self._has_cmd:
            self.config["Cmd"] = None

    def _cmd(self, step: Instruction) -> None:
        self.config["Cmd"] = self._command(step)
        self._has_cmd = True

    def _command(self, step: Instruction) -> list[str]:
        words = _json_list(step.rest)
        if words is not None:
            return words
        if not step.rest:
            raise NeedsDaemonError("has no argument")
        return [*(self.config.get("Shell") or ["/bin/sh", "-c"]), step.rest]

    def _copy(self, step: Instruction) -> Copy:
        words = _json_list(step.rest)
        paths = [self._expand(word) for word in (SEPARATORS.split(step.rest) if words is None else words)]
        if len(paths) < 2:
            raise NeedsDaemonError("needs a source and a destination")
        if not all(paths):
            raise NeedsDaemonError("has an empty path")
        if any(_URL.match(path) for path in paths[:-1]):
            raise NeedsDaemonError("downloads a source")
        owner = None
        for flag in step.flags:
            written = self._expand(flag.removeprefix(_CHOWN))
            numbers = _OWNER.fullmatch(written)
            if numbers is None:
                raise NeedsDaemonError(f"has --chown={written}, and the numbers of names are in the base's files")
            owner = int(numbers[1]), int(numbers[2] or numbers[1])
        folder = self.config.get("WorkingDir") or ""
        return Copy(word=step.word, sources=paths[:-1], destination=paths[-1], folder=folder, owner=owner)


def absolute(path: str) -> str:
    """Return a path of an image from its root, without `.` and `..`."""
    return "/" + posixpath.normpath(posixpath.join("/", path)).lstrip("/")


def _json_list(rest: str) -> list[str] | None:
    """Return the words of the JSON form, or None for the form for a shell."""
    if not rest.startswith("["):
        return None
    try:
        words = json.loads(rest)
    except ValueError:
        return None
    except RecursionError:
        words = [None]
    if not all(isinstance(word, str) and not re.search("[\ud800-\udfff]", word) for word in words):
        raise NeedsDaemonError("has a JSON list with something other than strings")
    return list(words)
