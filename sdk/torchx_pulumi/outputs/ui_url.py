"""The link to a job in a dashboard, made from a template. Pure."""

from __future__ import annotations

from string import Formatter
from typing import Final
from urllib.parse import quote, urlsplit

from torchx_pulumi.model.errors import Problem, invalid_job

FIELDS: Final = ("namespace", "name", "scheduler", "queue")
"""Names that a template may have in braces."""


def check_ui_url(template: object, path: str = "ui_url") -> list[Problem]:
    """Return the problems of a template.

    Args:
        template: For example `https://grafana.example/d/jobs?var-namespace={namespace}&var-job={name}`.
        path: Name of the template in messages.

    >>> check_ui_url("https://ui.example/{namespace}/{name}")
    []
    """
    allowed = f"allowed are {', '.join(f'{{{name}}}' for name in FIELDS)}, for example https://ui.example/{{namespace}}/{{name}}"
    if not isinstance(template, str):
        return [Problem(path, f"found {type(template).__name__}, a text is needed; {allowed}")]
    problems = []
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        return [Problem(path, f"{template!r} cannot be read ({error}); write a literal brace as {{{{; {allowed}")]
    for _, name, spec, conversion in parts:
        if name is not None and (name not in FIELDS or spec or conversion):
            written = name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
            problems.append(Problem(path, f"{template!r} names {{{written}}}; {allowed}"))
    try:
        url = urlsplit(template)
        sound = url.scheme in ("http", "https") and bool(url.netloc) and not any(one.isspace() for one in template)
    except ValueError:
        sound = False
    if not sound:
        problems.append(Problem(path, f"{template!r} is not a URL; it must begin with https:// or http:// and a host"))
    return problems


def fill_ui_url(template: str, *, namespace: str, name: str, scheduler: str, queue: str | None) -> str:
    """Fill a template for one job; every value is quoted for a URL, and a queue of None is an empty text.

    Raises:
        InvalidJobError: The template is not valid.

    >>> fill_ui_url("https://ui.example/{namespace}/{name}", namespace="a", name="b c", scheduler="volcano", queue=None)
    'https://ui.example/a/b%20c'
    """
    problems = check_ui_url(template)
    if problems:
        raise invalid_job(name, problems)
    values = {"namespace": namespace, "name": name, "scheduler": scheduler, "queue": queue or ""}
    return template.format(**{key: quote(value, safe="") for key, value in values.items()})
