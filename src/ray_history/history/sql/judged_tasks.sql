-- Merged rows (`part`) with a judgement: the state, what Ray's control plane decided without an event, what is missing.
with sorted as (
    select * replace (last_spans(spans) as spans)
    from (
        select
            * exclude (spans),
            -- Nearly always they come once and in order, each ending after the one before: then nothing need be compared.
            case
                when list_reduce([span.endTime for span in spans], lambda last, next: case when next > last then next end, -1) is not null
                    then spans
                else list_sort(list_distinct(spans))
            end as spans
        from part
    )
),
known as (
    select
        sorted.* replace (
            coalesce(job_id, right(task_id, 8)) as job_id,
            coalesce(sorted.worker_id, host.worker_id) as worker_id,
            coalesce(sorted.node_id, host.node_id) as node_id
        ),
        type is not null as is_defined,
        sorted.worker_id is null and host.worker_id is not null as is_worker_implied,
        sorted.node_id is null and host.node_id is not null as is_node_implied,
        coalesce(finished_ns, failed_ns) is not null as has_ended,
        -- Owners that do not export leave attempts without a definition: only their executor tells of them.
        case when type is null then list_extract(list_filter(spans, lambda s: starts_with(s.eventName, 'task::')), 1) end as whole_span
    from sorted
    left join worker_host as host
        on sorted.type is null and implied_type(task_id) <> 'ACTOR_CREATION_TASK' and host.worker_id = sorted.component_id
),
-- The control plane fails what a dead worker was running, and at a job's end what was not done. It sends no event.
decided as (
    select
        known.*,
        not has_ended and whole_span.endTime is not null as is_implied,
        not has_ended and not is_implied and coalesce(worker.end_ns, job.end_ns) is not null as is_forced,
        coalesce(worker.end_ns, job.end_ns // 1000000 * 1000000) as forced_ns,
        case
            when worker.end_ns is not null then 'Worker running the task (' || known.worker_id || ') died with exit_type: '
                || coalesce(worker.exit_number, '') || ' with error_message: ' || coalesce(worker.exit_detail, '')
            else 'Job finishes (' || known.job_id || ') as driver exits. Marking all non-terminal tasks as failed.'
        end as forced_message
    from known
    left join dead_worker as worker on worker.worker_id = known.worker_id
    left join ended_job as job on job.job_id = known.job_id
)
select
    task_id,
    attempt_number,
    coalesce(
        case
            when actor_repr_name <> '' and type = 'ACTOR_TASK' and name = func_or_class_name
                then actor_repr_name || '.' || short_name(name)
            else name
        end,
        substr(whole_span.eventName, 7)
    ) as name,
    task_state(
        coalesce(failed_ns, case when is_forced then forced_ns end),
        coalesce(finished_ns, case when is_implied then whole_span.endTime end),
        running_in_ray_wait_ns, running_in_ray_get_ns, running_ns, getting_and_pinning_args_ns,
        pending_actor_task_ordering_ns, pending_actor_task_args_fetch_ns, submitted_to_worker_ns, pending_args_fetch_ns,
        pending_obj_store_mem_avail_ns, pending_node_assignment_ns, pending_args_avail_ns
    ) as state,
    job_id,
    case
        when coalesce(type, implied_type(task_id)) in ('ACTOR_CREATION_TASK', 'ACTOR_TASK') then coalesce(actor_id, substr(task_id, 17))
    end as actor_id,
    coalesce(type, implied_type(task_id)) as type,
    coalesce(func_or_class_name, substr(whole_span.eventName, 7), '') as func_or_class_name,
    parent_task_id,
    node_id,
    worker_id,
    worker_pid,
    case when failed_ns is not null then error.type when is_forced then 'WORKER_DIED' end as error_type,
    language,
    required_resources,
    runtime_env,
    placement_group_id,
    pending_args_avail_ns,
    pending_node_assignment_ns,
    pending_obj_store_mem_avail_ns,
    pending_args_fetch_ns,
    submitted_to_worker_ns,
    pending_actor_task_args_fetch_ns,
    pending_actor_task_ordering_ns,
    getting_and_pinning_args_ns,
    running_ns,
    running_in_ray_get_ns,
    running_in_ray_wait_ns,
    coalesce(finished_ns, case when is_implied then whole_span.endTime end) as finished_ns,
    coalesce(failed_ns, case when is_forced then forced_ns end) as failed_ns,
    component_type,
    component_id,
    node_ip_address,
    spans,
    stdout_file,
    stderr_file,
    stdout_start,
    stdout_end,
    stderr_start,
    stderr_end,
    case when failed_ns is not null then error.message when is_forced then forced_message end as error_message,
    debugger.paused as is_debugger_paused,
    call_site,
    label_selector,
    fallback_strategy,
    -- Ray lists an attempt only once it has a definition. One whose task nobody defined is listed too: its owner did not export.
    is_defined or (
        task_id <> repeat('ff', 24)
        and coalesce(pending_args_avail_ns, submitted_to_worker_ns, running_ns, finished_ns, failed_ns) is not null
        and task_id not in (select task_id from defined_task)
    ) as is_listed,
    -- Not the user's: supervisors of submitted jobs, and what polling the dashboard makes its actors do.
    coalesce(regexp_matches(func_or_class_name, '^(JobSupervisor[.]|_StatsActor[.]get_datasets$|TrainStateActor[.]get_train_run)'), false)
        as is_internal,
    -- Row groups without any are told by their statistics, so that leaving drivers out costs nothing.
    coalesce(type, implied_type(task_id)) = 'DRIVER_TASK' as is_driver,
    coalesce(len(spans) >= most_spans(), false) as has_most_spans,
    -- What told_tasks.sql needs to take the judgement back.
    is_defined,
    is_implied,
    is_forced,
    is_worker_implied,
    is_node_implied,
    name as told_name,
    actor_repr_name,
    error,
    debugger
from decided
