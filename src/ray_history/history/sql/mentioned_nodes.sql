-- Nodes that only tasks and actors mention: something ran there, nothing else is known. Profiles have the address of the
-- process, which is that of its node.
select
    node_id,
    max(ip) as node_ip,
    false as is_head_node,
    'ALIVE' as state,
    '{}'::json as resources_total,
    '{}'::json as labels,
    false as is_draining,
    false as planned_departure
from (
    select node_id, case when component_type = 'worker' then node_ip_address end as ip from task
    union all
    select node_id, ip_address from actor
)
where node_id is not null and node_id not in (select node_id from listed)
group by node_id
