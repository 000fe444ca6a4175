"""Which apps of a fleet are wanted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchx_pulumi.fleet.collect.row import FleetRow
from torchx_pulumi.model.errors import Problem, TorchxPulumiError
from torchx_pulumi.model.status import JobState
from torchx_pulumi.schedulers import scheduler_names

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")


class SelectionError(TorchxPulumiError, ValueError):
    """Apps were asked for in words that mean nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which apps are wanted. A sequence that is empty wants them all."""

    states: Sequence[JobState] = ()
    queues: Sequence[str] = ()
    users: Sequence[str] = ()
    namespaces: Sequence[str] = ()
    schedulers: Sequence[str] = ()
    younger_than_s: float | None = None
    """Launched at most so many seconds ago; apps whose launch is not known are wanted too. None: any age."""

    def wants(self, row: FleetRow) -> bool:
        """Say whether an app is wanted."""
        lists = (
            (self.states, row.state),
            (self.queues, row.queue),
            (self.users, row.user),
            (self.namespaces, row.namespace),
            (self.schedulers, row.scheduler),
        )
        young = self.younger_than_s is None or row.age_s is None or row.age_s <= self.younger_than_s
        return young and all(not wanted or value in wanted for wanted, value in lists)

    def whatever_the_state(self) -> Selection:
        """Return the same with apps in every state."""
        return replace(self, states=())


def read_duration(text: str) -> float:
    """Read a duration in seconds: numbers with the units s, m, h, d, w.

    Raises:
        ValueError: It is none.

    >>> read_duration("2d")
    172800.0
    >>> read_duration("1h30m")
    5400.0
    """
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"is {text!r}, must be a duration such as 90s, 30m, 12h, 2d or 1w")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def read_selection(
    *,
    state: Sequence[str] = (),
    queue: Sequence[str] = (),
    user: Sequence[str] = (),
    namespace: Sequence[str] = (),
    scheduler: Sequence[str] = (),
    since: str | None = None,
) -> Selection:
    """Read which apps are wanted from a user's words.

    Args:
        state: States in any case; `active` stands for all that have not ended.
        queue: Queues.
        user: Users.
        namespace: Namespaces.
        scheduler: `volcano`, `mcad`.
        since: A duration such as `2d`. None: any age.

    Raises:
        SelectionError: A word is none of those that are allowed; all problems at once.
    """
    problems: list[Problem] = []
    states: list[JobState] = []
    for word in state:
        name = word.upper()
        if name == "ACTIVE":
            states += [known for known in JobState if not known.terminal]
        elif name in JobState.__members__:
            states.append(JobState[name])
        else:
            allowed = ", ".join([*JobState.__members__, "active"])
            problems.append(Problem("--state", f"is {word!r}, must be one of {allowed}"))
    problems += [
        Problem("--scheduler", f"is {word!r}, must be {' or '.join(scheduler_names())}")
        for word in scheduler
        if word not in scheduler_names()
    ]
    younger_than_s = None
    if since is not None:
        try:
            younger_than_s = read_duration(since)
        except ValueError as error:
            problems.append(Problem("--since", str(error)))
    if problems:
        raise SelectionError("; ".join(map(str, problems)))
    return Selection(
        states=tuple(states),
        queues=tuple(queue),
        users=tuple(user),
        namespaces=tuple(namespace),
        schedulers=tuple(scheduler),
        younger_than_s=younger_than_s,
    )
