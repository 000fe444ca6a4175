"""The page of a fleet: one document with its style, its script and its data, for a controller and for a file."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from importlib import resources
from string import Template
from typing import Any

from torchx_pulumi.model.timestamps import format_time

from torchx_pulumi_fleet.views.columns import page_columns

SCRIPTS = (
    *("shared.js", "connection.js", "pictures.js", "overview.js", "queues.js"),
    *("apps.js", "log.js", "panel.js", "start.js"),
)
"""Files of the script, in the order in which they are joined."""

RULES = (
    "base-uri 'none'",
    "form-action 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
)
"""Rules of every page of a fleet: no text becomes markup."""


def fleet_page(
    apps: Sequence[Mapping[str, Any]],
    *,
    title: str,
    backends: Sequence[str],
    problems: Sequence[str],
    read_at: datetime,
    empty: str = "No apps are known yet. An app appears here when it is launched.",
    version: str | None = None,
    log: str = "",
) -> tuple[str, str]:
    """Return the page of a fleet and its Content-Security-Policy.

    Args:
        apps: Summaries of all apps; everything that is known of them if there is no controller.
        title: Title of the document.
        backends: URLs of the Pulumi backends, without credentials.
        problems: Texts about what could not be read.
        read_at: Time of reading, aware.
        empty: Text for a page without apps.
        version: Version of the controller's fleet; the page asks the stream for what changed since. None: there is no
            controller, and the page allows no request.
        log: Markup of the view of a log.
    """
    data = {
        **page_columns(),
        "apps": apps,
        "backends": backends,
        "problems": problems,
        "read_at": format_time(read_at),
        "empty": empty,
        "version": version,
    }
    style, code = part("page.css"), '"use strict";\n(() => {\n' + "".join(map(part, SCRIPTS)) + "})();\n"
    allowed = policy(*RULES, *(() if version is None else ("connect-src 'self'",)), style=style, code=code)
    page = Template(part("page.html")).substitute(
        policy=escape(allowed), title=escape(title), style=style, log=log, data=script_json(data), script=code
    )
    return page, allowed


def message(heading: str, body: str, *rules: str, refresh: str = "") -> tuple[str, str]:
    """Return a page with a short text, and its Content-Security-Policy.

    Args:
        heading: Heading and title.
        body: Markup below the heading.
        rules: Rules of the policy besides those about its style.
        refresh: Markup at the end of the head.
    """
    style = part("page.css")
    allowed = policy("base-uri 'none'", *rules, style=style)
    page = Template(part("message.html")).substitute(
        policy=escape(allowed), refresh=refresh, heading=escape(heading), body=body, style=style
    )
    return page, allowed


def part(name: str) -> str:
    """Return a file of the page."""
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")


def script_json(values: object) -> str:
    """Return JSON that can stand in a script element: no text in it ends the element."""
    text = json.dumps(values, separators=(",", ":"))
    for letter in "&<>":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def policy(*rules: str, style: str = "", code: str = "") -> str:
    """Return a Content-Security-Policy: no requests, and only this style and this script.

    Args:
        rules: Further directives.
        style: Text of the style element. Empty: the page has no style.
        code: Text of the script element. Empty: the page has no script.
    """
    named = [("style-src", style), ("script-src", code)]
    allowed = [f"{name} '{content_hash(text)}'" for name, text in named if text]
    return "; ".join(["default-src 'none'", "img-src data:", *allowed, *rules])


def content_hash(text: str) -> str:
    """Return the hash of a style or script as a security policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
