"""Run options from `.torchxconfig`, for calls that TorchX gives none: `list`, `log`, `describe`."""

from __future__ import annotations

import configparser
import logging
from collections.abc import Mapping
from typing import Any

from torchx.runner.config import find_configs

from torchx_pulumi.errors import Problem, invalid_job
from torchx_pulumi.torchx_scheduler.run_opts import CheckedOptions, cast

logger = logging.getLogger(__name__)


def section(name: str, options: CheckedOptions) -> Mapping[str, Any]:
    """Return the options of a section; the first file that has one wins, and unknown ones are left to TorchX to say.

    Raises:
        InvalidJobError: A file is no configuration, or a value is not of its option's type.
    """
    found: dict[str, Any] = {}
    for path in find_configs():
        parser = configparser.ConfigParser(interpolation=None)
        # TorchX keeps the case of names.
        parser.optionxform = str  # type: ignore[assignment,method-assign]
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError) as error:
            raise invalid_job("unnamed", [Problem(str(path), f"is no configuration: {error}")]) from error
        for given, text in parser.items(name) if parser.has_section(name) else []:
            key = options.canonical_key(given)
            if key is None or key in found or text == "None":
                continue
            try:
                found[key] = cast(text, options.get(key).opt_type)
            except ValueError as error:
                raise invalid_job("unnamed", [Problem(f"{path} [{name}] {given}", str(error))]) from error
    return found
