"""What makes two jobs the same run: digests of fields, and the name of the job object.

Pure. Digests are of what the user asked for, before macros and names, so that another release of TorchX or of this
package keeps the identity of a running job. Digests only: no value of a field goes into a record.

A record says by which version of this it was made, and a recorded run is compared by that version. Fields and their
defaults are in `identity_fields`, the hash of a run is in `run_hash`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from torchx_pulumi.model.job_spec import JobSpec, RoleSpec
from torchx_pulumi.model.options import Options
from torchx_pulumi.model.run_record import IDENTITY_VERSION, json_digest
from torchx_pulumi.planning.checks.values import is_number
from torchx_pulumi.runs.identity_fields import canonical, in_order, set_fields

RUNNER_ENV = frozenset({"TORCHX_JOB_ID", "TORCHX_INTERNAL_SESSION_ID", "TORCHX_PARENT_RUN_ID", "TORCHX_TRACKERS"})
"""Environment that TorchX's Runner adds at each launch; it says who launched, not what runs."""

_TRACKER_CONFIG = re.compile(r"TORCHX_TRACKER_.*_CONFIG(FILE)?")

_IN_PLACE = re.compile(r"priority_class|priority|suspend|labels|annotations|roles\[.*\]\.(num_replicas|min_replicas)")
"""Paths that may change without a new run (`num_replicas`: down, and up again to what was launched).

`priority` and `suspend` are MCAD's, which calls its PriorityClass `priority_class_name`: that one is in the pods, to
which an AppWrapper passes no change on.
"""


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


def digest(value: object, version: int = IDENTITY_VERSION) -> str:
    """Return 12 hex digits of a plain value; equal values have equal digests.

    >>> digest(2) == digest(2.0), digest(("a",)) == digest(["a"])
    (True, True)
    """
    return json_digest(canonical(value, version))


def field_digests(
    spec: JobSpec, options: Options, *, rerun: str | None = None, version: int = IDENTITY_VERSION
) -> dict[str, str]:
    """Return the digest of each field that was set, by a path in the user's words.

    Args:
        spec: The job.
        options: Its options.
        rerun: Text by which a run is launched again. None: not set.
        version: Version of the identity. For comparison with a recorded run: the record's.
    """
    values = field_values(spec, options, rerun=rerun, version=version)
    return {path: digest(value, version) for path, value in values.items()}


def field_values(
    spec: JobSpec, options: Options, *, rerun: str | None = None, version: int = IDENTITY_VERSION
) -> dict[str, Any]:
    """Return each field that was set, by a path in the user's words, sorted. The values may be private.

    A field at its default is left out, so that a new option of a later release does not change what is running.
    """
    fields = dict(set_fields(options, version))
    if rerun is not None:
        fields["rerun"] = rerun
    fields["roles"] = [role.name for role in spec.roles]
    for where, role in _role_paths(spec):
        fields |= {f"{where}.{path}": value for path, value in _role_fields(role, version)}
    return dict(sorted(fields.items()))


def machine_fields(spec: JobSpec) -> set[str]:
    """Return the paths of the fields that a TorchX component took from the machine, see `JobSpec.machine_values`."""
    found = set()
    for where, role in _role_paths(spec):
        values = {"image": role.image, **{f"env[{name}]": value for name, value in role.env.items()}}
        found |= {f"{where}.{path}" for path, value in spec.machine_values.items() if values.get(path) == value}
    return found


def changed_fields(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Return the paths whose digests differ, sorted; the order of entries counts if no entry differs.

    >>> changed_fields({"queue": "1", "rerun": "2"}, {"queue": "1", "roles": "3"})
    ['rerun', 'roles']
    >>> changed_fields({"env": "1"}, {"env": "2", "env[A]": "3"})
    ['env[A]']
    """
    changed = sorted(path for path in {*old, *new} if old.get(path) != new.get(path))
    entries = {path[: path.rindex("[")] for path in changed if path.endswith("]")}
    return [path for path in changed if path not in entries]


def _role_paths(spec: JobSpec) -> Iterator[tuple[str, RoleSpec]]:
    """Yield each role after its path, which is another one for each role of the same name."""
    seen: dict[str, int] = {}
    for role in spec.roles:
        seen[role.name] = seen.get(role.name, 0) + 1
        suffix = "" if seen[role.name] == 1 else f"#{seen[role.name]}"
        yield f"roles[{role.name}{suffix}]", role


def _role_fields(role: RoleSpec, version: int) -> Iterator[tuple[str, Any]]:
    for path, value in set_fields(role, version):
        if path == "resource":
            # The renderers ignore a zero or negative amount too.
            amounts = ((part, item) for part, item in set_fields(value, version))
            yield from ((f"resource.{part}", item) for part, item in amounts if not is_number(item) or item > 0)
        elif path in ("env", "secret_env"):
            kept = {key: item for key, item in value.items() if not is_runner_env(key)}
            yield from ((f"{path}[{key}]", item) for key, item in kept.items())
            if len(kept) > 1:
                yield path, list(kept)
        elif path == "port_map":
            yield path, list(value.items())
        elif path == "pod_overlay":
            yield path, in_order(value)
        else:
            yield path, value
