"""Queries of logs and their validation."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from torchx_pulumi.model.errors import Problem, invalid_job

logger = logging.getLogger("torchx_pulumi.logs")

_said: set[str] = set()
"""Fields about which this process has shown a warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """The lines of a pod's log to read."""

    namespace: str
    pod: str
    containers: tuple[str, ...] | str | None = None
    """Names of containers, `main` (all but the init containers) or `all`. None: the container that the annotation
    `kubectl.kubernetes.io/default-container` names, else the first one."""
    regex: str | None = None
    """Regular expression that a line must contain. `^` matches before the time and before the text. None: all lines."""
    since: datetime | None = None
    """Time of the first line to return. Without a zone: local time. None: the first line that is kept."""
    until: datetime | None = None
    """Time of the last line to return, at which following ends. Without a zone: local time. None: no limit."""
    follow: bool = False
    """Continue until the app has ended, across restarts, retries and interrupted connections."""
    previous: bool = False
    """Read the run before the container's last restart. It is never followed."""
    timestamps: bool = True
    """Each line begins with its time, as the API server sends it."""
    tail_lines: int | None = None
    """Number of lines at the end of the log to begin with. None: all lines."""
    app_labels: Mapping[str, str] | None = None
    """Labels of the app's pods. An error names the pods that have them. None: it names pods with similar names."""


def checked(query: LogQuery) -> LogQuery:
    """Validate a query, and return it with a zone in each of its times; a previous run is not followed.

    Raises:
        InvalidJobError: The regular expression is not valid, `since` is after `until`, or a count is negative.
    """
    problems: list[Problem] = []
    try:
        re.compile(query.regex or "")
    except re.error as error:
        text = f"found {query.regex!r}, which is not a regular expression: {error}; correct it"
        problems.append(Problem("regex", text))
    since, until = _with_zone("since", query.since), _with_zone("until", query.until)
    if since and until and since > until:
        text = f"found {until.isoformat()}, which is before since, {since.isoformat()}; swap them"
        problems.append(Problem("until", text))
    if query.tail_lines is not None and query.tail_lines < 0:
        problems.append(Problem("tail_lines", f"found {query.tail_lines}, allowed is 0 or more; leave it out for all"))
    if query.containers == () or (isinstance(query.containers, str) and query.containers not in ("all", "main")):
        text = f"found {query.containers!r}, allowed are a tuple of names, 'main', 'all' and None"
        problems.append(Problem("containers", text))
    if problems:
        raise invalid_job(f"{query.namespace}:{query.pod}", problems)
    return replace(query, since=since, until=until, follow=query.follow and not query.previous)


def _with_zone(name: str, value: datetime | None) -> datetime | None:
    """Return a time with its zone. A warning says once in a process that a time without one is local."""
    if value is None or value.tzinfo is not None:
        return value
    aware = value.astimezone()
    if name not in _said:
        _said.add(name)
        text = "%s=%s has no time zone and is taken as local time, %s"
        logger.warning(text, name, value.isoformat(), aware.isoformat())
    return aware
