"""Answers that the collector polled while the session ran, and the lines of Ray's export files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ray_history.archive.layout import endpoint_name
from ray_history.server.loose_json import object_of
from ray_history.server.sessions.endpoint import SessionRequest

_STATES_IN_ORDER = [
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
"""States of datasets, and of Train's runs and their attempts."""


def polled_answer(request: SessionRequest, url: str) -> Any:
    """The last answer of the live dashboard to a URL, None if it was not polled. Includes secrets."""
    rows = request.tables.rows(
        "select body from document where source = 'endpoint' and name in (?, ?) limit 1",
        [endpoint_name(url), endpoint_name(url) + "__"],
    )
    return msgspec.json.decode(rows[0][0]) if rows else None


def polled_data(request: SessionRequest, url: str) -> dict[str, Any]:
    """The `data` of a polled envelope, empty if there is none."""
    return object_of(object_of(polled_answer(request, url)).get("data"))


def exported(request: SessionRequest, source_type: str) -> list[dict[str, Any]]:
    """The data of lines of Ray's export files, by time (whole seconds) and state; with `at`, up to that moment."""
    rows = request.tables.rows(
        """select body->'event_data' from document
        where source = 'export_event' and body->>'source_type' = ?
            and coalesce(try_cast(body->>'timestamp' as double) <= ?, true)
        order by
            try_cast(body->>'timestamp' as double),
            list_position(?, coalesce(body->>'$.event_data.state', body->>'$.event_data.status')),
            body::varchar""",
        [source_type, request.view.at / 1e9 if request.view.at is not None else 1e18, _STATES_IN_ORDER],
    )
    values = [msgspec.json.decode(text) for (text,) in rows if text]
    return [value for value in values if isinstance(value, dict)]


def is_later(request: SessionRequest, time: Any, unit: float) -> bool:
    """Whether `time`, in units of so many nanoseconds, is after the requested moment."""
    return request.view.at is not None and isinstance(time, int | float) and time * unit > request.view.at


def add_newest(
    rows: dict[str, dict[str, Any]], key: str, row: dict[str, Any], state: str, final_states: tuple[str, ...]
) -> None:
    """Replaces an older observation, unless that was already in a final state and this one is not."""
    older = rows.get(key)
    if older is None or older.get(state) not in final_states or row.get(state) in final_states:
        rows[key] = row


def newest_first(rows: Iterable[dict[str, Any]], time: str) -> list[dict[str, Any]]:
    """Rows without a number as their time come last."""

    def start(row: dict[str, Any]) -> float:
        value = row.get(time)
        return value if isinstance(value, int | float) else 0

    return sorted(rows, key=start, reverse=True)


def camel_case_keys(value: Any) -> Any:
    """The keys of objects at every depth in camel case, as Ray's dashboard converts them."""
    if isinstance(value, dict):
        return {_camel_case(key): camel_case_keys(inner) for key, inner in value.items()}
    if isinstance(value, list):  # Ray leaves lists inside lists alone
        return [camel_case_keys(item) if isinstance(item, dict) else item for item in value]
    return value


def _camel_case(key: str) -> str:
    first, *others = key.split("_")
    return first + "".join(part.title() for part in others)
