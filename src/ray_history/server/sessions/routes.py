"""Routes of a session: a path with its handler, parameters and answers.

Modules declare their `routes` beside the handlers; `server/routes.py` collects them. Routing, `openapi.json` and the
proxy to live heads are made from that one table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from ray_history.server.sessions.endpoint import Handler

Schema = dict[str, Any]
Content = dict[str, Schema]
"""The media types of an answer, and the schema of each."""

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
OBJECT: Schema = {"type": "object"}


def one_of_texts(*choices: str) -> Schema:
    return {"type": "string", "enum": list(choices)}


def array_of(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def object_with(required: Mapping[str, Schema], **optional: Schema) -> Schema:
    return {"type": "object", "required": list(required), "properties": {**required, **optional}}


def component(name: str) -> Schema:
    """A reference to one of `openapi.COMPONENTS`."""
    return {"$ref": f"#/components/schemas/{name}"}


def enveloped_schema(data: Schema) -> Schema:
    return object_with({"result": FLAG, "msg": TEXT, "data": data})


def listed_schema(result: Schema) -> Schema:
    """The state API's envelope of rows, or of a summary."""
    counts = dict.fromkeys(("total", "num_after_truncation", "num_filtered"), NUMBER)
    notes: dict[str, Schema] = {"partial_failure_warning": {"type": ["string", "null"]}, "warnings": {}}
    next_cursor: Schema = {"type": ["string", "null"], "description": "Only with `cursor`; null on the last page."}
    listing = object_with({**counts, "result": result, **notes}, next_cursor=next_cursor)
    return enveloped_schema(object_with({"result": listing}))


def json_of(schema: Schema) -> Content:
    return {"application/json": schema}


PLAIN_TEXT: Content = {"text/plain": {}}
HTML: Content = {"text/html": {}}
ENVELOPE = json_of(component("Envelope"))
REFUSED: Content = {}
"""For routes that every session refuses."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter."""

    name: str
    schema: Schema
    description: str


VIEW = (
    Parameter("at", TEXT, "Show the state at this moment: ISO 8601, or milliseconds since 1970."),
    Parameter("raw", FLAG, "Show rows as last observed, without closing them at the session's end."),
)
TIMEOUT = Parameter("timeout", NUMBER, "Accepted for compatibility with Ray; has no effect.")
JOB_ID = Parameter("job_id", TEXT, "Only this job.")


@dataclass(frozen=True, slots=True)
class Operation:
    """A path as `openapi.json` describes it."""

    path: str
    _: KW_ONLY
    summary: str = ""
    """Needed where no handler's docstring says it."""
    parameters: Sequence[Parameter] = VIEW
    path_schemas: Mapping[str, Schema] = field(default_factory=dict)
    """Parts of the path that are not any text."""
    content: Content = field(default_factory=lambda: ENVELOPE)
    refuses_in_plain_text: bool = False
    own_refusal: Schema | None = None
    """The handler's own form of errors; what stands before it, such as the guard, refuses as everywhere."""


@dataclass(frozen=True, slots=True)
class SessionRoute(Operation):
    """A path that a handler answers."""

    handler: Handler
    _: KW_ONLY
    forwarded: bool = False
    """Live clusters answer it too: the request is passed on to the head."""
    head_path: str = ""
    """The path on the head, if it is a different one."""


def forwarded_paths(routes: Sequence[SessionRoute]) -> Iterator[str]:
    return (route.head_path or route.path for route in routes if route.forwarded)
