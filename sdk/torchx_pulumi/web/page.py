"""Pages of a controller with their security policies: the live page, the login and short messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any

from torchx_pulumi.fleet.page import fleet_page, message, part

FRAMES = "frame-ancestors 'none'"
"""Counts only in the header of a response."""

NO_LOGS = (
    "Logs are not served: this controller was started with --no-auth, and a log may contain what only its owners "
    "should read. Start it with --token-file instead."
)


def live_page(
    apps: Sequence[Mapping[str, Any]],
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
    page, policy = fleet_page(
        apps,
        title="TorchX apps",
        backends=backends,
        problems=problems,
        read_at=now,
        version=version,
        log=part("log.html") if logs else _paragraph(NO_LOGS),
    )
    return page, f"{policy}; {FRAMES}"


def login_page(problem: str = "") -> tuple[str, str]:
    """Return the page that asks for the token, and its Content-Security-Policy.

    Args:
        problem: Why the last attempt failed. Empty: there was none.
    """
    alert = f'<p class="remark" role="alert">{escape(problem)}</p>' if problem else ""
    body = (
        "<p>This page is for people who have the token of the controller.</p>"
        f"{alert}"
        '<form method="post" action="login"><label class="wide">Token '
        '<input type="password" name="token" autocomplete="current-password" required autofocus></label>'
        '<button type="submit">Log in</button></form>'
        '<p class="quiet">The controller prints an address with the token when it starts. With --token-file, the '
        "token is in that file.</p>"
    )
    page, policy = message("Log in to TorchX apps", body, "form-action 'self'")
    return page, f"{policy}; {FRAMES}"


def message_page(heading: str, text: str, *, forward: bool = False) -> tuple[str, str]:
    """Return a page with a short text and a link to the live page, and its Content-Security-Policy.

    Args:
        heading: What happened, in a few words.
        text: What it means and what to do.
        forward: Browsers go on to the live page by themselves.
    """
    body = f'{_paragraph(text)}<p><a href="./">Show the apps</a></p>'
    refresh = '\n<meta http-equiv="refresh" content="0; url=./">' if forward else ""
    page, policy = message(heading, body, "form-action 'none'", refresh=refresh)
    return page, f"{policy}; {FRAMES}"


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"
