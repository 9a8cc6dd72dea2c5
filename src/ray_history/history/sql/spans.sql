-- spans: one row per profile span of an attempt, from the rows of `tasks`.
select
    task_id,
    attempt_number,
    job_id,
    node_ip_address,
    component_type,
    component_id,
    span.eventName as name,
    span.startTime as start_ns,
    span.endTime as end_ns,
    span.extraData as extra_data
from (select * exclude (spans), unnest(spans) as span from task)
