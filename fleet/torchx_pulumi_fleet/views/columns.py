"""Columns of a fleet: one table from which the terminal, the pages, the API and its schema show an app."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Final, Literal, NewType

from torchx_pulumi.model.object_fields import is_finite, text_at
from torchx_pulumi.model.status import STUCK, JobState, Reason
from torchx_pulumi.model.text import one_line
from torchx_pulumi.model.timestamps import format_time
from torchx_pulumi.schedulers import scheduler_names

from torchx_pulumi_fleet.views.row import Count, FleetRow, ShownRole
from torchx_pulumi_fleet.views.selection import OF_STACK

Amount = Annotated[float, {"minimum": 0}]
"""GPUs or CPUs."""
Time = Annotated[str | None, {"format": "date-time"}]
"""ISO 8601 in UTC. None: not known."""

Cell = Literal["link", "state", "why", "ready", "age", "ago", "number", "launcher", "text"]
"""How the pages draw a cell; their script has a function for each."""

BLOCKED: Final = frozenset(
    reason.value
    for reason in (
        *STUCK, Reason.QUEUE_MISSING, Reason.QUEUE_CLOSED, Reason.NEVER_SCHEDULABLE, Reason.REFUSED, Reason.SUSPENDED,
        Reason.CONTROLLER_ABSENT, Reason.SCHEDULER_ABSENT, Reason.NOT_FOUND,
    )
)  # fmt: skip
"""Reasons of apps that do not go on, however long they wait, until somebody does something."""


@dataclass(frozen=True, slots=True)
class ShownApp:
    """One app as the views show it."""

    id: str
    """Name of the app in addresses of the API and of the pages."""
    backend: str
    """URL of its Pulumi backend, without credentials."""
    row: FleetRow


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One value of an app: always in the API, and in the views that its fields name."""

    key: str
    """Name in the API."""
    kind: Any
    """Type of the value. Its JSON schema is made from it; annotations add further words of the schema."""
    help: str
    """Description in the schema."""
    value: Callable[[ShownApp], object] | None = None
    """Returns the value. None: the field `key` of the row."""
    title: str = ""
    """Heading, and name of the filter. Empty: it has neither."""
    terminal: int | None = None
    """Columns with the largest number leave a narrow terminal first; 0: it always stays. None: never shown there."""
    text: Callable[[FleetRow], str] | None = None
    """Returns the text of the cell on a terminal. None: the value, or `-`."""
    cell: Cell | None = None
    """Cell on the pages. None: they do not show it in their table."""
    wide: bool = False
    """It takes the room that is left, as the last column of a terminal."""
    choice: bool = False
    """The pages can be filtered by one of its values."""
    searched: bool = False
    """The search of the pages and of the API looks in it."""

    def json_value(self, app: ShownApp) -> Any:
        """Return the value as JSON has it."""
        return plain(getattr(app.row, self.key) if self.value is None else self.value(app))

    def terminal_text(self, row: FleetRow) -> str:
        """Return the text of the cell on a terminal, in one line."""
        shown = self.text(row) if self.text else self.json_value(ShownApp("", "", row)) or "-"
        return one_line(str(shown))


AppSummary = NewType("AppSummary", dict[str, Any])
"""The columns of an app as JSON values."""


def summary(app: ShownApp) -> AppSummary:
    """Return the row of an app in a list as JSON values; times in place of ages, so that they stay true."""
    return AppSummary({column.key: column.json_value(app) for column in COLUMNS})


def detail(app: ShownApp) -> dict[str, Any]:
    """Return everything that is known of an app as JSON values."""
    return {column.key: column.json_value(app) for column in (*COLUMNS, *DETAILS)}


def page_columns() -> dict[str, Any]:
    """Return the columns for the script of the pages, as JSON values."""
    drawn = {column: {"key": column.key, "title": column.title, "cell": column.cell} for column in COLUMNS}
    return {
        "columns": [drawn[column] for column in COLUMNS if column.cell],
        "choices": [drawn[column] for column in COLUMNS if column.choice],
        "searched": searched_keys(),
    }


def searched_keys() -> list[str]:
    """Return the names of the values that a search looks in."""
    return [column.key for column in COLUMNS if column.searched]


def plain(value: Any) -> Any:
    """Return a value as JSON has it: times as ISO 8601 in UTC, finite numbers only; any other number becomes None."""
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return None if is_number and not is_finite(value) else value


def terminal_columns() -> list[Column]:
    """Return the columns of a terminal, the wide one last."""
    return sorted((column for column in COLUMNS if column.terminal is not None), key=lambda column: column.wide)


def age(seconds: float | None) -> str:
    """Return an age in its largest unit, and the next one if there are less than ten of it.

    >>> [age(s) for s in (None, 5, 200, 7300, 90000, 2e6)]
    ['-', '5s', '3m20s', '2h1m', '1d1h', '23d']
    """
    if seconds is None:
        return "-"
    units = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
    for place, (unit, size) in enumerate(units):
        count, rest = divmod(int(seconds), size)
        if count == 0 and unit != "s":
            continue
        if count >= 10 or unit == "s":
            return f"{count}{unit}"
        smaller, size = units[place + 1]
        return f"{count}{unit}{rest // size}{smaller}" if rest // size else f"{count}{unit}"
    return "0s"


def freshness(row: FleetRow) -> str:
    """Return when an app was last seen: `live`, an age, or `never seen`."""
    if row.freshness_s is None:
        return "never seen"
    if row.source == "live":
        return "live"
    return f"{age(row.freshness_s)} ago" + (", stale" if row.stale else "")


def requested(row: FleetRow, resource: str) -> float:
    """Return how much of a resource the replicas of an app request."""
    return float(row.resources_total.get(resource, 0))


def running(row: FleetRow, resource: str) -> float:
    """Return how much of a resource the replicas request that run."""
    return float(sum(role["resource"].get(resource, 0) * role["counts"].get("RUNNING", 0) for role in row.roles))


def cause(row: FleetRow) -> str:
    """Return the cause of an app's state in one line: the first diagnosis, else the message."""
    return one_line((text_at(row.diagnoses[0], "summary") if row.diagnoses else None) or row.message)


def advice(row: FleetRow) -> str:
    """Return the advice for an app that does not go on by itself, in one line. Empty: it does, or has ended."""
    first = row.diagnoses[0] if row.diagnoses else {}
    is_blocked = text_at(first, "reason") in BLOCKED and not row.state.terminal
    return one_line(text_at(first, "resolution") or "") if is_blocked else ""


def launcher(row: FleetRow) -> str:
    """Return who launched an app: a person, or `stack PROJECT/NAME` for a program's. Empty: not known.

    Names of users have no slash.
    """
    user = row.user or ""
    return f"{OF_STACK}{user}" if "/" in user else user


COLUMNS: Final = (
    Column(
        "id",
        Annotated[str, {"pattern": "^[0-9a-f]+$"}],
        "Name of the app in this API, the same in every process that reads the backend.",
        lambda app: app.id,
    ),
    Column(
        "app_id",
        str,
        "`namespace:job_name`; several stacks may have it.",
        title="App",
        terminal=0,
        cell="link",
        searched=True,
    ),
    Column(
        "state",
        Annotated[str, {"enum": [state.value for state in JobState]}],
        "State.",
        title="State",
        terminal=0,
        cell="state",
    ),
    Column(
        "reason",
        str,
        "Reason of the state: a CamelCase word.",
        title="Reason",
        terminal=0,
        text=lambda row: row.reason,
        searched=True,
    ),
    Column(
        "cause",
        str,
        "Cause of the state in one line: the first diagnosis, else the message.",
        lambda app: cause(app.row),
        title="Why",
        terminal=1,
        text=cause,
        cell="why",
        wide=True,
        searched=True,
    ),
    Column(
        "advice",
        str,
        "What somebody has to do so that it goes on. Empty: it does by itself, or has ended.",
        lambda app: advice(app.row),
    ),
    Column(
        "ready",
        Count,
        "Replicas that run or have succeeded.",
        lambda app: app.row.replicas_ready,
        title="Ready",
        terminal=0,
        text=lambda row: f"{row.replicas_ready}/{row.replicas_wanted}",
        cell="ready",
    ),
    Column("wanted", Count, "Replicas that were requested.", lambda app: app.row.replicas_wanted),
    Column(
        "launched_at",
        Time,
        "When it was launched. Null: not known.",
        title="Age",
        terminal=0,
        text=lambda row: age(row.age_s),
        cell="age",
    ),
    Column("observed_at", Time, "When its state last changed. Null: not known.", title="Changed", cell="ago"),
    Column(
        "checked_at",
        Time,
        "When it was last looked at. Null: not known.",
        title="Last seen",
        terminal=2,
        text=freshness,
    ),
    Column(
        "gpus",
        Amount,
        "GPUs that its replicas request.",
        lambda app: requested(app.row, "gpu"),
        title="GPU",
        terminal=4,
        text=lambda row: f"{requested(row, 'gpu'):g}" if requested(row, "gpu") else "",
        cell="number",
    ),
    Column(
        "queue",
        str | None,
        "Queue. Null: the scheduler has none, or the app names none.",
        title="Queue",
        terminal=3,
        cell="text",
        choice=True,
        searched=True,
    ),
    Column(
        "user",
        str | None,
        "Who launched it: name of a user, or `PROJECT/NAME` of a program's stack. Null: not known.",
        title="Launched by",
        terminal=5,
        text=launcher,
        cell="launcher",
        choice=True,
    ),
    Column(
        "launcher",
        str,
        "The same for people: `stack` stands before a stack.",
        lambda app: launcher(app.row),
        searched=True,
    ),
    Column(
        "scheduler",
        Annotated[str, {"enum": scheduler_names()}],
        "Scheduler.",
        title="Scheduler",
        terminal=6,
        choice=True,
        searched=True,
    ),
    Column("cpus", Amount, "CPUs that its replicas request.", lambda app: requested(app.row, "cpu")),
    Column("gpus_running", Amount, "GPUs that its running replicas request.", lambda app: running(app.row, "gpu")),
    Column("cpus_running", Amount, "CPUs that its running replicas request.", lambda app: running(app.row, "cpu")),
    Column("name", str, "Name of the app as the user wrote it.", searched=True),
    Column("namespace", str, "Namespace.", title="Namespace", choice=True),
    Column(
        "cluster",
        str | None,
        "Name of the cluster that it was last seen in, else the context of the launch. Null: not known.",
        title="Cluster",
        choice=True,
        searched=True,
    ),
    Column("project", str, "Pulumi project. Empty: the backend has none.", lambda app: app.row.stack.project),
    Column("stack", str, "Stack.", lambda app: app.row.stack.stack, searched=True),
    Column("backend", str, "URL of the Pulumi backend, without credentials.", lambda app: app.backend),
    Column("attempt", Annotated[int, {"minimum": 1}], "1 for the first launch."),
    Column("stale", bool, "It had not ended when it was last seen, and that is long ago."),
    Column("source", str, "Where its state is from: `state` (stack), `live` (cluster) or `local` (seen earlier)."),
    Column("queued_at", Time, "When its job object was created. Null: not known."),
    Column("started_at", Time, "When it started to run. Null: not known."),
    Column("finished_at", Time, "When it ended. Null: not known."),
)
"""Columns of a list of apps, in the order of the pages."""

DETAILS: Final = (
    Column("message", str, "Explanation of the reason. Empty: none."),
    Column("phase", str | None, "The scheduler's own phase. Null: not known."),
    Column("handle", str, "Handle by which TorchX finds the app."),
    Column("roles", list[ShownRole], "Roles, in the order of the launch."),
    Column("diagnoses", list[dict[str, Any]], "Diagnoses, the most likely first."),
    Column("resources_total", dict[str, Any], "Resources of all replicas."),
    Column("log_command", str | None, "Command that shows its log. Null: not known."),
    Column("ui_url", str | None, "Address of a page about it. Null: none."),
    Column("note", str, "Why its cluster says nothing now. Empty: it does, or was not asked."),
)
"""What is shown of one app besides its columns."""
