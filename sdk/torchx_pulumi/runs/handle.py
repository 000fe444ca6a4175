"""App handles: `pulumi_volcano://session/namespace:name`."""

from __future__ import annotations

from dataclasses import dataclass

from torchx_pulumi.model.app_entry import RunEntry
from torchx_pulumi.model.errors import Problem, invalid_job

_SCHEDULERS = {"pulumi_volcano": "volcano", "pulumi_mcad": "mcad"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle:
    """What an app handle says."""

    scheduler: str
    """`volcano` or `mcad`."""
    session: str
    """TorchX session."""
    app_id: str
    """`namespace:name`."""


def read_handle(text: str) -> Handle:
    """Read an app handle.

    Raises:
        InvalidJobError: It is none, or one of a scheduler that is not ours.

    >>> read_handle("pulumi_mcad://torchx/ml:train").app_id
    'ml:train'
    """
    head, sign, rest = text.partition("://")
    session, slash, app_id = rest.partition("/")
    if not sign or not slash or ":" not in app_id or head not in _SCHEDULERS:
        said = f"is {text!r}, must be pulumi_volcano://SESSION/NAMESPACE:NAME or pulumi_mcad://SESSION/NAMESPACE:NAME"
        raise invalid_job("handle", [Problem("HANDLE", said)])
    return Handle(scheduler=_SCHEDULERS[head], session=session, app_id=app_id)


def delete_command(entry: RunEntry) -> str:
    """Return the command that deletes an app, for messages."""
    return f"torchx-pulumi delete pulumi_{entry.scheduler}://{entry.session}/{entry.app_id}"
