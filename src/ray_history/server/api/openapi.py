"""`openapi.json` of a session: its API, described for programs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ray_history import __version__
from ray_history.server.api.schemas import COMPONENTS, FLAG, NUMBER, TEXT, Schema, answer, error_response
from ray_history.server.sessions.endpoint import Handler

_MANY: Schema = {"type": "array", "items": TEXT}

QUERY: dict[str, tuple[Schema, str]] = {
    "at": (TEXT, "The state at this moment: ISO 8601, or milliseconds since 1970."),
    "raw": (FLAG, "As last observed, instead of closed at the session's end."),
    "limit": (NUMBER, "At most so many rows."),
    "offset": (NUMBER, "Leave out the first so many."),
    "cursor": (TEXT, "Page by page: empty for the first, then each answer's next_cursor."),
    "detail": (FLAG, "All columns."),
    "sort": (TEXT, "By this column."),
    "order": ({"type": "string", "enum": ["asc", "desc"]}, "Which way."),
    "exclude_driver": (FLAG, "Without the tasks of drivers."),
    "exclude_internal": (FLAG, "Without what is Ray's own: job supervisors, what polling causes."),
    "timeout": (NUMBER, "Taken, as by Ray; nothing here takes that long."),
    "filter_keys": (_MANY, "Columns to filter by, one for each filter."),
    "filter_predicates": ({"type": "array", "items": {"type": "string", "enum": ["=", "!="]}}, "One for each filter."),
    "filter_values": (_MANY, "One for each filter."),
    "summary_by": ({"type": "string", "enum": ["func_name", "task_name", "lineage"]}, "What to group tasks by."),
    "job_id": (TEXT, "Of this job only."),
    "download": (FLAG, "As a file to save."),
    "view": (TEXT, "summary, logs or hostNameList."),
    "ids": (TEXT, "Only these, separated by commas."),
    "format": (TEXT, "1 for text."),
    "node_id": (TEXT, "On this node."),
    "node_ip": (TEXT, "On the node with this address."),
    "glob": (TEXT, "Files whose name matches."),
    "filename": (TEXT, "This file."),
    "task_id": (TEXT, "What this task wrote."),
    "attempt_number": (NUMBER, "Which attempt of the task."),
    "actor_id": (TEXT, "What this actor wrote."),
    "pid": (NUMBER, "What this process wrote."),
    "submission_id": (TEXT, "What the driver of this submitted job wrote."),
    "suffix": ({"type": "string", "enum": ["out", "err"]}, "Which stream."),
    "lines": (NUMBER, "The last so many lines; -1 for all."),
    "filter_ansi_code": (FLAG, "Without terminal colours."),
    "download_filename": (TEXT, "The name to save it under."),
    "interval": ({"type": "number"}, "Taken, as by Ray; nothing here asks a node."),
    "inline": (FLAG, "To be shown, not saved."),
    "api_type": (TEXT, "Applications that were deployed this way only."),
    "dashboard": (TEXT, "The pages of this Ray version."),
}

OTHERS = {
    "/": "The Ray Dashboard.",
    "/_session": "A page for people: facts, failures, timeline, jobs, logs worth reading.",
    "/_status": "Whether the session is open, and how far opening has come; begins to open it.",
    "/api/authentication_mode": "Whether one signs in with a token: the dashboard's dialog asks for it.",
    "/openapi.json": "This description.",
}
"""Paths that are not answered by a handler, and what their answers are."""

_VIEW = "at raw"
_LISTED = "limit offset cursor detail sort order timeout"
_FILTERS = "filter_keys filter_predicates filter_values"
_TAKEN: dict[str, str] = {
    r"/api/v0/(nodes|workers|placement_groups|runtime_envs|cluster_events)": f"{_VIEW} {_LISTED} {_FILTERS}",
    r"/api/v0/(actors|jobs)": f"{_VIEW} {_LISTED} exclude_internal {_FILTERS}",
    r"/api/v0/tasks": f"{_VIEW} {_LISTED} exclude_driver exclude_internal {_FILTERS}",
    r"/api/v0/tasks/summarize": f"{_VIEW} summary_by timeout exclude_internal {_FILTERS}",
    r"/api/v0/actors/summarize": f"{_VIEW} timeout exclude_internal {_FILTERS}",
    r"/api/v0/tasks/timeline": f"{_VIEW} job_id download exclude_internal",
    r"/logs/.*": "node_id node_ip",
    r"/api/v0/logs": "node_id node_ip glob timeout",
    r"/api/v0/logs/.*": "node_id node_ip filename task_id attempt_number actor_id pid submission_id suffix lines "
    "filter_ansi_code download_filename inline timeout interval",
    r"/nodes": f"{_VIEW} view",
    r"/logical/actors": f"{_VIEW} ids exclude_internal",
    r"/api/jobs/": f"{_VIEW} exclude_internal",
    r"/events": f"{_VIEW} job_id",
    r"/api/cluster_status": "format",
    r"/api/serve/.*": f"{_VIEW} api_type",
    r"/": f"{_VIEW} dashboard",
    r"/_status|/api/authentication_mode|/openapi.json": "",
}
"""Which paths take which parameters; every other takes none, or the view."""


_ALWAYS_REFUSED = r"packages|profile\b|traceback"
"""What a session that is over has nothing of."""
_PARTS: dict[str, Schema] = {"media_type": {"type": "string", "enum": ["file", "stream"]}}
"""Parts of paths that are not any text."""


def document(handlers: Iterable[tuple[str, Handler]], below: str) -> dict[str, Any]:
    """The description of all paths of a session, which stand below that address."""
    paths = {path.replace(":path}", "}"): _summary(handler) for path, handler in handlers} | OTHERS
    return {
        "openapi": "3.1.0",
        "info": {"title": "Ray History Server", "version": __version__},
        "servers": [{"url": below}],
        "paths": {path: {"get": _operation(path, paths[path])} for path in sorted(paths)},
        "components": {"schemas": COMPONENTS},
    }


def _summary(handler: Handler) -> str:
    return (getattr(handler, "func", handler).__doc__ or "").strip().split("\n")[0]


def _operation(path: str, summary: str) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": _PARTS.get(name, TEXT)}
        for name in re.findall(r"{(\w+)", path)
    ]
    taken = next((names for pattern, names in _TAKEN.items() if re.fullmatch(pattern, path)), _VIEW)
    for name in taken.split():
        schema, description = QUERY[name]
        parameters.append({"name": name, "in": "query", "schema": schema, "description": description})
    return {"summary": summary, "parameters": parameters, "responses": _responses(path)}


def _responses(path: str) -> dict[str, Any]:
    refused = error_response(path)
    answered = {"200": {"description": "The answer.", "content": answer(path)}}
    return {
        **({} if re.search(_ALWAYS_REFUSED, path) else answered),
        "4XX": {"description": "Refused; `msg` says why and what to do.", "content": refused},
        "501": {"description": "Not part of a finished session's dashboard.", "content": refused},
        "503": {"description": "The archive does not answer, or too much is asked at once.", "content": refused},
    }
