-- tasks: one row per attempt of a task, from the events of one segment. Four kinds of events tell of it, from the
-- owner's and the executor's node, in any order and any number of times. Every column is merged by min, max or union, so
-- that merging rows again (merged_tasks.sql) gives the same as reading all events at once.
with told_definition as (
    select
        taskId as task_id,
        coalesce(taskAttempt, 0) as attempt_number,
        jobId as job_id,
        coalesce(said(taskType), implied_type(hex_any(taskId, 24))) as type,
        taskName as name,
        function_name(taskFunc) as func_or_class_name,
        language as language,
        requiredResources as required_resources,
        said(parentTaskId) as parent_task_id,
        said(placementGroupId) as placement_group_id,
        null as actor_id,
        serializedRuntimeEnv as runtime_env,
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
        said(parentTaskId),
        said(placementGroupId),
        said(actorId),
        serializedRuntimeEnv,
        callSite,
        labelSelector,
        fallbackStrategy
    from actor_task_definition_event
    where taskId <> ''
),
-- Nearly all attempts have one event of this kind: those pass as they are, which costs a third of aggregating them.
defined_twice as (
    select task_id, attempt_number from told_definition group by all having count(*) > 1
),
definition as (
    from told_definition anti join defined_twice using (task_id, attempt_number)
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
    from told_definition semi join defined_twice using (task_id, attempt_number)
    group by all
),
-- When each state was entered first, whoever saw it.
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
        select task_id, attempt_number, step.state as state, instant(step."timestamp") as at_ns
        from (
            select taskId as task_id, coalesce(taskAttempt, 0) as attempt_number, unnest(stateTransitions) as step
            from task_lifecycle_event
        )
    )
    where task_id <> ''
    group by all
),
-- Where it ran and what it wrote. File and start of the logs come with RUNNING, the ends in a later event.
life as (
    select
        taskId as task_id,
        coalesce(taskAttempt, 0) as attempt_number,
        max(jobId) as life_job_id,
        max(said(nodeId)) as node_id,
        max(said(workerId)) as worker_id,
        max(nullif(workerPid, 0)) as worker_pid,
        max(actorReprName) as actor_repr_name,
        max(said(taskLogInfo.stdoutFile)) as stdout_file,
        max(said(taskLogInfo.stderrFile)) as stderr_file,
        max(case when taskLogInfo.stdoutFile <> '' then taskLogInfo.stdoutStart end) as stdout_start,
        max(nullif(taskLogInfo.stdoutEnd, 0)) as stdout_end,
        max(case when taskLogInfo.stderrFile <> '' then taskLogInfo.stderrStart end) as stderr_start,
        max(nullif(taskLogInfo.stderrEnd, 0)) as stderr_end
    from task_lifecycle_event
    where taskId <> ''
    group by all
),
-- Why it failed. Few attempts have any of this.
mishap as (
    select
        taskId as task_id,
        coalesce(taskAttempt, 0) as attempt_number,
        max({
            'at_ns': instant("timestamp"),
            'type': rayErrorInfo.errorType,
            'message': regexp_replace(rayErrorInfo.errorMessage, '\x1b[^m]*m', '', 'g')
        }) filter (rayErrorInfo is not null) as error,
        max({'at_ns': instant("timestamp"), 'paused': isDebuggerPaused})
            filter (isDebuggerPaused is not null) as debugger
    from task_lifecycle_event
    where taskId <> '' and (rayErrorInfo is not null or isDebuggerPaused is not null)
    group by all
),
-- What it spent its time on.
told_profile as (
    select
        taskId as task_id,
        coalesce(attemptNumber, 0) as attempt_number,
        jobId as profile_job_id,
        said(profileEvents.componentType) as component_type,
        said(profileEvents.componentId) as component_id,
        said(profileEvents.nodeIpAddress) as node_ip_address,
        profileEvents.events as spans
    from task_profile_event
    where taskId <> ''
),
profiled_twice as (
    select task_id, attempt_number from told_profile group by all having count(*) > 1
),
profile as (
    from told_profile anti join profiled_twice using (task_id, attempt_number)
    union all by name
    select
        task_id,
        attempt_number,
        max(profile_job_id) as profile_job_id,
        max(component_type) as component_type,
        max(component_id) as component_id,
        max(node_ip_address) as node_ip_address,
        last_spans(flatten(list(spans) filter (spans is not null))) as spans
    from told_profile semi join profiled_twice using (task_id, attempt_number)
    group by all
)
select
    hex_any(task_id, 24) as task_id,
    attempt_number,
    hex_id(coalesce(said(job_id), said(life_job_id), said(profile_job_id)), 4) as job_id,
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
    from life
    left join transitions using (task_id, attempt_number)
    left join mishap using (task_id, attempt_number)
) as lifecycle using (task_id, attempt_number)
full join profile using (task_id, attempt_number)
