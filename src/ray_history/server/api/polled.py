"""What was polled while the session ran, and what Ray's export files hold: read out of the session's documents."""

from __future__ import annotations

from typing import Any

import msgspec

from ray_history.archive.layout import endpoint_name
from ray_history.server.loose_json import object_of
from ray_history.server.sessions.endpoint import SessionRequest

_IN_ORDER = [
    "PENDING",
    "INITIALIZING",
    "SCHEDULING",
    "RUNNING",
    "RESTARTING",
    "RESIZING",
    "FINISHED",
    "ERRORED",
    "FAILED",
    "ABORTED",
]
"""The states of datasets, of Train's runs and their attempts."""


def polled_answer(request: SessionRequest, url: str) -> Any:
    """The last answer of the live dashboard to a URL; None if nobody polled it. Secrets included."""
    rows = request.tables.rows(
        "select body from document where source = 'endpoint' and name in (?, ?) limit 1",
        [endpoint_name(url), endpoint_name(url) + "__"],
    )
    return msgspec.json.decode(rows[0][0]) if rows else None


def polled_data(request: SessionRequest, url: str) -> dict[str, Any]:
    """The `data` of a polled envelope; empty if there is none."""
    return object_of(object_of(polled_answer(request, url)).get("data"))


def exported(request: SessionRequest, *kinds: str) -> list[dict[str, Any]]:
    """The data of lines of Ray's export files, by their time (whole seconds) and state; with `at`, those of before."""
    rows = request.tables.rows(
        f"""select body->'event_data' from document
        where source = 'export_event' and body->>'source_type' in ({", ".join("?" * len(kinds))})
            and coalesce(try_cast(body->>'timestamp' as double) <= ?, true)
        order by
            try_cast(body->>'timestamp' as double),
            list_position(?, coalesce(body->>'$.event_data.state', body->>'$.event_data.status')),
            body::varchar""",
        [*kinds, request.view.at / 1e9 if request.view.at is not None else 1e18, _IN_ORDER],
    )
    found = [msgspec.json.decode(text) for (text,) in rows if text]
    return [data for data in found if isinstance(data, dict)]


def is_later(request: SessionRequest, time: Any, unit: float) -> bool:
    """Whether something happened only after the moment that was asked for; `unit` is that of `time` in nanoseconds."""
    return request.view.at is not None and isinstance(time, int | float) and time * unit > request.view.at


def camel_case_keys(value: Any) -> Any:
    """Keys in camel case at every depth, as Ray's dashboard turns them."""
    if isinstance(value, dict):
        return {_camel_case(key): camel_case_keys(inner) for key, inner in value.items()}
    if isinstance(value, list):  # Ray leaves lists inside lists alone
        return [camel_case_keys(item) if isinstance(item, dict) else item for item in value]
    return value


def _camel_case(key: str) -> str:
    first, *others = key.split("_")
    return first + "".join(part.title() for part in others)
