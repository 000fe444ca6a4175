"""Run options: properties of a launch that the AppDef does not have. A table of them is a class, a row is a field."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, ClassVar, TypeVar, Union, get_args, get_origin, get_type_hints

from typing_extensions import dataclass_transform

T = TypeVar("T")

RESERVED_CPU_MILLI = 100
"""CPU in millicores that TorchX leaves to Kubernetes on each node."""

RESERVED_MEMORY_MB = 1024
"""Memory in MB that TorchX leaves to Kubernetes on each node."""


class TaskLayout(str, Enum):
    """How the replicas of a role become pod templates of a job object."""

    REPLICA = "replica"
    """One task per replica, as TorchX writes it."""
    ROLE = "role"
    """Replicas that differ only in their index are one task with `replicas: n`, in an AppWrapper v1beta2 one Job."""
    AUTO = "auto"
    """`role` above 10 replicas (AppWrapper v1beta2: 8), or above 100 if the job names what shared tasks change; else
    `replica`."""


Manifest = dict[str, Any]
"""One Kubernetes object, as its API server takes it."""

Observed = Mapping[str, Any]
"""An object of a cluster, or a part of one, as it was read. It is not changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One run option: a field of an option table, and all that is made from it.

    From a row come TorchX's `runopts`, the component argument with its schema, the key of the stack program, the
    identity of a run, the table in the documentation and the advice about misspelled names.
    """

    name: str
    hint: Any
    """Type of the value. A Union with None: the option can be unset."""
    help: str
    """One sentence or more, without the last full stop."""
    default: Any = MISSING
    """`MISSING`: the option is required."""
    torchx: str = ""
    """Name in `torchx runopts` and in the identity. Empty: the name of the option."""
    component: bool = True
    """Components have it as an argument."""
    known: bool = False
    """Its text must be known in a preview, so that components take no Output of it."""
    counted: bool = True
    """It is part of the identity of a run."""
    counted_default: Any = MISSING
    """Value at which it is not counted. `MISSING`: the default; a default that changes leaves its old value here."""
    choices: tuple[str, ...] = ()
    """Values of a text with few values. Those of an enum are its members."""
    secret: bool = False
    """It may hold credentials: SDKs that are generated from the schema encrypt it, and no `repr` shows it."""

    @property
    def required(self) -> bool:
        """Return whether the option has no default."""
        return self.default is MISSING

    @property
    def torchx_name(self) -> str:
        """Return the name in `torchx runopts` and in the identity."""
        return self.torchx or self.name

    @property
    def kind(self) -> Any:
        """Return the type of the value without None."""
        given = [part for part in get_args(self.hint) if part is not NoneType]
        return given[0] if get_origin(self.hint) in (Union, UnionType) else self.hint

    @property
    def allowed(self) -> tuple[str, ...]:
        """Return the allowed values; empty if every value of the type is."""
        is_enum = isinstance(self.kind, type) and issubclass(self.kind, Enum)
        return tuple(str(member.value) for member in self.kind) if is_enum else self.choices


def option(
    help: str,
    *,
    default: Any = MISSING,
    torchx: str = "",
    component: bool = True,
    known: bool = False,
    counted: bool = True,
    counted_default: Any = MISSING,
    choices: tuple[str, ...] = (),
    secret: bool = False,
) -> Any:
    """Return the field of an option table; the parameters are those of `Option`. A default may be a mapping."""
    row = {"help": help, "torchx": torchx, "component": component}
    identity = {"counted": counted, "counted_default": counted_default}
    metadata = {**row, **identity, "known": known, "choices": choices, "secret": secret}
    if isinstance(default, Mapping):
        return field(default_factory=lambda: dict(default), metadata=metadata, repr=not secret)
    return field(default=default, metadata=metadata, repr=not secret)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(option,))
def option_table(kind: type[T]) -> type[T]:
    """Make a frozen dataclass of a class whose fields are run options."""
    return dataclass(frozen=True, slots=True, kw_only=True)(kind)


def is_table(kind: Any) -> bool:
    """Return whether a type is an option table, that is, an option with fields."""
    return is_dataclass(kind) and all("help" in item.metadata for item in fields(kind))


def rows_of(kind: Any) -> tuple[Option, ...]:
    """Return the rows of an option table, in the order of its fields."""
    return _rows_of(kind)


@functools.cache
def _rows_of(kind: Any) -> tuple[Option, ...]:
    hints = get_type_hints(kind)
    rows = []
    for item in fields(kind):
        default = item.default if item.default_factory is MISSING else item.default_factory()
        rows.append(Option(name=item.name, hint=hints[item.name], default=default, **item.metadata))
    return tuple(rows)


def chosen_arguments(options: Any) -> dict[str, Any]:
    """Return the options that differ from their defaults, and all required ones, by their names."""
    chosen = ((row, getattr(options, row.name)) for row in rows_of(type(options)))
    return {row.name: value for row, value in chosen if row.required or value != row.default}


def unknown_name(name: str, known: Iterable[str], what: str = "is unknown") -> str:
    """Return the message about an unknown name, with the nearest known name or all of them.

    >>> unknown_name("qeue", ["queue", "gang"]), unknown_name("x", ["queue", "gang"])
    ("is unknown; did you mean 'queue'?", 'is unknown; known are gang, queue')
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, 1)
    advice = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}"
    return f"{what}; {advice}"


def other_word(value: object, allowed: Iterable[str]) -> str:
    """Return the message about a value that is none of some words, to follow its place.

    >>> other_word("podman", ("auto", "docker"))
    "is 'podman', must be one of auto, docker"
    """
    return f"is {value!r}, must be one of {', '.join(allowed)}"


@option_table
class Options:
    """Options of every scheduler. Each scheduler adds its own in a subclass."""

    scheduler: ClassVar[str]
    """Name of the scheduler."""

    namespace: str = option("Kubernetes namespace to schedule job in", default="default")
    service_account: str | None = option("The service account name to set on the pod specs", default=None)
    reserved_millicpu: int = option("CPU in millicores that a request leaves to the node", default=RESERVED_CPU_MILLI)
    reserved_memmb: int = option("Memory in MB that a request leaves to the node", default=RESERVED_MEMORY_MB)
    efa_device_count: int | None = option(
        "EFA devices of each replica: unset keeps the resource's own number, 0 removes them, N sets N", default=None
    )
    labels: Mapping[str, str] = option("Labels of the job object, never of its pods; they change in place", default={})
    annotations: Mapping[str, str] = option(
        "Annotations of the job object, never of its pods; they change in place", default={}
    )

    @property
    def priority_class(self) -> str | None:
        """PriorityClass of the job, if any."""
        return None

    @property
    def success_roles(self) -> Sequence[str] | None:
        """Roles of which one is enough for the job to succeed. None: all have to."""
        return None

    @property
    def start_after(self) -> Mapping[str, Sequence[str]] | None:
        """Role to the roles that must run before it starts. None: no role waits."""
        return None

    @property
    def image_secrets(self) -> Sequence[str]:
        """Names of the pull secrets of the pods. Empty: none."""
        return ()
