-- Words that the tables are written in.

-- An id as Ray shows it: lower-case hex. Events carry base64 (perhaps URL-safe, perhaps unpadded), other sources hex; the
-- length tells them apart, a padded text is always base64. What is neither stays as it is: never lose a name.
create or replace macro hex_any(id, bytes) as
    case
        when id is null or id = '' then null
        when length(id) = 2 * bytes and not ends_with(id, '=') then lower(id)
        when length(id) not in ((bytes + 2) // 3 * 4, (bytes * 8 + 5) // 6) then id
        else coalesce(
            lower(hex(try(from_base64(id)))),
            lower(hex(try(from_base64(rpad(translate(id, '-_', '+/'), (bytes + 2) // 3 * 4, '='))))),
            id
        )
    end;

-- The same where a nil id (all ff) is no id.
create or replace macro hex_id(id, bytes) as nullif(hex_any(id, bytes), repeat('ff', bytes));

-- Nanoseconds since 1970 of an RFC 3339 text with 0 to 9 fractional digits; null if it is none.
create or replace macro instant(text) as epoch_ns(try_cast(text as timestamp_ns));

-- Milliseconds as Ray prints them: it floors a float, so ...471999979 ns is ...472 ms.
create or replace macro ray_ms(ns) as (try_cast(ns::double as bigint) // 1000000);

-- The last part of a dotted name.
create or replace macro short_name(name) as split_part(name, '.', -1);

-- Ray prints unset proto fields as "" or 0.
create or replace macro said(value) as nullif(value, '');

-- A JSON object that says something.
create or replace macro filled(value) as nullif(nullif(value::varchar, '{}'), 'null');

-- Values as the text of a JSON field has them; null if it has another type.
create or replace macro whole(text) as try_cast(text as bigint);
create or replace macro truth(text) as try_cast(text as boolean);
create or replace macro json_text(text) as try_cast(text as json);

-- Milliseconds since 1970 that fit into nanoseconds; Ray prints 0 for none.
create or replace macro millis(text) as case when whole(text) between 1 and 9223372036853 then whole(text) end;

-- Whether something had happened by a moment. What has no time counts as known from the beginning.
create or replace macro by_then(at_ns, moment) as coalesce(at_ns <= moment, true);

-- The last, or first, value that was told; at the same time the greater one, so that the order of events never matters.
create or replace macro latest(value, at_ns) as arg_max(value, (at_ns, value)) filter (value is not null);
create or replace macro earliest(value, at_ns) as arg_min(value, (at_ns, value)) filter (value is not null);

-- The state transitions that events of a type tell, one by one.
create or replace macro steps(kind) as table
    select body, unnest(from_json(body->'stateTransitions', '["JSON"]')) as step
    from rare_event
    where event_type = kind;

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

-- A fallback strategy with the names that the state API prints.
create or replace macro ray_fallback(strategy) as
    replace(replace(replace(replace(strategy,
        '"labelSelector":', '"label_selector":'),
        '"labelConstraints":', '"label_constraints":'),
        '"labelKey":', '"label_key":'),
        '"labelValues":', '"label_values":');

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

-- A runtime environment (text) without the values of its variables. What is no JSON object is hidden whole.
create or replace macro redacted(env) as
    case
        when env is null or not contains(env, 'env_vars') then env
        when try_cast(env as json) is null then '<redacted>'
        else json_merge_patch(env::json, json_object('env_vars', to_json(map_from_entries(
            [(key, '<redacted>') for key in json_keys(env::json, '$.env_vars')]
        ))))::varchar
    end;

-- The last of a task's spans, where there are too many: a driver has one for each task that it submits, and that of the
-- dashboard one for each second. Ray itself keeps the last 1000. Taken of parts and then of all it is the same.
create or replace macro most_spans() as 10000;
create or replace macro last_spans(spans) as
    case when len(spans) > most_spans() then list_sort(list_distinct(spans))[-most_spans():] else spans end;

-- The rest of a runtime environment.
create or replace macro beside_variables(env) as
    case
        when not contains(env, 'env_vars') then env
        else json_merge_patch(try_cast(env as json), '{"env_vars": null}'::json)::varchar
    end;

-- What the state API shows of a runtime environment beside its text: the packages it needs, and its settings.
create or replace macro runtime_env_extras(env) as
    json_merge_patch(
        case
            when json_exists(try_cast(env as json), '$.working_dir') or json_exists(try_cast(env as json), '$.py_modules')
                then json_object('uris', json_object(
                    'working_dir_uri', coalesce(try_cast(env as json)->>'$.working_dir', ''),
                    'py_modules_uris', coalesce(try_cast(env as json)->'$.py_modules', '[]'::json)
                ))
            else '{}'::json
        end,
        json_object('runtime_env_config', json_object(
            'setup_timeout_seconds', coalesce(whole(try_cast(env as json)->>'$.config.setup_timeout_seconds'), 600),
            'eager_install', coalesce(truth(try_cast(env as json)->>'$.config.eager_install'), true),
            'log_files', coalesce(try_cast(env as json)->'$.config.log_files', '[]'::json)
        ))
    );
