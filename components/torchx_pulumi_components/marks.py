"""Which parts of what a component registers are secret or not known: what is made of its plan, marked by place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torchx_pulumi.model import labels
from torchx_pulumi.model.errors import InvalidJobError
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.schedulers import plan_job, variant_of

from torchx_pulumi_components.input_resolution import Leaves, is_placeholder
from torchx_pulumi_components.launch import Launch
from torchx_pulumi_components.read_args import ParsedArgs

OWN_LABELS = (labels.LAUNCH, labels.LAUNCHER, labels.SESSION)
"""What a component adds to the labels that were asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Marks what is made of the plan of a launch."""

    leaves: Leaves
    plan: JobPlan[Any]
    changed: JobPlan[Any] | None
    """The plan of the same run with other values in the secret places. None: there is no such plan."""
    other: JobPlan[Any] | None = None
    """The plan of the same run with other values in the unknown places, and with another name where it depends on them.
    None: all is known."""
    blind: bool = False
    """Such other values are refused, and `other` has another name only."""
    kept: Mapping[str, Any] | None = None
    """Outputs in the state of a run that is kept as it was launched; they are marked there. None: it is not."""

    def of(self, build: Callable[[JobPlan[Any]], Any]) -> Any:
        """Return what is made of the plan, with marks.

        Where a choice that everything depends on is secret, a scheduler for example, all of it is.
        """
        value = build(self.plan)
        leaves = self.leaves
        if self.kept is not None or not (leaves.secret_places or leaves.unknown):
            return value
        changed = self._built(build, self.changed) if leaves.secret_places else value
        other = self._built(build, self.other)
        blind = self.blind or (bool(leaves.unknown) and other is None)
        if other is None:
            other = value
        if not isinstance(value, list):
            return leaves.mark_object(value, changed, other, blind=blind)
        items = zip(value, changed or [None] * len(value), other, strict=True)
        return [leaves.mark_object(*item, blind=blind) for item in items]

    @staticmethod
    def _built(build: Callable[[JobPlan[Any]], Any], plan: JobPlan[Any] | None) -> Any:
        try:
            return None if plan is None else build(plan)
        except InvalidJobError:
            return None


def marks_of(
    leaves: Leaves,
    launch: Launch,
    wanted: ParsedArgs,
    changed: Callable[[], ParsedArgs | None],
    other: ParsedArgs | None,
) -> Marks:
    """Return the marks of a launch.

    Args:
        leaves: Unknown and secret values in the arguments.
        launch: What was decided.
        wanted: What is wanted.
        changed: Returns what is wanted with other values in the secret places. None: it is refused.
        other: What is wanted with other values in the unknown places. None: it is refused.
    """
    plan = launch.plan
    name, run = plan.job_name, plan.options.annotations[labels.RUN]
    marks = Marks(
        leaves=leaves,
        plan=plan,
        changed=_plan(changed(), launch, name, run) if leaves.secret_places else None,
    )
    if not leaves.unknown:
        return marks
    if launch.launching and launch.undecided:
        # The name ends in the hash, which is not known either.
        name, run = name if launch.named else _another(name), _another(run)
    planned = _plan(other, launch, name, run)
    return replace(marks, other=planned or _plan(wanted, launch, name, run), blind=planned is None)


def _another(name: str) -> str:
    """Return another name of the same length."""
    return f"{name[:-1]}{'1' if name.endswith('0') else '0'}"


def _plan(wanted: ParsedArgs | None, launch: Launch, name: str, run: str) -> JobPlan[Any] | None:
    """Plan other arguments as the launch planned the given ones, with the same numbers of replicas.

    None where they are refused although the given ones are not: a word of a small vocabulary for example.
    """
    if wanted is None:
        return None
    plan = launch.plan
    found = {name: getattr(plan.options, name) for name in wanted.left_open}
    if not launch.launching and is_placeholder(wanted.options.namespace):
        # A run that is kept is where it is.
        found["namespace"] = plan.namespace
    ours = {key: plan.options.labels[key] for key in OWN_LABELS if key in plan.options.labels}
    own: Any = replace(
        wanted.options,
        **found,
        labels={**wanted.options.labels, **ours},
        annotations={**wanted.options.annotations, labels.RUN: run},
    )
    if variant_of(own) is not variant_of(plan.options):
        return None
    asked: Mapping[str, int] = {role.name: role.num_replicas for role in plan.spec.roles}
    roles = [replace(role, num_replicas=asked.get(role.name, role.num_replicas)) for role in wanted.spec.roles]
    launched = {role.name: len(role.replica_plans) for role in plan.roles if role.name in {each.name for each in roles}}
    try:
        return plan_job(replace(wanted.spec, roles=tuple(roles)), own, name, launched=launched)
    except InvalidJobError:
        return None
