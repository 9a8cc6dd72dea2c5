-- workers: one row per worker process. The registry declares which source a column is taken from: WORKER_DEFINITION and
-- WORKER_LIFECYCLE events (Ray >= 2.57; never of drivers), the polled listing, polled pages of nodes, the events of a
-- driver's job, or the names of log files. Tasks and actors mention further workers (mentioned_workers.sql).
with definition as (
    select
        hex_id(body->>'workerId', 28) as worker_id,
        max(hex_id(body->>'nodeId', 28)) as node_id,
        max(nullif(to_bigint(body->>'pid'), 0)) as pid,
        max(non_empty(body->>'workerType')) as worker_type
    from rare_event
    where event_type = 'WORKER_DEFINITION_EVENT' and happened_by(event_ns, moment)
    group by all
),
transition as (
    select
        hex_id(body->>'workerId', 28) as worker_id,
        step->>'state' as state,
        to_ns(step->>'timestamp') as at_ns,
        nullif(try_cast(step->>'workerLaunchTimeMs' as ubigint), 0) as worker_launch_time_ms,
        nullif(try_cast(step->>'workerLaunchedTimeMs' as ubigint), 0) as worker_launched_time_ms,
        to_millis(step->>'startTimeMs') as start_time_ms,
        to_millis(step->>'endTimeMs') as end_time_ms,
        step->>'$.deathInfo.exitType' as exit_type,
        step->>'$.deathInfo.exitDetail' as exit_detail
    from transitions_of('WORKER_LIFECYCLE_EVENT')
    where at_ns <= moment
),
life as (
    select
        worker_id,
        not bool_or(state = 'DEAD') as is_alive,
        min(worker_launch_time_ms) as worker_launch_time_ms,
        min(worker_launched_time_ms) as worker_launched_time_ms,
        min(start_time_ms) as start_time_ms,
        min(end_time_ms) filter (state = 'DEAD') as end_time_ms,
        earliest(case when state = 'DEAD' then exit_type end, at_ns) as exit_type,
        earliest(case when state = 'DEAD' then exit_detail end, at_ns) as exit_detail
    from transition
    group by worker_id
),
event as (
    select * from definition full join life using (worker_id)
),
driver as (
    select
        rpad(hex_id(body->>'jobId', 4), 56, 'f') as worker_id,
        'DRIVER' as worker_type,
        max(hex_id(body->>'driverNodeId', 28)) as node_id,
        max(to_bigint(body->>'driverPid')) as pid
    from rare_event
    where event_type = 'DRIVER_JOB_DEFINITION_EVENT' and happened_by(event_ns, moment)
    group by all
),
-- A job finishes when its driver is gone, whether it exited or was killed.
gone_driver as (
    select rpad(job_id, 56, 'f') as worker_id, false as is_alive, end_ns // 1000000 as end_time_ms from ended_jobs(moment)
),
polled as (
    select
        to_millis(row->>'start_time_ms') as start_time_ms,
        to_millis(row->>'end_time_ms') as reported_end_ms,
        not to_bool(row->>'is_alive') and happened_by(reported_end_ms * 1000000, moment) as is_dead,
        not is_dead as is_alive,
        non_empty(row->>'worker_id') as worker_id,
        non_empty(row->>'worker_type') as worker_type,
        if(is_dead, row->>'exit_type', null) as exit_type,
        if(is_dead, row->>'exit_detail', null) as exit_detail,
        non_empty(row->>'node_id') as node_id,
        non_empty(row->>'ip') as ip,
        to_bigint(row->>'pid') as pid,
        try_cast(row->>'worker_launch_time_ms' as ubigint) as worker_launch_time_ms,
        try_cast(row->>'worker_launched_time_ms' as ubigint) as worker_launched_time_ms,
        if(is_dead, reported_end_ms, null) as end_time_ms,
        to_bigint(row->>'debugger_port') as debugger_port,
        to_bigint(row->>'num_paused_threads') as num_paused_threads
    from polled_rows('workers')
    qualify row_number() over (partition by row->>'worker_id' order by row::varchar) = 1
),
page as (
    select
        hex_any(process->>'workerId', 28) as worker_id,
        min(non_empty(process->>'workerType')) as worker_type,
        min(node_id) as node_id,
        min(non_empty(process->>'ipAddress')) as ip,
        min(nullif(to_bigint(process->>'pid'), 0)) as pid
    from (
        select node_id, unnest(json_extract(page, '$.raylet.coreWorkersStats[*]')) as process from polled_node_pages()
        union all
        select node_id, unnest(json_extract(page, '$.workers[*].coreWorkerStats[*]')) from polled_node_pages()
    )
    where regexp_full_match(process->>'workerId', '[0-9a-f]{56}')
    group by all
),
file as (
    select
        body->>'worker_id' as worker_id,
        min(non_empty(body->>'worker_type')) as worker_type,
        min(node_id) as node_id,
        min(to_bigint(body->>'pid')) as pid
    from document
    where source = 'worker_log'
    group by all
),
-- Polled pages and files have no times.
later as (
    select hex_id(body->>'workerId', 28) as worker_id from rare_event
    where event_type in ('WORKER_DEFINITION_EVENT', 'WORKER_LIFECYCLE_EVENT')
    group by all having min(event_ns) > moment
    union all
    select worker_id from polled where coalesce(start_time_ms, reported_end_ms) * 1000000 > moment
    union all
    select rpad(hex_id(body->>'jobId', 4), 56, 'f') from rare_event
    where event_type = 'DRIVER_JOB_DEFINITION_EVENT' and event_ns > moment
)
select
    worker_id,
    coalesce(first_of(is_alive), true) as is_alive,
    coalesce(first_of(worker_type), 'WORKER') as worker_type,
    first_of(exit_type) as exit_type,
    first_of(node_id) as node_id,
    coalesce(node.node_ip, first_of(ip)) as ip,
    first_of(pid) as pid,
    first_of(exit_detail) as exit_detail,
    first_of(worker_launch_time_ms) as worker_launch_time_ms,
    first_of(worker_launched_time_ms) as worker_launched_time_ms,
    first_of(start_time_ms) as start_time_ms,
    first_of(end_time_ms) as end_time_ms,
    first_of(debugger_port) as debugger_port,
    first_of(num_paused_threads) as num_paused_threads
from event
full join driver using (worker_id)
full join polled using (worker_id)
full join page using (worker_id)
full join file using (worker_id)
left join gone_driver using (worker_id)
left join nodes_at(moment) as node on node.node_id = first_of(node_id)
where worker_id is not null and (
    event.worker_id is not null or driver.worker_id is not null
    or worker_id not in (select worker_id from later where worker_id is not null)
)
