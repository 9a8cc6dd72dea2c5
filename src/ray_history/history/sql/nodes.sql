-- nodes: one row per node. The registry declares which source a column is taken from: NODE_DEFINITION and NODE_LIFECYCLE
-- events, polled listings, polled pages, or files. Tasks and actors mention further nodes (mentioned_nodes.sql).
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
        non_empty_json(step->'resources') as resources_total,
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
        latest(resources_total, at_ns) as resources_total,
        latest(sub_state, at_ns) as sub_state,
        min(at_ns) filter (state = 'ALIVE') as alive_ns,
        min(at_ns) filter (state = 'DEAD') as end_ns,
        earliest(case when state = 'DEAD' then reason end, at_ns) as reason,
        earliest(case when state = 'DEAD' then reason_message end, at_ns) as reason_message
    from transition
    group by node_id
),
event as (
    select
        node_id,
        definition.* exclude (node_id, start_ns),
        definition.start_ns,
        life.alive_ns,
        life.state,
        life.resources_total,
        json_exists(life.resources_total, '$."node:__internal_head__"') as is_head_node,
        case life.reason
            when 'EXPECTED_TERMINATION' then concat_ws(': ', 'Expected termination', life.reason_message)
            when 'UNEXPECTED_TERMINATION' then concat_ws(': ', 'Unexpected termination', life.reason_message)
            when 'AUTOSCALER_DRAIN_PREEMPTED' then concat_ws(': ', 'Terminated due to preemption', life.reason_message)
            when 'AUTOSCALER_DRAIN_IDLE' then concat_ws(': ', 'Terminated due to idle (no Ray activity)', life.reason_message)
            else life.reason_message
        end as state_message,
        life.end_ns,
        life.reason as death_reason,
        life.sub_state = 'DRAINING' as is_draining,
        case when life.reason in ('EXPECTED_TERMINATION', 'AUTOSCALER_DRAIN_IDLE') then true end as planned_departure
    from definition
    full join life using (node_id)
),
polled as (
    select
        to_millis(row->>'start_time_ms') * 1000000 as start_ns,
        to_millis(row->>'end_time_ms') * 1000000 as reported_end_ns,
        row->>'state' = 'DEAD' and happened_by(reported_end_ns, moment) as is_dead,
        non_empty(row->>'node_id') as node_id,
        non_empty(row->>'node_ip') as node_ip,
        to_bool(row->>'is_head_node') as is_head_node,
        if(is_dead, 'DEAD', 'ALIVE') as state,
        if(is_dead or row->>'state' <> 'DEAD', row->>'state_message', null) as state_message,
        -- Without node events only the message says so.
        case when is_dead then is_planned_departure(row->>'state_message') end as planned_departure,
        non_empty(row->>'node_name') as node_name,
        non_empty_json(row->'resources_total') as resources_total,
        non_empty_json(row->'labels') as labels,
        if(is_dead, reported_end_ns, null) as end_ns
    from polled_rows('nodes')
    qualify row_number() over (partition by row->>'node_id' order by row::varchar) = 1
),
page as (
    select
        node_id,
        to_millis(page->>'$.raylet.startTimeMs') * 1000000 as start_ns,
        to_millis(page->>'$.raylet.endTimeMs') * 1000000 as reported_end_ns,
        page->>'$.raylet.state' = 'DEAD' and happened_by(reported_end_ns, moment) as is_dead,
        coalesce(non_empty(page->>'$.raylet.nodeManagerAddress'), non_empty(page->>'ip')) as node_ip,
        to_bool(page->>'$.raylet.isHeadNode') as is_head_node,
        if(is_dead, 'DEAD', 'ALIVE') as state,
        if(is_dead or page->>'$.raylet.state' <> 'DEAD', page->>'$.raylet.stateMessage', null) as state_message,
        case when is_dead then is_planned_departure(page->>'$.raylet.stateMessage') end as planned_departure,
        non_empty(page->>'$.raylet.nodeName') as node_name,
        coalesce(non_empty(page->>'hostname'), non_empty(page->>'$.raylet.nodeManagerHostname')) as hostname,
        non_empty(page->>'$.raylet.instanceId') as instance_id,
        non_empty(page->>'$.raylet.instanceTypeName') as instance_type_name,
        original_names(page->'$.raylet.resourcesTotal') as resources_total,
        original_names(page->'$.raylet.labels') as labels,
        if(is_dead, reported_end_ns, null) as end_ns
    from polled_node_pages()
),
raylet as (
    select
        node_id,
        max(log_ns(body->>'started')) as start_ns,
        max(non_empty(body->>'node_ip')) as node_ip,
        max(non_empty(body->>'hostname')) as hostname,
        max(non_empty_json(body->'resources_total')) as resources_total,
        max(non_empty_json(body->'labels')) as labels,
        case when json_exists(max(non_empty_json(body->'resources_total')), '$."node:__internal_head__"') then true end
            as is_head_node
    from document
    where source = 'log_node' and regexp_full_match(node_id, '[0-9a-f]{56}')
    group by all
),
filed as (
    select
        node_id,
        case when node_id in (select node_id from document where source = 'log_head' and name = 'gcs_server.out') then true end
            as is_head_node
    from document
    where source = 'node' and regexp_full_match(node_id, '[0-9a-f]{56}')
),
later as (
    select hex_id(body->>'nodeId', 28) as node_id from rare_event
    where event_type in ('NODE_DEFINITION_EVENT', 'NODE_LIFECYCLE_EVENT')
    group by all having min(event_ns) > moment
    union all
    select node_id from polled where start_ns > moment
    union all
    select node_id from page where start_ns > moment
    union all
    select node_id from raylet where start_ns > moment
)
select
    node_id,
    first_of(node_ip) as node_ip,
    coalesce(first_of(is_head_node), false) as is_head_node,
    coalesce(first_of(state), 'ALIVE') as state,
    first_of(state_message) as state_message,
    first_of(node_name) as node_name,
    coalesce(first_of(resources_total), '{}')::json as resources_total,
    coalesce(first_of(labels), '{}')::json as labels,
    coalesce(first_of(start_ns), event.alive_ns) as start_ns,
    first_of(end_ns) as end_ns,
    first_of(hostname) as hostname,
    first_of(instance_id) as instance_id,
    first_of(instance_type_name) as instance_type_name,
    event.death_reason,
    coalesce(event.is_draining, false) as is_draining,
    coalesce(first_of(planned_departure), false) as planned_departure
from event
full join polled using (node_id)
full join page using (node_id)
full join raylet using (node_id)
full join filed using (node_id)
where node_id is not null and (event.node_id is not null or node_id not in (select node_id from later where node_id is not null))
