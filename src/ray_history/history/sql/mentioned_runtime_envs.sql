-- Runtime environments that tasks ran in, where nobody asked the nodes' agents for theirs: what ran there had been set up.
select distinct json(json_text(runtime_env)) as runtime_env, true as success, node_id
from task
where
    json_type(json_text(runtime_env)) = 'OBJECT' and runtime_env <> '{}'
    and running_ns is not null and node_id is not null
    and not exists (
        from document
        where source = 'endpoint' and regexp_full_match(name, 'restful__api__v0__runtime_envs([?].*)?')
    )
