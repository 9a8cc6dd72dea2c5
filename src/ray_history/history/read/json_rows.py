"""Rows as Ray's state API prints them: which columns each listing has, which only with `detail`, and how each is made.

`row(table)` is SQL that makes one JSON object of a row: DuckDB writes the text, no Python object is made per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ray_history.history.sql import text

_EVENTS = {
    "PENDING_ARGS_AVAIL": "pending_args_avail_ns",
    "PENDING_NODE_ASSIGNMENT": "pending_node_assignment_ns",
    "PENDING_OBJ_STORE_MEM_AVAIL": "pending_obj_store_mem_avail_ns",
    "PENDING_ARGS_FETCH": "pending_args_fetch_ns",
    "SUBMITTED_TO_WORKER": "submitted_to_worker_ns",
    "PENDING_ACTOR_TASK_ARGS_FETCH": "pending_actor_task_args_fetch_ns",
    "PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY": "pending_actor_task_ordering_ns",
    "RUNNING": "running_ns",
    "RUNNING_IN_RAY_GET": "running_in_ray_get_ns",
    "RUNNING_IN_RAY_WAIT": "running_in_ray_wait_ns",
    "FINISHED": "finished_ns",
    "FAILED": "failed_ns",
    "GETTING_AND_PINNING_ARGS": "getting_and_pinning_args_ns",
}
"""In the order in which Ray numbers the states."""


_PROFILE = """
    'component_type': component_type,
    'component_id': component_id,
    'node_ip_address': node_ip_address,
    'events': [
        {'start_time': span.startTime / 1e6, 'end_time': span.endTime / 1e6,
         'extra_data': case
            when span.extraData = '{}' then '{}'::json
            else coalesce(try_cast(span.extraData as json), to_json(span.extraData))
         end,
         'event_name': span.eventName}
        for span in spans
    ]
"""


LOG = ("stdout_file", "stderr_file", "stdout_start", "stdout_end", "stderr_start", "stderr_end")


def _ms(ns: str) -> str:
    return f"ray_ms({ns})::double"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a listing."""

    name: str
    value: str
    """SQL over the table's own columns."""
    detail: bool = False
    """Only printed with `detail=1`."""


def _columns(plain: str, **made: str) -> list[Column]:
    return [Column(name, made.get(name, name)) for name in plain.split()]


def _details(plain: str, **made: str) -> list[Column]:
    return [Column(name, made.get(name, name), detail=True) for name in plain.split()]


COLUMNS: dict[str, list[Column]] = {
    "tasks": [
        *_columns(
            "task_id attempt_number name state job_id actor_id type func_or_class_name parent_task_id node_id "
            "worker_id worker_pid error_type",
            parent_task_id="coalesce(parent_task_id, repeat('ff', 24))",
        ),
        *_details(
            "language required_resources runtime_env_info placement_group_id events profiling_data creation_time_ms "
            "start_time_ms end_time_ms task_log_info error_message is_debugger_paused call_site label_selector "
            "fallback_strategy",
            required_resources="coalesce(required_resources, '{}')::json",
            runtime_env_info="""case
                when type = 'DRIVER_TASK' then to_json({'serialized_runtime_env': coalesce(runtime_env, '')})
                when regexp_matches(runtime_env, '"(working_dir|py_modules|config)"') then json_merge_patch(
                    json_object('serialized_runtime_env', coalesce(runtime_env, '')),
                    runtime_env_extras(runtime_env)
                )
                else to_json({
                    'serialized_runtime_env': coalesce(runtime_env, ''),
                    'runtime_env_config':
                        {'setup_timeout_seconds': 600, 'eager_install': true, 'log_files': []::varchar[]}
                })
            end""",
            events="list_filter(["
            + ", ".join(f"{{'state': '{state}', 'created_ms': {_ms(ns)}}}" for state, ns in _EVENTS.items())
            + "], lambda event: event.created_ms is not null)",
            profiling_data=f"case when component_type is null then '{{}}'::json else to_json({{{_PROFILE}}}) end",
            creation_time_ms=_ms("pending_args_avail_ns"),
            start_time_ms=_ms("running_ns"),
            end_time_ms=_ms("coalesce(failed_ns, finished_ns)"),
            task_log_info=f"""case
                when {" and ".join(f"{name} is not null" for name in LOG)} then to_json({{
                    {", ".join(f"'{name}': {name}" for name in LOG)}
                }})
                when coalesce(stdout_file, stderr_file) is not null or coalesce(stdout_end, stderr_end) is not null
                    then json_merge_patch('{{}}', json_object({", ".join(f"'{name}', {name}" for name in LOG)}))
            end""",
            label_selector="coalesce(label_selector, '{}')::json",
            fallback_strategy="""case
                when fallback_strategy is not null then fallback_strategy::json
                when type <> 'DRIVER_TASK' then '{"options": []}'::json
            end""",
        ),
    ],
    "actors": [
        *_columns("actor_id class_name state job_id name node_id pid ray_namespace"),
        *_details(
            "serialized_runtime_env required_resources death_cause is_detached placement_group_id repr_name "
            "num_restarts num_restarts_due_to_lineage_reconstruction num_restarts_due_to_node_preemption call_site "
            "label_selector fallback_strategy",
            num_restarts="num_restarts::varchar",
            num_restarts_due_to_lineage_reconstruction="num_restarts_due_to_lineage_reconstruction::varchar",
            num_restarts_due_to_node_preemption="num_restarts_due_to_node_preemption::varchar",
        ),
    ],
    "nodes": [
        *_columns("node_id node_ip is_head_node state state_message node_name resources_total labels"),
        *_details(
            "start_time_ms end_time_ms",
            start_time_ms="start_ns // 1000000",
            end_time_ms="coalesce(end_ns // 1000000, 0)",
        ),
    ],
    "workers": [
        *_columns("worker_id is_alive worker_type exit_type node_id ip pid"),
        *_details(
            "exit_detail worker_launch_time_ms worker_launched_time_ms start_time_ms end_time_ms debugger_port "
            "num_paused_threads",
            start_time_ms="coalesce(start_time_ms, 0)",
            end_time_ms="coalesce(end_time_ms, 0)",
        ),
    ],
    "jobs": [
        *_columns(
            "job_id submission_id entrypoint type status message error_type driver_info",
            driver_info="""case when job_id is not null then {
                'id': job_id, 'node_ip_address': driver_ip, 'pid': driver_pid
            } end""",
        ),
        *_details(
            "start_time end_time metadata runtime_env driver_agent_http_address driver_node_id driver_exit_code",
            start_time="start_ms",
            end_time="end_ms",
        ),
    ],
    "placement_groups": [
        *_columns("placement_group_id name creator_job_id state"),
        *_details("bundles is_detached stats topology_strategy topology_assignments"),
    ],
    "runtime_envs": [
        *_columns(
            "runtime_env success creation_time_ms node_id",
            creation_time_ms="try_cast(creation_time_ms as bigint)::varchar",
        ),
        *_details("ref_cnt error"),
    ],
    "cluster_events": [
        *_columns(
            "severity time source_type message event_id",
            time="strftime(make_timestamp_ns(event_ns), '%Y-%m-%d %H:%M:%S')",
        ),
        *_details("custom_fields"),
    ],
}


_TOLD_ENVIRONMENT = "coalesce(runtime_env, '')"

SECRETS = {
    ("tasks", "runtime_env_info"): _TOLD_ENVIRONMENT,
    ("actors", "serialized_runtime_env"): "serialized_runtime_env",
    ("jobs", "runtime_env"): "runtime_env",
    ("runtime_envs", "runtime_env"): "runtime_env",
}
"""Which part of which column's value is a runtime environment."""


_TEXTS = {
    "events": "concat('[', concat_ws(',', "
    + ", ".join(f"""'{{"state":"{state}","created_ms":' || ray_ms({ns}) || '.0}}'""" for state, ns in _EVENTS.items())
    + "), ']')",
    "required_resources": "coalesce(required_resources, '{}')",
    "label_selector": "coalesce(label_selector, '{}')",
    "fallback_strategy": """coalesce(fallback_strategy, case when type <> 'DRIVER_TASK' then '{"options":[]}' end)""",
}
"""Values of tasks as text, made in two thirds of the time: what building wrote as JSON need not be read again."""
_WRITTEN = ("runtime_env_info", "profiling_data", "task_log_info", *_TEXTS)
"""Values of tasks that are JSON as it shall stand."""


def row(
    table: str,
    *,
    detail: bool,
    redact: bool = False,
    few: bool = False,
    environments: Sequence[tuple[str, str, str]] = (),
) -> str:
    """SQL: a row as JSON text; with `redact` the values of environment variables are hidden. Of `few` rows the texts
    are the same: they take longer to make, but less to plan. `environments`, all rows of `shown_environments`, save
    making the same text for each task again, and planning how it is made."""
    values = {
        column.name: _redacted(table, column) if redact else column.value
        for column in COLUMNS[table]
        if detail or not column.detail
    }
    if environments and redact and "runtime_env_info" in values:
        of_tasks, of_drivers = (
            ", ".join(f"{text(each[0])}: {text(each[which])}" for each in environments) for which in (1, 2)
        )
        values["runtime_env_info"] = f"""(case
            when type = 'DRIVER_TASK' then map {{{of_drivers}}}[{_TOLD_ENVIRONMENT}]
            else map {{{of_tasks}}}[{_TOLD_ENVIRONMENT}]
        end){"::json" if few else ""}"""
    if table != "tasks" or not detail or few:
        return "to_json({" + ", ".join(f"'{name}': {value}" for name, value in values.items()) + "})::varchar"
    # One struct of all would read what is JSON already, and write it again: that takes a fifth longer.
    values |= _TEXTS
    texts = {name: value if name in _WRITTEN else f"to_json({value})" for name, value in values.items()}
    fields = [f"""'"{name}":', coalesce(({value})::varchar, 'null')""" for name, value in texts.items()]
    return "concat('{', " + ", ',', ".join(fields) + ", '}')"


def shown_environments(tasks: str, most: int) -> str:
    """SQL: each runtime environment of tasks, and the text that rows made with `redact` show for it, those of tasks and
    those of drivers; one more than `most` at most."""
    (info,) = (column for column in COLUMNS["tasks"] if column.name == "runtime_env_info")
    shown = f"({_redacted('tasks', info)})::varchar"
    told = f"""(
        select '' as runtime_env
        union
        select distinct {_TOLD_ENVIRONMENT} from {tasks}
    )"""
    return f"""
        select runtime_env, max({shown}) filter (type <> 'DRIVER_TASK'), max({shown}) filter (type = 'DRIVER_TASK')
        from {told}, (select unnest(['NORMAL_TASK', 'DRIVER_TASK']) as type)
        group by runtime_env
        limit {most + 1}
        """


def _redacted(table: str, column: Column) -> str:
    secret = SECRETS.get((table, column.name))
    if not secret:
        return column.value
    shown = f"redacted({secret}::varchar)"
    return column.value.replace(secret, shown if table in ("tasks", "actors") else f"{shown}::json")


_NAME = r"[\w.\x{80}-\x{10ffff}-]*"
_SENSITIVE = (
    "(?:auth|bearer|cookie|credential|jwt|pass(?:phrase|wo?r?d)|pwd|secret|token|x-[a-z]+-signature|(?-i:_KEY)|"
    "(?:anthropic|api|access|account|encryption|hmac|license|master|openai|private|service|shared|signing|ssh|storage)"
    rf"[-_.]?key){_NAME}|(?-i:(?:[cC]reds?|CREDS?|[pP]ass|PASS|[sS]ig|SIG)(?:[^a-z:=]{_NAME})?)"
)
"""The last are words of their own: `passed` and `signal` are none of them."""
_TOLD_SECRET = text(
    rf"(?i)env_?vars|://[^/\s]*@|(?:{_SENSITIVE})[^\w:=]*[:=]|-{_NAME}(?:{_SENSITIVE})[ \t]"
    "|[?&](?:x-[a-z]+-)?sig(?:nature)?="
)
"""What free text holds if it tells a secret: something named like one, and its value. Many name one and tell none
(`tokenize.remote(batch)`, `KeyError: 7`), and looking through a row takes longer than making it."""


_BESIDE_VARIABLES = "may_hold_secret(beside_variables(coalesce(runtime_env, '')))"


def may_hold_secret(table: str, *, detail: bool, clean: bool = False) -> str:
    """SQL: whether a row made with `redact` may still hold a secret in its free text; worth asking for tasks only.
    They are `clean` if `repeated_secrets` are none."""
    if table != "tasks":
        return "true"
    if not detail:
        return f"regexp_matches(name, {_TOLD_SECRET})"
    repeated = f"""
        or regexp_matches(concat_ws(' ', name, call_site), {_TOLD_SECRET})
        or {_BESIDE_VARIABLES}
    """
    # One pattern for both: getting it ready takes as long as making a hundred rows.
    carried = "[span.extraData for span in spans if span.extraData <> '{}']"
    return f"""
        regexp_matches(concat_ws(chr(10), error_message, array_to_string({carried}, chr(10))), {_TOLD_SECRET})
        {"" if clean else repeated}
    """


def tells_secret(words: str) -> str:
    """SQL: whether a text may tell a secret."""
    return f"regexp_matches({words}, {_TOLD_SECRET})"


def repeated_secrets(tasks: str, names: str) -> str:
    """SQL: whether a secret may be told by what many tasks have in common: their names, where they were called, their
    runtime environments. Looked at once, it need not be looked at in each row."""
    # Not by a condition: DuckDB would look at each row, before it tells which differ.
    of_calls = f"coalesce(bool_or({tells_secret('call_site')} or {_BESIDE_VARIABLES}), false)"
    return f"""
        select
            (select {of_calls} from (select distinct call_site, runtime_env from {tasks}))
            or (select coalesce(bool_or({tells_secret("name")}), false) from (select distinct name from {names}))
        """
