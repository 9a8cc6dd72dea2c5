"""The tables of a session, each declared once.

Everything that lists tables reads it from here:

* `history.build` makes `TABLES` from the files `sql/<name>.sql`;
* `history.read` writes rows as JSON (`columns`), closes them (`closed_form`), adds rows to them (`has_mentioned_rows`);
* `index.documents` collects the log lines that tables are made from (`log_lines`);
* `server.api` takes from `TABLES` the listings `/api/v0/<name>` (`key`, `filters`, `sort_keys` …), their parameters and
  shapes in `openapi.json`, and the paths that it passes on to the head of a live cluster (`path`);
* `server.ui` puts each table into a download;
* `server.completeness` reports a table without any of its `sources` (`without_sources`);
* `collector.polling` must poll each of the `polled` paths, which a test checks.

A new table is one entry here, one file of SQL, and one row in docs/tables.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from .precedence import Precedence

CLUSTER_TERMINATED = "The cluster was terminated."
"""Why something ended that was still open when its cluster ended."""

EVENT_FILES, LOG_FILES, EXPORT_FILES = "event files", "log files", "export files"
"""Kinds of files that tables are made from."""


Version: TypeAlias = tuple[int, int]


def minor_version(version: object) -> Version | None:
    """The major and minor version of Ray; None if the text is not a version."""
    found = re.match(r"(\d+)\.(\d+)", str(version))
    return (int(found[1]), int(found[2])) if found else None


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a listing of Ray's state API."""

    name: str
    value: str
    """SQL over the table's own columns."""
    detail: bool = False
    """Whether it is part of the answer only with `detail=1`."""
    since: Version = (0, 0)
    """The first minor version of Ray that has it."""
    until: Version | None = None
    """The first one that no longer has it."""

    def is_in(self, version: Version | None) -> bool:
        """Whether this version of Ray has it. An unknown version counts as the newest."""
        if version is None:
            return self.until is None
        return self.since <= version and (self.until is None or version < self.until)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The declaration of one table."""

    name: str
    columns: tuple[Column, ...]
    """The columns of its listing, in Ray's order."""
    key: str
    """The column that rows are sorted by."""
    tie_breakers: str = ""
    """SQL: what rows with the same key are sorted by, so that pages do not differ by chance."""
    default_order: str = ""
    """SQL: the order of Ray's listing, if it is not by key."""
    sort_keys: Mapping[str, str] = field(default_factory=dict)
    """What else rows can be sorted by, as SQL."""
    filters: Mapping[str, type[str] | type[int] | type[bool]]
    """Columns that can be filtered by, with their types."""
    source_filters: tuple[str, ...] = ()
    """Filters that Ray applies at the source of the rows: `total` counts only rows that match them."""
    runtime_envs: Mapping[str, str] = field(default_factory=dict)
    """Columns that hold a runtime environment, and the part of their SQL that is it: its variables are redacted."""
    json_texts: Mapping[str, str] = field(default_factory=dict)
    """SQL that makes the JSON text of a column faster than DuckDB makes it from the value."""
    json_columns: tuple[str, ...] = ()
    """Columns whose values are JSON as it is printed."""
    closed_form: str = "*"
    """SQL: the select list over the table's rows that ends what is still open; `{end}` is the session's last moment in
    nanoseconds. A cluster that dies sends nothing: its tasks stay RUNNING, its actors and nodes ALIVE."""
    has_mentioned_rows: bool = False
    """Whether tasks and actors mention rows that no other source has: `sql/mentioned_<name>.sql` adds them."""
    sources: tuple[str, ...]
    """Event types, polled paths and kinds of files; one of them is enough to know the table."""
    without_sources: str
    """The warning when a session has none of them."""
    precedence: Precedence | None = None
    """Which source each column is taken from, if several have it."""
    log_lines: Mapping[str, str] = field(default_factory=dict)
    """Log files whose lines it is made from: the `source` of their documents, and a pattern of file names."""

    @property
    def path(self) -> str:
        """The path of its listing in Ray's state API."""
        return f"/api/v0/{self.name}"

    @property
    def polled(self) -> tuple[str, ...]:
        """Paths of the dashboard that it is made from."""
        return tuple(source for source in self.sources if source.startswith("/"))

    @property
    def has_internal_rows(self) -> bool:
        """Whether some rows belong to Ray itself, which `exclude_internal` leaves out."""
        return "is_internal" in self.filters

    @property
    def sortable(self) -> dict[str, str]:
        """What rows can be sorted by, as SQL."""
        return {name: name for name in (*sorted(self.filters), self.key)} | dict(self.sort_keys)


def _columns(names: str, **values: str) -> tuple[Column, ...]:
    return tuple(Column(name, values.get(name, name)) for name in names.split())


def _details(names: str, since: Version = (0, 0), until: Version | None = None, **values: str) -> tuple[Column, ...]:
    return tuple(Column(name, values.get(name, name), detail=True, since=since, until=until) for name in names.split())


def _filters(*, text: str, numbers: str = "", flags: str = "") -> dict[str, type[str] | type[int] | type[bool]]:
    return dict.fromkeys(text.split(), str) | dict.fromkeys(numbers.split(), int) | dict.fromkeys(flags.split(), bool)


def _ms(ns: str) -> str:
    return f"ray_ms({ns})::double"


# Tasks ----------------------------------------------------------------------------------------------------------------

TASK_STATES = {
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
"""States of a task, in the order of Ray's numbers, and the columns with the time at which each was entered."""

TASK_LOG = ("stdout_file", "stderr_file", "stdout_start", "stdout_end", "stderr_start", "stderr_end")
"""Columns with the position of a task's output."""

TASK_ENV = "coalesce(runtime_env, '')"
"""SQL: the runtime environment of a task, as its row shows it."""

_LOG_PAIRS = ", ".join(f"'{name}', {name}" for name in TASK_LOG)

_FALLBACK_STRATEGY = (2, 55)
_LABEL_DOMAINS, _TOPOLOGIES = (2, 56), (2, 57)
"""Versions of Ray with new columns. Topologies replaced label domains."""

_ENDED_TASK = "state in ('FINISHED', 'FAILED')"

_TASKS = Table(
    name="tasks",
    columns=(
        *_columns(
            "task_id attempt_number name state job_id actor_id type func_or_class_name parent_task_id node_id "
            "worker_id worker_pid error_type",
            parent_task_id="coalesce(parent_task_id, repeat('ff', 24))",
        ),
        *_details(
            "language required_resources runtime_env_info placement_group_id events profiling_data creation_time_ms "
            "start_time_ms end_time_ms task_log_info error_message is_debugger_paused call_site label_selector",
            required_resources="coalesce(required_resources, '{}')::json",
            runtime_env_info=f"""case
                when type = 'DRIVER_TASK' then to_json({{'serialized_runtime_env': {TASK_ENV}}})
                when regexp_matches(runtime_env, '"(working_dir|py_modules|config)"') then json_merge_patch(
                    json_object('serialized_runtime_env', {TASK_ENV}),
                    runtime_env_extras(runtime_env)
                )
                else to_json({{
                    'serialized_runtime_env': {TASK_ENV},
                    'runtime_env_config':
                        {{'setup_timeout_seconds': 600, 'eager_install': true, 'log_files': []::varchar[]}}
                }})
            end""",
            events="list_filter(["
            + ", ".join(f"{{'state': '{state}', 'created_ms': {_ms(ns)}}}" for state, ns in TASK_STATES.items())
            + "], lambda event: event.created_ms is not null)",
            profiling_data="""case when component_type is null then '{}'::json else to_json({
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
            }) end""",
            creation_time_ms=_ms("pending_args_avail_ns"),
            start_time_ms=_ms("running_ns"),
            end_time_ms=_ms("coalesce(failed_ns, finished_ns)"),
            task_log_info=f"""case
                when {" and ".join(f"{name} is not null" for name in TASK_LOG)} then to_json({{
                    {", ".join(f"'{name}': {name}" for name in TASK_LOG)}
                }})
                when coalesce(stdout_file, stderr_file) is not null or coalesce(stdout_end, stderr_end) is not null
                    then json_merge_patch('{{}}', json_object({_LOG_PAIRS}))
            end""",
            label_selector="coalesce(label_selector, '{}')::json",
        ),
        *_details(
            "fallback_strategy",
            since=_FALLBACK_STRATEGY,
            fallback_strategy="""case
                when fallback_strategy is not null then fallback_strategy::json
                when type <> 'DRIVER_TASK' then '{"options": []}'::json
            end""",
        ),
    ),
    key="task_id",
    tie_breakers=", attempt_number",
    sort_keys={
        "creation_time_ms": "pending_args_avail_ns",
        "start_time_ms": "running_ns",
        "end_time_ms": "coalesce(failed_ns, finished_ns)",
        "duration": "coalesce(failed_ns, finished_ns) - running_ns",
    },
    filters=_filters(
        text="actor_id error_type func_or_class_name job_id language name node_id parent_task_id placement_group_id "
        "state task_id type worker_id",
        numbers="attempt_number worker_pid",
        flags="is_debugger_paused is_internal",
    ),
    source_filters=("task_id", "job_id", "actor_id", "name", "state"),
    runtime_envs={"runtime_env_info": TASK_ENV},
    json_texts={
        "events": "concat('[', concat_ws(',', "
        + ", ".join(
            f"""'{{"state":"{state}","created_ms":' || ray_ms({ns}) || '.0}}'""" for state, ns in TASK_STATES.items()
        )
        + "), ']')",
        "required_resources": "coalesce(required_resources, '{}')",
        "label_selector": "coalesce(label_selector, '{}')",
        "fallback_strategy": "coalesce(fallback_strategy, "
        """case when type <> 'DRIVER_TASK' then '{"options":[]}' end)""",
    },
    json_columns=("runtime_env_info", "profiling_data", "task_log_info"),
    closed_form=f"""* replace (
        case when {_ENDED_TASK} then state else 'FAILED' end as state,
        case when {_ENDED_TASK} then failed_ns else {{end}} end as failed_ns,
        case when {_ENDED_TASK} then error_type when node_id is null then 'WORKER_DIED' else 'NODE_DIED' end
            as error_type,
        case when {_ENDED_TASK} then error_message else '{CLUSTER_TERMINATED} The task was ' || state || '.' end
            as error_message
    )""",
    sources=(EVENT_FILES,),
    without_sources="Tasks and actors are unknown: no event files were stored.",
    precedence=Precedence(
        sources={
            "event": "TASK_DEFINITION, ACTOR_TASK_DEFINITION, TASK_LIFECYCLE, TASK_PROFILE events",
            "polled": "polled `/api/v0/tasks?detail=1`",
        },
        columns={
            "event polled": "type name func_or_class_name language job_id parent_task_id actor_id placement_group_id "
            "required_resources runtime_env call_site label_selector fallback_strategy "
            f"{' '.join(TASK_STATES.values())} error debugger node_id worker_id worker_pid {' '.join(TASK_LOG)} "
            "component_type component_id node_ip_address spans",
            "event": "actor_repr_name",
        },
        # Ray marks tasks as failed at the end of their job whose own end arrives in an event later.
        together={"has_ended": "finished_ns failed_ns error"},
        longest=("spans",),  # Ray up to 2.53 does not send all as events
    ),
)

TASK_COUNTS_CLOSED_FORM = f"* replace (case when {_ENDED_TASK} then state else 'FAILED' end as state)"
"""The closed form of the counts of tasks by name and state, `sql/task_counts.sql`."""

# Small tables: queries over rare events and documents, made again for every moment ------------------------------------

_ACTORS = Table(
    name="actors",
    columns=(
        *_columns("actor_id class_name state job_id name node_id pid ray_namespace"),
        *_details(
            "serialized_runtime_env required_resources death_cause is_detached placement_group_id repr_name "
            "num_restarts num_restarts_due_to_lineage_reconstruction num_restarts_due_to_node_preemption call_site "
            "label_selector",
            num_restarts="num_restarts::varchar",
            num_restarts_due_to_lineage_reconstruction="num_restarts_due_to_lineage_reconstruction::varchar",
            num_restarts_due_to_node_preemption="num_restarts_due_to_node_preemption::varchar",
        ),
        *_details("fallback_strategy", since=_FALLBACK_STRATEGY),
    ),
    key="actor_id",
    sort_keys={"start_time_ms": "start_ns", "end_time_ms": "end_ns", "duration": "end_ns - start_ns"},
    filters=_filters(
        text="actor_id class_name job_id name node_id placement_group_id ray_namespace repr_name state",
        numbers="pid",
        flags="is_internal",
    ),
    runtime_envs={"serialized_runtime_env": "serialized_runtime_env"},
    closed_form=f"""* replace (
        'DEAD' as state,
        case when state = 'DEAD' then end_ns else {{end}} end as end_ns,
        case when state = 'DEAD' then exit_detail else '{CLUSTER_TERMINATED}' end as exit_detail,
        case when state = 'DEAD' then death_cause else json_object('actor_died_error_context', json_object(
            'error_message', '{CLUSTER_TERMINATED}',
            'reason', 'NODE_DIED',
            'node_ip_address', coalesce(ip_address, ''),
            'pid', pid,
            'name', name,
            'ray_namespace', ray_namespace,
            'class_name', class_name,
            'actor_id', actor_id,
            'never_started', start_ns is null and coalesce(pid, 0) = 0
        )) end as death_cause
    )""",
    sources=(EVENT_FILES, "/api/v0/actors", "/logical/actors", "/nodes/{}"),
    without_sources="Actors are unknown: no event files were stored, and no pages with actors were polled.",
    precedence=Precedence(
        sources={
            "event": "ACTOR_DEFINITION, ACTOR_LIFECYCLE events",
            "listed": "polled `/api/v0/actors`",
            "page": "polled `/logical/actors`, `/nodes/{id}`, the newer one",
            "created": "the task that created the actor",
        },
        columns={
            "event page listed created": "state node_id pid exit_detail",
            "event page created": "worker_id port ip start_ns end_ns changed_ns",
            "event listed page created": "class_name job_id name placement_group_id call_site required_resources "
            "label_selector num_restarts",
            "event listed page": "repr_name",
            "event listed created": "serialized_runtime_env fallback_strategy",
            "event listed": "ray_namespace is_detached num_restarts_due_to_lineage_reconstruction "
            "num_restarts_due_to_node_preemption death_cause",
        },
        together={"started": "state node_id pid worker_id port ip"},
    ),
)

_ENDED_JOB = "status in ('SUCCEEDED', 'FAILED', 'STOPPED')"

# Ray shows a job that is only a driver as SUCCEEDED however it ended.
_FINISHED_DRIVER = "type = 'DRIVER' and driver_end_ns is not null"

_JOBS = Table(
    name="jobs",
    columns=(
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
    ),
    key="job_id",
    tie_breakers=", submission_id",
    default_order="job_id nulls first",
    sort_keys={"start_time": "start_ms", "end_time": "end_ms", "duration": "end_ms - start_ms"},
    filters=_filters(text="job_id status submission_id type", flags="is_internal"),
    runtime_envs={"runtime_env": "runtime_env"},
    closed_form=f"""* replace (
        case
            when {_ENDED_JOB} then status
            when {_FINISHED_DRIVER} then 'SUCCEEDED'
            else 'FAILED'
        end as status,
        case
            when {_ENDED_JOB} or {_FINISHED_DRIVER} then message
            when driver_end_ns is not null
                then '{CLUSTER_TERMINATED} Its driver had finished, with an unknown result.'
            else '{CLUSTER_TERMINATED} The job was ' || status || '.'
        end as message,
        case when {_ENDED_JOB} then end_ms else ray_ms(coalesce(driver_end_ns, {{end}})) end as end_ms
    )""",
    sources=("SUBMISSION_JOB_DEFINITION_EVENT", "SUBMISSION_JOB_LIFECYCLE_EVENT", EXPORT_FILES, "/api/jobs/"),
    without_sources="Submitted jobs are known from drivers and logs alone: Ray wrote no export files, and /api/jobs/ "
    "was not polled.",
    precedence=Precedence(
        sources={
            "submission": "the most advanced of SUBMISSION_JOB events (not sent by any Ray version yet), "
            "`export_events/event_EXPORT_SUBMISSION_JOB.log`, polled `/api/jobs/` and `events/event_JOBS.log`",
            "last_driver": "DRIVER_JOB events, or polled `/api/jobs/` where none arrived",
            "polled_driver": "polled `/api/jobs/`",
        },
        columns={
            "submission last_driver": "submission_id entrypoint metadata runtime_env driver_node_id",
            "submission polled_driver last_driver": "start_ms",
            "polled_driver last_driver": "end_ms",  # of a driver; a submission has its own end
        },
    ),
    log_lines={"export_event": "export_events/event_EXPORT_*.log*"},
)

_NODES = Table(
    name="nodes",
    columns=(
        *_columns("node_id node_ip is_head_node state state_message node_name resources_total labels"),
        *_details(
            "start_time_ms end_time_ms",
            start_time_ms="start_ns // 1000000",
            end_time_ms="coalesce(end_ns // 1000000, 0)",
        ),
    ),
    key="node_id",
    sort_keys={"start_time_ms": "start_ns", "end_time_ms": "end_ns", "duration": "end_ns - start_ns"},
    filters=_filters(text="node_id node_ip node_name state", flags="is_head_node"),
    closed_form=f"""* replace (
        'DEAD' as state,
        case when state = 'DEAD' then state_message else '{CLUSTER_TERMINATED}' end as state_message,
        case when state = 'DEAD' then end_ns else {{end}} end as end_ns
    )""",
    sources=("NODE_DEFINITION_EVENT", "NODE_LIFECYCLE_EVENT", "/api/v0/nodes"),
    without_sources="Nodes are known from their files alone: no events about nodes were stored, and /api/v0/nodes was "
    "not polled.",
    has_mentioned_rows=True,
    precedence=Precedence(
        sources={
            "event": "NODE_DEFINITION, NODE_LIFECYCLE events",
            "polled": "polled `/api/v0/nodes`",
            "page": "polled `/nodes?view=summary`, `/nodes/{id}`, the newer one",
            "raylet": "first lines of `raylet.out`",
            "filed": "names of nodes and log files in the archive",
        },
        columns={
            "event polled page": "node_name state state_message planned_departure",
            "event polled page raylet": "node_ip labels resources_total start_ns",
            "event polled page raylet filed": "is_head_node",
            "polled event page": "end_ns",  # the event is some milliseconds late
            "event page raylet": "hostname",
            "event page": "instance_id instance_type_name",
        },
        final={"state": "'DEAD'"},
    ),
)

_WORKERS = Table(
    name="workers",
    columns=(
        *_columns("worker_id is_alive worker_type exit_type node_id ip pid"),
        *_details(
            "exit_detail worker_launch_time_ms worker_launched_time_ms start_time_ms end_time_ms debugger_port "
            "num_paused_threads",
            start_time_ms="coalesce(start_time_ms, 0)",
            end_time_ms="coalesce(end_time_ms, 0)",
        ),
    ),
    key="worker_id",
    sort_keys={
        name: f"nullif({name}, 0)"
        for name in ("start_time_ms", "end_time_ms", "worker_launch_time_ms", "worker_launched_time_ms")
    },
    filters=_filters(
        text="exit_type ip node_id worker_id worker_type",
        numbers="debugger_port num_paused_threads pid",
        flags="is_alive",
    ),
    closed_form=f"""* replace (
        false as is_alive,
        case when is_alive then 'SYSTEM_ERROR' else exit_type end as exit_type,
        case when is_alive then '{CLUSTER_TERMINATED}' else exit_detail end as exit_detail,
        case when is_alive then ray_ms({{end}}) else end_time_ms end as end_time_ms
    )""",
    sources=("WORKER_DEFINITION_EVENT", "WORKER_LIFECYCLE_EVENT", "/api/v0/workers"),
    without_sources="Of workers only what drivers, tasks, actors, log files and pages of nodes say is known: no events "
    "about workers were stored (Ray sends them since 2.57), and /api/v0/workers was not polled.",
    has_mentioned_rows=True,
    precedence=Precedence(
        sources={
            "event": "WORKER_DEFINITION, WORKER_LIFECYCLE events (Ray 2.57 and later)",
            "polled": "polled `/api/v0/workers`",
            "page": "polled `/nodes?view=summary`, `/nodes/{id}`, the newer one",
            "driver": "DRIVER_JOB_DEFINITION events",
            "file": "names of log files",
            "gone_driver": "ends of jobs",
        },
        columns={
            "event polled page driver file": "worker_type node_id pid",
            "polled page": "ip",
            "event polled gone_driver": "is_alive end_time_ms",
            "event polled": "exit_type exit_detail worker_launch_time_ms worker_launched_time_ms start_time_ms",
            "polled": "debugger_port num_paused_threads",
        },
        final={"is_alive": "false"},
    ),
)

_PLACEMENT_GROUPS = Table(
    name="placement_groups",
    columns=(
        *_columns("placement_group_id name creator_job_id state"),
        *_details("bundles is_detached stats"),
        *_details("label_domain_key label_domain_assignments", since=_LABEL_DOMAINS, until=_TOPOLOGIES),
        *_details("topology_strategy topology_assignments", since=_TOPOLOGIES),
    ),
    key="placement_group_id",
    sort_keys={"creation_time_ms": "created_ns", "end_time_ms": "end_ns"},
    filters=_filters(text="creator_job_id name placement_group_id state", flags="is_detached"),
    closed_form="""* replace (
        'REMOVED' as state,
        case when state = 'REMOVED' then end_ns else {end} end as end_ns
    )""",
    has_mentioned_rows=True,
    sources=("PLACEMENT_GROUP_DEFINITION_EVENT", "PLACEMENT_GROUP_LIFECYCLE_EVENT", "/api/v0/placement_groups"),
    without_sources="Only placement groups that tasks and actors refer to are known: /api/v0/placement_groups was not "
    "polled.",
    precedence=Precedence(
        sources={
            "event": "PLACEMENT_GROUP events (not sent by any Ray version yet)",
            "polled": "polled `/api/v0/placement_groups`",
        },
        columns={
            "event polled": "name creator_job_id state bundles is_detached created_ns",
            "polled event": "stats",
            "polled": "label_domain_key label_domain_assignments topology_strategy topology_assignments",
            "event": "end_ns",
        },
        final={"state": "'REMOVED'"},
    ),
)

_RUNTIME_ENVS = Table(
    name="runtime_envs",
    columns=(
        *_columns(
            "runtime_env success creation_time_ms node_id",
            creation_time_ms="try_cast(creation_time_ms as bigint)::varchar",
        ),
        *_details("ref_cnt error"),
    ),
    key="creation_time_ms",
    tie_breakers=", position, node_id, runtime_env",
    default_order="creation_time_ms desc nulls first",
    filters=_filters(text="error node_id runtime_env", flags="success"),
    runtime_envs={"runtime_env": "runtime_env"},
    # Ray's clients refuse a whole listing with a null, which one that is still set up has.
    closed_form=f"""* replace (
        coalesce(success, false) as success,
        case when success is null then coalesce(error, '{CLUSTER_TERMINATED}') else error end as error
    )""",
    has_mentioned_rows=True,
    sources=("/api/v0/runtime_envs",),
    without_sources="Only runtime environments in which tasks ran are known: /api/v0/runtime_envs was not polled.",
)

_CLUSTER_EVENTS = Table(
    name="cluster_events",
    columns=(
        *_columns(
            "severity time source_type message event_id",
            time="strftime(make_timestamp_ns(event_ns), '%Y-%m-%d %H:%M:%S')",
        ),
        *_details("custom_fields"),
    ),
    key="event_ns",
    tie_breakers=", event_id",
    sort_keys={"time": "event_ns"},
    filters=_filters(text="event_id severity source_type"),
    sources=(LOG_FILES, "PLATFORM_EVENT"),
    without_sources="Cluster events are unknown: they are in log files, and none were stored.",
    log_lines={"log_event": "events/event_*.log*"},
)

TABLES: Mapping[str, Table] = {
    table.name: table
    for table in (_TASKS, _ACTORS, _JOBS, _NODES, _WORKERS, _PLACEMENT_GROUPS, _RUNTIME_ENVS, _CLUSTER_EVENTS)
}

SMALL_TABLES: tuple[str, ...] = tuple(name for name in TABLES if name != "tasks")
"""Tables that are queries over rare events and documents."""

LOG_LINES: Mapping[str, str] = {
    source: pattern for table in TABLES.values() for source, pattern in table.log_lines.items()
}
"""All log files that tables are made from."""
