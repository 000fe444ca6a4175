"""What a stack says of a run, and the change of it that a writer makes under Pulumi's lock. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchx_pulumi.apps.judge import judge, latest, was_resumed
from torchx_pulumi.apps.look import Look
from torchx_pulumi.model.object_fields import mapping_at
from torchx_pulumi.model.requested import Requested, follows, read_requested


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a stack says of how its run stands."""

    observed: Mapping[str, Any] = field(default_factory=dict)
    """The last observation, in the shape of the output `torchx.observed`. Empty: not observed yet."""
    requested: Requested | None = None
    """The last request to cancel or resume the run. None: there was none."""

    @classmethod
    def of(cls, outputs: Mapping[str, Any]) -> Answer:
        """Read the output `torchx`, or the outputs of a component."""
        return cls(observed=mapping_at(outputs, "observed"), requested=read_requested(outputs.get("requested")))


@dataclass(frozen=True, slots=True, kw_only=True)
class StackChange:
    """What a writer knows of a run. How the run stands is judged with what the stack has under its lock."""

    uid: str
    """Uid of the run's job object. A stack of another run is not changed."""
    look: Look | None = None
    """What was read of the run. None: it was not looked at."""
    observed: Mapping[str, Any] | None = None
    """An earlier observation that the stack lacks. None: the look alone counts."""
    request: Requested | None = None
    """A request to note. None: no request."""

    def apply(self, before: Answer) -> Answer:
        """Return the answer of the stack after the change; `before` itself if it changes nothing."""
        taken = self.request is not None and follows(self.request, before.requested)
        requested = self.request if taken else before.requested
        observed = before.observed
        if self.observed is not None and not was_resumed(self.observed, requested):
            observed = latest(observed, self.observed) if observed else self.observed
        if self.look is not None:
            observed = judge(self.look, requested, observed or None) or observed
        if observed is before.observed and requested is before.requested:
            return before
        return Answer(observed=observed, requested=requested)


def stored_value(value: Any) -> Any:
    """Return a value without None, as Pulumi stores it."""
    if isinstance(value, Mapping):
        return {key: stored_value(item) for key, item in value.items() if item is not None}
    return [stored_value(item) for item in value] if isinstance(value, (list, tuple)) else value


def without_words(observed: Mapping[str, Any]) -> dict[str, Any]:
    """Return an observation without explanations, which may quote a secret value of the job."""
    roles = [
        {**role, "replicas": [{**replica, "message": ""} for replica in role.get("replicas") or ()]}
        for role in observed.get("roles") or ()
    ]
    conditions = [{**each, "message": ""} for each in observed.get("conditions") or ()]
    message = "explanations are not shown: they may quote a secret"
    return {**observed, "message": message, "diagnoses": [], "conditions": conditions, "roles": roles}
