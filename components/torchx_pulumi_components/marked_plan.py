"""A plan whose secret and unknown values are marked in everything that is built from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pulumi
from torchx_pulumi.model.errors import InvalidJobError
from torchx_pulumi.model.redaction import HIDDEN
from torchx_pulumi.runs.registration import Registration, prepare
from torchx_pulumi.schedulers import variant_of

from torchx_pulumi_components.input_resolution import Leaves, another, with_leaves
from torchx_pulumi_components.launch import Launch
from torchx_pulumi_components.read_args import ParsedArgs

_NUMBER = re.compile(r"(?<![\w.\[])\d+(?:\.\d+)?(?![\w\]])")
"""Not an index, and not a part of a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedPlan:
    """What is registered for a run, and with other plans, which show which values are secret or unknown."""

    leaves: Leaves
    registration: Registration
    changed: Registration | None = None
    """The same run with other values in the secret places. None: they are refused."""
    other: Registration | None = None
    """The same run with other values in the unknown places, and with another name where that depends on them. None:
    nothing is unknown."""
    blind: bool = False
    """Such other values are refused, and `other` has another name only."""
    kept: Mapping[str, Any] | None = None
    """Outputs in the state, with marks of secrets, of a run that is kept as it was launched. None: it is not."""

    def of(self, build: Callable[[Registration], Any], built: Any = None) -> Any:
        """Build from the registration; wrap secret and unknown values in Outputs.

        If a choice that everything depends on is secret, for example the scheduler, all of it is.

        Args:
            build: Takes a registration.
            built: What it returned for this one. None: it is called.
        """
        value = build(self.registration) if built is None else built
        leaves = self.leaves
        if self.kept is not None or not (leaves.secret_places or leaves.unknown):
            return value
        changed = self._built(build, self.changed) if leaves.secret_places else value
        other = self._built(build, self.other)
        blind = self.blind or (bool(leaves.unknown) and other is None)
        if other is None:
            other = value
        if not isinstance(value, list):
            return _mark_object(value, changed, other, blind=blind)
        items = zip(value, changed or [None] * len(value), other, strict=True)
        return [_mark_object(*item, blind=blind) for item in items]

    def warning(self, text: str) -> str:
        """Return a warning without its numbers if they may be made of a secret: other secrets give another warning.

        A secret number is too short to be searched for, and a warning may have one that is computed from it.
        """
        if not self.leaves.secret_places or text not in self.registration.plan.warnings:
            return text
        if self.changed is not None and text in self.changed.plan.warnings:
            return text
        return _NUMBER.sub(HIDDEN, text)

    @staticmethod
    def _built(build: Callable[[Registration], Any], registration: Registration | None) -> Any:
        try:
            return None if registration is None else build(registration)
        except InvalidJobError:
            return None


def _mark_object(value: Mapping[str, Any], changed: Any, other: Any, *, blind: bool) -> dict[str, Any]:
    """Return an object with marks. If the other arguments are refused, more of it is marked.

    Args:
        value: Made of the arguments.
        changed: Made of the arguments with other values in the secret leaves. None: nothing tells which part of the
            object is not secret.
        other: Made of the arguments with other values in the unknown leaves.
        blind: `other` tells of the metadata only which part is known.
    """
    if changed is not None and not blind:
        return dict(_mark(value, changed, other))
    marked: dict[str, Any] = {}
    for key, item in value.items():
        if key in ("apiVersion", "kind") or item is None:
            marked[key] = item
        elif key == "metadata":
            marked[key] = _mark(item, with_leaves(item, another) if changed is None else changed[key], other[key])
        else:
            shown = unknown() if blind else _mark(item, item, other.get(key))
            is_secret = changed is None or not _is_same(item, changed.get(key))
            marked[key] = pulumi.Output.secret(shown) if is_secret else shown
    return marked


def _mark(value: Any, changed: Any, other: Any) -> Any:
    """Return a value with marks: secret or unknown if it differs when made of other arguments.

    If the structure differs, the whole part is marked. Parameters as of `_mark_object`.
    """
    made = (value, changed, other)
    if all(isinstance(item, Mapping) and item.keys() == value.keys() for item in made):
        return {key: _mark(item, changed[key], other[key]) for key, item in value.items()}
    if all(isinstance(item, (list, tuple)) and len(item) == len(value) for item in made):
        return [_mark(*items) for items in zip(*made, strict=True)]
    shown = value if _is_same(value, other) else unknown()
    return shown if _is_same(value, changed) else pulumi.Output.secret(shown)


def _is_same(value: object, other: object) -> bool:
    return type(value) is type(other) and value == other


def unknown() -> pulumi.Output[Any]:
    """Return an unknown Output."""
    return pulumi.Output.from_input(pulumi.output.UNKNOWN)


def mark_plan(
    leaves: Leaves,
    launch: Launch,
    args: ParsedArgs,
    changed: ParsedArgs | None,
    other: ParsedArgs | None,
) -> MarkedPlan:
    """Return the plan of a launch with marks.

    Args:
        leaves: Unknown and secret values in the arguments.
        launch: The decision.
        args: The arguments.
        changed: The arguments with other values in the secret places. None: no place is secret, or they are refused.
        other: The arguments with other values in the unknown places. None: these are refused.
    """
    name, run = launch.plan.job_name, launch.run.hash
    marked = MarkedPlan(
        leaves=leaves, registration=launch.registration, changed=_registration(changed, launch, name, run)
    )
    if not leaves.unknown:
        return marked
    if launch.launching and launch.undecided:
        # The name ends in the hash, which is not known either.
        name, run = name if launch.named else _another(name), _another(run)
    planned = _registration(other, launch, name, run)
    return replace(marked, other=planned or _registration(args, launch, name, run), blind=planned is None)


def _another(name: str) -> str:
    """Return another name of the same length."""
    return f"{name[:-1]}{'1' if name.endswith('0') else '0'}"


def _registration(args: ParsedArgs | None, launch: Launch, name: str, run: str) -> Registration | None:
    """Plan other arguments as the given ones, with the same numbers of replicas.

    None: they are refused although the given ones are not, for example because they are not one of the allowed words.
    """
    if args is None:
        return None
    plan = launch.plan
    found = {name: getattr(plan.options, name) for name in args.left_open}
    if not launch.launching and "namespace" in args.unknown:
        # A kept run keeps its namespace.
        found["namespace"] = plan.namespace
    own: Any = replace(args.options, **found)
    if variant_of(own) is not variant_of(plan.options):
        return None
    asked: Mapping[str, int] = {role.name: role.num_replicas for role in plan.spec.roles}
    roles = [replace(role, num_replicas=asked.get(role.name, role.num_replicas)) for role in args.spec.roles]
    launched = {role.name: sum(task.count for task in role.tasks) for role in plan.roles}
    kept = replace(launch.run, job_name=name, hash=run, namespace=own.namespace, launched=launched)
    try:
        made = prepare(replace(args.spec, roles=tuple(roles)), own, launch.registration.state, kept=kept)
    except InvalidJobError:
        return None
    return replace(made, record=replace(launch.run, hash=run))
