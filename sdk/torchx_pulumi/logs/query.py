"""What is asked of a log, and what is wrong with the asking."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from datetime import datetime

from torchx_pulumi.model.errors import Problem, invalid_job
from torchx_pulumi.model.timestamps import to_nanoseconds

logger = logging.getLogger("torchx_pulumi.logs")

_said: set[str] = set()
"""What was said already, and is not said again in this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """Which lines of which pod's log are wanted."""

    namespace: str
    pod: str
    containers: tuple[str, ...] | str | None = None
    """Names of containers, `main`: all but the init containers, or `all`. None: the one that the pod's annotation
    `kubectl.kubernetes.io/default-container` names, else its first."""
    regex: str | None = None
    """Only lines in which this is found; `^` matches before the time and before the text. None: all."""
    since: datetime | None = None
    """Only lines from this time on. Without a zone: local time. None: from the first that is kept."""
    until: datetime | None = None
    """Only lines up to this time; following ends with it. Without a zone: local time. None: no end."""
    follow: bool = False
    """Go on until the app has ended, over restarts, retries and broken connections."""
    previous: bool = False
    """The run before the container's last restart; it is never followed."""
    timestamps: bool = True
    """Each line begins with the time at which it was written, as the API server gives it."""
    tail_lines: int | None = None
    """Begin with so many lines of the end. None: with the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What of a query is checked and made exact."""

    pattern: re.Pattern[str] | None
    since: datetime | None
    """With its zone."""
    until: datetime | None
    """With its zone."""
    since_ns: int | None
    until_ns: int | None


def limits_of(query: LogQuery) -> Limits:
    """Check a query.

    Raises:
        InvalidJobError: The regular expression is none, no line can be between since and until, or a count is negative.
    """
    problems: list[Problem] = []
    pattern = None
    try:
        pattern = re.compile(query.regex) if query.regex else None
    except re.error as error:
        problems.append(Problem("regex", f"found {query.regex!r}, which is no regular expression: {error}; correct it"))
    since, until = _with_zone("since", query.since), _with_zone("until", query.until)
    if since and until and since > until:
        problems.append(
            Problem("until", f"found {until.isoformat()}, which is before since, {since.isoformat()}; swap them")
        )
    if query.tail_lines is not None and query.tail_lines < 0:
        problems.append(Problem("tail_lines", f"found {query.tail_lines}, allowed is 0 or more; leave it out for all"))
    if query.containers == () or (isinstance(query.containers, str) and query.containers not in ("all", "main")):
        problems.append(
            Problem("containers", f"found {query.containers!r}, allowed are a tuple of names, 'main', 'all' and None")
        )
    if problems:
        raise invalid_job(f"{query.namespace}:{query.pod}", problems)
    return Limits(
        pattern=pattern,
        since=since,
        until=until,
        since_ns=None if since is None else to_nanoseconds(since),
        until_ns=None if until is None else to_nanoseconds(until),
    )


def _with_zone(name: str, value: datetime | None) -> datetime | None:
    if value is None or value.tzinfo is not None:
        return value
    aware = value.astimezone()
    say_once(f"{name}={value.isoformat()} has no time zone and is taken as local time, {aware.isoformat()}", name)
    return aware


def say_once(text: str, topic: str) -> None:
    """Tell the user something, the first time that it comes up in this process."""
    if topic not in _said:
        _said.add(topic)
        logger.warning(text)
