-- Restores the merged rows behind rows of `tasks`, ready to be merged with rows of new events: as the events alone have
-- them, since another listing may have been polled by now. Nothing is left of a row that no event has; without another
-- source, it is not listed any more.
select * exclude (event_spans) replace (coalesce(spans, event_spans) as spans)
from (
    select * exclude (polled_columns) replace (without_columns_of(polled))
    from (
        select
            * exclude (
                state, error_type, error_message, is_debugger_paused, is_listed, is_internal, is_driver, has_most_spans, is_defined,
                is_implied, is_forced, is_worker_implied, is_node_implied, told_name
            )
            replace (
                told_name as name,
                nullif(job_id, right(task_id, 8)) as job_id,
                nullif(actor_id, substr(task_id, 17)) as actor_id,
                case when is_defined then type end as type,
                case when is_defined then non_empty(func_or_class_name) end as func_or_class_name,
                case when is_worker_implied then null else worker_id end as worker_id,
                case when is_node_implied then null else node_id end as node_id,
                case when is_implied then null else finished_ns end as finished_ns,
                case when is_forced then null else failed_ns end as failed_ns
            )
        from final_attempt
    )
)
