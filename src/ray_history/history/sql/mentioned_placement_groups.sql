-- Placement groups that nothing tells of but the tasks and actors that were to run in them. The last 4 bytes of an id are
-- those of the job that made it; what ran there had its group.
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
where length(placement_group_id) = 36 and placement_group_id not in (select placement_group_id from known)
group by placement_group_id
