"""App handles: `pulumi_volcano://session/namespace:name`."""

from __future__ import annotations

from dataclasses import dataclass

from torchx_pulumi.model.app_entry import RunEntry
from torchx_pulumi.model.errors import Problem, invalid_arguments
from torchx_pulumi.schedulers.registry import scheduler_names

PREFIX = "pulumi_"
"""Start of the names of our schedulers in TorchX."""

DEFAULT_SESSION = "torchx"
"""TorchX session of its command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle:
    """The parts of an app handle."""

    scheduler: str
    """Name of the scheduler, for example `volcano`."""
    session: str
    """TorchX session."""
    app_id: str
    """`namespace:name`, or `name` as in TORCHX_JOB_ID of a pod."""


def read_handle(text: str) -> Handle:
    """Read an app handle.

    Raises:
        InvalidJobError: It is not a handle, or of a scheduler of another package.

    >>> read_handle("pulumi_mcad://torchx/ml:train").app_id
    'ml:train'
    """
    head, sign, rest = text.partition("://")
    session, slash, app_id = rest.partition("/")
    schedulers = {f"{PREFIX}{name}": name for name in scheduler_names()}
    if not sign or not slash or not app_id or head not in schedulers:
        raise invalid_arguments(Problem("HANDLE", f"is {text!r}, must be {handle_forms()}"))
    return Handle(scheduler=schedulers[head], session=session, app_id=app_id)


def handle_forms() -> str:
    """Return the forms of a handle, for messages."""
    return " or ".join(f"{PREFIX}{name}://SESSION/NAMESPACE:NAME" for name in scheduler_names())


def handle_of(entry: RunEntry) -> str:
    """Return the handle of an app.

    An app that was launched without TorchX has no session, and any one finds it.
    """
    return f"{PREFIX}{entry.scheduler}://{entry.session or DEFAULT_SESSION}/{entry.app_id}"


def delete_command(entry: RunEntry) -> str:
    """Return the command that deletes an app, for messages."""
    return f"torchx-pulumi delete {handle_of(entry)}"
