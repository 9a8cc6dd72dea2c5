"""A session in a few numbers and names, for lists of many sessions: what its tables show, as last observed.

Tasks, actors and jobs of Ray itself are not counted, as on the session's page.
"""

from __future__ import annotations

from typing import Any

from ray_history.moments import EARLIEST, LATEST

from .tables import Tables

MAX_JOBS, MAX_FAILURES, MAX_STATES = 50, 20, 50
"""A summary stays at a few kilobytes, whatever the session."""

_MOMENTS = {"earliest": EARLIEST * 1000, "latest": LATEST * 1000 - 1}

_JOBS = """
    select
        left(coalesce(job_id, ''), 200) as job_id, left(coalesce(submission_id, ''), 200) as submission_id,
        left(coalesce(entrypoint, ''), 1000) as entrypoint, left(coalesce(status, ''), 200) as status,
        left(coalesce(message, ''), 500) as message,
        case when start_ms::bigint between {earliest} and {latest} then start_ms::bigint end as start_ms,
        case when end_ms::bigint between {earliest} and {latest} then end_ms::bigint end as end_ms
    from {jobs}
    where not is_internal
    order by status in ('SUCCEEDED', 'STOPPED'), start_ms desc nulls last, job_id
    limit {limit}
"""

# The decisive line of an error: the last line of a traceback that names an exception, else the first line.
_FAILURES = r"""
    with failed as (
        select
            coalesce(nullif(name, ''), func_or_class_name, '') as name, left(coalesce(error_type, ''), 200) as kind,
            regexp_replace(left(coalesce(error_message, ''), 100000), '\x1b\[[0-9;]*m', '', 'g') as message
        from observed_tasks
        where is_listed and is_user_task(type, is_internal) and state = 'FAILED'
    ),
    failure as (
        select name, kind, left(
            case
                when contains(message, '  File "') or contains(message, 'ray::')
                then coalesce(
                    regexp_extract_all(message, '(?m)^[\w.]*(?:Error|Exception|Interrupt|Exit)\b.*$')[-1],
                    string_split(rtrim(message), chr(10))[-1]
                )
                else string_split(ltrim(message), chr(10))[1]
            end,
            300
        ) as text
        from failed
    )
    select
        kind, left(name, 200) as name, coalesce(min(text), '') as text, count(*) as count
    from failure
    group by kind, name, regexp_replace(text, '[0-9a-f]{{6,}}|[0-9]+', '#', 'g')
    order by count desc, kind, name, text
    limit {limit}
"""

_LEDGERS = """
    select
        count(*) as collectors,
        count(*) filter (coalesce(body->>'ended', '') <> 'graceful') as cut_off,
        -- Of several heads the one that started last decides.
        coalesce(
            max_by(coalesce(body->>'ended', '') = 'graceful', coalesce(try_cast(body->>'started' as double), 0))
                filter (body->>'role' = 'head'),
            false
        ) as head_ended,
        sum(try_cast(body->>'$.events.duplicated' as bigint))::bigint as duplicated,
        coalesce(bool_or(try_cast(body->>'export_given_up' as double) is not null), false) as export_given_up,
        coalesce(bool_or(try_cast(body->>'silent' as double) is not null), false) as head_silent,
        coalesce(sum(try_cast(body->>'$.events.unsent_bytes' as bigint)), 0)::bigint as event_bytes_unsent,
        coalesce(sum(try_cast(body->>'$.logs.bytes_unsent' as bigint)), 0)::bigint as log_bytes_unsent,
        coalesce(max(try_cast(body->>'$.metrics.series_left_out' as bigint)), 0)::bigint as series_left_out,
        coalesce(sum(try_cast(body->>'$.metrics.blocks_lost' as bigint)), 0)::bigint as metric_blocks_lost
    from document
    where source = 'ledger'
"""


def summarize(tables: Tables) -> dict[str, Any]:
    """The counts of tasks and jobs, the first jobs, the most frequent errors, and the counters of the ledgers."""
    return {
        "tasks": _task_counts(tables),
        "jobs_by_status": _job_counts(tables),
        "jobs": _dicts(tables, _JOBS.format(jobs=tables.source("jobs"), limit=MAX_JOBS, **_MOMENTS)),
        "failures": _dicts(tables, _FAILURES.format(limit=MAX_FAILURES)),
        "accounts": _dicts(tables, _LEDGERS)[0],
    }


def _task_counts(tables: Tables) -> dict[str, int]:
    """Attempts by state."""
    return dict(
        tables.rows(
            "select left(coalesce(state, ''), 200) as state, count(*) from observed_tasks "
            "where is_listed and is_user_task(type, is_internal) "
            f"group by all order by count(*) desc, state limit {MAX_STATES}"
        )
    )


def _job_counts(tables: Tables) -> dict[str, int]:
    """Jobs by status."""
    return dict(
        tables.rows(
            f"select left(coalesce(status, ''), 200) as status, count(*) from {tables.source('jobs')} "
            f"where not is_internal group by all order by count(*) desc, status limit {MAX_STATES}"
        )
    )


def _dicts(tables: Tables, sql: str) -> list[dict[str, Any]]:
    names = [name for name, *_ in tables.rows(f"describe {sql}")]
    return [dict(zip(names, row, strict=True)) for row in tables.rows(sql)]
