"""A run with every choice made, down to the names of its resources. Data only: the engine's program reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchx_pulumi.model.options import Manifest

UID = "{{uid of the job object}}"
"""Stands in every text for the uid that the job object will get."""

APP_SUFFIX = "-app"
"""Ends the name of the stash that holds what the index knows of the app."""

COMPONENT_TYPES: Mapping[str, str] = {
    "volcano": "torchx:index:VolcanoTrainingJob",
    "mcad": "torchx:index:MCADTrainingJob",
}
"""Scheduler to the type token of its component."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationPlan:
    """All that is registered of one run. Plain JSON values, so that an interrupted launch can be taken up again."""

    scheduler: str
    """`volcano` or `mcad`."""
    name: str
    """Name of the component."""
    objects: Sequence[Manifest]
    """What is created, the object that stands for the run first."""
    names: Sequence[str]
    """Names of their resources."""
    intent: Mapping[str, Any]
    """Note of the launch (`record.write_record`)."""
    record: Mapping[str, Any]
    """Record of the run."""
    entry: Mapping[str, Any]
    """What the index knows of the app (`runs.entry.write_entry`)."""
    outputs: Mapping[str, Any]
    """Outputs of the component."""
    roles: Mapping[str, Mapping[str, Any]]
    """Role name in object names to the outputs of the role."""
    exports: Mapping[str, Any]
    """Outputs of the stack."""
    kubeconfig: str | None
    """Kubeconfig that the user named. None: the ambient one."""
    kube_context: str | None
    """Context that the user named. None: the ambient one."""
