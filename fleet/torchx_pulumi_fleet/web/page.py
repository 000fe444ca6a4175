"""Pages of a controller besides the one of its fleet: the login and short messages, with their security policies."""

from __future__ import annotations

from html import escape

from torchx_pulumi_fleet.views.page import message


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
    return message("Log in to TorchX apps", body, "form-action 'self'")


def message_page(heading: str, text: str, *, forward: bool = False) -> tuple[str, str]:
    """Return a page with a short text and a link to the live page, and its Content-Security-Policy.

    Args:
        heading: What happened, in a few words.
        text: What it means and what to do.
        forward: Browsers go on to the live page by themselves.
    """
    body = f'<p>{escape(text)}</p><p><a href="./">Show the apps</a></p>'
    refresh = '\n<meta http-equiv="refresh" content="0; url=./">' if forward else ""
    return message(heading, body, "form-action 'none'", refresh=refresh)
