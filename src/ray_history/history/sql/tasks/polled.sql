-- Attempts in the last polled listing of tasks that had not ended, in the columns of a run (run.sql), with times in
-- whole milliseconds. A worker that is killed takes the events that it did not send yet along: the listing may still
-- have them. If several listings were polled, the one in which the attempt got furthest counts.
with listed as (
    select unnest(from_json(body->'$.data.result.result', '["JSON"]')) as row
    from document
    where source = 'endpoint' and regexp_full_match(name, 'restful__api__v0__tasks[?].*detail=(1|true)(&.*)?')
),
attempt as (
    select
        hex_any(non_empty(row->>'task_id'), 24) as task_id,
        coalesce(to_bigint(row->>'attempt_number'), 0)::integer as attempt_number,
        row,
        from_json(row->'events', '[{"state": "VARCHAR", "created_ms": "VARCHAR"}]') as steps,
        json_extract(row, '$.profiling_data') as profile
    from listed
    qualify row_number() over (
        partition by task_id, attempt_number
        order by coalesce(list_max([to_millis(step.created_ms) for step in steps]), 0) desc, row::varchar
    ) = 1
),
task as (
    select
        task_id,
        attempt_number,
        hex_id(row->>'job_id', 4) as job_id,
        non_empty(row->>'type') as type,
        row->>'name' as name,
        row->>'func_or_class_name' as func_or_class_name,
        non_empty(row->>'language') as language,
        non_empty_json(row->'required_resources') as required_resources,
        hex_id(row->>'parent_task_id', 24) as parent_task_id,
        hex_id(row->>'placement_group_id', 18) as placement_group_id,
        hex_id(row->>'actor_id', 16) as actor_id,
        non_empty(row->>'$.runtime_env_info.serialized_runtime_env') as runtime_env,
        non_empty(row->>'call_site') as call_site,
        non_empty_json(row->'label_selector') as label_selector,
        case when row->>'$.fallback_strategy.options[0]' is not null then (row->'fallback_strategy')::varchar end as fallback_strategy,
        coalesce(entered_ns(steps, 'PENDING_ARGS_AVAIL'), to_millis(row->>'creation_time_ms') * 1000000) as pending_args_avail_ns,
        entered_ns(steps, 'PENDING_NODE_ASSIGNMENT') as pending_node_assignment_ns,
        entered_ns(steps, 'PENDING_OBJ_STORE_MEM_AVAIL') as pending_obj_store_mem_avail_ns,
        entered_ns(steps, 'PENDING_ARGS_FETCH') as pending_args_fetch_ns,
        entered_ns(steps, 'SUBMITTED_TO_WORKER') as submitted_to_worker_ns,
        entered_ns(steps, 'PENDING_ACTOR_TASK_ARGS_FETCH') as pending_actor_task_args_fetch_ns,
        entered_ns(steps, 'PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY') as pending_actor_task_ordering_ns,
        entered_ns(steps, 'GETTING_AND_PINNING_ARGS') as getting_and_pinning_args_ns,
        coalesce(entered_ns(steps, 'RUNNING'), to_millis(row->>'start_time_ms') * 1000000) as running_ns,
        entered_ns(steps, 'RUNNING_IN_RAY_GET') as running_in_ray_get_ns,
        entered_ns(steps, 'RUNNING_IN_RAY_WAIT') as running_in_ray_wait_ns,
        entered_ns(steps, 'FINISHED') as finished_ns,
        entered_ns(steps, 'FAILED') as failed_ns,
        hex_id(row->>'node_id', 28) as node_id,
        hex_id(row->>'worker_id', 28) as worker_id,
        nullif(to_bigint(row->>'worker_pid'), 0) as worker_pid,
        non_empty(row->>'$.task_log_info.stdout_file') as stdout_file,
        non_empty(row->>'$.task_log_info.stderr_file') as stderr_file,
        to_bigint(row->>'$.task_log_info.stdout_start') as stdout_start,
        nullif(to_bigint(row->>'$.task_log_info.stdout_end'), 0) as stdout_end,
        to_bigint(row->>'$.task_log_info.stderr_start') as stderr_start,
        nullif(to_bigint(row->>'$.task_log_info.stderr_end'), 0) as stderr_end,
        case when row->>'error_type' <> '' then {
            'at_ns': failed_ns, 'type': row->>'error_type', 'message': row->>'error_message'
        } end as error,
        case when to_bool(row->>'is_debugger_paused') then {'at_ns': null::bigint, 'paused': true} end as debugger,
        non_empty(profile->>'component_type') as component_type,
        hex_any(non_empty(profile->>'component_id'), 28) as component_id,
        non_empty(profile->>'node_ip_address') as node_ip_address,
        [
            {
                'endTime': span_ns(span.end_time),
                'startTime': span_ns(span.start_time),
                'eventName': span.event_name,
                'extraData': (span.extra_data)::varchar
            }
            for span in from_json(
                profile->'events',
                '[{"start_time": "DOUBLE", "end_time": "DOUBLE", "extra_data": "JSON", "event_name": "VARCHAR"}]'
            )
        ] as spans
    from attempt
    where task_id is not null
)
from task
