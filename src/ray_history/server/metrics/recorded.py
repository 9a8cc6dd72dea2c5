"""The recorded metrics of an open session."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from ray_history.history.read.tables import Tables
from ray_history.metrics.block import UP
from ray_history.metrics.grafana.times import USUAL_INTERVAL
from ray_history.metrics.promql.limits import Limits
from ray_history.metrics.promql.samples import SampleReader
from ray_history.metrics.table_names import BLOCKS, METRICS, SERIES
from ray_history.server.http.budget import budget
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.open_session import OpenSession

NOT_RECORDED = (
    "no metrics of this session were recorded: its collectors did not scrape the cluster's metrics "
    "(--metrics-interval), or are older than this server"
)

_SLACK = 60_000
"""How much earlier than all others the last scrape of an endpoint may be that ended with its session, in ms."""
_GROWING_SLACK = 400_000
"""The same while a session is written: blocks of five minutes, which begin at different times."""
_DAY = 86_400_000


@dataclass(frozen=True, slots=True)
class Recorded:
    """The samples of a session."""

    reader: SampleReader
    first_ms: int
    last_ms: int
    """The last moment with values of all endpoints."""
    interval_ms: int
    """Between scrapes."""


def recorded(session: OpenSession) -> Recorded | None:
    """The samples of a session, if it has any."""
    if session.metrics is None:
        session.metrics = _read(session)  # twice at the same time does no harm
    return session.metrics if isinstance(session.metrics, Recorded) else None


def _read(session: OpenSession) -> Recorded | None:
    tables = session.tables
    series, metrics, blocks = (tables.file(name) for name in (SERIES, METRICS, BLOCKS))
    if series is None or metrics is None or blocks is None:
        return None
    # The clock of a node may be years off, and a block damaged: that must not move the range of everything else.
    earliest = session.session.started * 1000 - _DAY
    latest = (session.ended_ns or time.time_ns()) // 1_000_000 + _DAY
    query = f"select min(first_ms), max(last_ms) from {blocks} where last_ms is not null and {{}} group by target"
    # If no block is within the session, the end of the session is wrong rather than all clocks.
    believable = (f"first_ms >= {earliest} and last_ms <= {latest}", f"last_ms <= {latest}", "true")
    targets = next((rows for each in believable if (rows := tables.rows(query.format(each)))), None)
    if not targets:
        return None
    last_ms = _last_common([last for _, last in targets], _GROWING_SLACK if session.may_grow else _SLACK)
    reader = SampleReader(tables, series=series, metrics=metrics)
    return Recorded(reader, min(first for first, _ in targets), last_ms, _interval(tables, series, metrics))


def _interval(tables: Tables, series: str, metrics: str) -> int:
    """The usual distance of the first scrapes of an endpoint, in whole seconds."""
    query = f"""
        select median(distance) from (
            select time_ms - lag(time_ms) over (order by time_ms) as distance
            from (from {metrics} where series_id = (select min(series_id) from {series} where name = '{UP}') limit 100)
        )
    """
    ((distance,),) = tables.rows(query)
    return max(1000, round((distance or USUAL_INTERVAL) / 1000) * 1000)


def _last_common(lasts: Sequence[int], slack: int) -> int:
    """The last moment at which each endpoint has values that was scraped until the end: they are scraped one after the
    other, so that at the last scrape of all, the others have ended."""
    return min(last for last in lasts if last > max(lasts) - slack)


def moment_ms(request: SessionRequest, found: Recorded) -> int:
    """What `now` means: the last scrape, or the moment that is viewed."""
    return found.last_ms if request.view.at is None else min(found.last_ms, request.view.at // 1_000_000)


def limits() -> Limits:
    """The limits of a query of the current request."""
    deadline = time.monotonic() + budget().seconds
    return Limits(is_overdue=lambda: time.monotonic() > deadline)
