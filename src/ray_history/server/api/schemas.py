"""The shapes of answers, for `openapi.json`; those of rows come from the tables that the rows are made by."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

from ray_history.history.registry import TABLES
from ray_history.index.indexer import Progress
from ray_history.server.api.listing import LISTINGS

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
_OBJECT: Schema = {"type": "object"}
_WARNING: Schema = {"type": ["string", "null"]}


def _object(required: dict[str, Schema], **others: Schema) -> Schema:
    return {"type": "object", "required": list(required), "properties": {**required, **others}}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _enveloped(data: Schema) -> Schema:
    return _object({"result": FLAG, "msg": TEXT, "data": data})


def _listed(result: Schema) -> Schema:
    """What the state API puts around the rows, or around a summary."""
    counts = dict.fromkeys(("total", "num_after_truncation", "num_filtered"), NUMBER)
    told = {"result": result, "partial_failure_warning": _WARNING, "warnings": {}}
    following: Schema = {"type": ["string", "null"], "description": "Only with `cursor`; null on the last page."}
    return _enveloped(_object({"result": _object({**counts, **told}, next_cursor=following)}))


def _row(table: str, *, detail: bool = False) -> Schema:
    """A row of a listing; with `detail` what is otherwise only there if it is asked for."""
    kinds = {name: _kind(table, name) for name in (column.name for column in TABLES[table].columns)}
    always = [column.name for column in TABLES[table].columns if detail or not column.detail]
    return {"type": "object", "required": always, "properties": kinds, "additionalProperties": False}


def _kind(table: str, column: str) -> Schema:
    """What is filtered as text, number or flag is one, or unknown; an environment is an object."""
    listing = LISTINGS[table]
    for names, kind in ((listing.text, "string"), (listing.numbers, "integer"), (listing.flags, "boolean")):
        if column in names.split() and column != "runtime_env":
            return {"type": [kind, "null"]}
    return {}


COMPONENTS: dict[str, Schema] = {
    "Refusal": _object({"result": {"const": False}, "msg": TEXT, "data": _object({}, result={"type": "null"})}),
    "Envelope": _enveloped(_OBJECT),
    "Summary": _listed(_OBJECT),
    "Job": _row("jobs", detail=True),
    "Status": _object(
        {
            "session": TEXT,
            "ready": FLAG,
            "note": TEXT,
            **{field.name: TEXT if field.name == "stage" else NUMBER for field in fields(Progress)},
        },
        reason=TEXT,
    ),
    **{f"row_of_{table}": _row(table) for table in LISTINGS},
    **{f"list_of_{table}": _listed(_list(_ref(f"row_of_{table}"))) for table in LISTINGS},
}

JSON = "application/json"

_ANSWERS: dict[str, dict[str, Schema]] = {
    **{f"/api/v0/{table}": {JSON: _ref(f"list_of_{table}")} for table in LISTINGS},
    r"/api/v0/objects": {JSON: _listed(_list(_OBJECT))},
    r"/api/v0/(tasks|actors|objects)/summarize": {JSON: _ref("Summary")},
    r"/api/v0/tasks/timeline|/api/prometheus/sd": {JSON: _list(_OBJECT)},
    r"/api/v0/logs": {
        JSON: _enveloped(_object({"result": {"type": "object", "additionalProperties": _list(TEXT)}})),
    },
    r"/api/v0/logs/.*": {"text/plain": {}},
    r"/logs/.*": {"text/plain": {}, "text/html": {}},
    r"/api/jobs/": {JSON: _list(_ref("Job"))},
    r"/api/jobs/{[^/]*}": {JSON: _ref("Job")},
    r"/api/jobs/.*/logs": {JSON: _object({"logs": TEXT})},
    r"/api/(\w+_)?healthz": {"application/text": {}},
    r"/api/(ray/)?version": {JSON: _object({"version": TEXT, "ray_version": {}, "session_name": TEXT})},
    r"/api/(serve|data|train|component_activities)\b.*|/_completeness|/_digest": {JSON: _OBJECT},
    r"/timezone": {JSON: _object({"offset": TEXT, "value": TEXT})},
    r"/api/authentication_mode": {JSON: _object({"authentication_mode": {"enum": ["disabled", "token"]}})},
    r"/_status": {JSON: _ref("Status"), "text/event-stream": {}},
    r"/_download": {"application/zip": {}},
    r"/|/_session": {"text/html": {}},
    r"/openapi.json": {JSON: _OBJECT},
}
"""What the answer to a path is; every other is an envelope."""


def answer(path: str) -> dict[str, Any]:
    """The kinds of an answer, and the shape of each."""
    found = next((kinds for pattern, kinds in _ANSWERS.items() if re.fullmatch(pattern, path)), None)
    return {kind: {"schema": schema} for kind, schema in (found or {JSON: _ref("Envelope")}).items()}


def error_response(path: str) -> dict[str, Any]:
    """The same for a refusal: JSON, a page for people, and text where Ray refuses with text."""
    kinds: dict[str, Any] = {JSON: {"schema": _ref("Refusal")}, "text/html": {}}
    return kinds | {"text/plain": {}} if re.fullmatch(r"/api/jobs/.*/logs", path) else kinds
