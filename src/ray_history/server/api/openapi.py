"""`openapi.json`: the routes of a session, described for programs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields
from itertools import chain
from typing import Any

from ray_history import __version__
from ray_history.history.registry import TABLES
from ray_history.index.build.order import Progress
from ray_history.server.sessions.routes import (
    FLAG,
    HTML,
    NUMBER,
    OBJECT,
    TEXT,
    VIEW,
    Operation,
    Parameter,
    Schema,
    SessionRoute,
    array_of,
    component,
    enveloped_schema,
    json_of,
    listed_schema,
    object_with,
)

WITHOUT_HANDLER = (
    Operation(
        "/",
        summary="The Ray Dashboard.",
        parameters=(*VIEW, Parameter("dashboard", TEXT, "Use the dashboard of this Ray version.")),
        content=HTML,
    ),
    Operation("/_session", summary="A page with facts, failures, timeline, jobs and suggested logs.", content=HTML),
    Operation(
        "/_status",
        summary="Whether the session is open, and the progress of opening it; starts opening it.",
        parameters=(),
        content=json_of(component("Status")) | {"text/event-stream": {}},
    ),
    Operation(
        "/api/authentication_mode",
        summary="Whether users sign in with a token; read by the dashboard's dialog.",
        parameters=(),
        content=json_of(object_with({"authentication_mode": {"enum": ["disabled", "token"]}})),
    ),
    Operation("/openapi.json", summary="This description.", parameters=(), content=json_of(OBJECT)),
)
"""Paths that the application answers itself."""


_TYPE_NAMES = {str: "string", int: "integer", bool: "boolean"}


def _row(table: str, *, detail: bool = False) -> Schema:
    """A row of a listing; with `detail` every column is required."""
    types = {column.name: _column_type(table, column.name) for column in TABLES[table].columns}
    required = [column.name for column in TABLES[table].columns if detail or not column.detail]
    return {"type": "object", "required": required, "properties": types, "additionalProperties": False}


def _column_type(table: str, column: str) -> Schema:
    """Columns that can be filtered as text, number or flag have that type, or are null."""
    if column == "runtime_env":  # filtered as text, sent as an object
        return {}
    column_type = TABLES[table].filters.get(column)
    return {"type": [_TYPE_NAMES[column_type], "null"]} if column_type else {}


COMPONENTS: dict[str, Schema] = {
    "Refusal": object_with(
        {"result": {"const": False}, "msg": TEXT, "data": object_with({}, result={"type": "null"})},
    ),
    "Envelope": enveloped_schema(OBJECT),
    "Summary": listed_schema(OBJECT),
    "Job": _row("jobs", detail=True),
    "Status": object_with(
        {
            "session": TEXT,
            "ready": FLAG,
            "note": TEXT,
            **{field.name: TEXT if field.name == "stage" else NUMBER for field in fields(Progress)},
        },
        reason=TEXT,
    ),
    **{f"row_of_{table}": _row(table) for table in TABLES},
    **{f"list_of_{table}": listed_schema(array_of(component(f"row_of_{table}"))) for table in TABLES},
}


def document(routes: Iterable[SessionRoute], base_url: str) -> dict[str, Any]:
    """The description of all paths of a session below this URL."""
    operations = {
        operation.path.replace(":path}", "}"): operation for operation in chain[Operation](routes, WITHOUT_HANDLER)
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Ray History Server", "version": __version__},
        "servers": [{"url": base_url}],
        "paths": {path: {"get": _get(path, operation)} for path, operation in sorted(operations.items())},
        "components": {"schemas": COMPONENTS},
    }


def _get(path: str, operation: Operation) -> dict[str, Any]:
    path_parameters = [
        {"name": name, "in": "path", "required": True, "schema": operation.path_schemas.get(name, TEXT)}
        for name in re.findall(r"{(\w+)", path)
    ]
    query_parameters = [
        {"name": parameter.name, "in": "query", "schema": parameter.schema, "description": parameter.description}
        for parameter in operation.parameters
    ]
    return {
        "summary": _summary(operation),
        "parameters": path_parameters + query_parameters,
        "responses": _responses(operation),
    }


def _summary(operation: Operation) -> str:
    if operation.summary or not isinstance(operation, SessionRoute):
        return operation.summary
    handler = getattr(operation.handler, "func", operation.handler)  # of a `partial`
    return (handler.__doc__ or "").strip().split("\n")[0]


def _responses(operation: Operation) -> dict[str, Any]:
    refusal = component("Refusal")
    if operation.own_refusal:
        refusal = {"anyOf": [operation.own_refusal, refusal]}
    errors: dict[str, Any] = {"application/json": {"schema": refusal}, "text/html": {}}
    if operation.refuses_in_plain_text:
        errors["text/plain"] = {}
    responses: dict[str, Any] = {}
    if operation.content:
        content = {media_type: {"schema": schema} for media_type, schema in operation.content.items()}
        responses["200"] = {"description": "Success.", "content": content}
    return responses | {
        "4XX": {"description": "Refused; `msg` says why and what to do.", "content": errors},
        "501": {"description": "Not part of a finished session's dashboard.", "content": errors},
        "503": {"description": "The archive does not answer, or there are too many requests.", "content": errors},
    }
