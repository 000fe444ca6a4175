"""The link to an app in a dashboard, made of a template of the user's."""

from __future__ import annotations

import string
from urllib.parse import quote

from torchx_pulumi.errors import Problem, invalid_job

PLACEHOLDERS = ("namespace", "name", "scheduler", "queue")
"""What a template may have in braces."""


def fill_link(template: str | None, namespace: str, name: str, scheduler: str, queue: str | None) -> str | None:
    """Fill in a template. None: there is no template.

    >>> fill_link("https://board/{namespace}/{name}", "default", "train-1", "volcano", "q")
    'https://board/default/train-1'

    Raises:
        InvalidJobError: It has a placeholder that nobody knows, or a brace too many.
    """
    if not template:
        return None
    values = dict(zip(PLACEHOLDERS, (namespace, name, scheduler, queue or ""), strict=True))
    try:
        used = {field for _, field, _, _ in string.Formatter().parse(template) if field is not None}
    except ValueError as error:
        used, trouble = set(), str(error)
    else:
        unknown = sorted(used - set(PLACEHOLDERS))
        trouble = f"has {{{unknown[0]}}}" if unknown else ""
    if trouble:
        known = ", ".join(f"{{{item}}}" for item in PLACEHOLDERS)
        raise invalid_job(name, [Problem("ui_url", f"is {template!r}, which {trouble}; allowed are {known}")])
    return template.format(**{key: quote(value, safe="") for key, value in values.items()})
