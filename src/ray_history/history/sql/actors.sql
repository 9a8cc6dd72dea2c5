-- actors: one row per actor. The registry declares which source a column is taken from: ACTOR_DEFINITION and
-- ACTOR_LIFECYCLE events, polled listings, the newer of the polled pages (`/logical/actors`, `/nodes/{id}`), or the task that
-- created the actor. State and place come from one source that knows of its start. A column that no source has is null.
with definition as (
    select
        hex_id(actor, 16) as actor_id,
        max(hex_id(job, 4)) as job_id,
        max(body->>'className') as class_name,
        max(body->>'name') as name,
        max(body->>'rayNamespace') as ray_namespace,
        max(body->>'serializedRuntimeEnv') as serialized_runtime_env,
        max(non_empty_json(body->'requiredResources')) as required_resources,
        max(hex_id(placement_group, 18)) as placement_group_id,
        max(non_empty_json(body->'labelSelector')) as label_selector,
        max(non_empty_json(body->'fallbackStrategy')) as fallback_strategy,
        max(non_empty(body->>'callSite')) as call_site,
        bool_or(to_bool(body->>'isDetached')) as is_detached
    from (
        select body->>'actorId' as actor, body->>'jobId' as job, body->>'placementGroupId' as placement_group, body
        from rare_event
        where event_type = 'ACTOR_DEFINITION_EVENT' and happened_by(event_ns, moment)
    )
    group by all
),
transition as (
    select distinct
        hex_id(actor, 16) as actor_id,
        step->>'state' as state,
        to_ns(step->>'timestamp') as at_ns,
        hex_id(node, 28) as node_id,
        hex_id(worker, 28) as worker_id,
        nullif(to_bigint(step->>'pid'), 0) as pid,
        nullif(to_bigint(step->>'port'), 0) as port,
        non_empty(step->>'reprName') as repr_name,
        step->>'restartReason' as restart_reason,
        step->'deathCause' as death_cause
    from (
        select body->>'actorId' as actor, step->>'nodeId' as node, step->>'workerId' as worker, step
        from transitions_of('ACTOR_LIFECYCLE_EVENT')
    )
    where at_ns <= moment
),
ranked as (
    select *, list_position(
        ['DEPENDENCIES_UNREADY', 'PENDING_CREATION', 'ALIVE', 'RESTARTING', 'DEAD'], state
    ) as rank
    from transition
),
-- A dead actor is often reported dead again: it died at the first report, the last one has the fuller cause. Only what
-- is not DEAD begins a new life (lineage reconstruction can restart a dead actor).
life as (
    select
        actor_id,
        arg_max(state, (at_ns, rank)) as state,
        latest(node_id, at_ns) as node_id,
        latest(worker_id, at_ns) as worker_id,
        latest(pid, at_ns) as pid,
        latest(port, at_ns) as port,
        latest(repr_name, at_ns) as repr_name,
        count(*) filter (state = 'RESTARTING') as num_restarts,
        count(*) filter (state = 'RESTARTING' and restart_reason = 'LINEAGE_RECONSTRUCTION') as num_restarts_due_to_lineage_reconstruction,
        count(*) filter (state = 'RESTARTING' and restart_reason = 'NODE_PREEMPTION') as num_restarts_due_to_node_preemption,
        min(at_ns) filter (state = 'ALIVE') as start_ns,
        max(at_ns) as changed_ns,
        max(at_ns) filter (state <> 'DEAD') as last_alive_ns
    from ranked
    group by actor_id
),
death as (
    select
        actor_id,
        min(at_ns) as end_ns,
        arg_max(death_cause, (at_ns, death_cause::varchar)) filter (death_cause is not null) as cause
    from ranked
    join life using (actor_id)
    where ranked.state = 'DEAD' and life.state = 'DEAD' and at_ns >= coalesce(last_alive_ns, at_ns)
    group by actor_id
),
-- Pages of nodes have resources and labels under keys in camel case, which cannot be undone.
page_row as (
    select
        non_empty(actor->>'actorId') as actor_id,
        to_millis(actor->>'timestamp') as changed_ms,
        non_empty(actor->>'state') as last_state,
        actor->>'className' as class_name,
        actor->>'jobId' as job_id,
        actor->>'name' as name,
        hex_id(actor->>'$.address.nodeId', 28) as node_id,
        hex_id(actor->>'$.address.workerId', 28) as worker_id,
        non_empty(actor->>'$.address.ipAddress') as ip,
        nullif(to_bigint(actor->>'$.address.port'), 0) as port,
        to_bigint(actor->>'pid') as pid,
        actor->>'reprName' as repr_name,
        to_bigint(actor->>'numRestarts') as num_restarts,
        actor->>'callSite' as call_site,
        actor->>'placementGroupId' as placement_group_id,
        nullif(actor->>'exitDetail', '-') as last_detail,
        to_millis(actor->>'startTime') as start_ms,
        to_millis(actor->>'endTime') as end_ms,
        max(if(is_logical, (actor->'requiredResources')::varchar, null)) over (partition by actor_id)
            as required_resources,
        max(if(is_logical, (actor->'labelSelector')::varchar, null)) over (partition by actor_id) as label_selector
    from actors_on_pages()
    qualify row_number() over (
        partition by actor_id order by changed_ms desc nulls last, is_logical desc, actor::varchar
    ) = 1
),
listing as (
    select
        non_empty(row->>'actor_id') as actor_id,
        row,
        actor_progress(to_bigint(row->>'num_restarts'), row->>'state') as progress
    from polled_rows('actors')
    qualify row_number() over (partition by row->>'actor_id' order by row::varchar) = 1
),
-- As of the moment. Before its end, the actor was alive.
page as (
    select
        *,
        start_ms * 1000000 as start_ns,
        coalesce(last_state = 'DEAD', false) and happened_by(end_ms * 1000000, moment) as is_dead,
        if(last_state = 'DEAD' and not is_dead, 'ALIVE', last_state) as state,
        if(is_dead, end_ms * 1000000, null) as end_ns,
        if(is_dead, last_detail, null) as exit_detail,
        if(changed_ms * 1000000 <= moment, changed_ms * 1000000, null) as changed_ns,
        -- Pages are polled less often than the listing: one that is behind it says where the actor was.
        case
            when state not in ('DEPENDENCIES_UNREADY', 'PENDING_CREATION')
                and not (moment = 9223372036854775807 and coalesce(progress > actor_progress(num_restarts, last_state), false))
            then true
        end as started
    from page_row
    left join listing using (actor_id)
    where happened_by(coalesce(start_ms, changed_ms) * 1000000, moment)
),
event as (
    select
        actor_id,
        definition.actor_id is not null as is_defined,
        -- An event leaves out what is not set.
        if(is_defined, coalesce(definition.class_name, ''), null) as class_name,
        definition.job_id,
        if(is_defined, coalesce(definition.name, ''), null) as name,
        if(is_defined, coalesce(definition.ray_namespace, ''), null) as ray_namespace,
        if(is_defined, coalesce(definition.serialized_runtime_env, ''), null) as serialized_runtime_env,
        if(is_defined, coalesce(definition.required_resources, '{}'), null) as required_resources,
        if(is_defined, coalesce(definition.is_detached, false), null) as is_detached,
        definition.placement_group_id,
        definition.call_site,
        if(is_defined, coalesce(definition.label_selector, '{}'), null) as label_selector,
        definition.fallback_strategy,
        coalesce(life.state, 'DEPENDENCIES_UNREADY') as state,
        -- A page that is newer counts more: not all events may have arrived.
        case
            when life.state not in ('DEPENDENCIES_UNREADY', 'PENDING_CREATION')
                and not coalesce(page.changed_ns >= life.changed_ns + 1000000, false)
            then true
        end as started,
        life.node_id,
        life.worker_id,
        life.pid,
        life.port,
        null::varchar as ip,
        life.repr_name,
        life.num_restarts,
        life.num_restarts_due_to_lineage_reconstruction,
        life.num_restarts_due_to_node_preemption,
        life.start_ns,
        death.end_ns,
        life.changed_ns,
        ray_death_cause(death.cause) as death_cause,
        coalesce(
            cause->>'$.actorDiedErrorContext.errorMessage',
            cause->>'$.creationTaskFailureContext.formattedExceptionString',
            cause->>'$.runtimeEnvFailedContext.errorMessage',
            cause->>'$.actorUnschedulableContext.errorMessage',
            cause->>'$.oomContext.errorMessage'
        ) as exit_detail
    from definition
    full join life using (actor_id)
    left join death using (actor_id)
    left join page using (actor_id)
    where actor_id is not null
),
-- The listing has no times: those of the page count.
listed as (
    select
        actor_id,
        row->>'state' = 'DEAD' and happened_by(page_row.end_ms * 1000000, moment) as is_dead,
        if(row->>'state' = 'DEAD' and not is_dead, 'ALIVE', non_empty(row->>'state')) as state,
        case
            when row->>'state' not in ('DEPENDENCIES_UNREADY', 'PENDING_CREATION')
                and (moment = 9223372036854775807 or actor_id not in (select actor_id from event))
            then true
        end as started,
        row->>'class_name' as class_name,
        row->>'job_id' as job_id,
        row->>'name' as name,
        row->>'node_id' as node_id,
        to_bigint(row->>'pid') as pid,
        row->>'ray_namespace' as ray_namespace,
        row->>'serialized_runtime_env' as serialized_runtime_env,
        nullif((row->'required_resources')::varchar, 'null') as required_resources,
        if(is_dead, nullif((row->'death_cause')::varchar, 'null')::json, null) as death_cause,
        to_bool(row->>'is_detached') as is_detached,
        row->>'placement_group_id' as placement_group_id,
        row->>'repr_name' as repr_name,
        to_bigint(row->>'num_restarts') as num_restarts,
        to_bigint(row->>'num_restarts_due_to_lineage_reconstruction') as num_restarts_due_to_lineage_reconstruction,
        to_bigint(row->>'num_restarts_due_to_node_preemption') as num_restarts_due_to_node_preemption,
        row->>'call_site' as call_site,
        nullif((row->'label_selector')::varchar, 'null') as label_selector,
        nullif((row->'fallback_strategy')::varchar, 'null') as fallback_strategy,
        coalesce(
            death_cause->>'$.actor_died_error_context.error_message',
            death_cause->>'$.creation_task_failure_context.formatted_exception_string',
            death_cause->>'$.runtime_env_failed_context.error_message',
            death_cause->>'$.actor_unschedulable_context.error_message',
            death_cause->>'$.oom_context.error_message'
        ) as exit_detail
    from listing
    left join page_row using (actor_id)
),
creation as (
    select
        actor_id,
        arg_max(left(func_or_class_name, -1 - length(short_name(func_or_class_name))), attempt_number) as class_name,
        -- The task of a named actor is `name:Class.__init__`.
        arg_max(
            case when ends_with(name, ':' || func_or_class_name) then left(name, -1 - length(func_or_class_name)) else '' end,
            attempt_number
        ) filter (name is not null) as name,
        max(job_id) as job_id,
        arg_max(node_id, attempt_number) as node_id,
        arg_max(worker_id, attempt_number) as worker_id,
        arg_max(worker_pid, attempt_number) as pid,
        max(attempt_number) as num_restarts,
        max(required_resources) as required_resources,
        max(label_selector) as label_selector,
        max(fallback_strategy) as fallback_strategy,
        max(placement_group_id) as placement_group_id,
        max(runtime_env) as serialized_runtime_env,
        max(call_site) as call_site,
        min(if(finished_ns <= moment, finished_ns, null)) as start_ns,
        arg_max(if(failed_ns <= moment, failed_ns, null), attempt_number) as end_ns,
        arg_max(if(failed_ns <= moment, error_message, null), attempt_number) as exit_detail
    from observed_tasks
    where type = 'ACTOR_CREATION_TASK' and is_listed and happened_by(coalesce(pending_args_avail_ns, running_ns), moment)
    group by all
),
created as (
    select
        *,
        case when end_ns is not null then 'DEAD' when start_ns is not null then 'ALIVE' else 'PENDING_CREATION' end as state,
        -- The last that was polled is newer, even if it is little.
        case
            when actor_id not in (select actor_id from listed where actor_id is not null union all select actor_id from page)
            then true
        end as started,
        null::varchar as ip,
        null::bigint as port,
        coalesce(end_ns, start_ns) as changed_ns
    from creation
),
later as (
    select hex_id(body->>'actorId', 16) as actor_id from rare_event
    where event_type in ('ACTOR_DEFINITION_EVENT', 'ACTOR_LIFECYCLE_EVENT')
    group by all having min(event_ns) > moment
    union all
    select actor_id from page_row where coalesce(start_ms, changed_ms) * 1000000 > moment
),
actor as (
    select
        actor_id,
        coalesce(first_of(class_name), '') as class_name,
        coalesce(first_of(state), event.state, page.state, listed.state, 'PENDING_CREATION') as known_state,
        first_of(job_id) as job_id,
        first_of(name) as name,
        first_of(node_id) as node_id,
        coalesce(first_of(pid), 0) as pid,
        first_of(ray_namespace) as ray_namespace,
        first_of(serialized_runtime_env) as serialized_runtime_env,
        first_of(required_resources) as required_resources,
        first_of(is_detached) as is_detached,
        first_of(placement_group_id) as placement_group_id,
        coalesce(first_of(repr_name), case when event.actor_id is not null then '' end) as repr_name,
        -- Ray's clients refuse a listing with null here.
        coalesce(first_of(num_restarts), 0) as num_restarts,
        coalesce(first_of(num_restarts_due_to_lineage_reconstruction), 0) as num_restarts_due_to_lineage_reconstruction,
        coalesce(first_of(num_restarts_due_to_node_preemption), 0) as num_restarts_due_to_node_preemption,
        first_of(call_site) as call_site,
        first_of(label_selector) as label_selector,
        first_of(fallback_strategy) as fallback_strategy,
        first_of(worker_id) as worker_id,
        first_of(port) as port,
        first_of(ip) as ip,
        first_of(start_ns) as start_ns,
        if(known_state = 'DEAD', first_of(end_ns), null) as end_ns,
        first_of(changed_ns) as changed_ns,
        if(known_state = 'DEAD', first_of(death_cause), null) as death_cause,
        if(known_state = 'DEAD', first_of(exit_detail), null) as exit_detail
    from event
    full join listed using (actor_id)
    full join page using (actor_id)
    full join created using (actor_id)
    where actor_id is not null and (
        event.actor_id is not null or actor_id not in (select actor_id from later where actor_id is not null)
    )
),
-- Events of Ray 2.52 name the worker of an actor, but not its process.
process as (
    select worker_id, max(pid) as pid, max(port) as port
    from (select worker_id, pid, port from page_row union all select worker_id, pid, null from creation)
    where worker_id is not null
    group by worker_id
),
-- The listing names no worker: a page names that of the same process.
place as (
    select actor_id, node_id, pid, worker_id as page_worker_id, port as page_port, ip as page_ip from page_row
)
select
    actor_id,
    class_name,
    known_state as state,
    coalesce(job_id, right(actor_id, 8)) as job_id,
    name,
    actor.node_id,
    coalesce(nullif(actor.pid, 0), process.pid, 0) as pid,
    ray_namespace,
    serialized_runtime_env,
    required_resources::json as required_resources,
    death_cause,
    is_detached,
    placement_group_id,
    repr_name,
    num_restarts,
    num_restarts_due_to_lineage_reconstruction,
    num_restarts_due_to_node_preemption,
    call_site,
    label_selector::json as label_selector,
    ray_fallback(fallback_strategy)::json as fallback_strategy,
    coalesce(actor.worker_id, page_worker_id) as worker_id,
    coalesce(node.node_ip, ip, page_ip) as ip_address,
    coalesce(actor.port, process.port, page_port) as port,
    actor.start_ns,
    actor.end_ns,
    changed_ns,
    coalesce(ray_namespace in ('SUPERVISOR_ACTOR_RAY_NAMESPACE', '_dataset_stats_actor', '_train_state_actor'), false)
        or starts_with(coalesce(ray_namespace, ''), '_ray_internal')
        or ray_namespace is null and coalesce(
            starts_with(name, '_ray_internal_job_actor_') or name in ('datasets_stats_actor', 'train_v2_state_actor'), false
        ) as is_internal,
    exit_detail
from actor
left join place using (actor_id, node_id, pid)
left join nodes_at(moment) as node on node.node_id = actor.node_id
left join process on process.worker_id = actor.worker_id
