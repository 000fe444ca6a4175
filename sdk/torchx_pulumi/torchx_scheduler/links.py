"""The link to an app in a dashboard, where the user has a template for it."""

from __future__ import annotations

from torchx_pulumi.outputs.ui_url import fill_ui_url


def fill_link(template: str | None, namespace: str, name: str, scheduler: str, queue: str | None) -> str | None:
    """Fill in a template. None: there is no template.

    >>> fill_link("https://board/{namespace}/{name}", "default", "train-1", "volcano", "q")
    'https://board/default/train-1'

    Raises:
        InvalidJobError: It is no URL, has a placeholder that nobody knows, or a brace too many.
    """
    if not template:
        return None
    return fill_ui_url(template, namespace=namespace, name=name, scheduler=scheduler, queue=queue)
