-- runtime_envs: the runtime environments each node's agent had set up, as polled; Ray exports no events about them, and
-- an answer does not say when it set them up (creation_time_ms is how long that took): at the earliest when its node began.
select
    row->'runtime_env' as runtime_env,
    truth(row->>'success') as success,
    try_cast(row->>'creation_time_ms' as double) as creation_time_ms,
    row->>'node_id' as node_id,
    whole(row->>'ref_cnt') as ref_cnt,
    row->>'error' as error
from listed_rows('runtime_envs')
where coalesce(
    row->>'node_id' in (select node_id from nodes_at(moment))
    or row->>'node_id' not in (select node_id from nodes_at(9223372036854775807)),
    true
)
