"""The timeline of tasks: `/api/v0/tasks/timeline`, in the Trace Event Format that Perfetto and chrome://tracing read.

A row of the picture is a process of Ray: `pid` stands for its node, `tid` for the process itself, each counted in the
order of task ids; metadata at the end gives them names. Every span is there, where Ray stops after 10,000 tasks: SQL
writes the text of each event, and it is sent as it is made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
from starlette.responses import Response

from ray_history.history.registry import TABLES
from ray_history.history.secrets import may_contain_secret
from ray_history.server.api.filters import EXCLUDE_INTERNAL, conditions, without_internal
from ray_history.server.http.query_params import Filter, boolean
from ray_history.server.http.responses import JSON, streamed_json
from ray_history.server.redaction.rules import redacted
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.routes import FLAG, JOB_ID, OBJECT, VIEW, Parameter, SessionRoute, array_of, json_of

_AT_ONCE = 20_000
"""Events that are made before the first is sent: a slow reader then holds text, not a running query."""

_COLOURS = {
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
_OTHER_COLOUR = "generic_work"

_COLOUR = "case coalesce(extra->>'cname', span.eventName) {cases} else '{other}' end".format(
    cases=" ".join(f"when '{event}' then '{colour}'" for event, colour in _COLOURS.items()), other=_OTHER_COLOUR
)

# What a span carries is JSON that Ray's workers wrote, or anything that a program gave as `extra_data`. An object whose
# numbers JSON knows becomes `args`; everything else is kept as text. DuckDB reads NaN and Infinity, browsers do not.
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

# Times go by milliseconds in floating point, as in Ray: the same digits come out.
_EVENT = f"""to_json({{
    'cat': span.eventName,
    'name': coalesce(extra->>'name', span.eventName),
    'pid': pid,
    'tid': tid,
    'ts': span.startTime / 1e6 * 1e3,
    'dur': span.endTime / 1e6 * 1e3 - span.startTime / 1e6 * 1e3,
    'cname': {_COLOUR},
    'args': case
        when span.extraData = '{{}}' then to_json({_IDS})
        else to_json(map_concat({_EXTRA_ARGS}, to_json({_IDS})::map(varchar, json)))
    end,
    'ph': 'X'
}})::varchar"""

_MAY_TELL_SECRET = f"""(
    (span.extraData <> '{{}}' and {may_contain_secret("span.extraData")})
    or {may_contain_secret("span.eventName")}
    or is_called_so
)"""


def timeline(request: SessionRequest) -> Response:
    """The spans of all tasks, or of one job's, as a trace for Perfetto."""
    job = request.query.get("job_id", "")
    download = boolean(request.query, "download", default=False)
    response = Response(media_type=JSON) if request.http.method == "HEAD" else streamed_json(_parts(request, job))
    if download:
        now = datetime.now(UTC).strftime("%Y-%m-%d_%H-%M-%S")
        name = "-".join(filter(None, ("timeline", re.sub(r"[^\w.-]", "_", job, flags=re.ASCII), now)))
        response.headers["Content-Disposition"] = f'attachment; filename="{name}.json"'
    return response


def _parts(request: SessionRequest, job: str) -> Iterator[str]:
    tables = request.tables
    where, values = conditions(TABLES["tasks"], [Filter("job_id", "=", job)] if job else [])
    tasks = f"""(
        select
            task_id, attempt_number, job_id, func_or_class_name, actor_id, spans,
            coalesce({may_contain_secret("func_or_class_name")}, false) as is_called_so,
            coalesce(node_ip_address, '') as node_ip_address, concat(component_type, ':', component_id) as component
        from {without_internal(request, "tasks", tables.source("tasks", request.view))}
        where component_type in ('worker', 'driver') and type <> 'DRIVER_TASK' and len(spans) > 0
            {f"and {where}" if where else ""}
    )"""
    processes = tables.fetch(
        f"""
        select node_ip_address, component, sum(len(spans)) from {tasks}
        group by all order by min((task_id, attempt_number))
        """,
        values,
    )
    nodes: dict[str, int] = {}
    pids = [nodes.setdefault(node, len(nodes)) for node, _, _ in processes]
    events = f"""
        with process as (
            select
                unnest(?::varchar[]) as node_ip_address,
                unnest(?::varchar[]) as component,
                unnest(?::integer[]) as pid,
                unnest(range(?)) as tid
        )
        select {_EVENT}, {_MAY_TELL_SECRET if request.redact else "false"}
        from (
            select *, {_EXTRA} as extra
            from (
                select * exclude (spans), unnest(spans) as span
                from {tasks} join process using (node_ip_address, component)
            )
        )
    """
    bound: list[Any] = [
        [node for node, _, _ in processes],
        [name for _, name, _ in processes],
        pids,
        len(pids),
        *values,
    ]
    if sum(spans for _, _, spans in processes) <= _AT_ONCE:
        pages = iter([tables.fetch(f"{events} order by task_id, attempt_number", bound)])
    else:
        pages = request.open.stream(events, bound)

    def parts() -> Iterator[str]:
        yield "["
        for page in pages:
            yield ", ".join([_redacted(event) if is_suspect else event for event, is_suspect in page])
            yield ", " if page else ""
        yield ", ".join(_names(nodes, processes, pids))
        yield "]"

    return parts()


def _redacted(event: str) -> str:
    return msgspec.json.encode(redacted(msgspec.json.decode(event))).decode()


def _names(nodes: dict[str, int], processes: list[tuple[Any, ...]], pids: list[int]) -> Iterator[str]:
    """The metadata: every span has a process, so the comma after the last span is followed by one."""
    for node, pid in nodes.items():
        yield _metadata("process_name", f"Node {node}", pid, None)
    for tid, ((_, component, _), pid) in enumerate(zip(processes, pids, strict=True)):
        yield _metadata("thread_name", component, pid, tid)


def _metadata(kind: str, name: str, pid: int, tid: int | None) -> str:
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
