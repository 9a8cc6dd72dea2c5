-- nodes: one row per node, from NODE_DEFINITION and NODE_LIFECYCLE events; what polling saw fills the holes.
with definition as (
    select
        hex_id(body->>'nodeId', 28) as node_id,
        max(said(body->>'nodeIpAddress')) as node_ip,
        max(said(body->>'nodeName')) as node_name,
        max(said(body->>'hostname')) as hostname,
        max(said(body->>'instanceId')) as instance_id,
        max(said(body->>'instanceTypeName')) as instance_type_name,
        max(filled(body->'labels')) as labels,
        min(instant(body->>'startTimestamp')) as start_ns
    from rare_event
    where event_type = 'NODE_DEFINITION_EVENT' and event_ns <= moment
    group by all
),
transition as (
    select distinct
        hex_id(body->>'nodeId', 28) as node_id,
        step->>'state' as state,
        instant(step->>'timestamp') as at_ns,
        filled(step->'resources') as resources,
        said(step->>'$.deathInfo.reason') as reason,
        said(step->>'$.deathInfo.reasonMessage') as reason_message,
        step->>'aliveSubState' as sub_state
    from (
        select body, unnest(from_json(body->'stateTransitions', '["JSON"]')) as step
        from rare_event
        where event_type = 'NODE_LIFECYCLE_EVENT'
    )
    where at_ns <= moment
),
life as (
    select
        node_id,
        case when bool_or(state = 'DEAD') then 'DEAD' else 'ALIVE' end as state,
        arg_max(resources, at_ns) filter (resources is not null) as resources,
        arg_max(sub_state, at_ns) as sub_state,
        min(at_ns) filter (state = 'ALIVE') as alive_ns,
        min(at_ns) filter (state = 'DEAD') as end_ns,
        arg_min(reason, at_ns) filter (state = 'DEAD' and reason is not null) as reason,
        arg_min(reason_message, at_ns) filter (state = 'DEAD' and reason_message is not null) as reason_message
    from transition
    group by node_id
),
polled as (
    select
        row->>'node_id' as node_id,
        row->>'node_ip' as node_ip,
        (row->>'is_head_node')::boolean as is_head_node,
        row->>'state' as state,
        row->>'state_message' as state_message,
        row->>'node_name' as node_name,
        filled(row->'resources_total') as resources,
        filled(row->'labels') as labels,
        nullif((row->>'start_time_ms')::bigint, 0) * 1000000 as start_ns,
        nullif((row->>'end_time_ms')::bigint, 0) * 1000000 as end_ns
    from listed_rows('nodes')
)
select
    node_id,
    coalesce(definition.node_ip, polled.node_ip) as node_ip,
    coalesce(json_exists(coalesce(life.resources, polled.resources), '$."node:__internal_head__"'), polled.is_head_node, false)
        as is_head_node,
    case when life.state = 'DEAD' then 'DEAD' else coalesce(life.state, polled.state, 'ALIVE') end as state,
    coalesce(
        case life.reason
            when 'EXPECTED_TERMINATION' then concat_ws(': ', 'Expected termination', life.reason_message)
            when 'UNEXPECTED_TERMINATION' then concat_ws(': ', 'Unexpected termination', life.reason_message)
            when 'AUTOSCALER_DRAIN_PREEMPTED' then concat_ws(': ', 'Terminated due to preemption', life.reason_message)
            when 'AUTOSCALER_DRAIN_IDLE' then concat_ws(': ', 'Terminated due to idle (no Ray activity)', life.reason_message)
            else life.reason_message
        end,
        polled.state_message
    ) as state_message,
    coalesce(definition.node_name, polled.node_name) as node_name,
    coalesce(life.resources, polled.resources, '{}')::json as resources_total,
    coalesce(definition.labels, polled.labels, '{}')::json as labels,
    coalesce(definition.start_ns, polled.start_ns, life.alive_ns) as start_ns,
    coalesce(life.end_ns, polled.end_ns) as end_ns,
    definition.hostname,
    definition.instance_id,
    definition.instance_type_name,
    life.reason as death_reason,
    coalesce(life.sub_state = 'DRAINING', false) as is_draining
from definition
full join life using (node_id)
full join polled using (node_id)
where node_id is not null
