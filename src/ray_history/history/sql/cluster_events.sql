-- cluster_events: what Ray's own processes logged as events (logs/events/event_*.log), and Kubernetes' (PLATFORM_EVENT).
with logged as (
    select
        body->>'event_id' as event_id,
        body->>'source_type' as source_type,
        body->>'source_hostname' as source_hostname,
        whole(body->>'source_pid') as source_pid,
        body->>'severity' as severity,
        body->>'label' as label,
        replace(replace(body->>'message', '\n', chr(10)), '\r', chr(13)) as message,
        try_cast(body->>'timestamp' as double) as seconds,
        body->>'timestamp' as timestamp_text,
        body->'custom_fields' as custom_fields,
        node_id
    from document
    where source = 'log_event' and body->>'event_id' is not null
),
platform as (
    select
        hex_any(event_id, 28) as event_id,
        'PLATFORM' as source_type,
        null::varchar as source_hostname,
        null::bigint as source_pid,
        severity,
        body->>'reason' as label,
        coalesce(said(body->>'message'), message) as message,
        event_ns / 1e9 as seconds,
        null::varchar as timestamp_text,
        json_merge_patch(
            coalesce(body->'customFields', '{}'::json),
            json_object('object_kind', body->>'objectKind', 'object_name', body->>'objectName', 'source', body->'source')
        ) as custom_fields,
        hex_id(node_id, 28) as node_id
    from rare_event
    where event_type = 'PLATFORM_EVENT'
)
select
    event_id,
    max(source_type) as source_type,
    max(source_hostname) as source_hostname,
    max(source_pid) as source_pid,
    max(severity) as severity,
    max(label) as label,
    max(message) as message,
    max(try_cast(seconds * 1e9 as bigint)) as event_ns,
    max(timestamp_text) as timestamp_text,
    max(custom_fields::varchar)::json as custom_fields,
    max(custom_fields->>'job_id') as job_id,
    max(node_id) as node_id
from (from logged union all by name from platform)
where by_then(try_cast(seconds * 1e9 as bigint), moment)
group by event_id
