-- runtime_envs: the runtime environments each node's agent had set up, as polled; Ray exports no events about them.
select
    row->'runtime_env' as runtime_env,
    truth(row->>'success') as success,
    try_cast(row->>'creation_time_ms' as double) as creation_time_ms,
    row->>'node_id' as node_id,
    whole(row->>'ref_cnt') as ref_cnt,
    row->>'error' as error
from listed_rows('runtime_envs')
where moment is not null
