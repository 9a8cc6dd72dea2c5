"""The polled answers that fill tables: how old they are, and whether they are whole."""

from __future__ import annotations

from collections.abc import Iterable

from ray_history.archive.layout import endpoint_name
from ray_history.history.registry import TABLES
from ray_history.server.formatting import clock, duration
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.memo import cached_per_session


def age(request: SessionRequest, paths: Iterable[str]) -> str:
    """When the newest answer of these paths of the dashboard arrived; empty if none is stored. `{}` is any id."""
    moments = [moment for path in paths for moment in _moments(request, path)]
    if not moments:
        return ""
    moment, ended = max(moments), request.open.ended_ns
    if ended is None or ended / 1e9 <= moment:
        return f"as of {clock(moment)} UTC"
    return f"as of {clock(moment)} UTC, {duration(ended / 1e9 - moment)} before the end"


def _moments(request: SessionRequest, path: str) -> list[float]:
    """The times of stored answers of a path, and of the last one, which is not stored if it is like the one before."""
    stored = [info.modified.timestamp() for name, info in request.open.files.endpoints.items() if is_answer(name, path)]
    answered = [
        each.answered
        for ledger in request.open.ledgers.values()
        for url, each in ledger.polled.items()
        if url.partition("?")[0] == path
    ]
    return stored + answered if stored else []


def is_answer(name: str, path: str) -> bool:
    """Whether an answer is stored under the name of a path, `{}` being any id, whatever its parameters."""
    before, one_of_many, _ = path.partition("{}")
    if one_of_many:
        return name.startswith(endpoint_name(before) + "__")
    return name.partition("?")[0].removesuffix("__") == endpoint_name(path).removesuffix("__")


@cached_per_session
def cut(request: SessionRequest) -> dict[str, str]:
    """The warning for each table whose polled listing has fewer rows than the dashboard knew of."""
    rows = request.tables.rows(
        """
        select
            regexp_extract(name, '^restful__api__v0__(\\w+)', 1),
            max(json_array_length(body, '$.data.result.result')),
            max(try_cast(body->>'$.data.result.num_filtered' as bigint))
        from document
        where source = 'endpoint' and starts_with(name, 'restful__api__v0__')
            and not contains(name, 'exclude_driver')  -- all tasks, polled for their spans: events have the others
        group by all
        order by all
        """
    )
    return {
        table: f"The dashboard's list of {table.replace('_', ' ')} was cut: {listed:,} of {known:,} rows."
        for table, listed, known in rows
        if table in TABLES and listed is not None and known is not None and listed < known
    }


@cached_per_session
def polled_attempts(request: SessionRequest) -> int:
    """Attempts of tasks of which the dashboard's list has something that no event has."""
    ((number,),) = request.tables.rows("select count(*) from observed_tasks where polled_columns is not null")
    return int(number)
