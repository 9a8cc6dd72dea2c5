-- The cause of an actor's death as the state API prints it: snake_case names, ids in hex.
create or replace macro ray_death_cause(cause) as
    case
        when json_exists(cause, '$.actorDiedErrorContext') then json_object('actor_died_error_context',
            json_merge_patch(
                json_object(
                    'error_message', cause->>'$.actorDiedErrorContext.errorMessage',
                    'owner_id', coalesce(hex_any(cause->>'$.actorDiedErrorContext.ownerId', 28), ''),
                    'owner_ip_address', cause->>'$.actorDiedErrorContext.ownerIpAddress',
                    'node_ip_address', cause->>'$.actorDiedErrorContext.nodeIpAddress',
                    'pid', to_bigint(cause->>'$.actorDiedErrorContext.pid'),
                    'ray_namespace', cause->>'$.actorDiedErrorContext.rayNamespace',
                    'class_name', cause->>'$.actorDiedErrorContext.className',
                    'actor_id', coalesce(hex_any(cause->>'$.actorDiedErrorContext.actorId', 16), ''),
                    'reason', cause->>'$.actorDiedErrorContext.reason',
                    'name', cause->>'$.actorDiedErrorContext.name',
                    'never_started', to_bool(cause->>'$.actorDiedErrorContext.neverStarted')
                ),
                case when json_exists(cause, '$.actorDiedErrorContext.nodeDeathInfo') then json_object('node_death_info',
                    json_object(
                        'reason', cause->>'$.actorDiedErrorContext.nodeDeathInfo.reason',
                        'reason_message', cause->>'$.actorDiedErrorContext.nodeDeathInfo.reasonMessage'
                    )
                ) else '{}'::json end
            )
        )
        when json_exists(cause, '$.creationTaskFailureContext') then json_object('creation_task_failure_context',
            json_object(
                'serialized_exception', cause->>'$.creationTaskFailureContext.serializedException',
                'formatted_exception_string', cause->>'$.creationTaskFailureContext.formattedExceptionString',
                'language', cause->>'$.creationTaskFailureContext.language'
            )
        )
        when json_exists(cause, '$.runtimeEnvFailedContext') then json_object('runtime_env_failed_context',
            json_object('error_message', cause->>'$.runtimeEnvFailedContext.errorMessage')
        )
        when json_exists(cause, '$.actorUnschedulableContext') then json_object('actor_unschedulable_context',
            json_object('error_message', cause->>'$.actorUnschedulableContext.errorMessage')
        )
        when json_exists(cause, '$.oomContext') then json_object('oom_context',
            json_object(
                'error_message', cause->>'$.oomContext.errorMessage',
                'fail_immediately', to_bool(cause->>'$.oomContext.failImmediately')
            )
        )
    end;
