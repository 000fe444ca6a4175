"""The configuration of an image and its copies, as the daemon's classic builder gets them from a Dockerfile. Pure."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, Final

from torchx_pulumi.images.dockerfile import SEPARATORS, Instruction, assignments, first_arguments
from torchx_pulumi.images.dockerfile import split_words as split
from torchx_pulumi.images.layers.copying import Copy, NeedsDaemonError
from torchx_pulumi.images.layers.support import is_numeric_owner
from torchx_pulumi.images.variables import ExpansionError, expand, expand_words

DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH of an image whose base has none."""
_ALWAYS_ALLOWED: Final = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY")
"""Build arguments that need no ARG, also in lower case."""
_PORT: Final = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?(?:/(tcp|udp|sctp))?", re.IGNORECASE)


class Interpreter:
    """Runs the instructions of one Dockerfile one after the other."""

    def __init__(self, config: Mapping[str, Any], build_args: Mapping[str, str], where: str) -> None:
        self.config: dict[str, Any] = deepcopy(dict(config))
        """The part `config` of the image's configuration."""
        self.folders: dict[str, int] = {}
        """Working directories of the instructions so far, with their lines."""
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

    def run_first_argument(self, step: Instruction) -> None:
        """Run an ARG before FROM."""
        self._first.update(first_arguments(step, self._first, self._given, self._where))

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

    def _expand(self, step: Instruction, word: str) -> str:
        return expand(word, self._values(), step.escape)

    def _from(self, step: Instruction) -> None:
        """Do nothing: the base is known."""

    def _arg(self, step: Instruction) -> None:
        values = self._values()
        expanded = [
            (expand(name, values, step.escape), None if default is None else expand(default, values, step.escape))
            for name, default in assignments(step.rest, step.escape)
        ]
        if not all(name for name, _ in expanded):
            raise NeedsDaemonError("has an empty name")
        self._declared.update(expanded)

    def _env(self, step: Instruction) -> None:
        for name, value in self._pairs(step):
            names = [each.partition("=")[0] for each in self.config["Env"]]
            if name in names:
                self.config["Env"][names.index(name)] = f"{name}={value}"
            else:
                self.config["Env"].append(f"{name}={value}")

    def _label(self, step: Instruction) -> None:
        self.config["Labels"] = {**(self.config.get("Labels") or {}), **dict(self._pairs(step))}

    def _pairs(self, step: Instruction) -> list[tuple[str, str]]:
        words = split(step.rest, step.escape)
        if "=" in words[0]:
            pairs = [word.partition("=") for word in words]
            if not all(equals for _, equals, _ in pairs):
                raise NeedsDaemonError("has a word without `=`")
            written = [(name, value) for name, _, value in pairs]
        else:
            parts = SEPARATORS.split(step.rest, maxsplit=1)
            if len(parts) < 2:
                raise NeedsDaemonError("has a name without a value")
            written = [(parts[0], parts[1])]
        values = self._values()
        expanded = [(expand(name, values, step.escape), expand(value, values, step.escape)) for name, value in written]
        if not all(name for name, _ in expanded):
            raise NeedsDaemonError("has an empty name")
        return expanded

    def _workdir(self, step: Instruction) -> None:
        folder = self._expand(step, step.rest)
        if not folder:
            raise NeedsDaemonError("has an empty path")
        if not folder.startswith("/"):
            folder = posixpath.normpath(posixpath.join("/", self.config.get("WorkingDir") or "", folder))
        self.config["WorkingDir"] = folder
        self.folders["/" + posixpath.normpath(folder).lstrip("/")] = step.line

    def _user(self, step: Instruction) -> None:
        self.config["User"] = self._expand(step, step.rest)

    def _expose(self, step: Instruction) -> None:
        ports = dict(self.config.get("ExposedPorts") or {})
        for written in SEPARATORS.split(step.rest):
            for port in expand_words(written, self._values(), step.escape):
                ports.update({each: {} for each in _ports(port)})
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
        values = self._values()
        paths = [
            expand(word, values, step.escape) for word in (words if words is not None else SEPARATORS.split(step.rest))
        ]
        if len(paths) < 2:
            raise NeedsDaemonError("needs a source and a destination")
        if not all(paths):
            raise NeedsDaemonError("has an empty path")
        owner = None
        for flag in step.flags:
            written = self._expand(step, flag.removeprefix("--chown="))
            if not is_numeric_owner(written):
                raise NeedsDaemonError(f"has --chown={written}, and the numbers of names are in the base's files")
            user, _, group = written.partition(":")
            owner = int(user), int(group or user)
        folder = self.config.get("WorkingDir") or ""
        return Copy(word=step.word, sources=paths[:-1], destination=paths[-1], folder=folder, owner=owner)


def _ports(text: str) -> list[str]:
    found = _PORT.fullmatch(text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if found is None or not 0 < first <= last < 1 << 16:
        raise NeedsDaemonError(
            f"has the port {text!r}, which is not NUMBER, FIRST-LAST, or one of these with /tcp or /udp"
        )
    return [f"{number}/{(found[3] or 'tcp').lower()}" for number in range(first, last + 1)]


def _json_list(rest: str) -> list[str] | None:
    """Return the words of the JSON form. None: it is not JSON, so that it is the form for a shell."""
    if not rest.startswith("["):
        return None
    try:
        words = json.loads(rest)
    except ValueError:
        return None
    except RecursionError as error:
        raise NeedsDaemonError("has a JSON list with something other than strings") from error
    if not all(isinstance(word, str) and not re.search("[\ud800-\udfff]", word) for word in words):
        raise NeedsDaemonError("has a JSON list with something other than strings")
    return list(words)
