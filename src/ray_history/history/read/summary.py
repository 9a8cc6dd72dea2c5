"""A session in a few numbers and names, for lists of many sessions: what its tables show, as last observed."""

from __future__ import annotations

from typing import Any

from .tables import Tables

MOST_JOBS, MOST_FAILURES = 50, 20
"""Told one by one: a summary stays a few kilobytes, whatever the session."""

_DECISIVE = r"""
    case
        when contains(message, '  File "') or contains(message, 'ray::')
        then coalesce(
            regexp_extract_all(message, '(?m)^[\w.]*(?:Error|Exception|Interrupt|Exit)\b.*$')[-1],
            string_split(rtrim(message), chr(10))[-1]
        )
        else string_split(ltrim(message), chr(10))[1]
    end
"""
"""The line of an error that says most: of a stack trace the last that names an exception, else the first."""


def summarize(tables: Tables) -> dict[str, Any]:
    """Counts by state, jobs, the most frequent errors, and what the collectors accounted for."""
    return {
        "tasks": dict(
            tables.rows(
                "select state, count(*) from observed_tasks where is_listed and type <> 'DRIVER_TASK' "
                "group by all order by all"
            )
        ),
        "jobs_by_status": dict(tables.rows(f"select status, count(*) from {tables.source('jobs')} group by all")),
        "jobs": _named(
            tables,
            f"""
            select
                coalesce(job_id, '') as job_id, coalesce(submission_id, '') as submission_id,
                left(coalesce(entrypoint, ''), 1000) as entrypoint, coalesce(status, '') as status,
                left(coalesce(message, ''), 500) as message, start_ms::bigint as start_ms, end_ms::bigint as end_ms
            from {tables.source("jobs")}
            order by status in ('SUCCEEDED', 'STOPPED'), start_ms desc nulls last, job_id
            limit {MOST_JOBS}
        """,
        ),
        "failures": _named(
            tables,
            f"""
            with failed as (
                select
                    coalesce(nullif(name, ''), func_or_class_name, '') as name, coalesce(error_type, '') as kind,
                    regexp_replace(left(coalesce(error_message, ''), 100000), '\x1b\\[[0-9;]*m', '', 'g') as message
                from observed_tasks
                where is_listed and type <> 'DRIVER_TASK' and state = 'FAILED'
            ),
            told as (select name, kind, left({_DECISIVE}, 300) as text from failed)
            select
                kind, left(name, 200) as name, coalesce(min(text), '') as text, count(*) as count
            from told
            group by kind, name, regexp_replace(text, '[0-9a-f]{{6,}}|[0-9]+', '#', 'g')
            order by count desc, kind, name, text
            limit {MOST_FAILURES}
        """,
        ),
        "accounts": _named(
            tables,
            """
            select
                count(*) as collectors,
                count(*) filter (coalesce(body->>'ended', '') <> 'graceful') as cut_off,
                coalesce(bool_or(body->>'role' = 'head' and body->>'ended' = 'graceful'), false) as head_ended,
                sum(try_cast(body->>'$.events.duplicated' as bigint))::bigint as duplicated
            from document
            where source = 'ledger'
        """,
        )[0],
        "dead_nodes": tables.rows(f"select count(*) from {tables.source('nodes')} where state = 'DEAD'")[0][0],
    }


def _named(tables: Tables, sql: str) -> list[dict[str, Any]]:
    names = [name for name, *_ in tables.rows(f"describe {sql}")]
    return [dict(zip(names, row, strict=True)) for row in tables.rows(sql)]
