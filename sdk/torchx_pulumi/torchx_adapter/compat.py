"""All differences between TorchX 0.7.0 and TorchX nightly. No other module depends on the installed version."""

from __future__ import annotations

import configparser
import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any, Dict, List  # noqa: UP035 - TorchX 0.7.0 compares option types with these types

from torchx import specs

try:
    # Only nightly has this module; its names are empty if the output is not a terminal.
    _colors: Any = importlib.import_module("torchx.util.colors")
except ImportError:
    _colors = None

ROLE_WORKSPACES: bool = "workspace" in {item.name for item in dataclasses.fields(specs.Role)}
"""Nightly: every role may have a workspace of its own. 0.7.0: there is one, and it is the first role's."""

FILES_HOLD_UNKNOWN_OPTIONS: bool = not hasattr(specs.runopts, "canonical_key")
"""0.7.0: `unknown = None` in `.torchxconfig` reaches the scheduler, and is left out there. Nightly leaves it out."""

ONE_SPELLING_PER_FILE: bool = not FILES_HOLD_UNKNOWN_OPTIONS
"""Nightly: a file that sets an option under two spellings to two values is refused. 0.7.0: the first one holds."""

_BOOLEANS = configparser.ConfigParser.BOOLEAN_STATES


def read_file_option(text: str, option: Any) -> Any:
    """Read an option of `.torchxconfig` as TorchX does for a launch.

    Raises:
        ValueError: The text is not of the option's type.
    """
    try:
        if hasattr(option, "cast_to_type"):
            return option.cast_to_type(text)
        if option.opt_type is bool:
            return _BOOLEANS[text.lower()]
        if option.opt_type == List[str]:  # noqa: UP006
            return text.split(";")
        if option.opt_type == Dict[str, str]:  # noqa: UP006
            return {pair.split(":", 1)[0]: pair.split(":", 1)[1] for pair in text.replace(",", ";").split(";")}
        return option.opt_type(text)
    except (IndexError, KeyError):
        wanted = "true or false" if option.opt_type is bool else "name:value,name:value"
        raise ValueError(f"must be {wanted}") from None


def container_label(container: str) -> str | None:
    """Return the prefix that nightly puts before the lines of a container that is not the replica's own.

    None: TorchX 0.7.0 prints the replica's own container only.
    """
    if _colors is None:
        return None
    return f"{_colors.BLUE}{container}{_colors.ENDC} "


def app_of(info: Any) -> Any:
    """Return the AppDef that a dry run was made of."""
    return getattr(info, "app", None) or getattr(info, "_app", None)


def config_of(info: Any) -> Mapping[str, Any]:
    """Return the resolved run options that a dry run was made with."""
    config = getattr(info, "cfg", None) or getattr(info, "_cfg", None) or {}
    return dict(config)


def set_app(info: Any, app: Any, config: Mapping[str, Any]) -> None:
    """Note the AppDef and the options of a request that was read back."""
    for name, value in (("app", app), ("cfg", dict(config))):
        setattr(info, name if hasattr(info, name) else f"_{name}", value)


def make(kind: type[Any], fields: Mapping[str, Any]) -> Any:
    """Make a dataclass of TorchX's, without the fields that the installed version does not have.

    0.7.0 has no `metadata` in its answer of `describe`, and no `name` in that of `list`.
    """
    names = {item.name for item in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in fields.items() if name in names})


def workspace_of(role: Any) -> str | Mapping[str, str] | None:
    """Return a role's own workspace: a folder, or folders and where each goes. None: it has none."""
    workspace = getattr(role, "workspace", None)
    folders = dict(workspace.projects) if workspace else {}
    return next(iter(folders)) if list(folders.values()) == [""] else folders or None


def make_workspace(projects: Mapping[str, str]) -> Any:
    """Make a workspace of its folders. None: the installed version has no workspaces."""
    kind = getattr(specs, "Workspace", None)
    return None if kind is None else kind(projects=dict(projects))
