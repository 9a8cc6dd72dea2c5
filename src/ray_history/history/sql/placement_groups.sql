-- placement_groups: one row per group, from PLACEMENT_GROUP events (a later Ray) and from polling, as the registry declares.
with definition as (
    select
        hex_id(body->>'placementGroupId', 18) as placement_group_id,
        max(body->>'name') as name,
        max(hex_id(body->>'creatorJobId', 4)) as creator_job_id,
        bool_or(to_bool(body->>'isDetached')) as is_detached,
        max((body->'bundles')::varchar) as bundles,
        max(non_empty(body->>'strategy')) as strategy,
        min(coalesce(nullif(to_bigint(body->>'creationRequestReceivedNs'), 0), event_ns)) as created_ns
    from rare_event
    where event_type = 'PLACEMENT_GROUP_DEFINITION_EVENT' and happened_by(event_ns, moment)
    group by all
),
life as (
    select
        hex_id(body->>'placementGroupId', 18) as placement_group_id,
        arg_max(
            step,
            (to_ns(step->>'timestamp'), list_position(['PENDING', 'PREPARED', 'CREATED', 'RESCHEDULING', 'REMOVED'], step->>'state'), step::varchar)
        ) as step,
        max(to_ns(step->>'timestamp')) as changed_ns,
        latest(nullif((step->'bundlePlacements')::varchar, '[]'), to_ns(step->>'timestamp')) as placements
    from transitions_of('PLACEMENT_GROUP_LIFECYCLE_EVENT')
    where to_ns(step->>'timestamp') <= moment
    group by all
),
bundle as (
    select
        placement_group_id,
        to_json(list(json_object(
            'bundle_id', json_object('placement_group_id', placement_group_id, 'bundle_index', bundle_index),
            'unit_resources', unit_resources,
            'node_id', coalesce(node_id, ''),
            'label_selector', label_selector
        ) order by bundle_index)) as bundles
    from (
        select
            placement_group_id,
            coalesce(to_bigint(b->>'bundleIndex'), 0) as bundle_index,
            coalesce(b->'unitResources', '{}'::json) as unit_resources,
            coalesce(b->'labelSelector', '{}'::json) as label_selector
        from (select placement_group_id, unnest(from_json(bundles, '["JSON"]')) as b from definition)
    )
    left join (
        select
            placement_group_id,
            coalesce(to_bigint(p->>'bundleIndex'), 0) as bundle_index,
            hex_id(p->>'nodeId', 28) as node_id
        from (select placement_group_id, unnest(from_json(placements, '["JSON"]')) as p from life)
    ) using (placement_group_id, bundle_index)
    group by placement_group_id
),
event as (
    select
        placement_group_id,
        name,
        creator_job_id,
        coalesce(step->>'state', 'PENDING') as state,
        bundle.bundles,
        is_detached,
        json_object(
            'creation_request_received_ns', created_ns::varchar,
            'scheduling_attempt', coalesce(to_bigint(step->>'schedulingAttempt'), 0),
            'scheduling_state', coalesce(step->>'schedulingState', 'QUEUED'),
            'highest_retry_delay_ms', coalesce(try_cast(step->>'highestRetryDelayMs' as double), 0.0)
        ) as stats,
        created_ns,
        case when step->>'state' = 'REMOVED' then changed_ns end as end_ns
    from definition
    full join life using (placement_group_id)
    left join bundle using (placement_group_id)
),
polled as (
    select
        row->>'placement_group_id' as placement_group_id,
        row->>'name' as name,
        row->>'creator_job_id' as creator_job_id,
        row->>'state' as state,
        row->'bundles' as bundles,
        to_bool(row->>'is_detached') as is_detached,
        row->'stats' as stats,
        row->'label_domain_key' as label_domain_key,
        row->'label_domain_assignments' as label_domain_assignments,
        row->'topology_strategy' as topology_strategy,
        row->'topology_assignments' as topology_assignments,
        to_bigint(row->>'$.stats.creation_request_received_ns') as created_ns
    from polled_rows('placement_groups')
    where happened_by(created_ns, moment)
)
select
    placement_group_id,
    coalesce(first_of(name), '') as name,
    first_of(creator_job_id) as creator_job_id,
    first_of(state) as state,
    coalesce(first_of(bundles), '[]')::json as bundles,
    coalesce(first_of(is_detached), false) as is_detached,
    first_of(stats) as stats,
    first_of(label_domain_key) as label_domain_key,
    coalesce(first_of(label_domain_assignments), '{}')::json as label_domain_assignments,
    coalesce(first_of(topology_strategy), '{}')::json as topology_strategy,
    coalesce(first_of(topology_assignments), '{}')::json as topology_assignments,
    first_of(created_ns) as created_ns,
    first_of(end_ns) as end_ns
from event
full join polled using (placement_group_id)
where placement_group_id is not null
