-- How many attempts of each name are in each state, and the lowest id among them: what summaries are made of.
select name, func_or_class_name, type, state, job_id, is_internal, count(*) as attempts, min(task_id) as first_task_id
from observed_tasks
where is_listed
group by all
