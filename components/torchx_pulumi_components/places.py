"""What a secret or unknown value among the arguments makes secret or unknown: one table, by the place of the value.

As in Pulumi, what is computed from a secret is secret. Whole fields are marked, and of them `spec` only can be secret.
Fields are `name`, `namespace`, `labels`, `annotations` and `spec` of every object, outputs of the component by their
names, and `queue`, `run` and `pods` of an app's index entry.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pulumi
from torchx_pulumi.model.errors import Problem
from torchx_pulumi.model.job_spec import RoleSpec
from torchx_pulumi.model.options import Manifest, rows_of
from torchx_pulumi.planning.typed_reader import snake_case

from torchx_pulumi_components.input_resolution import Leaves, ValuePath, path_of
from torchx_pulumi_components.read_args import ParsedArgs

NOWHERE: frozenset[str] = frozenset()
SPEC = frozenset({"spec"})

FIELDS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("kubeconfig", "kube_context", "log_archive", "rerun", "roles.metadata"), NOWHERE),
    "namespace": SPEC | {"namespace", "app_id", "app_handle"},
    "labels": frozenset({"labels"}),
    "annotations": frozenset({"annotations"}),
    "queue": SPEC | {"queue"},
    "local_queue": SPEC | {"labels", "queue"},
    "plugins": SPEC | {"service", "rank0_host", "roles"},
    "priority_class": SPEC | {"declared"},
    **dict.fromkeys(("reserved_millicpu", "reserved_memmb", "efa_device_count"), SPEC | {"roles"}),
    "roles.image": SPEC | {"images", "declared", "roles"},
    "roles.resource": SPEC | {"declared", "roles"},
    # The AppWrapper operator reads them from annotations.
    "roles.max_retries": SPEC | {"annotations"},
}
"""Argument to the fields that are made of it, besides the hash and the names of the run. One that is absent: `SPEC`."""

OF_HASH = SPEC | {"annotations", "declared", "run"}
"""Fields with the hash of the run."""

OF_NAME = SPEC | {"name", "app_id", "app_handle", "job_name", "service", "pod_names", "rank0_host", "roles", "pods"}
"""Fields with the name of the job object, which ends in the hash unless it is fixed."""

MAY_BE_SECRET = frozenset(
    {"kubeconfig", "kube_context", "log_archive", "rerun"}
    | {f"roles.{name}" for name in ("entrypoint", "args", "env", "secret_env", "mounts", "metadata", "pod_overlay")}
)
"""Arguments whose values are in no field, or in `spec` only."""

_QUOTED = {f"roles.{name}" for name in ("entrypoint", "args", "secret_env", "mounts", "pod_overlay")}
"""Arguments that messages of the cluster may quote, for example a command that is not found."""

_INSTEAD: Mapping[str, str] = {
    "roles.image": "credentials for its registry go into image_secrets (MCADTrainingJob: image_secret)"
}
"""Argument to what takes a secret in its place."""

_ANY_INSTEAD = (
    "a secret goes into env, args, entrypoint, mounts or the spec of pod_overlay of a role, or into a Kubernetes "
    "Secret that secret_env names"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Which fields of what is registered for a run are secret, and which are unknown."""

    secret: bool = False
    """The `spec` of every object is secret."""
    quoted: bool = False
    """Messages of the cluster may quote a secret value."""
    unknown: frozenset[str] = NOWHERE
    """The fields that only `up` knows."""

    def of_object(self, manifest: Manifest) -> Manifest:
        """Return an object with Outputs in the place of fields that are secret or unknown."""
        spec = unknown() if "spec" in self.unknown else manifest["spec"]
        return {**manifest, "metadata": self.of_fields(manifest["metadata"]), "spec": self.as_spec(spec)}

    def of_companion(self, manifest: Manifest) -> Manifest:
        """Return an object next to the job object. A pod has labels and annotations that go with its `spec`."""
        more = {"labels", "annotations"} if "spec" in self.unknown else ()
        return replace(self, unknown=self.unknown.union(more)).of_object(manifest)

    def of_fields(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values by the names of fields, with an Output for each that is unknown."""
        return {name: unknown() if name in self.unknown else value for name, value in values.items()}

    def as_spec(self, value: Any) -> Any:
        """Return a value that has parts of a `spec`, secret if that is."""
        # `Output.secret(value)` would make an Output of each part of the value: seconds for a thousand pods.
        return pulumi.Output.secret("").apply(lambda _: value) if self.secret else value


def unknown() -> pulumi.Output[Any]:
    """Return an unknown Output."""
    return pulumi.Output.from_input(pulumi.output.UNKNOWN)


def marks_of(leaves: Leaves, roles: Iterable[RoleSpec], *, launching: bool, undecided: bool, named: bool) -> Marks:
    """Return the marks of a run.

    Args:
        leaves: The arguments.
        roles: The roles in them.
        launching: It is launched now. Otherwise it is kept, in the namespace and with the name that it has.
        undecided: Unknown values are in its hash.
        named: The job object has a fixed name.
    """
    hidden, undetermined = ({*map(_argument, places)} for places in (leaves.secret_places, leaves.unknown_places))
    if not launching:
        undetermined.discard("namespace")
    found = NOWHERE.union(*map(_fields_of, undetermined))
    if launching and undecided:
        found |= OF_HASH if named else OF_HASH | OF_NAME
    # Kubernetes puts variables into a command.
    takes_variables = any("$(" in text for role in roles for text in (role.entrypoint, *role.args))
    return Marks(
        secret=any(map(_fields_of, hidden)),
        quoted=not hidden.isdisjoint(_QUOTED) or (takes_variables and "roles.env" in hidden),
        unknown=found,
    )


def secret_problems(secret: Sequence[ValuePath]) -> Iterator[Problem]:
    """Yield a problem for each place that shows its value, and so cannot have a secret one."""
    for place in secret:
        argument = _argument(place)
        # With `gang` pods, the metadata of an overlay is that of an object.
        is_metadata = argument == "roles.pod_overlay" and any("metadata" in str(key).split(":") for key in place[3:4])
        if argument not in MAY_BE_SECRET or is_metadata:
            yield Problem(
                path_of(_in_python(place)),
                "cannot be secret: it shows in names, labels, annotations, numbers or outputs. If it is no secret, "
                f"pass pulumi.Output.unsecret(value); {_INSTEAD.get(argument, _ANY_INSTEAD)}",
            )


def unknown_paths(unknown: Sequence[ValuePath], args: ParsedArgs) -> set[str]:
    """Return the paths of unknown places in the digests of a run. A path stands for all that begins with it, too."""
    paths: dict[str | int, str] = {row.name: row.torchx_name for row in rows_of(type(args.options)) if row.counted}
    paths["rerun"] = "rerun"
    places = [_in_python(place) for place in unknown]
    found = {paths[place[0]] for place in places if place[0] in paths}
    return found | {_path_in_role(place, args) for place in places if place[0] == "roles" and place[2] != "metadata"}


def covers(paths: Collection[str], path: str) -> bool:
    """Return whether one of some paths is a path, or the beginning of one.

    >>> covers({"roles[a].env"}, "roles[a].env[TOKEN]"), covers({"roles[a].env"}, "roles[a].envoy")
    (True, False)
    """
    return any(path == one or path.startswith((f"{one}[", f"{one}.")) for one in paths)


def _argument(place: ValuePath) -> str:
    """Return the argument of a place, as `FIELDS` names it.

    >>> _argument(("roles", 0, "secretEnv", "KEY", "name")), _argument(("labels", "team"))
    ('roles.secret_env', 'labels')
    """
    first, *rest = _in_python(place)
    return f"roles.{rest[1]}" if first == "roles" and len(rest) > 1 else str(first)


def _fields_of(argument: str) -> frozenset[str]:
    return FIELDS.get(argument, SPEC)


def _in_python(place: ValuePath) -> ValuePath:
    """Return a place with the names that arguments and fields of roles have in Python."""
    named = (0, 2) if place[0] == "roles" else (0,)
    return tuple(snake_case(str(part)) if number in named else part for number, part in enumerate(place))


def _path_in_role(place: ValuePath, args: ParsedArgs) -> str:
    _, index, part, *rest = place
    path = f"roles[{args.spec.roles[int(index)].name}].{part}"
    if rest and part == "resource":
        return f"{path}.{snake_case(str(rest[0]))}"
    return f"{path}[{rest[0]}]" if rest and part in ("env", "secret_env") else path
