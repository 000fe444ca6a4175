"""Run options from `.torchxconfig`, for calls that TorchX gives none: `list`, `log`, `describe`.

A launch gets those of the command line and of the file from TorchX. What is read here is what TorchX reads.
"""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchx.runner.config import find_configs

from torchx_pulumi.model.errors import Problem, invalid_job
from torchx_pulumi.torchx_adapter import compat
from torchx_pulumi.torchx_adapter.run_opts import CheckedOptions

NOTHING = "None"
"""Text of an option that stays unset even if a later file sets it."""


FILE_VARIABLE = "TORCHXCONFIG"
"""Variable that names the one file that TorchX reads."""


def section(name: str, options: CheckedOptions) -> Mapping[str, Any]:
    """Return the options of a section; the first file that has one wins, and TorchX itself reports unknown ones.

    Raises:
        InvalidJobError: A file is not there or no configuration, or a value is not of its option's type.
    """
    found: dict[str, Any] = {}
    try:
        paths = find_configs()
    except FileNotFoundError:
        text = "names a file that is not there; name another one, or unset the variable"
        raise invalid_job("unnamed", [Problem(FILE_VARIABLE, text)]) from None
    for path in paths:
        _add(found, path, name, options)
    return {key: value for key, value in found.items() if value is not None}


def _add(found: dict[str, Any], path: str, name: str, options: CheckedOptions) -> None:
    """Add the options that a file has and no file before it; what is not added is not read."""
    read: dict[str, Any] = {}
    for spelling, text in _section(path, name).items():
        key = options.canonical_key(spelling)
        if key is None or key in found:
            continue
        try:
            value = None if text == NOTHING else compat.read_file_option(text, options.get(key))
        except ValueError as error:
            raise invalid_job("unnamed", [Problem(f"{path} [{name}] {spelling}", str(error))]) from error
        if read.setdefault(key, value) != value and compat.ONE_SPELLING_PER_FILE:
            problem = f"is another spelling of {key}, with another value; keep one, as {key}"
            raise invalid_job("unnamed", [Problem(f"{path} [{name}] {spelling}", problem)])
    found.update(read)


def _section(path: str, name: str) -> Mapping[str, str]:
    """Return a section of a file as TorchX reads it: `%(name)s` is the value of `name`, and `%%` a percent sign."""
    parser = configparser.ConfigParser()
    # TorchX keeps the case of names.
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        with Path(path).open(encoding="utf-8") as file:
            parser.read_file(file)
        return dict(parser.items(name)) if parser.has_section(name) else {}
    except (configparser.Error, UnicodeDecodeError) as error:
        raise invalid_job("unnamed", [Problem(path, f"cannot be parsed: {_reason(error)}")]) from None


def _reason(error: Exception) -> str:
    """Return the fault of a file, without its lines: a backend's URL may have a password."""
    if isinstance(error, configparser.InterpolationError):
        return (
            f"[{error.section}] {error.option}: write a percent sign as %%, and the value of another line as %(name)s"
        )
    if isinstance(error, configparser.MissingSectionHeaderError):
        return f"line {error.lineno} comes before the first [section]"
    if isinstance(error, configparser.ParsingError):
        return f"line {', '.join(str(number) for number, _ in error.errors)} is neither [section] nor name = value"
    return "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
