-- tasks: one row per attempt of a task, from one batch of events. Four kinds of events tell of it, from the owner's and the
-- executor's node, in any order and any number of times. Every column is merged by min, max or union, so that merging
-- rows again (merged_tasks.sql) gives the same as reading all events at once.
with definition as (
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
    from (
        select
            td.taskId as task_id,
            td.taskAttempt as attempt_number,
            td.jobId as job_id,
            coalesce(said(td.taskType), implied_type(hex_any(td.taskId, 24))) as type,
            td.taskName as name,
            function_name(td.taskFunc) as func_or_class_name,
            td.language as language,
            td.requiredResources as required_resources,
            said(td.parentTaskId) as parent_task_id,
            said(td.placementGroupId) as placement_group_id,
            null as actor_id,
            td.serializedRuntimeEnv as runtime_env,
            td.callSite as call_site,
            td.labelSelector as label_selector,
            td.fallbackStrategy as fallback_strategy
        from event
        where td is not null
        union all
        select
            ad.taskId,
            ad.taskAttempt,
            ad.jobId,
            'ACTOR_TASK',
            ad.actorTaskName,
            function_name(ad.actorFunc),
            ad.language,
            ad.requiredResources,
            said(ad.parentTaskId),
            said(ad.placementGroupId),
            said(ad.actorId),
            ad.serializedRuntimeEnv,
            ad.callSite,
            ad.labelSelector,
            ad.fallbackStrategy
        from event
        where ad is not null
    )
    where task_id <> ''
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
            select l.taskId as task_id, l.taskAttempt as attempt_number, unnest(l.stateTransitions) as step
            from event
            where l is not null
        )
    )
    where task_id <> ''
    group by all
),
-- Where it ran, what it wrote, why it failed. File and start of the logs come with RUNNING, the ends in a later event.
life as (
    select
        l.taskId as task_id,
        l.taskAttempt as attempt_number,
        max(l.jobId) as life_job_id,
        max(said(l.nodeId)) as node_id,
        max(said(l.workerId)) as worker_id,
        max(nullif(l.workerPid, 0)) as worker_pid,
        max(l.actorReprName) as actor_repr_name,
        max(said(l.taskLogInfo.stdoutFile)) as stdout_file,
        max(said(l.taskLogInfo.stderrFile)) as stderr_file,
        max(case when l.taskLogInfo.stdoutFile <> '' then l.taskLogInfo.stdoutStart end) as stdout_start,
        max(nullif(l.taskLogInfo.stdoutEnd, 0)) as stdout_end,
        max(case when l.taskLogInfo.stderrFile <> '' then l.taskLogInfo.stderrStart end) as stderr_start,
        max(nullif(l.taskLogInfo.stderrEnd, 0)) as stderr_end,
        max({
            'at_ns': instant("timestamp"),
            'type': l.rayErrorInfo.errorType,
            'message': regexp_replace(l.rayErrorInfo.errorMessage, '\x1b[^m]*m', '', 'g')
        }) filter (l.rayErrorInfo is not null) as error,
        max({'at_ns': instant("timestamp"), 'paused': l.isDebuggerPaused})
            filter (l.isDebuggerPaused is not null) as debugger
    from event
    where l.taskId <> ''
    group by all
),
profile as (
    select
        p.taskId as task_id,
        p.attemptNumber as attempt_number,
        max(p.jobId) as profile_job_id,
        max(said(p.profileEvents.componentType)) as component_type,
        max(said(p.profileEvents.componentId)) as component_id,
        max(said(p.profileEvents.nodeIpAddress)) as node_ip_address,
        flatten(list(p.profileEvents.events)) as spans
    from event
    where p.taskId <> ''
    group by all
)
select
    hex_any(task_id, 24) as task_id,
    coalesce(attempt_number, 0) as attempt_number,
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
    transitions.* exclude (task_id, attempt_number),
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
full join transitions using (task_id, attempt_number)
full join life using (task_id, attempt_number)
full join profile using (task_id, attempt_number)
