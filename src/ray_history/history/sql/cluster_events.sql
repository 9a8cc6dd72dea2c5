-- cluster_events: events logged by Ray's own processes (logs/events/event_*.log), and Kubernetes' (PLATFORM_EVENT).
-- Each body is parsed once: every further parse holds a copy of many bodies in memory, in each thread.
with logged as (
    select
        field[1] as event_id,
        field[2] as source_type,
        field[3] as source_hostname,
        to_bigint(field[4]) as source_pid,
        field[5] as severity,
        field[6] as label,
        replace(replace(field[7], '\n', chr(10)), '\r', chr(13)) as message,
        try_cast(field[8] as double) as seconds,
        field[8] as timestamp_text,
        custom_fields,
        node_id
    from (
        select
            body->>[
                'event_id', 'source_type', 'source_hostname', 'source_pid', 'severity', 'label', 'message', 'timestamp'
            ] as field,
            body->'custom_fields' as custom_fields,
            node_id
        from document
        where source = 'log_event'
    )
    where field[1] is not null
),
platform as (
    select
        hex_any(event_id, 28) as event_id,
        'PLATFORM' as source_type,
        null::varchar as source_hostname,
        null::bigint as source_pid,
        severity,
        body->>'reason' as label,
        coalesce(non_empty(body->>'message'), message) as message,
        event_ns / 1e9 as seconds,
        null::varchar as timestamp_text,
        json_merge_patch(
            coalesce(body->'customFields', '{}'::json),
            json_object('object_kind', body->>'objectKind', 'object_name', body->>'objectName', 'source', body->'source')
        ) as custom_fields,
        hex_id(node_id, 28) as node_id
    from rare_event
    where event_type = 'PLATFORM_EVENT'
),
event as (
    select
        * exclude (seconds, custom_fields),
        try_cast(seconds * 1e9 as bigint) as event_ns,
        custom_fields::varchar as custom_fields,
        custom_fields->>'job_id' as job_id
    from (from logged union all by name from platform)
    where happened_by(try_cast(seconds * 1e9 as bigint), moment)
),
-- Nearly all events come once. Those are not aggregated, which is faster.
repeated_event as (
    select event_id from event group by all having count(*) > 1
)
select
    event_id,
    source_type,
    source_hostname,
    source_pid,
    severity,
    label,
    message,
    event_ns,
    timestamp_text,
    custom_fields::json as custom_fields,
    job_id,
    node_id
from event anti join repeated_event using (event_id)
union all by name
select
    event_id,
    max(source_type) as source_type,
    max(source_hostname) as source_hostname,
    max(source_pid) as source_pid,
    max(severity) as severity,
    max(label) as label,
    max(message) as message,
    max(event_ns) as event_ns,
    max(timestamp_text) as timestamp_text,
    max(custom_fields)::json as custom_fields,
    max(job_id) as job_id,
    max(node_id) as node_id
from event semi join repeated_event using (event_id)
group by event_id
