"""JSON schemas of the answers of the API, for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from torchx_pulumi.fleet.columns import COLUMNS, DETAILS, schema

Schema = dict[str, Any]


def _text(text: str, **more: Any) -> Schema:
    return {"type": "string", "description": text, **more}


def _optional(text: str, **more: Any) -> Schema:
    return {"type": ["string", "null"], "description": text, **more}


def _time(text: str) -> Schema:
    return _optional(f"{text} Null: not known.", format="date-time")


def _count(text: str) -> Schema:
    return {"type": "integer", "minimum": 0, "description": text}


def _flag(text: str) -> Schema:
    return {"type": "boolean", "description": text}


def _list(items: Schema, text: str) -> Schema:
    return {"type": "array", "items": items, "description": text}


def reference(name: str) -> Schema:
    """Return a reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def _object(properties: Mapping[str, Schema], *, open_: bool = False) -> Schema:
    made: Schema = {"type": "object", "properties": dict(properties), "required": list(properties)}
    return made if open_ else {**made, "additionalProperties": False}


_ROLE: Final[Mapping[str, Schema]] = {
    "name": _text("Name of the role."),
    "image": _text("Image. Empty: not known."),
    "digest": _optional("Digest of the image. Null: not known."),
    "wanted": _count("Replicas that were requested."),
    "ready": _count("Replicas that run or have succeeded."),
    "min_replicas": {"type": ["integer", "null"], "description": "Replicas that start together. Null: all."},
    "resource": {"type": "object", "description": "Resources of a replica: cpu, gpu, memory_mb, devices."},
    "counts": {
        "type": "object",
        "additionalProperties": {"type": "integer"},
        "description": "State to replicas in it.",
    },
    "omitted": _count("Replicas that are counted and not listed."),
    "replicas": _list({"type": "object"}, "Replicas, as in the stack output `torchx.observed`."),
}

_AMOUNTS: Final[Schema] = {
    "type": "object",
    "properties": {"cpu": {"type": "number"}, "gpu": {"type": "number"}},
    "additionalProperties": False,
}

SCHEMAS: Final[Mapping[str, Schema]] = {
    "AppSummary": _object(schema(COLUMNS)),
    "App": _object(
        {
            **schema((*COLUMNS, *DETAILS)),
            "logs": _flag("This server serves its logs."),
        }
    ),
    "Role": _object(_ROLE),
    "Apps": _object(
        {
            "version": _text("Version of the list, as in the stream."),
            "read_at": _text("When it was made.", format="date-time"),
            "backends": _list({"type": "string"}, "URLs of the Pulumi backends, without credentials."),
            "problems": _list({"type": "string"}, "Problems of the controller that have not ended."),
            "total": _count("Apps that match, on all pages."),
            "apps": _list(reference("AppSummary"), "Apps of this page, the youngest first."),
            "next": _optional("Value of `cursor` for the next page. Null: this is the last one."),
        }
    ),
    "Fleet": _object(
        {
            "version": _text("Version after these changes; `since` and `Last-Event-ID` take it."),
            "whole": _flag("`apps` has all apps; what a client has besides them is gone."),
            "apps": _list(reference("AppSummary"), "Apps that changed."),
            "gone": _list({"type": "string"}, "Ids of apps that are gone."),
            "problems": _list({"type": "string"}, "Problems of the controller that have not ended."),
            "read_at": _text("When it was made.", format="date-time"),
        }
    ),
    "Queues": _object({"queues": _list(reference("Queue"), "In no particular order.")}),
    "Queue": _object(
        {
            "cluster": _text("Name of the cluster, as the controller calls it."),
            "name": _text("Name of the queue."),
            "capability": {**_AMOUNTS, "description": "What it may use. A resource without a bound is left out."},
            "allocated": {**_AMOUNTS, "description": "What its jobs were given, those of others as well."},
        }
    ),
    "Events": _object({"events": _list(reference("Event"), "The newest first.")}),
    "Event": _object(
        {
            "time": _time("When it was seen last."),
            "type": _text("`Normal` or `Warning`."),
            "reason": _text("Reason: a CamelCase word."),
            "message": _text("What happened."),
            "object": _text("Kind and name of the object, for example `Pod/train-0`."),
            "count": {"type": "integer", "minimum": 1, "description": "How often it was seen."},
            "source": _optional("Who reported it. Null: not known."),
        }
    ),
    "Runs": _object(
        {
            "runs": _list(reference("Run"), "The present run, then those whose logs are archived, the newest first."),
            "updates": _list(reference("Update"), "Updates of the stack, the newest first."),
            "notes": _list({"type": "string"}, "What could not be read."),
        }
    ),
    "Run": _object(
        {
            "uid": _optional("Uid of its job object; `run` of a log takes it. Null: not known."),
            "current": _flag("The present run."),
            "archived": _flag("An archive has logs of it."),
            "state": _optional("State. Null: not known, as of an earlier run."),
            "reason": _optional("Reason of the state. Null: not known."),
            "attempt": {"type": ["integer", "null"], "description": "1 for the first launch. Null: not known."},
            "started_at": _time("When it started to run."),
            "finished_at": _time("When it ended."),
            "attempts": _list(reference("Attempt"), "Runs of its containers, the newest first."),
            "omitted": _count("Runs of containers that are not listed."),
        }
    ),
    "Attempt": _object(
        {
            "role": _text("Role."),
            "replica": _count("Replica in the role."),
            "attempt": _count("Number of the attempt of this replica; `attempt` of a log takes it."),
            "container": _text("Container; `container` of a log takes it."),
            "pod": _text("Pod."),
            "default": _flag("The container whose log is read without `container`."),
            "init": _flag("It is an init container."),
            "running": _flag("It runs now."),
            "exit_code": {"type": ["integer", "null"], "description": "Exit code. Null: it runs, or it is not known."},
            "started_at": _time("When it started."),
            "finished_at": _time("When it ended."),
            "archived": _flag("An archive has its log."),
            "complete": {"type": ["boolean", "null"], "description": "The archived log is whole. Null: not archived."},
        }
    ),
    "Update": _object(
        {
            "kind": _text("`update`, `refresh`, `destroy`, ..., as Pulumi names it."),
            "result": _text("`succeeded`, `failed` or `in-progress`."),
            "started_at": _time("When it began."),
            "finished_at": _time("When it ended."),
            "message": _text("Its message. Empty: none."),
        }
    ),
    "Error": _object({"error": _object({"status": {"type": "integer"}, "message": _text("What to do about it.")})}),
}
"""Schemas of the document by name."""
