-- runtime_envs: the runtime environments each node's agent had set up, as polled; Ray exports no events about them.
select
    row->'runtime_env' as runtime_env,
    (row->>'success')::boolean as success,
    (row->>'creation_time_ms')::double as creation_time_ms,
    row->>'node_id' as node_id,
    (row->>'ref_cnt')::bigint as ref_cnt,
    row->>'error' as error
from listed_rows('runtime_envs')
where moment is not null
