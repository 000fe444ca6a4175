"""Everything that is registered for an app that `torchx run` launches. Data only: the engine's program reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchx_pulumi.model.options import Manifest

UID = "{{uid of the job object}}"
"""Template variable in texts of a `RegistrationPlan`; its value is known once the job object is created."""

RECORD = "record"
"""Output of a component that has the record of its last run."""

INTENT_SUFFIX = "-intent"
"""End of the name of the stash that has the record of a run before its objects are created."""

APP_SUFFIX = "-app"
"""End of the name of the stash that has the app's index entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationPlan:
    """Everything that is registered for an app that `torchx run` launches.

    All values are plain JSON, so that an interrupted launch can be continued.
    """

    scheduler: str
    """Name of the scheduler."""
    name: str
    """Name of the component."""
    objects: Sequence[Manifest]
    """Manifests of the objects, the job object first."""
    names: Sequence[str]
    """Names of their resources."""
    intent: Mapping[str, Any]
    """The record as it is registered before the objects (`run_record.write_record`)."""
    record: Mapping[str, Any]
    """The record as it is registered after the objects."""
    entry: Mapping[str, Any]
    """The app's index entry (`app_entry.write_entry`)."""
    outputs: Mapping[str, Any]
    """Outputs of the component."""
    roles: Mapping[str, Mapping[str, Any]]
    """Role name in object names to its part of the component's output `roles`."""
    exports: Mapping[str, Any] = field(default_factory=dict)
    """Outputs of the stack."""
    kubeconfig: str | None = None
    """Kubeconfig that the user named. None: the ambient one."""
    kube_context: str | None = None
    """Context that the user named. None: the ambient one."""


def replace_uid(value: object, replaced: Callable[[str], Any]) -> Any:
    """Return a JSON value in which every text with the variable `UID` is replaced by the result of a function of it."""
    if isinstance(value, Mapping):
        return {key: replace_uid(item, replaced) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [replace_uid(item, replaced) for item in value]
    return replaced(value) if isinstance(value, str) and UID in value else value
