"""All that differs between TorchX 0.7.0 and TorchX nightly. Nothing else here knows which of them is installed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from torchx import specs
from torchx.schedulers.api import DescribeAppResponse, ListAppResponse

ROLE_WORKSPACES: bool = "workspace" in {item.name for item in dataclasses.fields(specs.Role)}
"""Nightly: every role may have a workspace of its own. 0.7.0: there is one, and it is the first role's."""


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


def described(**fields: Any) -> Any:
    """Make TorchX's answer of `describe`; 0.7.0 has no `metadata`."""
    return DescribeAppResponse(**_known(DescribeAppResponse, fields))


def listed(**fields: Any) -> Any:
    """Make one app of TorchX's answer of `list`; 0.7.0 has no `name`."""
    return ListAppResponse(**_known(ListAppResponse, fields))


def make(kind: type[Any], fields: Mapping[str, Any]) -> Any:
    """Make a dataclass of TorchX's, without the fields that the installed version does not have."""
    return kind(**_known(kind, fields))


def workspace_of(role: Any) -> Mapping[str, str]:
    """Return the folders of a role's own workspace and where each goes. Empty: it has none, or TorchX knows of none."""
    workspace = getattr(role, "workspace", None)
    return dict(workspace.projects) if workspace else {}


def make_workspace(projects: Mapping[str, str]) -> Any:
    """Make a workspace of its folders. None: the installed version has no such thing."""
    kind = getattr(specs, "Workspace", None)
    return None if kind is None else kind(projects=dict(projects))


def _known(kind: type[Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    names = {item.name for item in dataclasses.fields(kind)}
    return {name: value for name, value in fields.items() if name in names}
