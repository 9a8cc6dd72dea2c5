-- Workers that only tasks and actors mention: they started, nothing else is known.
select
    worker_id,
    true as is_alive,
    'WORKER' as worker_type,
    max(said.node_id) as node_id,
    coalesce(max(node.node_ip), max(said.ip)) as ip,
    max(pid) as pid
from (
    select worker_id, node_id, worker_pid as pid, case when component_type = 'worker' then node_ip_address end as ip from task
    union all
    select worker_id, node_id, nullif(pid, 0), ip_address from actor
) as said
left join nodes_at(moment) as node on node.node_id = said.node_id
where worker_id is not null and worker_id not in (select worker_id from listed)
group by worker_id
