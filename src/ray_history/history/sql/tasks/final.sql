-- The rows of `tasks`: merged rows (`attempt`) with what the last polled listing (`polled_task`) adds to them, their
-- state, the failures that Ray's control plane decided without sending an event, and values that other tables imply.
with with_end as (
    select *, nullif(coalesce(finished_ns, failed_ns) is not null, false) as has_ended from attempt
),
with_polled as (
    select
        task_id,
        attempt_number,
        every_column(),
        columns_of(polled) as polled_columns,
        coalesce(
            event.pending_args_avail_ns, event.pending_node_assignment_ns, event.submitted_to_worker_ns, event.running_ns
        ) is not null as has_events,
        case when list_contains(columns_of(polled), 'spans') then event.spans end as event_spans
    from with_end as event
    full join (
        select *, nullif(coalesce(finished_ns, failed_ns) is not null, false) as has_ended from polled_task
    ) as polled using (task_id, attempt_number)
),
with_sorted_spans as (
    select * replace (last_spans(spans) as spans)
    from (
        select
            * exclude (spans),
            -- Nearly always spans come once and in order, each ending after the one before: no need to sort them.
            case
                when list_reduce([span.endTime for span in spans], lambda last, next: case when next > last then next end, -1) is not null
                    then spans
                else list_sort(list_distinct(spans))
            end as spans
        from with_polled
    )
),
with_hosts as (
    select
        with_sorted_spans.* replace (
            coalesce(job_id, right(task_id, 8)) as job_id,
            coalesce(with_sorted_spans.worker_id, host.worker_id) as worker_id,
            -- In Ray 2.54 an event of the owner has the owner's node beside the worker.
            case when with_sorted_spans.node_id is null then host.node_id else coalesce(placed.node_id, with_sorted_spans.node_id) end
                as node_id
        ),
        type is not null as is_defined,
        with_sorted_spans.worker_id is null and host.worker_id is not null as is_worker_implied,
        with_sorted_spans.node_id is null and host.node_id is not null as is_node_implied,
        coalesce(finished_ns, failed_ns) is not null as has_ended,
        -- Owners that do not export events leave attempts undefined; their executor's span has the name and the end.
        case when type is null then list_extract(list_filter(spans, lambda s: starts_with(s.eventName, 'task::')), 1) end as execution_span,
        -- Ray's events have the actor's own name since 2.54. An attempt that did not run has none.
        coalesce(actor_repr_name, case when running_ns is not null then named_actor.repr_name end) as known_repr_name
    from with_sorted_spans
    left join worker_host as host
        on with_sorted_spans.type is null and implied_type(task_id) <> 'ACTOR_CREATION_TASK' and host.worker_id = with_sorted_spans.component_id
    left join worker_host as placed on placed.worker_id = with_sorted_spans.worker_id
    left join named_actor on actor_repr_name is null and named_actor.actor_id = coalesce(with_sorted_spans.actor_id, substr(task_id, 17))
),
-- The control plane fails the attempts of a dead worker, and at a job's end the unfinished ones. It sends no event.
with_decisions as (
    select
        with_hosts.*,
        not has_ended and execution_span.endTime is not null as is_implied,
        -- An attempt that only the polled listing has may have finished since, without an event.
        not has_ended and not is_implied and has_events and coalesce(worker.end_ns, job.end_ns) is not null as is_forced,
        decided_ns(coalesce(worker.end_ns, job.end_ns)) as forced_ns,
        case
            when worker.end_ns is not null then 'Worker running the task (' || with_hosts.worker_id || ') died with exit_type: '
                || coalesce(worker.exit_number, '') || ' with error_message: ' || coalesce(worker.exit_detail, '')
            else 'Job finishes (' || with_hosts.job_id || ') as driver exits. Marking all non-terminal tasks as failed.'
        end as forced_message
    from with_hosts
    left join dead_worker as worker on worker.worker_id = with_hosts.worker_id
    left join ended_job as job on job.job_id = with_hosts.job_id
)
select
    task_id,
    attempt_number,
    coalesce(
        case
            when known_repr_name <> '' and type = 'ACTOR_TASK' and name = func_or_class_name
                then known_repr_name || '.' || short_name(name)
            else name
        end,
        substr(execution_span.eventName, 7)
    ) as name,
    task_state(
        coalesce(failed_ns, case when is_forced then forced_ns end),
        coalesce(finished_ns, case when is_implied then execution_span.endTime end),
        running_in_ray_wait_ns, running_in_ray_get_ns, running_ns, getting_and_pinning_args_ns,
        pending_actor_task_ordering_ns, pending_actor_task_args_fetch_ns, submitted_to_worker_ns, pending_args_fetch_ns,
        pending_obj_store_mem_avail_ns, pending_node_assignment_ns, pending_args_avail_ns
    ) as state,
    job_id,
    case
        when coalesce(type, implied_type(task_id)) in ('ACTOR_CREATION_TASK', 'ACTOR_TASK') then coalesce(actor_id, substr(task_id, 17))
    end as actor_id,
    coalesce(type, implied_type(task_id)) as type,
    coalesce(func_or_class_name, substr(execution_span.eventName, 7), '') as func_or_class_name,
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
    coalesce(finished_ns, case when is_implied then execution_span.endTime end) as finished_ns,
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
    -- Ray lists an attempt only once it has a definition. If no attempt of a task has one, all of them are listed: the
    -- task's owner did not export events.
    is_defined or (
        task_id <> repeat('ff', 24)
        and coalesce(pending_args_avail_ns, submitted_to_worker_ns, running_ns, finished_ns, failed_ns) is not null
        and task_id not in (select task_id from defined_task union all select task_id from polled_task)
    ) as is_listed,
    -- Ray's own: supervisors of submitted jobs, and tasks caused by polling the dashboard.
    coalesce(regexp_matches(func_or_class_name, '^(JobSupervisor[.]|_StatsActor[.]get_datasets$|TrainStateActor[.]get_train_run)'), false)
        as is_internal,
    -- A column of its own, so that the statistics of row groups make leaving drivers out free.
    coalesce(type, implied_type(task_id)) = 'DRIVER_TASK' as is_driver,
    coalesce(len(spans) >= max_spans(), false) as has_most_spans,
    -- What reopen.sql needs to restore the merged row.
    is_defined,
    is_implied,
    is_forced,
    is_worker_implied,
    is_node_implied,
    polled_columns,
    event_spans,
    name as told_name,
    actor_repr_name,
    error,
    debugger
from with_decisions
