"""Operations: one table of what the server answers. Routes, the check of parameters and the OpenAPI document use it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import Any

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from torchx_pulumi.model.timestamps import parse_time

from torchx_pulumi_fleet.web.schemas import SCHEMAS, reference

Values = Mapping[str, Any]
"""Values of a query by the names of parameters; None, or an empty list, for what is not given."""

Answer = Callable[[Request, Values], Awaitable[Response]]

VERSION = "1"
"""Version of the API. A new field, parameter or path keeps it; a removed or changed one raises it, and the path's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter in the query of a request."""

    name: str
    text: str
    """Description, with the default."""
    kind: str = "string"
    """`string`, `integer`, `boolean` or `time`."""
    repeated: bool = False
    """It may be given more than once; its value is a list."""
    required: bool = False
    allowed: Sequence[str] = ()
    """Texts that it may have, in any case. Empty: any."""
    least: int = 0
    """Smallest number."""
    most: int = 2**31 - 1
    """Largest number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Something that the server answers to GET and HEAD."""

    path: str
    name: str
    """Unique name, in camel case (`operationId`)."""
    text: str
    """What the answer is."""
    answer: Answer
    media_type: str = "application/json"
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
    """JSON schema of the answer."""
    parameters: Sequence[Parameter] = ()
    open: bool = False
    """Needs no token."""
    failures: Sequence[int] = ()
    """Status codes of failures, besides those that every operation may have."""
    bounded: bool = True
    """It counts as a request. False: it is limited in another way."""

    async def respond(self, request: Request) -> Response:
        """Answer a request.

        Raises:
            HTTPException: 400; its parameters are wrong.
        """
        return await self.answer(request, {} if self.open else read_parameters(request.query_params, self.parameters))


def read_parameters(query: QueryParams, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """Return the values of a query.

    Raises:
        HTTPException: 400, with all problems.
    """
    known = {each.name: each for each in parameters}
    allowed = ", ".join(known) or "none"
    problems = [
        f"unknown parameter {name}; this endpoint takes {allowed}" for name in dict.fromkeys(query) if name not in known
    ]
    values: dict[str, Any] = {}
    for each in parameters:
        found = []
        for text in query.getlist(each.name):
            try:
                found.append(_read(each, text))
            except ValueError as error:
                problems.append(f"{each.name}: is {text[:100]!r}, must be {error}")
        if len(query.getlist(each.name)) > 1 and not each.repeated:
            problems.append(f"{each.name}: is given more than once")
        if each.required and not query.getlist(each.name):
            problems.append(f"{each.name}: is missing: {each.text}")
        values[each.name] = found if each.repeated else found[0] if found else None
    if problems:
        raise HTTPException(400, "; ".join(problems))
    return values


def _read(parameter: Parameter, text: str) -> str | int | bool | datetime:
    if parameter.kind == "integer":
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 16 else -1
        if not parameter.least <= number <= parameter.most:
            raise ValueError(f"a number from {parameter.least} to {parameter.most}")
        return number
    if parameter.kind == "boolean":
        words = {"true": True, "1": True, "false": False, "0": False}
        if text.lower() not in words:
            raise ValueError("true or false")
        return words[text.lower()]
    if parameter.kind == "time":
        if (time := parse_time(text)) is None:
            raise ValueError("a time such as 2026-01-31T12:00:00Z")
        return time
    if parameter.allowed:
        same = {each.lower(): each for each in parameter.allowed}
        if text.lower() not in same:
            raise ValueError(f"one of {', '.join(parameter.allowed)}")
        return same[text.lower()]
    return text


def openapi_document(operations: Sequence[Operation], *, secured: bool) -> dict[str, Any]:
    """Return the document as JSON values.

    Args:
        operations: What it describes.
        secured: A token is needed.
    """
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "torchx-pulumi controller",
            "version": VERSION,
            "description": "Apps of Pulumi backends as a controller sees them. Read only: GET and HEAD.",
        },
        # Relative to the document, so that it holds behind a path of an ingress.
        "servers": [{"url": "../.."}],
        "paths": {each.path: {"get": _operation(each)} for each in operations},
        "components": {
            "schemas": dict(SCHEMAS),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "The token of the controller."}
            },
        },
    }
    return {**document, "security": [{"token": []}]} if secured else document


def _operation(operation: Operation) -> dict[str, Any]:
    failures = () if operation.open else (400, 401, 403, 421, 503)
    responses = {
        "200": {
            "description": operation.text,
            "content": {operation.media_type: {"schema": dict(operation.schema)}},
        }
    } | _failures((*failures, *operation.failures))
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.text,
        "parameters": [*_in_path(operation.path), *(_in_query(each) for each in operation.parameters)],
        "responses": responses,
    }
    return {**described, "security": []} if operation.open else described


def _failures(codes: Iterable[int]) -> dict[str, Any]:
    content = {"application/json": {"schema": reference("Error")}}
    return {
        str(code): {"description": HTTPStatus(code).phrase, "content": content} for code in sorted(dict.fromkeys(codes))
    }


def _in_path(path: str) -> list[dict[str, Any]]:
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _in_query(parameter: Parameter) -> dict[str, Any]:
    is_time = parameter.kind == "time"
    schema: dict[str, Any] = {"type": "string", "format": "date-time"} if is_time else {"type": parameter.kind}
    if parameter.kind == "integer":
        schema |= {"minimum": parameter.least, "maximum": parameter.most}
    if parameter.allowed:
        schema["enum"] = list(parameter.allowed)
    if parameter.repeated:
        schema = {"type": "array", "items": schema}
    return {
        "name": parameter.name,
        "in": "query",
        "description": parameter.text,
        "required": parameter.required,
        "schema": schema,
    }
