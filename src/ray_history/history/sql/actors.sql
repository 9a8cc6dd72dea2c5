-- actors: one row per actor, from ACTOR_DEFINITION and ACTOR_LIFECYCLE events.
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
)
select
    actor_id,
    coalesce(class_name, '') as class_name,
    coalesce(life.state, 'DEPENDENCIES_UNREADY') as state,
    coalesce(job_id, right(actor_id, 8)) as job_id,
    coalesce(name, '') as name,
    life.node_id,
    coalesce(life.pid, 0) as pid,
    coalesce(ray_namespace, '') as ray_namespace,
    coalesce(serialized_runtime_env, '') as serialized_runtime_env,
    coalesce(required_resources, '{}')::json as required_resources,
    ray_death_cause(death.cause) as death_cause,
    coalesce(is_detached, false) as is_detached,
    placement_group_id,
    coalesce(life.repr_name, '') as repr_name,
    coalesce(num_restarts, 0) as num_restarts,
    coalesce(num_restarts_lineage, 0) as num_restarts_due_to_lineage_reconstruction,
    coalesce(num_restarts_preemption, 0) as num_restarts_due_to_node_preemption,
    call_site,
    coalesce(label_selector, '{}')::json as label_selector,
    ray_fallback(fallback_strategy)::json as fallback_strategy,
    life.worker_id,
    node.node_ip as ip_address,
    life.port,
    life.start_ns,
    death.end_ns,
    life.changed_ns,
    coalesce(ray_namespace, '') in ('SUPERVISOR_ACTOR_RAY_NAMESPACE', '_dataset_stats_actor', '_train_state_actor')
        or starts_with(coalesce(ray_namespace, ''), '_ray_internal') as is_internal,
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
left join nodes_at(moment) as node on node.node_id = life.node_id
where actor_id is not null
