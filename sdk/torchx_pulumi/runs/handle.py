"""App handles: `pulumi_volcano://session/namespace:name`."""

from __future__ import annotations

from dataclasses import dataclass

from torchx_pulumi.model.app_entry import RunEntry
from torchx_pulumi.model.errors import Problem, invalid_arguments
from torchx_pulumi.schedulers.registry import find_backend, scheduler_names

PREFIX = "pulumi_"
"""Start of the names of our schedulers in TorchX."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle:
    """The parts of an app handle."""

    scheduler: str
    """Name of the scheduler, for example `volcano`."""
    session: str
    """TorchX session."""
    app_id: str
    """`namespace:name`."""


def read_handle(text: str, *, torchx: bool = False) -> Handle:
    """Read an app handle.

    Args:
        text: The handle.
        torchx: Those of TorchX's own schedulers are read too, if their jobs can be described.

    Raises:
        InvalidJobError: It is not a handle, or of a scheduler of another package.

    >>> read_handle("pulumi_mcad://torchx/ml:train").app_id
    'ml:train'
    """
    head, sign, rest = text.partition("://")
    session, slash, app_id = rest.partition("/")
    schedulers = {f"{PREFIX}{name}": name for name in scheduler_names()}
    if torchx:
        schedulers |= {own: name for name in scheduler_names() if (own := find_backend(name).torchx_scheduler)}
    if not sign or not slash or ":" not in app_id or head not in schedulers:
        allowed = " or ".join(f"{name}://SESSION/NAMESPACE:NAME" for name in schedulers)
        raise invalid_arguments(Problem("HANDLE", f"is {text!r}, must be {allowed}"))
    return Handle(scheduler=schedulers[head], session=session, app_id=app_id)


def delete_command(entry: RunEntry) -> str:
    """Return the command that deletes an app, for messages."""
    return f"torchx-pulumi delete {PREFIX}{entry.scheduler}://{entry.session}/{entry.app_id}"
