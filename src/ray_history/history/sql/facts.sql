-- facts: one row about the session as a whole.
with answer as (
    select
        max(body->>'ray_version') filter (name = 'restful__api__version') as ray_version,
        max(body->>'ray_commit') filter (name = 'restful__api__version') as ray_commit,
        max(body->>'$.data.rayVersion') filter (name = 'restful__api__v0__cluster_metadata') as metadata_ray_version,
        max(body->>'$.data.pythonVersion') filter (name = 'restful__api__v0__cluster_metadata') as python_version,
        max(body->>'$.data.os') filter (name = 'restful__api__v0__cluster_metadata') as os,
        max(body->>'value') filter (name = 'restful__timezone') as timezone,
        max(body->>'$.data.clusterId') filter (name = 'restful__cluster_id') as cluster_id
    from document
    where source = 'endpoint'
),
-- Facts from the first lines of Ray's logs, for sessions that were not polled.
log_head as (
    select
        max(body->>'ray_version') filter (name = 'gcs_server.out') as gcs_ray_version,
        max(body->>'ray_version') filter (name = 'monitor.log') as monitor_ray_version,
        max(body->>'ray_commit') as ray_commit,
        max(body->>'python_version') as python_version,
        max(body->>'os') as os,
        max(body->>'cluster_id') filter (name = 'raylet.out') as raylet_cluster_id,
        max(body->>'cluster_id') filter (name = 'gcs_server.out') as gcs_cluster_id
    from document
    where source = 'log_head'
),
-- What the logs of the head say about its end. Null if they were not read; empty if they report no signal to stop.
log_end as (
    select
        coalesce(
            max(concat(name, ': ', body->>'shutdown')) filter (name = 'gcs_server.out' and body->>'shutdown' <> ''),
            max(concat(name, ': ', body->>'shutdown')) filter (body->>'shutdown' <> ''),
            max(body->>'shutdown')
        ) as shutdown
    from document
    where source = 'log_end'
),
-- Of several heads the one that started last. Its collector polls once more before it ends.
head as (
    select coalesce(
        body->>'ended' = 'graceful'
            and len(body->>'$.polled.*.since.answered') > 0
            and list_contains(body->>'$.polled.*.newest', 'unreachable'),
        false
    ) as lost_dashboard
    from document
    where source = 'ledger' and body->>'role' = 'head'
    order by coalesce(try_cast(body->>'started' as double), 0) desc
    limit 1
),
-- The command of `ray-history run`, and how it ended.
command as (
    select
        max_by(body, coalesce(try_cast(body->>'ended' as double), 0)) as body
    from document
    where source = 'command'
),
ledger as (
    select
        count(*) as collectors,
        count(*) filter (body->>'ended' = 'graceful') as graceful,
        count(*) filter (body->>'ended' = 'left') as abandoned,
        max(nullif(try_cast(body->>'written' as double), 0)) as last_written,
        max(nullif(try_cast(body->>'imported' as double), 0)) as imported,
        max(nullif(try_cast(body->>'alive_until' as double), 0)) as alive_until,
        sum(try_cast(body->>'$.events.received' as bigint)) as events_received,
        sum(try_cast(body->>'$.events.stored' as bigint)) as events_stored,
        sum(try_cast(body->>'$.events.quarantined' as bigint)) as events_quarantined,
        sum(try_cast(body->>'$.events.dropped_by_ray' as bigint)) as events_dropped_by_ray,
        sum(try_cast(body->>'$.logs.bytes_lost' as bigint)) as log_bytes_lost
    from document
    where source = 'ledger'
),
lifetime as (
    -- One event with an impossible time must not move the start or the end of the session.
    select min(possible_ns(first_ns)) as start_ns, max(possible_ns(last_ns)) as last_ns
    from (
        select min(possible_ns(event_ns)) as first_ns, max(possible_ns(event_ns)) as last_ns from rare_event
        union all
        select min(possible_ns(start_ns)), max(possible_ns(coalesce(end_ns, start_ns))) from nodes
        union all
        select min(possible_ns(pending_args_avail_ns)), max(possible_ns(greatest(
            pending_args_avail_ns, pending_node_assignment_ns, submitted_to_worker_ns, running_ns, running_in_ray_get_ns,
            running_in_ray_wait_ns, finished_ns, failed_ns
        )))
        from observed_tasks
        union all
        select null, max(possible_ns(spans[-1].endTime)) from observed_tasks where state not in ('FINISHED', 'FAILED')
        union all
        select null, max(possible_ns(event_ns)) from cluster_events
        union all
        -- Without work no events come, nor while a task runs. Pages of nodes have the time at which a node was seen last.
        select null, max(to_bigint(round(try_cast(now as double) * 1000)) * 1000000)
        from (
            select unnest(json_extract(body, '$.data.summary[*].now')) as now
            from document where source = 'endpoint' and name = 'restful__nodes?view=summary'
            union all
            select body->'$.data.detail.now'
            from document where source = 'endpoint' and regexp_full_match(name, 'restful__nodes__[0-9a-f]{56}')
        )
        union all
        select null, max(log_ns(body->>'last')) from document where source = 'log_end'
    )
)
select
    coalesce(answer.ray_version, answer.metadata_ray_version, log_head.gcs_ray_version, log_head.monitor_ray_version) as ray_version,
    coalesce(answer.ray_commit, log_head.ray_commit) as ray_commit,
    coalesce(answer.python_version, log_head.python_version) as python_version,
    coalesce(answer.os, log_head.os) as os,
    answer.timezone,
    coalesce(answer.cluster_id, log_head.raylet_cluster_id, log_head.gcs_cluster_id) as cluster_id,
    lifetime.start_ns,
    lifetime.last_ns,
    log_end.shutdown,
    coalesce((select lost_dashboard from head), false)::integer as lost_dashboard,  -- summaries have no booleans
    case
        when ledger.collectors = 0 then null
        when ledger.graceful = ledger.collectors then 'graceful'
        when ledger.graceful > 0 then 'partly graceful'
        when ledger.abandoned > 0 then 'left'
        else 'lost'
    end as ended,
    ledger.* exclude (graceful, abandoned),
    left(array_to_string(from_json(command.body->'arguments', '["VARCHAR"]'), ' '), 1000) as command,
    to_bigint(command.body->>'exit_code') as exit_code,
    non_empty(command.body->>'signal') as exit_signal,
    non_empty(command.body->>'stopped_by') as stopped_by,
    (select count(*) from nodes) as nodes,
    (select count(*) from document where source = 'node') as nodes_with_files,
    (select count(*) from nodes where node_id not in (select node_id from document where source in ('node', 'ledger')))
        as nodes_without_files,
    (select sum(try_cast(resources_total->>'CPU' as double)) from nodes) as cpus,
    (select sum(try_cast(resources_total->>'GPU' as double)) from nodes) as gpus,
    (select count(*) from actors where not is_internal) as actors,
    (select count(*) from jobs where not is_internal) as jobs,
    (select count(*) from observed_tasks where is_listed and is_user_task(type, is_internal)) as tasks,
    (select count(*) from observed_tasks where is_listed and is_user_task(type, is_internal) and state = 'FAILED')
        as failed_tasks,
    (select count(*) from observed_tasks where has_most_spans) as tasks_with_most_spans
from answer, log_head, log_end, command, ledger, lifetime
