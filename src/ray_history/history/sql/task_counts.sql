-- The number of attempts with each name and state, and the lowest id among them. Summaries are made from these.
select name, func_or_class_name, type, state, job_id, is_internal, count(*) as attempts, min(task_id) as first_task_id
from observed_tasks
where is_listed
group by all
