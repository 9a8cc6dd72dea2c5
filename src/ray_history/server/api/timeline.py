"""The timeline of tasks: `/api/v0/tasks/timeline`, in the Trace Event Format that Perfetto and chrome://tracing read.

A row of the trace is a process of Ray: `pid` stands for its node and `tid` for the process, both numbered in the order
of task ids; metadata at the end holds their names. All spans are included, while Ray stops after 10,000 tasks: SQL
writes the text of each event, which is sent as it is made.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from ray_history.history.registry import TABLES
from ray_history.history.secrets import may_contain_secret
from ray_history.server.api.filters import EXCLUDE_INTERNAL, conditions, without_internal
from ray_history.server.completeness.sources import unknown
from ray_history.server.http.query_params import Filter, boolean
from ray_history.server.http.responses import JSON, note_value, streamed_json
from ray_history.server.redaction.rules import redacted
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.routes import FLAG, JOB_ID, OBJECT, VIEW, Parameter, SessionRoute, array_of, json_of

BUFFERED_MAX = 20_000
"""Up to this many events are made before the first is sent: slow clients then hold text and not a running query."""

_COLORS = {
    "worker_idle": "cq_build_abandoned",
    "task": "rail_response",
    "task:deserialize_arguments": "rail_load",
    "task:execute": "rail_animation",
    "task:store_outputs": "rail_idle",
    "wait_for_function": "detailed_memory_dump",
    "ray.get": "good",
    "ray.put": "terrible",
    "ray.wait": "vsync_highlight_color",
    "submit_task": "background_memory_dump",
    "fetch_and_run_function": "detailed_memory_dump",
    "register_remote_function": "detailed_memory_dump",
}
_OTHER_COLOR = "generic_work"

_COLOR = "case coalesce(extra->>'cname', span.eventName) {cases} else '{other}' end".format(
    cases=" ".join(f"when '{event}' then '{color}'" for event, color in _COLORS.items()), other=_OTHER_COLOR
)

# Spans carry JSON that Ray's workers wrote, or anything that a program set as `extra_data`. An object whose numbers are
# valid JSON becomes `args`, everything else stays text. DuckDB also reads NaN and Infinity, which browsers do not.
_EXTRA = r"""case
    when span.extraData <> '{}'
        and not regexp_matches(regexp_replace(span.extraData, '"(\\.|[^"\\])*"', '', 'g'), '(?i)nan|inf')
        then try_cast(span.extraData as json)
end"""
_EXTRA_ARGS = """case
    when json_type(extra) = 'OBJECT' and try_cast(extra as map(varchar, json)) is not null
        then try_cast(extra as map(varchar, json))
    when span.extraData not in ('', '{}') then map {'extra_data': to_json(span.extraData)}
    else map {}
end"""
_IDS = """{
    'task_id': task_id,
    'job_id': job_id,
    'attempt_number': attempt_number,
    'func_or_class_name': func_or_class_name,
    'actor_id': actor_id
}"""

# Computed in floating-point milliseconds, to print the same digits as Ray.
_EVENT = f"""to_json({{
    'cat': span.eventName,
    'name': coalesce(extra->>'name', span.eventName),
    'pid': pid,
    'tid': tid,
    'ts': span.startTime / 1e6 * 1e3,
    'dur': span.endTime / 1e6 * 1e3 - span.startTime / 1e6 * 1e3,
    'cname': {_COLOR},
    'args': case
        when span.extraData = '{{}}' then to_json({_IDS})
        else to_json(map_concat({_EXTRA_ARGS}, to_json({_IDS})::map(varchar, json)))
    end,
    'ph': 'X'
}})::varchar"""

_MAY_CONTAIN_SECRET = f"""(
    (span.extraData <> '{{}}' and {may_contain_secret("span.extraData")})
    or {may_contain_secret("span.eventName")}
    or has_suspect_name
)"""


class Process(NamedTuple):
    """A process of Ray, and the number of its spans."""

    node: str
    component: str
    spans: int


def timeline(request: SessionRequest) -> Response:
    """The spans of all tasks, or of one job, as a trace for Perfetto."""
    job_id = request.query.get("job_id", "")
    download = boolean(request.query, "download", default=False)
    response = Response(media_type=JSON) if request.http.method == "HEAD" else streamed_json(trace(request, job_id))
    if note := unknown(request).get("timeline"):
        response.headers["X-Ray-History-Note"] = note_value(note)
    if download:
        now = datetime.now(UTC).strftime("%Y-%m-%d_%H-%M-%S")
        name = "-".join(filter(None, ("timeline", re.sub(r"[^\w.-]", "_", job_id, flags=re.ASCII), now)))
        response.headers["Content-Disposition"] = f'attachment; filename="{name}.json"'
    return response


def trace(request: SessionRequest, job_id: str) -> Iterator[str]:
    """The JSON text of a trace. Runs its first queries at once, so that their errors become an error status."""
    where, values = conditions(TABLES["tasks"], [Filter("job_id", "=", job_id)] if job_id else [])
    tasks = _tasks(request, where)
    processes = _processes(request, tasks, values)
    numbers: dict[str, int] = {}
    pids = [numbers.setdefault(process.node, len(numbers)) for process in processes]
    events = _events(tasks, redact=request.redact)
    parameters = [
        [process.node for process in processes],
        [process.component for process in processes],
        pids,
        len(pids),
        *values,
    ]
    if sum(process.spans for process in processes) <= BUFFERED_MAX:
        pages = iter([request.tables.fetch(f"{events} order by task_id, attempt_number", parameters)])
    else:
        pages = request.open.stream(events, parameters)
    return _parts(pages, _metadata(numbers, processes, pids))


def _tasks(request: SessionRequest, where: str) -> str:
    """SQL: the tasks with spans."""
    return f"""(
        select
            task_id, attempt_number, job_id, func_or_class_name, actor_id, spans,
            coalesce({may_contain_secret("func_or_class_name")}, false) as has_suspect_name,
            coalesce(node_ip_address, '') as node_ip_address, concat(component_type, ':', component_id) as component
        from {without_internal(request, "tasks", request.tables.source("tasks", request.view))}
        where component_type in ('worker', 'driver') and type <> 'DRIVER_TASK' and len(spans) > 0
            {f"and {where}" if where else ""}
    )"""


def _processes(request: SessionRequest, tasks: str, values: list[object]) -> list[Process]:
    rows = request.tables.fetch(
        f"""
        select node_ip_address, component, sum(len(spans)) from {tasks}
        group by all order by min((task_id, attempt_number))
        """,
        values,
    )
    return [Process(*row) for row in rows]


def _events(tasks: str, *, redact: bool) -> str:
    """SQL: the JSON text of each span, and whether to search it for secrets. Takes the processes as parameters."""
    return f"""
        with process as (
            select
                unnest(?::varchar[]) as node_ip_address,
                unnest(?::varchar[]) as component,
                unnest(?::integer[]) as pid,
                unnest(range(?)) as tid
        )
        select {_EVENT}, {_MAY_CONTAIN_SECRET if redact else "false"}
        from (
            select *, {_EXTRA} as extra
            from (
                select * exclude (spans), unnest(spans) as span
                from {tasks} join process using (node_ip_address, component)
            )
        )
    """


def _parts(pages: Iterator[list[tuple[Any, ...]]], metadata: Iterable[str]) -> Iterator[str]:
    yield "["
    for page in pages:
        yield ", ".join([_redacted(event) if is_suspect else event for event, is_suspect in page])
        yield ", " if page else ""
    # Every span has a process, so metadata always follows the comma after the last span.
    yield ", ".join(metadata)
    yield "]"


def _redacted(event: str) -> str:
    return msgspec.json.encode(redacted(msgspec.json.decode(event))).decode()


def _metadata(numbers: dict[str, int], processes: list[Process], pids: list[int]) -> Iterator[str]:
    """The names of nodes and processes."""
    for node, pid in numbers.items():
        yield _metadata_event("process_name", f"Node {node}", pid, None)
    for tid, (process, pid) in enumerate(zip(processes, pids, strict=True)):
        yield _metadata_event("thread_name", process.component, pid, tid)


def _metadata_event(kind: str, name: str, pid: int, tid: int | None) -> str:
    event = {"name": kind, "args": {"name": name}, "pid": pid, "tid": tid, "ph": "M"}
    return msgspec.json.encode(event).decode()


routes = [
    SessionRoute(
        "/api/v0/tasks/timeline",
        timeline,
        parameters=(*VIEW, JOB_ID, Parameter("download", FLAG, "Send as an attachment."), EXCLUDE_INTERNAL),
        content=json_of(array_of(OBJECT)),
        forwarded=True,
    )
]
