"""Types of the answers of the API. Their schemas in the OpenAPI document are made from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypedDict

from torchx_pulumi_fleet.views.columns import AppSummary, Time
from torchx_pulumi_fleet.views.row import Count, ShownRole

Moment = Annotated[str, {"format": "date-time"}]
"""ISO 8601 in UTC."""


class Apps(TypedDict):
    """A page of the list of apps."""

    version: Annotated[str, "Version of the list, as in the stream."]
    read_at: Annotated[Moment, "When it was made."]
    backends: Annotated[list[str], "URLs of the Pulumi backends, without credentials."]
    problems: Annotated[list[str], "Problems of the controller that have not ended."]
    total: Annotated[Count, "Apps that match, on all pages."]
    apps: Annotated[list[AppSummary], "Apps of this page, the youngest first."]
    next: Annotated[str | None, "Value of `cursor` for the next page. Null: this is the last one."]


class FleetFrame(TypedDict):
    """What changed between two versions of the list of apps."""

    version: Annotated[str, "Version after these changes; `since` and `Last-Event-ID` take it."]
    whole: Annotated[bool, "`apps` has all apps; what a client has besides them is gone."]
    apps: Annotated[list[AppSummary], "Apps that changed."]
    gone: Annotated[list[str], "Ids of apps that are gone."]
    problems: Annotated[list[str], "Problems of the controller that have not ended."]
    read_at: Annotated[Moment, "When it was made."]


class ShownQueue(TypedDict):
    """A queue of a watched cluster. Amounts are `cpu` and `gpu`."""

    cluster: Annotated[str, "Name of the cluster, as the controller calls it."]
    name: Annotated[str, "Name of the queue."]
    capability: Annotated[Mapping[str, float], "What its jobs may use. A resource without a bound is left out."]
    allocated: Annotated[Mapping[str, float], "What its jobs were given, also those that are no apps."]


class Queues(TypedDict):
    """The queues of the watched clusters that the controller can read."""

    queues: Annotated[list[ShownQueue], "By cluster."]


class Event(TypedDict):
    """An event of an object of an app."""

    time: Annotated[Time, "When it was seen last. Null: not known."]
    type: Annotated[str, "`Normal` or `Warning`."]
    reason: Annotated[str, "Reason: a CamelCase word."]
    message: Annotated[str, "What happened."]
    object: Annotated[str, "Kind and name of the object, for example `Pod/train-0`."]
    count: Annotated[int, {"minimum": 1}, "How often it was seen."]
    source: Annotated[str | None, "Who reported it. Null: not known."]


class Events(TypedDict):
    """The events of an app."""

    events: Annotated[list[Event], "The newest first."]


class Attempt(TypedDict):
    """One run of a container of a replica."""

    role: Annotated[str, "Role."]
    replica: Annotated[Count, "Replica in the role."]
    attempt: Annotated[Count, "Number of the attempt of this replica; `attempt` of a log takes it."]
    container: Annotated[str, "Container; `container` of a log takes it."]
    pod: Annotated[str, "Pod."]
    default: Annotated[bool, "The container whose log is read without `container`."]
    init: Annotated[bool, "It is an init container."]
    running: Annotated[bool, "It runs now."]
    exit_code: Annotated[int | None, "Exit code. Null: it runs, or it is not known."]
    started_at: Annotated[Time, "When it started. Null: not known."]
    finished_at: Annotated[Time, "When it ended. Null: not known."]
    archived: Annotated[bool, "An archive has its log."]
    complete: Annotated[bool | None, "The archived log is whole. Null: not archived."]


class ShownRun(TypedDict):
    """One run of an app: a job object."""

    uid: Annotated[str | None, "Uid of its job object; `run` of a log takes it. Null: not known."]
    current: Annotated[bool, "The present run."]
    archived: Annotated[bool, "An archive has logs of it."]
    state: Annotated[str | None, "State. Null: not known, as of an earlier run."]
    reason: Annotated[str | None, "Reason of the state. Null: not known."]
    attempt: Annotated[int | None, "1 for the first launch. Null: not known."]
    started_at: Annotated[Time, "When it started to run. Null: not known."]
    finished_at: Annotated[Time, "When it ended. Null: not known."]
    attempts: Annotated[list[Attempt], "Runs of its containers, the newest first."]
    omitted: Annotated[Count, "Runs of containers that are not listed."]


class Update(TypedDict):
    """An update of the stack of an app."""

    kind: Annotated[str, "`update`, `refresh`, `destroy`, ..., as Pulumi names it."]
    result: Annotated[str, "`succeeded`, `failed` or `in-progress`."]
    started_at: Annotated[Time, "When it began. Null: not known."]
    finished_at: Annotated[Time, "When it ended. Null: not known."]
    message: Annotated[str, "Its message. Empty: none."]


class Runs(TypedDict):
    """The runs of an app."""

    runs: Annotated[list[ShownRun], "The present run, then those whose logs are archived, the newest first."]
    updates: Annotated[list[Update], "Updates of the stack, the newest first."]
    notes: Annotated[list[str], "What could not be read."]


class Failure(TypedDict):
    """Why a request failed."""

    status: int
    message: Annotated[str, "What to do about it."]


class Error(TypedDict):
    """The answer to a request that failed."""

    error: Failure


ANSWERS = {
    "Role": ShownRole,
    "Apps": Apps,
    "Fleet": FleetFrame,
    "Queues": Queues,
    "ShownQueue": ShownQueue,
    "Events": Events,
    "Event": Event,
    "Runs": Runs,
    "Run": ShownRun,
    "Attempt": Attempt,
    "Update": Update,
    "Error": Error,
    "Failure": Failure,
}
"""Answers and their parts by their names in the document, besides apps, whose schemas are those of their columns."""
