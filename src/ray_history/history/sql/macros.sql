-- Macros of the queries that make the tables.

-- An id as Ray shows it: lower-case hex. Events contain base64 (possibly URL-safe or unpadded), other sources hex. They
-- differ in length, and padded text is always base64. Any other text stays as it is: never lose a name.
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

-- The same, null for a nil id (all ff).
create or replace macro hex_id(id, bytes) as nullif(hex_any(id, bytes), repeat('ff', bytes));

-- Nanoseconds since 1970 of an RFC 3339 text with 0 to 9 fractional digits; null for other text.
create or replace macro to_ns(text) as epoch_ns(try_cast(text as timestamp_ns));

-- Nanoseconds within the years 2000 to 2099, as in bounds.py; null for those of a clock that was never set.
create or replace macro possible_ns(ns) as
    case when ns between 946684800000000000 and 4102444799999999999 then ns end;

-- Milliseconds as Ray prints them: it floors a float, so ...471999979 ns is ...472 ms. Whole ones are printed already.
create or replace macro ray_ms(ns) as
    case when ns % 1000000 = 0 then ns else try_cast(ns::double as bigint) end // 1000000;

-- A time that Ray's control plane sets in whole milliseconds and prints as any other: ...713000000 ns is ...712 ms.
create or replace macro decided_ns(ns) as try_cast((ns // 1000000 * 1000000)::double as bigint);

-- The last part of a dotted name.
create or replace macro short_name(name) as split_part(name, '.', -1);

-- Ray prints unset proto fields as "" or 0.
create or replace macro non_empty(value) as nullif(value, '');

-- Null for a JSON object without members.
create or replace macro non_empty_json(value) as nullif(nullif(value::varchar, '{}'), 'null');

-- The text of a JSON field as a value; null if it has another type.
create or replace macro to_bigint(text) as try_cast(text as bigint);
create or replace macro to_bool(text) as try_cast(text as boolean);
create or replace macro parse_json(text) as try_cast(text as json);

-- Milliseconds since 1970 that fit into nanoseconds; Ray prints 0 for none.
create or replace macro to_millis(text) as case when to_bigint(text) between 1 and 9223372036853 then to_bigint(text) end;

-- When a task first entered a state, in nanoseconds, by the states in its polled row.
create or replace macro entered_ns(steps, name) as
    list_min([to_millis(step.created_ms) for step in steps if step.state = name]) * 1000000;

-- Nanoseconds of a span in a polled row, which has milliseconds with fractions.
create or replace macro span_ns(ms) as try_cast(ms * 1000000 as bigint);

-- Whether something had happened by a moment. Without a time, it happened before the session.
create or replace macro happened_by(at_ns, moment) as coalesce(at_ns <= moment, true);

-- The last, or first, value; of several at the same time the greater, so the order of events never matters.
create or replace macro latest(value, at_ns) as arg_max(value, (at_ns, value)) filter (value is not null);
create or replace macro earliest(value, at_ns) as arg_min(value, (at_ns, value)) filter (value is not null);

-- The state transitions in events of a type, one per row.
create or replace macro transitions_of(kind) as table
    select body, unnest(from_json(body->'stateTransitions', '["JSON"]')) as step
    from rare_event
    where event_type = kind;

-- The rows of a state API listing that the collector polled, with their positions; those of the detailed one if there are
-- several.
create or replace macro polled_rows(kind) as table
    select unnest(rows) as row, generate_subscripts(rows, 1) as position
    from (
        select from_json(body->'$.data.result.result', '["JSON"]') as rows
        from document
        where source = 'endpoint' and regexp_full_match(name, 'restful__api__v0__' || kind || '([?].*)?')
        order by contains(name, 'detail=1') desc, name
        limit 1
    );

-- Actors on polled pages: that of all actors, and those of nodes.
create or replace macro actors_on_pages() as table
    select unnest(json_extract(body, '$.data.actors.*')) as actor, true as is_logical
    from document where source = 'endpoint' and name = 'restful__logical__actors'
    union all
    select unnest(json_extract(body, '$.data.detail.actors.*')), false
    from document where source = 'endpoint' and regexp_full_match(name, 'restful__nodes__[0-9a-f]{56}');

-- How far an actor has come in its lives, to compare: each restart begins another one.
create or replace macro actor_progress(num_restarts, state) as (
    coalesce(num_restarts, 0),
    coalesce(list_position(['DEPENDENCIES_UNREADY', 'PENDING_CREATION', 'RESTARTING', 'ALIVE', 'DEAD'], state), 0)
);

-- The names that actors gave themselves (`__repr__`), from any source.
create or replace macro named_actors() as table
    select actor_id, max(repr_name) as repr_name
    from (
        select hex_id(body->>'actorId', 16) as actor_id, step->>'reprName' as repr_name
        from transitions_of('ACTOR_LIFECYCLE_EVENT')
        union all
        select row->>'actor_id', row->>'repr_name' from polled_rows('actors')
        union all
        select actor->>'actorId', actor->>'reprName' from actors_on_pages()
    )
    where repr_name <> ''
    group by actor_id;

-- Whether a node was drained or terminated on purpose, by the message of its state.
create or replace macro is_planned_departure(message) as
    coalesce(regexp_matches(message, '^(Expected termination|Terminated due to idle)'), false);

-- Nodes on the polled pages of the dashboard (`/nodes?view=summary`, `/nodes/{id}`), the newest page of each.
create or replace macro polled_node_pages() as table
    select lower(found.page->>'$.raylet.nodeId') as node_id, found.page
    from (
        select unnest(json_extract(body, '$.data.summary[*]')) as page
        from document
        where source = 'endpoint' and regexp_full_match(name, 'restful__nodes_*[?]view=summary')
        union all
        select body->'$.data.detail'
        from document
        where source = 'endpoint' and regexp_full_match(name, 'restful__nodes__[0-9a-f]{56}')
    ) as found
    where regexp_full_match(lower(found.page->>'$.raylet.nodeId'), '[0-9a-f]{56}')
    qualify row_number() over (
        partition by lower(found.page->>'$.raylet.nodeId')
        order by try_cast(found.page->>'now' as double) desc nulls last, found.page::varchar
    ) = 1;

-- The entries of an object on a polled page whose names are certain: pages have names in camel case, which cannot be
-- undone for names with an underscore, except for those that Ray gives itself.
create or replace macro original_names(entries) as
    non_empty_json(to_json(map_from_entries([
        (
            case entry.key
                when 'objectStoreMemory' then 'object_store_memory'
                when 'node:InternalHead' then 'node:__internal_head__'
                else entry.key
            end,
            entry.value
        )
        for entry in map_entries(try_cast(entries as map(varchar, json)))
        if entry.key in ('objectStoreMemory', 'node:InternalHead') or not regexp_matches(entry.key, '[a-z0-9][A-Z]')
    ])));

-- The rows of /api/jobs/ as polled.
create or replace macro polled_jobs() as table
    select unnest(from_json(body, '["JSON"]')) as row
    from document
    where source = 'endpoint' and name in ('restful__api__jobs', 'restful__api__jobs__');

-- A time in a log of the head, in nanoseconds; null if the zone of the head is unknown.
create or replace macro log_ns(text) as to_ns(replace(text, ',', '.')) - (
    select ((clock - clock % 100) // 100 * 60 + clock % 100) * 60000000000  -- +0530 is 330 minutes
    from (
        select max(to_bigint(replace(body->>'offset', ':', ''))) as clock
        from document where source = 'endpoint' and name = 'restful__timezone'
    )
);

-- When drivers finished according to the log of the GCS, which is read up to the end of the session.
create or replace macro drivers_finished_in_logs() as table
    select done->>'job_id' as job_id, log_ns(done->>'time') as end_ns
    from (
        select unnest(json_extract(body, '$.finished_jobs[*]')) as done from document where source = 'log_end'
    );

-- When jobs ended, by a moment: from events, or from polling for jobs whose end no event reported. A submission ends
-- some seconds after its driver, whose process is among the workers.
create or replace macro ended_jobs(moment) as table
    select * from (
        select job_id, arg_min(end_ns, (rank, end_ns)) as end_ns
        from (
            select hex_id(body->>'jobId', 4) as job_id, to_ns(step->>'timestamp') as end_ns, 1 as rank
            from transitions_of('DRIVER_JOB_LIFECYCLE_EVENT')
            where step->>'state' = 'FINISHED'
            union all
            select left(row->>'worker_id', 8), to_millis(row->>'end_time_ms') * 1000000, 3
            from polled_rows('workers')
            where row->>'worker_type' = 'DRIVER' and not coalesce(to_bool(row->>'is_alive'), true)
            union all
            select non_empty(row->>'job_id'), to_millis(row->>'end_time') * 1000000, if(row->>'type' = 'DRIVER', 2, 4)
            from polled_jobs()
        )
        where job_id is not null and end_ns is not null
        group by job_id
    )
    where end_ns <= moment;

-- Whether a driver is one of Ray's own.
create or replace macro is_internal_entrypoint(entrypoint) as
    coalesce(regexp_matches(entrypoint, '/ray/(dashboard|_private|autoscaler)/'), false);

-- A fallback strategy with the names of the state API.
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
            non_empty(short_name(descriptor.pythonFunctionDescriptor.className)),
            short_name(descriptor.pythonFunctionDescriptor.functionName))
        when descriptor.javaFunctionDescriptor.functionName is not null then concat_ws('.',
            non_empty(descriptor.javaFunctionDescriptor.className), descriptor.javaFunctionDescriptor.functionName)
        else descriptor.cppFunctionDescriptor.functionName
    end;

-- The type of a task, from its id: 8 bytes of the task, then the id of its actor, whose last 4 bytes are the job's.
create or replace macro implied_type(task_id) as
    case
        when starts_with(task_id, repeat('ff', 20)) then 'DRIVER_TASK'
        when starts_with(task_id, repeat('ff', 8)) then 'ACTOR_CREATION_TASK'
        when substr(task_id, 17, 24) = repeat('ff', 12) then 'NORMAL_TASK'
        else 'ACTOR_TASK'
    end;

-- The name of a state of tasks by Ray's number for it; null for numbers that Ray 2.49 does not have.
create or replace macro task_state_name(number) as ([
    'PENDING_ARGS_AVAIL', 'PENDING_NODE_ASSIGNMENT', 'PENDING_OBJ_STORE_MEM_AVAIL', 'PENDING_ARGS_FETCH',
    'SUBMITTED_TO_WORKER', 'PENDING_ACTOR_TASK_ARGS_FETCH', 'PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY', 'RUNNING',
    'RUNNING_IN_RAY_GET', 'RUNNING_IN_RAY_WAIT', 'FINISHED', 'FAILED', 'GETTING_AND_PINNING_ARGS'
])[try_cast(number as integer)];

-- The state of an attempt: the last one by Ray's own ranks, not by the clocks of different machines. Ended attempts
-- stay ended: Ray numbers GETTING_AND_PINNING_ARGS above FAILED, but it comes before RUNNING.
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

-- Whether an attempt counts as a task of the session: not a driver, and not Ray's own. Every number of tasks that people
-- see is made with this; the state API counts as Ray does, with `exclude_internal` as here.
create or replace macro is_user_task(type, is_internal) as type <> 'DRIVER_TASK' and not is_internal;

-- A runtime environment (text) without the values of its variables, except for those that Ray itself sets. Text that is not JSON is replaced as a whole.
create or replace macro redacted(env) as
    case
        when env is null or not contains(env, 'env_vars') then env
        when try_cast(env as json) is null then '<redacted>'
        else json_merge_patch(env::json, json_object('env_vars', to_json(map_from_entries(
            [
                (key, '<redacted>') for key in json_keys(env::json, '$.env_vars')
                if not regexp_full_match(key, 'RAY_(worker_niceness|EXPERIMENTAL_NOSET_[A-Z0-9_]+)')
            ]
        ))))::varchar
    end;

-- The last spans of a task with too many: a driver has one per submitted task, the dashboard's driver one per second.
-- Ray itself keeps the last 1000. Merging the last spans of parts gives the last spans of all.
create or replace macro max_spans() as 10000;
create or replace macro last_spans(spans) as
    case when len(spans) > max_spans() then list_sort(list_distinct(spans))[-max_spans():] else spans end;

-- A runtime environment without its variables.
create or replace macro without_variables(env) as
    case
        when not contains(env, 'env_vars') then env
        else json_merge_patch(try_cast(env as json), '{"env_vars": null}'::json)::varchar
    end;

-- What the state API shows of a runtime environment besides its text: its packages and its settings.
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
            'setup_timeout_seconds', coalesce(to_bigint(try_cast(env as json)->>'$.config.setup_timeout_seconds'), 600),
            'eager_install', coalesce(to_bool(try_cast(env as json)->>'$.config.eager_install'), true),
            'log_files', coalesce(try_cast(env as json)->'$.config.log_files', '[]'::json)
        ))
    );
