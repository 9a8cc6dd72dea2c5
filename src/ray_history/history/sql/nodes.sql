-- nodes: one row per node, from NODE_DEFINITION and NODE_LIFECYCLE events. Polling fills the gaps, and a node that only
-- left files gets a row too.
with definition as (
    select
        hex_id(body->>'nodeId', 28) as node_id,
        max(non_empty(body->>'nodeIpAddress')) as node_ip,
        max(non_empty(body->>'nodeName')) as node_name,
        max(non_empty(body->>'hostname')) as hostname,
        max(non_empty(body->>'instanceId')) as instance_id,
        max(non_empty(body->>'instanceTypeName')) as instance_type_name,
        max(non_empty_json(body->'labels')) as labels,
        min(to_ns(body->>'startTimestamp')) as start_ns
    from rare_event
    where event_type = 'NODE_DEFINITION_EVENT' and happened_by(event_ns, moment)
    group by all
),
transition as (
    select distinct
        hex_id(body->>'nodeId', 28) as node_id,
        step->>'state' as state,
        to_ns(step->>'timestamp') as at_ns,
        non_empty_json(step->'resources') as resources,
        non_empty(step->>'$.deathInfo.reason') as reason,
        non_empty(step->>'$.deathInfo.reasonMessage') as reason_message,
        step->>'aliveSubState' as sub_state
    from transitions_of('NODE_LIFECYCLE_EVENT')
    where at_ns <= moment
),
life as (
    select
        node_id,
        case when bool_or(state = 'DEAD') then 'DEAD' else 'ALIVE' end as state,
        latest(resources, at_ns) as resources,
        latest(sub_state, at_ns) as sub_state,
        min(at_ns) filter (state = 'ALIVE') as alive_ns,
        min(at_ns) filter (state = 'DEAD') as end_ns,
        earliest(case when state = 'DEAD' then reason end, at_ns) as reason,
        earliest(case when state = 'DEAD' then reason_message end, at_ns) as reason_message
    from transition
    group by node_id
),
polled as (
    select
        to_millis(row->>'start_time_ms') * 1000000 as start_ns,
        to_millis(row->>'end_time_ms') * 1000000 as reported_end_ns,
        row->>'state' = 'DEAD' and happened_by(reported_end_ns, moment) as is_dead,
        row->>'node_id' as node_id,
        row->>'node_ip' as node_ip,
        to_bool(row->>'is_head_node') as is_head_node,
        if(is_dead, 'DEAD', 'ALIVE') as state,
        if(is_dead or row->>'state' <> 'DEAD', row->>'state_message', null) as state_message,
        row->>'node_name' as node_name,
        non_empty_json(row->'resources_total') as resources,
        non_empty_json(row->'labels') as labels,
        if(is_dead, reported_end_ns, null) as end_ns
    from polled_rows('nodes')
    where happened_by(start_ns, moment)
)
select
    node_id,
    coalesce(definition.node_ip, polled.node_ip) as node_ip,
    coalesce(json_exists(coalesce(life.resources, polled.resources), '$."node:__internal_head__"'), polled.is_head_node, false)
        as is_head_node,
    case when 'DEAD' in (life.state, polled.state) then 'DEAD' else coalesce(life.state, polled.state, 'ALIVE') end as state,
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
    coalesce(polled.end_ns, life.end_ns) as end_ns, -- the event is some milliseconds late
    definition.hostname,
    definition.instance_id,
    definition.instance_type_name,
    life.reason as death_reason,
    coalesce(life.sub_state = 'DRAINING', false) as is_draining,
    -- Drained or terminated on purpose, which is no failure. Without node events only the polled message says so.
    coalesce(
        life.reason in ('EXPECTED_TERMINATION', 'AUTOSCALER_DRAIN_IDLE'),
        polled.is_dead and regexp_matches(polled.state_message, '^(Expected termination|Terminated due to idle)'),
        false
    ) as planned_departure
from definition
full join life using (node_id)
full join polled using (node_id)
full join (
    -- Nodes with files but without events, whose times are unknown.
    select node_id from document where source = 'node' and regexp_full_match(node_id, '[0-9a-f]{56}')
    except
    select hex_id(body->>'nodeId', 28) from rare_event
    where event_type in ('NODE_DEFINITION_EVENT', 'NODE_LIFECYCLE_EVENT')
) as filed using (node_id)
where node_id is not null
