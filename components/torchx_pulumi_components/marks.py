"""Which parts of what a component registers are secret or not known: what is made of its plan, marked by place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torchx_pulumi import labels
from torchx_pulumi.errors import InvalidJobError
from torchx_pulumi.forms import form_of
from torchx_pulumi.plan import JobPlan
from torchx_pulumi.planner import plan_job

from torchx_pulumi_components.launch import Launch
from torchx_pulumi_components.leaves import Leaves
from torchx_pulumi_components.read_args import Wanted

OWN_LABELS = (labels.LAUNCH, labels.LAUNCHER, labels.SESSION)
"""What a component adds to the labels that were asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Marks what is made of the plan of a launch."""

    leaves: Leaves
    plan: JobPlan[Any]
    changed: JobPlan[Any] | None
    """The plan of the same run with other values in the secret places. None: there is no such plan."""
    kept: Mapping[str, Any] | None = None
    """Outputs in the state of a run that is kept as it was launched; they are marked there. None: it is not."""

    def of(self, build: Callable[[JobPlan[Any]], Any]) -> Any:
        """Return what is made of the plan, with marks.

        Where a choice that everything depends on is secret, a scheduler for example, all of it is.
        """
        value = build(self.plan)
        if self.kept is not None:
            return value
        if not self.leaves.secret_places:
            return self.leaves.restore(value)
        try:
            other = None if self.changed is None else build(self.changed)
        except InvalidJobError:
            other = None
        if other is None and isinstance(value, list):
            return [self.leaves.mark_all(item) for item in value]
        return self.leaves.mark_all(value) if other is None else self.leaves.mark(value, other)


def marks_of(leaves: Leaves, launch: Launch, read: Callable[[], Wanted]) -> Marks:
    """Return the marks of a launch.

    Args:
        leaves: Unknown and secret values in the arguments.
        launch: What was decided.
        read: Reads the changed arguments.
    """
    changed = None
    if leaves.secret_places:
        try:
            changed = _plan(read(), launch)
        except InvalidJobError:
            # The other value is refused where the secret one is not: a word of a small vocabulary.
            changed = None
    return Marks(leaves=leaves, plan=launch.plan, changed=changed)


def _plan(wanted: Wanted, launch: Launch) -> JobPlan[Any] | None:
    """Plan the changed arguments as the launch planned the given ones: one name, one hash, one number of replicas."""
    plan = launch.plan
    found = {name: getattr(plan.options, name) for name in wanted.left_open}
    ours = {key: plan.options.labels[key] for key in OWN_LABELS if key in plan.options.labels}
    own: Any = replace(
        wanted.options,
        **found,
        labels={**wanted.options.labels, **ours},
        annotations={**wanted.options.annotations, labels.RUN: plan.options.annotations[labels.RUN]},
    )
    if form_of(own) is not form_of(plan.options):
        return None
    asked: Mapping[str, int] = {role.name: role.num_replicas for role in plan.spec.roles}
    roles = [replace(role, num_replicas=asked.get(role.name, role.num_replicas)) for role in wanted.spec.roles]
    launched = {role.name: len(role.replica_plans) for role in plan.roles if role.name in {each.name for each in roles}}
    return plan_job(replace(wanted.spec, roles=tuple(roles)), own, plan.job_name, launched=launched)
