"""Filter of the apps of a fleet."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from torchx_pulumi.model.errors import Problem, TorchxPulumiError
from torchx_pulumi.model.status import JobState
from torchx_pulumi.schedulers import scheduler_names

from torchx_pulumi_fleet.views.row import FleetRow

OF_STACK = "stack "
"""Beginning of what tables show in place of a user for a program, which its stack stands for."""

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")


class SelectionError(TorchxPulumiError, ValueError):
    """A filter is not valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Filter of apps. An empty sequence matches every app."""

    states: Sequence[JobState] = ()
    queues: Sequence[str] = ()
    users: Sequence[str] = ()
    namespaces: Sequence[str] = ()
    schedulers: Sequence[str] = ()
    younger_than_s: float | None = None
    """Maximum age in seconds; apps of unknown age match. None: any age."""

    def wants(self, row: FleetRow) -> bool:
        """Return whether an app matches."""
        lists = (
            (self.states, row.state),
            (self.queues, row.queue),
            (self.users, row.user),
            (self.namespaces, row.namespace),
            (self.schedulers, row.scheduler),
        )
        young = self.younger_than_s is None or row.age_s is None or row.age_s <= self.younger_than_s
        return young and all(not wanted or value in wanted for wanted, value in lists)


def read_duration(text: str) -> float:
    """Return a duration in seconds, from numbers with the units s, m, h, d, w.

    Raises:
        ValueError: The text is not a duration.

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
    """Parse a filter from command line arguments.

    Args:
        state: States in any case; `active` is every state that is not final.
        queue: Queues.
        user: Users; stacks of programs as tables show them, or `PROJECT/NAME`.
        namespace: Namespaces.
        scheduler: `volcano`, `mcad`.
        since: A duration such as `2d`. None: any age.

    Raises:
        SelectionError: An argument is not valid; the message lists all problems.
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
        users=tuple(one.removeprefix(OF_STACK) for one in user),
        namespaces=tuple(namespace),
        schedulers=tuple(scheduler),
        younger_than_s=younger_than_s,
    )
