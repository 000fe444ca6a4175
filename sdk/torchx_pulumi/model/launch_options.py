"""Run options of a launch that no manifest shows, for `torchx run`, components and the stack program."""

from __future__ import annotations

from enum import Enum

from torchx_pulumi.model.object_schemes import URLS
from torchx_pulumi.model.options import option, option_table
from torchx_pulumi.model.text import in_words


class OnRunningChange(str, Enum):
    """The effect of a launch that would end an unfinished run."""

    FAIL = "fail"
    """Stops, in preview as well, with a message about what would be lost."""
    REPLACE = "replace"
    """Deletes the run, waits until it is gone, and launches the new one."""
    IGNORE = "ignore"
    """Keeps the run as it was launched."""


class WaitFor(str, Enum):
    """How far a run must have come before the launch ends."""

    CREATED = "created"
    """Its objects are there."""
    ADMITTED = "admitted"
    """Its queue has let it in."""
    RUNNING = "running"
    """Its replicas run, or have run."""
    COMPLETED = "completed"
    """It has succeeded."""


@option_table
class LaunchOptions:
    """Options of a launch on every surface."""

    on_running_change: OnRunningChange = option(
        "A launch that would end an unfinished run: `fail`, `replace` the run, or `ignore` the launch",
        default=OnRunningChange.FAIL,
    )
    wait_for: WaitFor = option(
        "State of the run that a launch waits for: `created`, `admitted`, `running` or `completed`",
        default=WaitFor.CREATED,
    )
    timeout_s: int | None = option(
        "Seconds that wait_for waits at most; the run goes on after it. Unset: no limit",
        default=None,
        torchx="wait_timeout_s",
    )
    kubeconfig: str | None = option(
        "Path of the kubeconfig, or in programs its contents, kept secret. Unset: KUBECONFIG or ~/.kube/config",
        default=None,
        secret=True,
    )
    kube_context: str | None = option("Context of the kubeconfig. Unset: its current one", default=None)
    ui_url: str | None = option(
        "Link to the app in a dashboard, with {namespace}, {name}, {scheduler}, {queue}. Unset: none",
        default=None,
        component=False,
    )
    log_archive: str | None = option(
        f"Archive that a controller fills with logs: a folder, or an {in_words(URLS)} URL. Unset: none",
        default=None,
    )


@option_table
class ProgramOptions(LaunchOptions):
    """Options of a launch by a program: a component or the stack program."""

    rerun: str | None = option("Any text; a new value launches a new run on purpose", default=None)
    job_name: str | None = option(
        "Fixed name of the job object, also of one to import. Unset: `<name>-<hash>`, new with every run",
        default=None,
        known=True,
    )
    delete_timeout_s: int | None = option(
        "Seconds that a deletion may take. Unset: the provider's default, 600", default=None
    )
