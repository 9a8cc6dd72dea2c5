"""The end of what the end of the cluster left open.

A cluster that dies sends nothing: tasks stay RUNNING, actors and nodes ALIVE for ever. Each table's closed form keeps
what was last observed and gives it an end: the session's, with the reason. Here is one select list per table, over its
rows; `{end}` is the session's last moment in nanoseconds.
"""

from __future__ import annotations

REASON = "The cluster was terminated."

_TASK_MESSAGE = f"'{REASON} The task was ' || state || '.'"
_ENDED_TASK = "state in ('FINISHED', 'FAILED')"
_ENDED_JOB = "status in ('SUCCEEDED', 'FAILED', 'STOPPED')"

CLOSED = {
    "tasks": f"""* replace (
        case when {_ENDED_TASK} then state else 'FAILED' end as state,
        case when {_ENDED_TASK} then failed_ns else {{end}} end as failed_ns,
        case when {_ENDED_TASK} then error_type when node_id is null then 'WORKER_DIED' else 'NODE_DIED' end
            as error_type,
        case when {_ENDED_TASK} then error_message else {_TASK_MESSAGE} end as error_message
    )""",
    "task_counts": f"* replace (case when {_ENDED_TASK} then state else 'FAILED' end as state)",
    "actors": f"""* replace (
        'DEAD' as state,
        case when state = 'DEAD' then end_ns else {{end}} end as end_ns,
        case when state = 'DEAD' then exit_detail else '{REASON}' end as exit_detail,
        case when state = 'DEAD' then death_cause else json_object('actor_died_error_context', json_object(
            'error_message', '{REASON}',
            'reason', 'NODE_DIED',
            'node_ip_address', coalesce(ip_address, ''),
            'pid', pid,
            'name', name,
            'ray_namespace', ray_namespace,
            'class_name', class_name,
            'actor_id', actor_id,
            'never_started', start_ns is null
        )) end as death_cause
    )""",
    "nodes": f"""* replace (
        'DEAD' as state,
        case when state = 'DEAD' then state_message else '{REASON}' end as state_message,
        case when state = 'DEAD' then end_ns else {{end}} end as end_ns
    )""",
    "workers": f"""* replace (
        false as is_alive,
        case when is_alive then 'SYSTEM_ERROR' else exit_type end as exit_type,
        case when is_alive then '{REASON}' else exit_detail end as exit_detail,
        case when is_alive then ray_ms({{end}}) else end_time_ms end as end_time_ms
    )""",
    "jobs": f"""* replace (
        case when {_ENDED_JOB} then status else 'FAILED' end as status,
        case
            when {_ENDED_JOB} then message
            when driver_end_ns is not null then '{REASON} Its driver had finished; nobody saw with what result.'
            else '{REASON} The job was ' || status || '.'
        end as message,
        case when {_ENDED_JOB} then end_ms else ray_ms(coalesce(driver_end_ns, {{end}})) end as end_ms
    )""",
    "placement_groups": """* replace (
        'REMOVED' as state,
        case when state = 'REMOVED' then end_ns else {end} end as end_ns
    )""",
    "runtime_envs": "*",
    "cluster_events": "*",
}
