-- Runtime environments of tasks that ran, for sessions whose agents were not polled: they had been set up.
select distinct json(parse_json(runtime_env)) as runtime_env, true as success, node_id
from (
    select distinct runtime_env, node_id
    from task
    where
        runtime_env <> '{}' and running_ns is not null and node_id is not null
        and not exists (
            from document
            where source = 'endpoint' and regexp_full_match(name, 'restful__api__v0__runtime_envs([?].*)?')
        )
)
where json_type(parse_json(runtime_env)) = 'OBJECT'
