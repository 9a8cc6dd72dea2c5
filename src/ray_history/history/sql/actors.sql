-- actors: one row per actor, each column from the first of these that has it: ACTOR_DEFINITION and ACTOR_LIFECYCLE
-- events, polled listings of actors, polled pages (`/logical/actors`, then those of nodes), the task that created the actor.
-- State, place and times come from one source, never from several. A column that no source has is null.
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
        count(*) filter (state = 'RESTARTING' and restart_reason = 'LINEAGE_RECONSTRUCTION') as num_restarts_lineage,
        count(*) filter (state = 'RESTARTING' and restart_reason = 'NODE_PREEMPTION') as num_restarts_preemption,
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
exported as (
    select
        actor_id,
        coalesce(class_name, '') as class_name,
        coalesce(life.state, 'DEPENDENCIES_UNREADY') as state,
        job_id,
        coalesce(name, '') as name,
        life.node_id,
        coalesce(life.pid, 0) as pid,
        coalesce(ray_namespace, '') as ray_namespace,
        coalesce(serialized_runtime_env, '') as serialized_runtime_env,
        coalesce(required_resources, '{}') as required_resources,
        coalesce(is_detached, false) as is_detached,
        placement_group_id,
        coalesce(life.repr_name, '') as repr_name,
        coalesce(num_restarts, 0) as num_restarts,
        coalesce(num_restarts_lineage, 0) as num_restarts_lineage,
        coalesce(num_restarts_preemption, 0) as num_restarts_preemption,
        call_site,
        coalesce(label_selector, '{}') as label_selector,
        fallback_strategy,
        life.worker_id,
        life.port,
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
    where actor_id is not null
),
listed as (
    select
        non_empty(row->>'actor_id') as actor_id,
        row->>'class_name' as class_name,
        row->>'state' as state,
        row->>'job_id' as job_id,
        row->>'name' as name,
        row->>'node_id' as node_id,
        to_bigint(row->>'pid') as pid,
        row->>'ray_namespace' as ray_namespace,
        row->>'serialized_runtime_env' as serialized_runtime_env,
        nullif((row->'required_resources')::varchar, 'null') as required_resources,
        nullif((row->'death_cause')::varchar, 'null')::json as death_cause,
        to_bool(row->>'is_detached') as is_detached,
        row->>'placement_group_id' as placement_group_id,
        row->>'repr_name' as repr_name,
        to_bigint(row->>'num_restarts') as num_restarts,
        to_bigint(row->>'num_restarts_due_to_lineage_reconstruction') as num_restarts_lineage,
        to_bigint(row->>'num_restarts_due_to_node_preemption') as num_restarts_preemption,
        row->>'call_site' as call_site,
        nullif((row->'label_selector')::varchar, 'null') as label_selector,
        nullif((row->'fallback_strategy')::varchar, 'null') as fallback_strategy
    from polled_rows('actors')
    qualify row_number() over (partition by actor_id order by row::varchar) = 1
),
-- Pages of nodes have resources and labels under keys in camel case, which cannot be undone.
page as (
    select
        non_empty(actor->>'actorId') as actor_id,
        to_millis(actor->>'timestamp') as changed_ms,
        actor->>'state' as state,
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
        nullif(actor->>'exitDetail', '-') as exit_detail,
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
created as (
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
-- Actors without events, in the shape of `exported`.
substitute as (
    select
        actor_id,
        coalesce(listed.class_name, page.class_name, created.class_name, '') as class_name,
        coalesce(listed.state, page.state) as polled_state,
        polled_state is not null as is_polled,
        if(is_polled, coalesce(page.start_ms * 1000000, created.start_ns), created.start_ns) as start_ns,
        if(is_polled, page.end_ms * 1000000, created.end_ns) as known_end_ns,
        if(is_polled, coalesce(polled_state = 'DEAD', false), known_end_ns is not null) and happened_by(known_end_ns, moment)
            as is_dead,
        case
            when is_dead then 'DEAD'
            when is_polled and polled_state <> 'DEAD' then polled_state
            when is_polled or start_ns is not null then 'ALIVE'
            else 'PENDING_CREATION'
        end as state,
        coalesce(listed.job_id, page.job_id, created.job_id) as job_id,
        coalesce(listed.name, page.name, created.name) as name,
        if(is_polled, coalesce(listed.node_id, page.node_id), created.node_id) as node_id,
        coalesce(if(is_polled, coalesce(listed.pid, page.pid), created.pid), 0) as pid,
        listed.ray_namespace,
        coalesce(listed.serialized_runtime_env, created.serialized_runtime_env) as serialized_runtime_env,
        coalesce(listed.required_resources, page.required_resources, created.required_resources) as required_resources,
        if(is_dead, listed.death_cause, null) as death_cause,
        listed.is_detached,
        coalesce(listed.placement_group_id, page.placement_group_id, created.placement_group_id) as placement_group_id,
        coalesce(listed.repr_name, page.repr_name) as repr_name,
        coalesce(listed.num_restarts, page.num_restarts, created.num_restarts, 0) as num_restarts,
        coalesce(listed.num_restarts_lineage, 0) as num_restarts_lineage,
        coalesce(listed.num_restarts_preemption, 0) as num_restarts_preemption,
        coalesce(listed.call_site, page.call_site, created.call_site) as call_site,
        coalesce(listed.label_selector, page.label_selector, created.label_selector) as label_selector,
        coalesce(listed.fallback_strategy, created.fallback_strategy) as fallback_strategy,
        if(is_polled, page.worker_id, created.worker_id) as worker_id,
        if(is_polled, page.ip, null) as ip,
        if(is_polled, page.port, null) as port,
        if(is_dead, known_end_ns, null) as end_ns,
        if(is_polled, page.changed_ms * 1000000, null) as polled_changed_ns,
        if(polled_changed_ns <= moment, polled_changed_ns, coalesce(end_ns, start_ns)) as changed_ns,
        if(is_dead, coalesce(
            page.exit_detail,
            listed.death_cause->>'$.actor_died_error_context.error_message',
            listed.death_cause->>'$.creation_task_failure_context.formatted_exception_string',
            listed.death_cause->>'$.runtime_env_failed_context.error_message',
            listed.death_cause->>'$.actor_unschedulable_context.error_message',
            listed.death_cause->>'$.oom_context.error_message',
            created.exit_detail
        ), null) as exit_detail
    from listed
    full join page using (actor_id)
    full join created using (actor_id)
    where actor_id is not null and happened_by(coalesce(page.start_ms, page.changed_ms) * 1000000, moment)
        and actor_id not in (select hex_id(body->>'actorId', 16) from rare_event where starts_with(event_type, 'ACTOR_') and hex_id(body->>'actorId', 16) is not null)
),
actor as (
    select * from exported
    union all by name
    select * exclude (polled_state, is_polled, known_end_ns, is_dead, polled_changed_ns) from substitute
)
select
    actor_id,
    class_name,
    actor.state,
    coalesce(job_id, right(actor_id, 8)) as job_id,
    name,
    actor.node_id,
    pid,
    ray_namespace,
    serialized_runtime_env,
    required_resources::json as required_resources,
    death_cause,
    is_detached,
    placement_group_id,
    repr_name,
    num_restarts,
    num_restarts_lineage as num_restarts_due_to_lineage_reconstruction,
    num_restarts_preemption as num_restarts_due_to_node_preemption,
    call_site,
    label_selector::json as label_selector,
    ray_fallback(fallback_strategy)::json as fallback_strategy,
    worker_id,
    coalesce(node.node_ip, ip) as ip_address,
    port,
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
left join nodes_at(moment) as node on node.node_id = actor.node_id
