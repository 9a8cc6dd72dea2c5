-- jobs: driver jobs and submission jobs joined into one row each, as the dashboard lists them. Submissions come from
-- SUBMISSION_JOB events (of a later Ray), the file EXPORT_SUBMISSION_JOB, polling, or the log of events about jobs. The
-- row has the most advanced status of all sources, and each field from the best source that has it, in that order.
-- Drivers come from DRIVER_JOB events, or from polling where these are missing. How a script ended, only
-- `ray-history run` knows: for Ray, each driver that is gone has succeeded, unless it was submitted.
with definition as (
    select
        hex_id(body->>'jobId', 4) as job_id,
        max(non_empty(body->>'entrypoint')) as entrypoint,
        max(non_empty(body->>'driverPid')) as driver_pid,
        max(hex_id(body->>'driverNodeId', 28)) as driver_node_id,
        max(non_empty(body->>'$.config.serializedRuntimeEnv')) as runtime_env,
        max(non_empty_json(body->'$.config.metadata')) as metadata,
        -- Ray's own drivers: most versions send nothing about them. The dashboard's are recognized by their entrypoint.
        coalesce(bool_or(
            starts_with(coalesce(body->>'$.config.rayNamespace', body->>'rayNamespace'), '_ray_internal')
            or is_internal_entrypoint(body->>'entrypoint')
        ), false) as is_internal
    from rare_event
    where event_type = 'DRIVER_JOB_DEFINITION_EVENT' and happened_by(event_ns, moment)
    group by all
),
life as (
    select
        hex_id(body->>'jobId', 4) as job_id,
        min(to_ns(step->>'timestamp')) filter (step->>'state' = 'CREATED') as start_ns,
        min(to_ns(step->>'timestamp')) filter (step->>'state' = 'FINISHED') as end_ns
    from transitions_of('DRIVER_JOB_LIFECYCLE_EVENT')
    where to_ns(step->>'timestamp') <= moment
    group by all
),
polled_driver as (
    select
        non_empty(row->>'job_id') as job_id,
        row->>'submission_id' as submission_id,
        row->>'entrypoint' as entrypoint,
        row->>'$.driver_info.node_ip_address' as ip,
        row->>'$.driver_info.pid' as pid,
        (row->'metadata')::varchar as metadata,
        (row->'runtime_env')::varchar as runtime_env,
        to_millis(row->>'start_time') as start_ms,
        to_millis(row->>'end_time') as end_ms
    from polled_jobs()
    where non_empty(row->>'job_id') is not null
),
-- A job with a definition is known from its start; the polled start of a submission is earlier.
polled_alone as (
    select * from polled_driver
    where happened_by(start_ms * 1000000, moment) and job_id not in (
        select hex_id(body->>'jobId', 4) from rare_event
        where event_type = 'DRIVER_JOB_DEFINITION_EVENT' and hex_id(body->>'jobId', 4) is not null
    )
),
driver as (
    select
        job_id,
        coalesce(definition.entrypoint, polled_alone.entrypoint) as entrypoint,
        coalesce(definition.driver_pid, polled_alone.pid) as driver_pid,
        driver_node_id,
        parse_json(coalesce(definition.runtime_env, polled_alone.runtime_env)) as runtime_env,
        coalesce(definition.is_internal, is_internal_entrypoint(polled_alone.entrypoint)) as is_internal,
        life.start_ns // 1000000 as start_ms,
        coalesce(life.end_ns, ended.end_ns) as end_ns,
        coalesce(life.end_ns, ended.end_ns) // 1000000 as end_ms,
        coalesce(definition.metadata->>'job_submission_id', polled_alone.submission_id) as submission_id,
        json_merge_patch(
            coalesce(definition.metadata, non_empty_json(polled_alone.metadata), '{}')::json, '{"job_submission_id": null}'
        ) as metadata
    from definition
    full join life using (job_id)
    full join polled_alone using (job_id)
    left join ended_jobs(moment) as ended using (job_id)
),
-- "Started a ray job NAME." and "Completed a ray job NAME with a status FAILED. The reason", in whole seconds.
job_log as (
    select
        body->>'$.custom_fields.submission_id' as submission_id,
        try(to_bigint(body->>'timestamp') * 1000) as at_ms,
        body->>'message' as line,
        concat('Completed a ray job ', submission_id, ' with a status ') as completed,
        case when starts_with(line, completed) then substr(line, length(completed) + 1) end as outcome
    from document
    where source = 'log_event' and body->>'source_type' = 'JOBS'
),
-- Each observation of a submission: its source, its status at that time, its fields.
observation as (
    select
        body->>'submissionId' as submission_id,
        1 as source,
        to_ns(step->>'timestamp') as seen_ns,
        step->>'state' as status,
        step->>'message' as message,
        non_empty(step->>'errorType') as error_type,
        null::varchar as entrypoint,
        null::bigint as start_ms,
        case when step->>'state' in ('SUCCEEDED', 'FAILED', 'STOPPED') then ray_ms(to_ns(step->>'timestamp')) end as end_ms,
        null::varchar as metadata,
        null::varchar as runtime_env,
        non_empty(step->>'driverAgentHttpAddress') as driver_agent_http_address,
        hex_id(step->>'driverNodeId', 28) as driver_node_id,
        to_bigint(step->>'driverExitCode') as driver_exit_code
    from transitions_of('SUBMISSION_JOB_LIFECYCLE_EVENT')
    union all by name
    select
        body->>'submissionId' as submission_id,
        1 as source,
        event_ns as seen_ns,
        'PENDING' as status,
        non_empty(body->>'entrypoint') as entrypoint,
        ray_ms(event_ns) as start_ms,
        non_empty_json(body->'$.config.metadata') as metadata,
        non_empty(body->>'$.config.serializedRuntimeEnv') as runtime_env
    from rare_event
    where event_type = 'SUBMISSION_JOB_DEFINITION_EVENT'
    union all by name
    select
        body->>'$.event_data.submission_job_id' as submission_id,
        2 as source,
        try(to_bigint(body->>'timestamp') * 1000000000) as seen_ns,
        coalesce(body->>'$.event_data.status', 'PENDING') as status,
        body->>'$.event_data.message' as message,
        non_empty(body->>'$.event_data.error_type') as error_type,
        body->>'$.event_data.entrypoint' as entrypoint,
        to_millis(body->>'$.event_data.start_time') as start_ms,
        to_millis(body->>'$.event_data.end_time') as end_ms,
        (body->'$.event_data.metadata')::varchar as metadata,
        body->>'$.event_data.runtime_env_json' as runtime_env,
        non_empty(body->>'$.event_data.driver_agent_http_address') as driver_agent_http_address,
        non_empty(body->>'$.event_data.driver_node_id') as driver_node_id,
        to_bigint(body->>'$.event_data.driver_exit_code') as driver_exit_code
    from document
    where source = 'export_event' and body->>'source_type' = 'EXPORT_SUBMISSION_JOB'
    union all by name
    select
        row->>'submission_id' as submission_id,
        3 as source,
        to_millis(row->>'start_time') * 1000000 as seen_ns,
        row->>'status' as status,
        row->>'message' as message,
        row->>'error_type' as error_type,
        row->>'entrypoint' as entrypoint,
        to_millis(row->>'start_time') as start_ms,
        to_millis(row->>'end_time') as end_ms,
        (row->'metadata')::varchar as metadata,
        (row->'runtime_env')::varchar as runtime_env,
        row->>'driver_agent_http_address' as driver_agent_http_address,
        row->>'driver_node_id' as driver_node_id,
        to_bigint(row->>'driver_exit_code') as driver_exit_code
    from polled_jobs()
    where row->>'type' = 'SUBMISSION'
    union all by name
    select
        submission_id,
        4 as source,
        at_ms * 1000000 as seen_ns,
        if(outcome is null, 'PENDING', regexp_extract(outcome, '^(SUCCEEDED|FAILED|STOPPED)[.]', 1)) as status,
        non_empty(trim(regexp_replace(outcome, '^[A-Z]+[.]', ''))) as message,
        if(outcome is null, at_ms, null) as start_ms,
        if(outcome is null, null, at_ms) as end_ms
    from job_log
    where outcome is not null or line = concat('Started a ray job ', submission_id, '.')
),
ranked_observation as (
    select
        * exclude (end_ms, message, error_type, driver_exit_code),
        if(end_ms * 1000000 <= moment, end_ms, null) as end_ms,
        case
            when status not in ('SUCCEEDED', 'FAILED', 'STOPPED') then status
            when end_ms * 1000000 > moment then 'RUNNING'
            else status
        end as status_then,
        if(status_then = status, message, null) as message,
        if(status_then = status, error_type, null) as error_type,
        if(status_then = status, driver_exit_code, null) as driver_exit_code,
        -- A status that Ray does not have ranks below all others; null would rank above them.
        (coalesce(list_position(['PENDING', 'RUNNING', 'STOPPED', 'SUCCEEDED', 'FAILED'], status_then), 0), -source, seen_ns) as rank
    from observation
    where submission_id <> '' and happened_by(seen_ns, moment)
),
submission as (
    select
        submission_id,
        latest(status_then, rank) as status,
        latest(message, rank) as message,
        latest(error_type, rank) as error_type,
        latest(entrypoint, rank) as entrypoint,
        coalesce(min(start_ms) filter (source < 4), min(start_ms)) as start_ms,
        latest(end_ms, rank) as end_ms,
        -- The export file has {} for none, the dashboard null.
        coalesce(
            latest(non_empty_json(metadata), rank), max(metadata) filter (source = 3), latest(metadata, rank)
        ) as metadata,
        parse_json(latest(runtime_env, rank)) as runtime_env,
        latest(driver_agent_http_address, rank) as driver_agent_http_address,
        latest(driver_node_id, rank) as driver_node_id,
        latest(driver_exit_code, rank) as driver_exit_code
    from ranked_observation
    group by submission_id
),
-- A submission may start several drivers; Ray shows the last one.
last_driver as (
    select * from driver
    qualify submission_id is null or job_id = max(job_id) over (partition by submission_id)
),
-- The command that was run beside its collector, once it has ended.
command as (
    select
        body->>'pid' as pid,
        to_bigint(body->>'exit_code') as exit_code,
        non_empty(body->>'signal') as signal,
        non_empty(body->>'stopped_by') as stopped_by,
        possible_ns(try_cast(try_cast(body->>'ended' as double) * 1e9 as bigint)) as ended_ns
    from document
    where source = 'command' and ended_ns <= moment and (exit_code is not null or signal is not null)
    order by ended_ns desc
    limit 1
),
-- Its driver is the process that it became, or the only driver that was not submitted: of `uv run` or a shell it is a child.
outcome as (
    select
        driver.job_id,
        case when stopped_by is not null then 'STOPPED' when exit_code = 0 then 'SUCCEEDED' else 'FAILED' end as status,
        case when stopped_by is null and exit_code = 0 then null else concat(
            case when stopped_by is not null then concat('Stopped by ', stopped_by, '. ') end,
            case when exit_code is null then concat('The command was ended by ', signal, '.')
            else concat('The command exited with code ', exit_code, '.') end
        ) end as message,
        exit_code,
        ended_ns
    from driver, command
    where driver.submission_id is null and not coalesce(driver.is_internal, false)
    qualify
        row_number() over (order by driver.driver_pid is not distinct from command.pid desc, driver.job_id desc) = 1
        and (driver.driver_pid is not distinct from command.pid or count(*) over () = 1)
)
select
    last_driver.job_id,
    first_of(submission_id) as submission_id,
    coalesce(first_of(entrypoint), '') as entrypoint,
    case when first_of(submission_id) is null then 'DRIVER' else 'SUBMISSION' end
        as type,
    coalesce(
        submission.status,
        outcome.status,
        case when last_driver.end_ns is null or last_driver.submission_id is not null then 'RUNNING' else 'SUCCEEDED' end
    ) as status,
    coalesce(
        submission.message,
        outcome.message,
        case
            when submission.status is null and last_driver.submission_id is not null and last_driver.end_ns is not null
                then 'The driver has finished, with an unknown result.'
        end
    ) as message,
    submission.error_type,
    first_of(start_ms) as start_ms,
    case
        when submission.submission_id is not null then submission.end_ms
        when last_driver.end_ns is not null then first_of(end_ms)
        else ray_ms(outcome.ended_ns)
    end as end_ms,
    coalesce(first_of(metadata), '{}')::json as metadata,
    coalesce(first_of(runtime_env), '{}'::json) as runtime_env,
    submission.driver_agent_http_address,
    case when submission.submission_id is not null then first_of(driver_node_id) end as driver_node_id,
    coalesce(submission.driver_exit_code, outcome.exit_code) as driver_exit_code,
    coalesce(node.node_ip, polled_driver.ip) as driver_ip,
    last_driver.driver_pid,
    -- The log alone ends no job: it is newer than all other sources, and counts once the session is over.
    coalesce(
        last_driver.end_ns, outcome.ended_ns, case when logged.end_ns <= moment then logged.end_ns end
    ) as driver_end_ns,
    submission.submission_id is null and coalesce(last_driver.is_internal, false) as is_internal
from last_driver
full join submission on submission.submission_id = last_driver.submission_id
left join nodes_at(moment) as node on node.node_id = last_driver.driver_node_id
left join polled_driver on polled_driver.job_id = last_driver.job_id
left join drivers_finished_in_logs() as logged on logged.job_id = last_driver.job_id
left join outcome on outcome.job_id = last_driver.job_id
where last_driver.job_id is not null or submission.submission_id is not null
