"""The OpenAPI 3.1 document, made from the table of operations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any

from torchx_pulumi.web.operations import Operation, Parameter
from torchx_pulumi.web.schemas import SCHEMAS, reference

VERSION = "1"
"""Version of the API. A new field, parameter or path keeps it; a removed or changed one raises it, and the path's."""


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
    schema: dict[str, Any] = {"type": parameter.kind}
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
