-- workers: one row per worker process, from WORKER_DEFINITION and WORKER_LIFECYCLE events (Ray >= 2.57). Drivers, and
-- the workers of an older Ray, come from polling; drivers that were not polled, or not until they ended, from the events
-- of their job.
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
        nullif(try_cast(step->>'workerLaunchTimeMs' as ubigint), 0) as launch_ms,
        nullif(try_cast(step->>'workerLaunchedTimeMs' as ubigint), 0) as launched_ms,
        to_millis(step->>'startTimeMs') as start_ms,
        to_millis(step->>'endTimeMs') as end_ms,
        step->>'$.deathInfo.exitType' as exit_type,
        step->>'$.deathInfo.exitDetail' as exit_detail
    from transitions_of('WORKER_LIFECYCLE_EVENT')
    where at_ns <= moment
),
life as (
    select
        worker_id,
        bool_or(state = 'DEAD') as is_dead,
        min(launch_ms) as launch_ms,
        min(launched_ms) as launched_ms,
        min(start_ms) as start_ms,
        min(end_ms) filter (state = 'DEAD') as end_ms,
        earliest(case when state = 'DEAD' then exit_type end, at_ns) as exit_type,
        earliest(case when state = 'DEAD' then exit_detail end, at_ns) as exit_detail
    from transition
    group by worker_id
),
driver as (
    select
        rpad(hex_id(body->>'jobId', 4), 56, 'f') as worker_id,
        max(hex_id(body->>'driverNodeId', 28)) as node_id,
        max(to_bigint(body->>'driverPid')) as pid
    from rare_event
    where event_type = 'DRIVER_JOB_DEFINITION_EVENT' and happened_by(event_ns, moment)
    group by all
),
-- A job finishes when its driver is gone, whether it exited or was killed.
gone_driver as (
    select rpad(job_id, 56, 'f') as worker_id, end_ns // 1000000 as end_ms from ended_jobs(moment)
),
polled as (
    select
        to_millis(row->>'start_time_ms') as start_ms,
        to_millis(row->>'end_time_ms') as reported_end_ms,
        not to_bool(row->>'is_alive') and happened_by(reported_end_ms * 1000000, moment) as is_dead,
        row->>'worker_id' as worker_id,
        row->>'worker_type' as worker_type,
        if(is_dead, row->>'exit_type', null) as exit_type,
        if(is_dead, row->>'exit_detail', null) as exit_detail,
        row->>'node_id' as node_id,
        row->>'ip' as ip,
        to_bigint(row->>'pid') as pid,
        try_cast(row->>'worker_launch_time_ms' as ubigint) as launch_ms,
        try_cast(row->>'worker_launched_time_ms' as ubigint) as launched_ms,
        if(is_dead, reported_end_ms, null) as end_ms,
        to_bigint(row->>'debugger_port') as debugger_port,
        to_bigint(row->>'num_paused_threads') as num_paused_threads
    from polled_rows('workers')
    where happened_by(coalesce(start_ms, reported_end_ms) * 1000000, moment)
)
select
    worker_id,
    not (coalesce(life.is_dead, false) or coalesce(polled.is_dead, false)) and gone_driver.end_ms is null as is_alive,
    coalesce(definition.worker_type, polled.worker_type, case when driver.worker_id is not null then 'DRIVER' end, 'WORKER')
        as worker_type,
    coalesce(life.exit_type, polled.exit_type) as exit_type,
    coalesce(definition.node_id, polled.node_id, driver.node_id) as node_id,
    coalesce(node.node_ip, polled.ip) as ip,
    coalesce(definition.pid, polled.pid, driver.pid) as pid,
    coalesce(life.exit_detail, polled.exit_detail) as exit_detail,
    coalesce(life.launch_ms, polled.launch_ms) as worker_launch_time_ms,
    coalesce(life.launched_ms, polled.launched_ms) as worker_launched_time_ms,
    coalesce(life.start_ms, polled.start_ms) as start_time_ms,
    coalesce(life.end_ms, polled.end_ms, gone_driver.end_ms) as end_time_ms,
    polled.debugger_port,
    polled.num_paused_threads
from definition
full join life using (worker_id)
full join driver using (worker_id)
full join polled using (worker_id)
left join gone_driver using (worker_id)
left join nodes_at(moment) as node on node.node_id = coalesce(definition.node_id, polled.node_id, driver.node_id)
where worker_id is not null
