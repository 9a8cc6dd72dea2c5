-- Words that the tables are written in.

-- An id as Ray shows it: lower-case hex. Events carry base64, other sources hex; the length in bytes tells them apart,
-- a padded text is always base64. What is neither stays as it is: never lose a name.
create or replace macro hex_any(id, bytes) as
    case
        when id is null or id = '' then null
        when length(id) = 2 * bytes and not ends_with(id, '=') then lower(id)
        when contains(id, '-') or contains(id, '_')
            then coalesce(lower(hex(try(from_base64(replace(replace(id, '-', '+'), '_', '/'))))), id)
        else coalesce(lower(hex(try(from_base64(id)))), id)
    end;

-- The same where a nil id (all ff) is no id.
create or replace macro hex_id(id, bytes) as nullif(hex_any(id, bytes), repeat('ff', bytes));

-- Nanoseconds since 1970 of an RFC 3339 text with 0 to 9 fractional digits; null if it is none.
create or replace macro instant(text) as epoch_ns(try_cast(text as timestamp_ns));

-- Milliseconds as Ray prints them: it floors a float, so ...471999979 ns is ...472 ms.
create or replace macro ray_ms(ns) as (ns::double::bigint // 1000000);

-- The last part of a dotted name.
create or replace macro short_name(name) as split_part(name, '.', -1);

-- Ray prints unset proto fields as "" or 0.
create or replace macro said(value) as nullif(value, '');

-- A JSON object that says something.
create or replace macro filled(value) as nullif(value::varchar, '{}');

-- The rows of a state API listing that the collector polled; the detailed one if there are several.
create or replace macro listed_rows(kind) as table
    select unnest(from_json(body->'$.data.result.result', '["JSON"]')) as row
    from (
        select body
        from document
        where source = 'endpoint' and regexp_full_match(name, 'restful__api__v0__' || kind || '([?].*)?')
        order by contains(name, 'detail=1') desc, name
        limit 1
    );

-- The rows of /api/jobs/ as polled.
create or replace macro polled_jobs() as table
    select unnest(from_json(body, '["JSON"]')) as row
    from document
    where source = 'endpoint' and name in ('restful__api__jobs', 'restful__api__jobs__');

-- Ray's name of a function: Class.method, each without its module path.
create or replace macro function_name(descriptor) as
    case
        when descriptor.pythonFunctionDescriptor.functionName is not null then concat_ws('.',
            said(short_name(descriptor.pythonFunctionDescriptor.className)),
            short_name(descriptor.pythonFunctionDescriptor.functionName))
        when descriptor.javaFunctionDescriptor.functionName is not null then concat_ws('.',
            said(descriptor.javaFunctionDescriptor.className), descriptor.javaFunctionDescriptor.functionName)
        else descriptor.cppFunctionDescriptor.functionName
    end;

-- What kind of task an id belongs to: 8 bytes of its own, then the id of its actor, whose last 4 bytes are the job's.
create or replace macro implied_type(task_id) as
    case
        when starts_with(task_id, repeat('ff', 20)) then 'DRIVER_TASK'
        when starts_with(task_id, repeat('ff', 8)) then 'ACTOR_CREATION_TASK'
        when substr(task_id, 17, 24) = repeat('ff', 12) then 'NORMAL_TASK'
        else 'ACTOR_TASK'
    end;

-- The state of an attempt: the furthest it came, by Ray's own ranks and not by clocks of different machines; what has
-- ended stays ended. (Ray numbers GETTING_AND_PINNING_ARGS above FAILED; it comes before RUNNING.)
create or replace macro task_state(
    failed_ns, finished_ns, running_in_ray_wait_ns, running_in_ray_get_ns, running_ns, getting_and_pinning_args_ns,
    pending_actor_task_ordering_ns, pending_actor_task_args_fetch_ns, submitted_to_worker_ns, pending_args_fetch_ns,
    pending_obj_store_mem_avail_ns, pending_node_assignment_ns, pending_args_avail_ns
) as
    case
        when failed_ns is not null then 'FAILED'
        when finished_ns is not null then 'FINISHED'
        when running_in_ray_wait_ns is not null then 'RUNNING_IN_RAY_WAIT'
        when running_in_ray_get_ns is not null then 'RUNNING_IN_RAY_GET'
        when running_ns is not null then 'RUNNING'
        when getting_and_pinning_args_ns is not null then 'GETTING_AND_PINNING_ARGS'
        when pending_actor_task_ordering_ns is not null then 'PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY'
        when pending_actor_task_args_fetch_ns is not null then 'PENDING_ACTOR_TASK_ARGS_FETCH'
        when submitted_to_worker_ns is not null then 'SUBMITTED_TO_WORKER'
        when pending_args_fetch_ns is not null then 'PENDING_ARGS_FETCH'
        when pending_obj_store_mem_avail_ns is not null then 'PENDING_OBJ_STORE_MEM_AVAIL'
        when pending_node_assignment_ns is not null then 'PENDING_NODE_ASSIGNMENT'
        when pending_args_avail_ns is not null then 'PENDING_ARGS_AVAIL'
        else 'NIL'
    end;
