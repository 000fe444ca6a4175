"""The live page of a controller as HTML, with its security policy; its script keeps it current by the stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from html import escape
from string import Template
from typing import Any

from torchx_pulumi.fleet.render.markup import (
    Cell,
    heading_cells,
    options,
    part,
    policy,
    script,
    state_markup,
    table_row,
)
from torchx_pulumi.fleet.render.values import age, why
from torchx_pulumi.model.status import JobState
from torchx_pulumi.model.timestamps import format_time, parse_time

Summary = Mapping[str, Any]
"""One app in the shape of `values.summary`."""

HERE = "torchx_pulumi.web"

SCRIPTS = ("connection.js", "apps.js", "log.js", "panel.js", "live.js")
"""Files of the live page's script, in the order in which they are joined."""

SHOWN_PROBLEMS = 3
"""Problems that are shown at once; the others are behind a button."""

STATES = (
    JobState.RUNNING,
    JobState.PENDING,
    JobState.SUBMITTED,
    JobState.FAILED,
    JobState.UNKNOWN,
    JobState.SUCCEEDED,
    JobState.CANCELLED,
    JobState.UNSUBMITTED,
)
"""States in the order of their buttons."""

LIVE_RULES = (
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
)
"""Rules of the live page: requests to its own origin only, and no text becomes markup."""

FRAMES = "frame-ancestors 'none'"
"""Counts only in the header of a response."""

NO_LOGS = (
    "Logs are not served: this controller was started with --no-auth, and a log may contain what only its owners "
    "should read. Start it with --token-file instead."
)


def live_page(
    apps: Sequence[Summary],
    *,
    version: str,
    backends: Sequence[str],
    problems: Sequence[str],
    logs: bool,
    now: datetime,
) -> tuple[str, str]:
    """Return the live page and its Content-Security-Policy.

    Args:
        apps: Summaries of all apps.
        version: Version of the fleet that the summaries have; the page asks the stream for what changed since.
        backends: URLs of the Pulumi backends, without credentials.
        problems: Texts of the problems that have begun and not ended.
        logs: Logs are served. False: the page says that they are not, and why.
        now: Time of reading, aware.
    """
    style = part("page.css") + part("live.css", HERE)
    code = script(*map(part, ("shared.js", "pictures.js", "overview.js")), *(part(name, HERE) for name in SCRIPTS))
    allowed = policy(*LIVE_RULES, style=style, code=code)
    shown = sorted(apps, key=_place)
    page = Template(part("live.html", HERE)).substitute(
        policy=escape(allowed),
        version=escape(version),
        read_at=format_time(now),
        backends=", ".join(escape(backend) for backend in backends),
        problems=_problems(problems),
        states=_states(apps),
        queues=options(app["queue"] for app in apps),
        users=options(app["user"] for app in apps),
        count=f"{len(apps)} of {len(apps)}",
        headings=heading_cells(name for name, _ in _columns(now)),
        rows="\n".join(table_row(_columns(now), app, _row_attributes(app)) for app in shown),
        empty=" hidden" if apps else "",
        log=part("log.html", HERE) if logs else _paragraph(NO_LOGS),
        style=style,
        script=code,
    )
    return page, f"{allowed}; {FRAMES}"


def login_page(message: str = "") -> tuple[str, str]:
    """Return the page that asks for the token, and its Content-Security-Policy.

    Args:
        message: Why the last attempt failed. Empty: there was none.
    """
    problem = f'<p class="remark" role="alert">{escape(message)}</p>' if message else ""
    body = (
        "<p>This page is for people who have the token of the controller.</p>"
        f"{problem}"
        '<form method="post" action="login"><label class="wide">Token '
        '<input type="password" name="token" autocomplete="current-password" required autofocus></label>'
        '<button type="submit">Log in</button></form>'
        '<p class="quiet">The controller prints an address with the token when it starts. With --token-file, the '
        "token is in that file.</p>"
    )
    return _message("Log in to TorchX apps", body, "form-action 'self'")


def message_page(heading: str, text: str, *, forward: bool = False) -> tuple[str, str]:
    """Return a page with a short text and a link to the live page, and its Content-Security-Policy.

    Args:
        heading: What happened, in a few words.
        text: What it means and what to do.
        forward: Browsers go on to the live page by themselves.
    """
    body = f'{_paragraph(text)}<p><a href="./">Show the apps</a></p>'
    return _message(heading, body, "form-action 'none'", forward=forward)


def _message(heading: str, body: str, rule: str, *, forward: bool = False) -> tuple[str, str]:
    style = part("page.css") + part("live.css", HERE)
    allowed = policy("base-uri 'none'", rule, style=style)
    page = Template(part("message.html", HERE)).substitute(
        policy=escape(allowed),
        refresh='\n<meta http-equiv="refresh" content="0; url=./">' if forward else "",
        heading=escape(heading),
        body=body,
        style=style,
    )
    return page, f"{allowed}; {FRAMES}"


def _columns(now: datetime) -> Sequence[tuple[str, Callable[[Summary], Cell]]]:
    """Return the columns of the table. `apps.js` makes the same cells when an app changes."""

    def text(name: str) -> Callable[[Summary], Cell]:
        return lambda app: (escape(app[name] or ""), None, "")

    def since(name: str, show: Callable[[Summary, float | None], tuple[str, str]]) -> Callable[[Summary], Cell]:
        def cell(app: Summary) -> Cell:
            time = parse_time(app[name])
            shown, css = show(app, None if time is None else max((now - time).total_seconds(), 0.0))
            return shown, app[name] or "", css

        return cell

    return (
        ("App", lambda app: (f'<a href="#{app["id"]}">{escape(app["app_id"])}</a>', None, "")),
        ("State", lambda app: (state_markup(app["state"]), None, "")),
        ("Why", lambda app: (escape(why(app["state"], app["reason"], app["cause"])), None, "")),
        ("Ready", lambda app: (f"{app['ready']}/{app['wanted']}", None, "nowrap")),
        ("Age", since("launched_at", lambda _, seconds: (age(seconds), "nowrap"))),
        ("Changed", since("observed_at", _changed)),
        ("GPU", lambda app: (f"{app['gpus']:g}" if app["gpus"] else "", None, "")),
        ("Queue", text("queue")),
        ("User", text("user")),
    )


def _changed(app: Summary, seconds: float | None) -> tuple[str, str]:
    if seconds is None:
        return "never seen", "nowrap stale" if app["stale"] else "nowrap"
    return f"{age(seconds)} ago" + (", stale" if app["stale"] else ""), "nowrap stale" if app["stale"] else "nowrap"


def _row_attributes(app: Summary) -> dict[str, str]:
    # What the search finds and no cell shows.
    return {"data-id": app["id"], "data-find": f"{app['name']} {app['project']}/{app['stack']} {app['scheduler']}"}


def _place(app: Summary) -> tuple[bool, float, str]:
    """Return the place of an app in the table: unfinished ones first, the youngest first among them."""
    launched = parse_time(app["launched_at"])
    return JobState(app["state"]).terminal, -launched.timestamp() if launched else float("inf"), app["app_id"]


def _states(apps: Sequence[Summary]) -> str:
    counts = Counter(app["state"] for app in apps)
    active = sum(count for state, count in counts.items() if not JobState(state).terminal)
    buttons = [("", "All", len(apps)), ("active", "Active", active)]
    buttons += [(state.value, state.value, counts[state.value]) for state in STATES if counts[state.value]]
    return "".join(
        f'<button type="button" data-state="{value}" aria-pressed="{"false" if value else "true"}">'
        f'<span class="state {value}">{label}</span> {count}</button>'
        for value, label, count in buttons
    )


def _problems(problems: Sequence[str]) -> str:
    shown = "".join(f'<p class="remark">{escape(text)}</p>' for text in problems[:SHOWN_PROBLEMS])
    more = problems[SHOWN_PROBLEMS:]
    if not more:
        return shown
    rest = "".join(f'<p class="remark">{escape(text)}</p>' for text in more)
    return f"{shown}<details><summary>{len(more)} more</summary>{rest}</details>"


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"
