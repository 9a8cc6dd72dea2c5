-- runtime_envs: the runtime environments that each node's agent had set up, as polled. Ray exports no events about
-- them, and creation_time_ms is a duration: all that bounds their age is the start of their node.
select
    row->'runtime_env' as runtime_env,
    to_bool(row->>'success') as success,
    try_cast(row->>'creation_time_ms' as double) as creation_time_ms,
    row->>'node_id' as node_id,
    to_bigint(row->>'ref_cnt') as ref_cnt,
    row->>'error' as error,
    position  -- Ray sorts by creation_time_ms, and leaves rows with equal ones as they came from the nodes
from polled_rows('runtime_envs')
where coalesce(
    row->>'node_id' in (select node_id from nodes_at(moment))
    or row->>'node_id' not in (select node_id from nodes_at(9223372036854775807)),
    true
)
