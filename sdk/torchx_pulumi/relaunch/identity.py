"""What makes two jobs the same run: digests of fields, and the hash that a job's name ends in.

Pure. Taken of what the user asked for, before macros and names, so that another release of TorchX or of this package
keeps the identity of a running job. Digests only: no value of a field goes into a record.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from torchx_pulumi.options import Options
from torchx_pulumi.spec import JobSpec, RoleSpec

RUNNER_ENV = frozenset({"TORCHX_JOB_ID", "TORCHX_INTERNAL_SESSION_ID", "TORCHX_PARENT_RUN_ID", "TORCHX_TRACKERS"})
"""Environment that TorchX's Runner adds at each launch; it says who launched, not what runs."""

_TRACKER_CONFIG = re.compile(r"TORCHX_TRACKER_.*_CONFIG(FILE)?")

_IN_PLACE = re.compile(r"priority_class|priority|suspend|labels|annotations|roles\[.*\]\.(num_replicas|min_replicas)")
"""Paths that may change without a new run (`num_replicas`: down, and up again to what was launched).

`priority` and `suspend` are MCAD's, which calls its PriorityClass `priority_class_name`: that one is in the pods, to
which an AppWrapper passes no change on.
"""

_NOT_IDENTITY = frozenset({"name", "metadata", "torchx_version"})
"""Names and notes: a job that is only called differently is the same run."""


def is_runner_env(name: str) -> bool:
    """Say whether TorchX's Runner adds this variable by itself.

    >>> is_runner_env("TORCHX_TRACKER_MLFLOW_CONFIG"), is_runner_env("TORCHX_HOME")
    (True, False)
    """
    return name in RUNNER_ENV or _TRACKER_CONFIG.fullmatch(name) is not None


def is_in_place(path: str) -> bool:
    """Say whether the field at this path may change while the job runs.

    >>> is_in_place("roles[trainer].min_replicas"), is_in_place("roles[trainer].image")
    (True, False)
    """
    return _IN_PLACE.fullmatch(path) is not None


def digest(value: Any) -> str:
    """Return 12 hex digits of a plain value; equal values have equal digests.

    >>> digest(2) == digest(2.0), digest(("a",)) == digest(["a"])
    (True, True)
    """
    text = json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def field_digests(spec: JobSpec, options: Options, *, rerun: str | None = None) -> dict[str, str]:
    """Return the digest of each field that was set, by a path in the user's words."""
    return {path: digest(value) for path, value in field_values(spec, options, rerun=rerun).items()}


def fields_with(text: str, spec: JobSpec, options: Options, *, rerun: str | None = None) -> set[str]:
    """Return the paths of the fields whose values have this text somewhere in them."""
    return {path for path, value in field_values(spec, options, rerun=rerun).items() if text in repr(_canonical(value))}


def field_values(spec: JobSpec, options: Options, *, rerun: str | None = None) -> dict[str, Any]:
    """Return each field that was set, by a path in the user's words, sorted. The values may be private.

    A field at its default is left out, so that a new option of a later release does not change what is running.
    """
    fields = dict(_option_fields(options))
    if rerun is not None:
        fields["rerun"] = rerun
    fields["roles"] = [role.name for role in spec.roles]
    seen: dict[str, int] = {}
    for role in spec.roles:
        seen[role.name] = seen.get(role.name, 0) + 1
        suffix = "" if seen[role.name] == 1 else f"#{seen[role.name]}"
        for path, value in _role_fields(role):
            fields[f"roles[{role.name}{suffix}].{path}"] = value
    return dict(sorted(fields.items()))


def relaunch_hash(digests: Mapping[str, str], launched: Mapping[str, int]) -> str:
    """Return 16 hex digits that change when, and only when, a new run is needed.

    Args:
        digests: Of all fields; those that change in place are left out here.
        launched: Replicas of each role at the launch; fewer of them later is the same run.
    """
    kept = {path: value for path, value in digests.items() if not is_in_place(path)}
    text = json.dumps([kept, dict(launched)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def owner_digest(organization: str, project: str, stack: str, urn: str) -> str:
    """Return the label value by which a stack knows the objects that it created, 32 hex digits."""
    return hashlib.sha256("\n".join((organization, project, stack, urn)).encode()).hexdigest()[:32]


def changed_fields(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Return the paths whose digests differ, sorted.

    >>> changed_fields({"queue": "1", "rerun": "2"}, {"queue": "1", "roles": "3"})
    ['rerun', 'roles']
    """
    return sorted(path for path in {*old, *new} if old.get(path) != new.get(path))


def _option_fields(options: Options) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if not _is_default(field, value):
            yield field.name, value


def _role_fields(role: RoleSpec) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(role):
        value = getattr(role, field.name)
        if field.name in _NOT_IDENTITY or _is_default(field, value):
            continue
        if field.name == "resource":
            for part in dataclasses.fields(value):
                amount = _amount(getattr(value, part.name))
                if amount not in (None, {}):
                    yield f"resource.{part.name}", amount
        elif field.name in ("env", "secret_env"):
            yield from ((f"{field.name}[{key}]", item) for key, item in value.items() if not is_runner_env(key))
        else:
            yield field.name, value


def _amount(value: Any) -> Any:
    """Take an absent, zero or negative amount for none, as the renderers do."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value <= 0:
        return None
    return dict(value) if isinstance(value, Mapping) else value


def _is_default(field: dataclasses.Field[Any], value: Any) -> bool:
    if field.default_factory is not dataclasses.MISSING:
        return bool(_canonical(value) == _canonical(field.default_factory()))
    return field.default is not dataclasses.MISSING and bool(_canonical(value) == _canonical(field.default))


def _canonical(value: Any) -> Any:
    """Return a JSON value that is equal for equal meaning: 2 and 2.0, tuples and lists, enums and their values."""
    if isinstance(value, Enum):
        return _canonical(value.value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _canonical(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [_canonical(item) for item in value]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return repr(value)
