-- One row per attempt of a task, from the events of one run. Five types of events describe an attempt. They come from
-- the nodes of its owner and its executor, in any order and any number of times. Every column is merged by min, max or
-- union, so merging rows again (merge.sql) gives the same result as reading all events at once.
with definition_event as (
    select
        taskId as task_id,
        coalesce(taskAttempt, 0) as attempt_number,
        jobId as job_id,
        coalesce(non_empty(taskType), implied_type(hex_any(taskId, 24))) as type,
        taskName as name,
        function_name(taskFunc) as func_or_class_name,
        language as language,
        requiredResources as required_resources,
        non_empty(parentTaskId) as parent_task_id,
        non_empty(placementGroupId) as placement_group_id,
        null as actor_id,
        coalesce(serializedRuntimeEnv, runtimeEnvInfo.serializedRuntimeEnv) as runtime_env,
        callSite as call_site,
        labelSelector as label_selector,
        fallbackStrategy as fallback_strategy
    from task_definition_event
    where taskId <> ''
    union all
    select
        taskId,
        coalesce(taskAttempt, 0),
        jobId,
        'ACTOR_TASK',
        actorTaskName,
        function_name(actorFunc),
        language,
        requiredResources,
        non_empty(parentTaskId),
        non_empty(placementGroupId),
        non_empty(actorId),
        coalesce(serializedRuntimeEnv, runtimeEnvInfo.serializedRuntimeEnv),
        callSite,
        labelSelector,
        fallbackStrategy
    from actor_task_definition_event
    where taskId <> ''
),
-- Nearly all attempts have one such event. Those are not aggregated, which costs a third of aggregating all of them.
repeated_definition as (
    select task_id, attempt_number from definition_event group by all having count(*) > 1
),
definition as (
    from definition_event anti join repeated_definition using (task_id, attempt_number)
    union all by name
    select
        task_id,
        attempt_number,
        max(job_id) as job_id,
        max(type) as type,
        max(name) as name,
        max(func_or_class_name) as func_or_class_name,
        max(language) as language,
        max(required_resources) as required_resources,
        max(parent_task_id) as parent_task_id,
        max(placement_group_id) as placement_group_id,
        max(actor_id) as actor_id,
        max(runtime_env) as runtime_env,
        max(call_site) as call_site,
        max(label_selector) as label_selector,
        max(fallback_strategy) as fallback_strategy
    from definition_event semi join repeated_definition using (task_id, attempt_number)
    group by all
),
-- Ray 2.49 and 2.50 send EXECUTION events, which have the times of states by Ray's numbers of states.
lifecycle_event as not materialized (
    from task_lifecycle_event
    union all by name
    select
        * exclude (taskState),
        [{'state': task_state_name(entry.key), 'timestamp': entry.value} for entry in map_entries(taskState)] as stateTransitions
    from task_execution_event
),
-- The first time at which each state was entered, by the clock of any node.
transitions as (
    select
        task_id,
        attempt_number,
        min(at_ns) filter (state = 'PENDING_ARGS_AVAIL') as pending_args_avail_ns,
        min(at_ns) filter (state = 'PENDING_NODE_ASSIGNMENT') as pending_node_assignment_ns,
        min(at_ns) filter (state = 'PENDING_OBJ_STORE_MEM_AVAIL') as pending_obj_store_mem_avail_ns,
        min(at_ns) filter (state = 'PENDING_ARGS_FETCH') as pending_args_fetch_ns,
        min(at_ns) filter (state = 'SUBMITTED_TO_WORKER') as submitted_to_worker_ns,
        min(at_ns) filter (state = 'PENDING_ACTOR_TASK_ARGS_FETCH') as pending_actor_task_args_fetch_ns,
        min(at_ns) filter (state = 'PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY') as pending_actor_task_ordering_ns,
        min(at_ns) filter (state = 'GETTING_AND_PINNING_ARGS') as getting_and_pinning_args_ns,
        min(at_ns) filter (state = 'RUNNING') as running_ns,
        min(at_ns) filter (state = 'RUNNING_IN_RAY_GET') as running_in_ray_get_ns,
        min(at_ns) filter (state = 'RUNNING_IN_RAY_WAIT') as running_in_ray_wait_ns,
        min(at_ns) filter (state = 'FINISHED') as finished_ns,
        min(at_ns) filter (state = 'FAILED') as failed_ns
    from (
        select task_id, attempt_number, step.state as state, to_ns(step."timestamp") as at_ns
        from (
            select taskId as task_id, coalesce(taskAttempt, 0) as attempt_number, unnest(stateTransitions) as step
            from lifecycle_event
        )
    )
    where task_id <> ''
    group by all
),
-- Where it ran, and the position of its output: file and start come with RUNNING, the end in a later event.
execution as (
    select
        taskId as task_id,
        coalesce(taskAttempt, 0) as attempt_number,
        max(jobId) as execution_job_id,
        -- In Ray 2.54 other events have the node of their sender, which may be the owner's.
        max(non_empty(nodeId)) filter (workerId <> '') as node_id,
        max(non_empty(workerId)) as worker_id,
        max(nullif(workerPid, 0)) as worker_pid,
        max(actorReprName) as actor_repr_name,
        max(non_empty(taskLogInfo.stdoutFile)) as stdout_file,
        max(non_empty(taskLogInfo.stderrFile)) as stderr_file,
        max(case when taskLogInfo.stdoutFile <> '' then taskLogInfo.stdoutStart end) as stdout_start,
        max(nullif(taskLogInfo.stdoutEnd, 0)) as stdout_end,
        max(case when taskLogInfo.stderrFile <> '' then taskLogInfo.stderrStart end) as stderr_start,
        max(nullif(taskLogInfo.stderrEnd, 0)) as stderr_end
    from lifecycle_event
    where taskId <> ''
    group by all
),
-- Why it failed, for the few attempts that did.
failure as (
    select
        taskId as task_id,
        coalesce(taskAttempt, 0) as attempt_number,
        max({
            'at_ns': to_ns("timestamp"),
            'type': rayErrorInfo.errorType,
            'message': regexp_replace(rayErrorInfo.errorMessage, '\x1b[^m]*m', '', 'g')
        }) filter (rayErrorInfo is not null) as error,
        max({'at_ns': to_ns("timestamp"), 'paused': isDebuggerPaused})
            filter (isDebuggerPaused is not null) as debugger
    from lifecycle_event
    where taskId <> '' and (rayErrorInfo is not null or isDebuggerPaused is not null)
    group by all
),
-- Its profile spans.
profile_event as (
    select
        taskId as task_id,
        coalesce(attemptNumber, 0) as attempt_number,
        jobId as profile_job_id,
        non_empty(profileEvents.componentType) as component_type,
        non_empty(profileEvents.componentId) as component_id,
        non_empty(profileEvents.nodeIpAddress) as node_ip_address,
        profileEvents.events as spans
    from task_profile_event
    where taskId <> ''
),
repeated_profile as (
    select task_id, attempt_number from profile_event group by all having count(*) > 1
),
profile as (
    from profile_event anti join repeated_profile using (task_id, attempt_number)
    union all by name
    select
        task_id,
        attempt_number,
        max(profile_job_id) as profile_job_id,
        max(component_type) as component_type,
        max(component_id) as component_id,
        max(node_ip_address) as node_ip_address,
        last_spans(flatten(list(spans) filter (spans is not null))) as spans
    from profile_event semi join repeated_profile using (task_id, attempt_number)
    group by all
)
select
    hex_any(task_id, 24) as task_id,
    attempt_number,
    hex_id(coalesce(non_empty(job_id), non_empty(execution_job_id), non_empty(profile_job_id)), 4) as job_id,
    type,
    name,
    func_or_class_name,
    language,
    required_resources::varchar as required_resources,
    hex_id(parent_task_id, 24) as parent_task_id,
    hex_id(placement_group_id, 18) as placement_group_id,
    hex_id(actor_id, 16) as actor_id,
    runtime_env,
    call_site,
    label_selector::varchar as label_selector,
    ray_fallback(fallback_strategy::varchar) as fallback_strategy,
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
    finished_ns,
    failed_ns,
    hex_id(node_id, 28) as node_id,
    hex_id(worker_id, 28) as worker_id,
    worker_pid,
    actor_repr_name,
    stdout_file,
    stderr_file,
    stdout_start,
    stdout_end,
    stderr_start,
    stderr_end,
    error,
    debugger,
    component_type,
    hex_any(component_id, 28) as component_id,
    node_ip_address,
    spans
from definition
full join (
    from execution
    left join transitions using (task_id, attempt_number)
    left join failure using (task_id, attempt_number)
) as lifecycle using (task_id, attempt_number)
full join profile using (task_id, attempt_number)
