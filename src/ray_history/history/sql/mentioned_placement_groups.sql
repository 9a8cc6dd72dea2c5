-- Placement groups that only tasks and actors mention. The last 4 bytes of an id are those of its job; a group in which a
-- task or actor ran was created.
select
    placement_group_id,
    '' as name,
    right(placement_group_id, 8) as creator_job_id,
    case when bool_or(ran) then 'CREATED' else 'PENDING' end as state
from (
    select placement_group_id, running_ns is not null as ran from task
    union all
    select placement_group_id, start_ns is not null from actor
)
where length(placement_group_id) = 36 and placement_group_id not in (select placement_group_id from listed)
group by placement_group_id
