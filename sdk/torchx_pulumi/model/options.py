"""Run options: properties of a launch that the AppDef does not have. Each scheduler defines a class of its options.

The text under each field of these classes is the help of the option in `torchx runopts`, stack configuration and
component arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from enum import Enum
from typing import Any, ClassVar, Protocol

RESERVED_CPU_MILLI = 100
"""CPU in millicores that TorchX leaves to Kubernetes on each node."""

RESERVED_MEMORY_MB = 1024
"""Memory in MB that TorchX leaves to Kubernetes on each node."""


class Layout(str, Enum):
    """How the replicas of a role become pod templates of a job object."""

    REPLICA = "replica"
    """One task per replica, as TorchX writes it."""
    ROLE = "role"
    """Replicas that differ only in their index are one task with `replicas: n`."""
    AUTO = "auto"
    """`replica` up to `planning.layout.AUTO_REPLICAS` replicas of the job, `role` above, where the job can have it."""


class Options(Protocol):
    """What the options of every scheduler have. Each scheduler defines a frozen dataclass with them."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    scheduler: ClassVar[str]
    """Name of the scheduler."""

    @property
    def namespace(self) -> str:
        """Kubernetes namespace of the job."""

    @property
    def service_account(self) -> str | None:
        """Service account of the pods. None: the namespace's default."""

    @property
    def priority_class(self) -> str | None:
        """PriorityClass of the job. None: none."""

    @property
    def image_secrets(self) -> Sequence[str]:
        """Names of the pull secrets of the pods. Empty: none."""

    @property
    def reserved_millicpu(self) -> int:
        """CPU in millicores that a request leaves to the node."""

    @property
    def reserved_memmb(self) -> int:
        """Memory in MB that a request leaves to the node."""

    @property
    def efa_device_count(self) -> int | None:
        """EFA devices of each replica. None: as the resource says."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels of the job object."""

    @property
    def annotations(self) -> Mapping[str, str]:
        """Annotations of the job object."""


Manifest = dict[str, Any]
"""One Kubernetes object, as its API server takes it."""


def defaults_of(options: type[Any]) -> dict[str, Any]:
    """Return the defaults of an options class by field; a required option is not in it."""
    defaults: dict[str, Any] = {}
    for item in fields(options):
        if item.default is not MISSING:
            defaults[item.name] = item.default
        elif item.default_factory is not MISSING:
            defaults[item.name] = item.default_factory()
    return defaults


OPTION_TO_ARGUMENT: Mapping[str, str] = {"priority_class_name": "priority_class"}
"""Options whose component argument has another name: the same name in all components."""


def chosen_arguments(options: Any) -> dict[str, Any]:
    """Return the options that differ from their defaults, and all required ones, by names of component arguments."""
    default = defaults_of(type(options))
    chosen = {item.name: getattr(options, item.name) for item in fields(options)}
    return {
        OPTION_TO_ARGUMENT.get(name, name): value
        for name, value in chosen.items()
        if name not in default or value != default[name]
    }
