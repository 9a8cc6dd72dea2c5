"""`openapi.json` of a session: its API, described for programs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ray_history import __version__

from .handling import Handler

_TEXT: dict[str, Any] = {"type": "string"}
_NUMBER: dict[str, Any] = {"type": "integer"}
_FLAG: dict[str, Any] = {"type": "boolean"}
_MANY: dict[str, Any] = {"type": "array", "items": {"type": "string"}}

QUERY: dict[str, tuple[dict[str, Any], str]] = {
    "at": (_TEXT, "The state at this moment: ISO 8601, or milliseconds since 1970."),
    "raw": (_FLAG, "As last observed, instead of closed at the session's end."),
    "limit": (_NUMBER, "At most so many rows."),
    "offset": (_NUMBER, "Leave out the first so many."),
    "cursor": (_TEXT, "Page by page: empty for the first, then each answer's next_cursor."),
    "detail": (_FLAG, "All columns."),
    "sort": (_TEXT, "By this column."),
    "order": ({"type": "string", "enum": ["asc", "desc"]}, "Which way."),
    "exclude_driver": (_FLAG, "Without the tasks of drivers."),
    "exclude_internal": (_FLAG, "Without what is Ray's own: job supervisors, what polling causes."),
    "timeout": (_NUMBER, "Taken, as by Ray; nothing here takes that long."),
    "filter_keys": (_MANY, "Columns to filter by, one for each filter."),
    "filter_predicates": ({"type": "array", "items": {"type": "string", "enum": ["=", "!="]}}, "One for each filter."),
    "filter_values": (_MANY, "One for each filter."),
    "summary_by": ({"type": "string", "enum": ["func_name", "lineage"]}, "What to group tasks by."),
    "job_id": (_TEXT, "Of this job only."),
    "download": (_FLAG, "As a file to save."),
    "view": (_TEXT, "summary, logs or hostNameList."),
    "ids": (_TEXT, "Only these, separated by commas."),
    "format": (_TEXT, "1 for text."),
    "node_id": (_TEXT, "On this node."),
    "node_ip": (_TEXT, "On the node with this address."),
    "glob": (_TEXT, "Files whose name matches."),
    "filename": (_TEXT, "This file."),
    "task_id": (_TEXT, "What this task wrote."),
    "attempt_number": (_NUMBER, "Which attempt of the task."),
    "actor_id": (_TEXT, "What this actor wrote."),
    "pid": (_NUMBER, "What this process wrote."),
    "submission_id": (_TEXT, "What the driver of this submitted job wrote."),
    "suffix": ({"type": "string", "enum": ["out", "err"]}, "Which stream."),
    "lines": (_NUMBER, "The last so many lines; -1 for all."),
    "filter_ansi_code": (_FLAG, "Without terminal colours."),
    "download_filename": (_TEXT, "The name to save it under."),
}

_VIEW = "at raw"
_LISTED = "limit offset cursor detail sort order timeout"
_FILTERS = "filter_keys filter_predicates filter_values"
_TAKEN: dict[str, str] = {
    r"/api/v0/(nodes|workers|placement_groups|runtime_envs|cluster_events)": f"{_VIEW} {_LISTED} {_FILTERS}",
    r"/api/v0/(actors|jobs)": f"{_VIEW} {_LISTED} exclude_internal {_FILTERS}",
    r"/api/v0/tasks": f"{_VIEW} {_LISTED} exclude_driver exclude_internal {_FILTERS}",
    r"/api/v0/(tasks|actors)/summarize": f"{_VIEW} summary_by exclude_internal {_FILTERS}",
    r"/api/v0/tasks/timeline": f"{_VIEW} job_id download exclude_internal",
    r"/api/v0/logs": "node_id node_ip glob",
    r"/api/v0/logs/.*": "node_id node_ip filename task_id attempt_number actor_id pid submission_id suffix lines "
    "filter_ansi_code download_filename",
    r"/nodes": f"{_VIEW} view",
    r"/logical/actors": f"{_VIEW} ids",
    r"/events": f"{_VIEW} job_id",
    r"/api/cluster_status": "format",
}
"""Which paths take which parameters; every other takes none, or the view."""


def document(handlers: Iterable[tuple[str, Handler]], below: str) -> dict[str, Any]:
    """The description of all paths of a session, which stand below that address."""
    paths = {re.sub(r":path}", "}", path): {"get": _operation(path, handler)} for path, handler in handlers}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Ray History Server", "version": __version__},
        "servers": [{"url": below}],
        "paths": dict(sorted(paths.items())),
    }


def _operation(path: str, handler: Handler) -> dict[str, Any]:
    told = (getattr(handler, "func", handler).__doc__ or "").strip().split("\n")[0]
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": _TEXT} for name in re.findall(r"{(\w+)", path)
    ]
    taken = next((names for pattern, names in _TAKEN.items() if re.fullmatch(pattern, path)), _VIEW)
    for name in taken.split():
        schema, description = QUERY[name]
        parameters.append({"name": name, "in": "query", "schema": schema, "description": description})
    return {"summary": told, "parameters": parameters, "responses": _responses()}


def _responses() -> dict[str, Any]:
    return {
        "200": {"description": "The answer."},
        "4XX": {"description": "Refused; `msg` says why and what to do.", "content": {"application/json": {}}},
        "501": {"description": "Not part of a finished session's dashboard.", "content": {"application/json": {}}},
    }
