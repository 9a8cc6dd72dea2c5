"""A session with a secret in every free text."""

from __future__ import annotations

import msgspec

from tests.history.rebuilt import (
    Event,
    actor,
    actor_life,
    actor_step,
    document,
    job,
    job_life,
    lifecycle,
    node,
    node_life,
    polled,
    profile,
    span,
    task,
    task_id,
    worker,
    worker_dead,
)

SECRET = "hunter2-never-shown"
ENVIRONMENT = f'{{"env_vars": {{"RANK": "{SECRET}"}}, "pip": ["torch"], "config": {{"api_key": "{SECRET}"}}}}'


def told() -> list[Event]:
    death = {"actorDiedErrorContext": {"errorMessage": f"exit, token={SECRET}"}}
    return [
        task(
            task_id(1),
            taskName=f"load(password={SECRET})",
            serializedRuntimeEnv=ENVIRONMENT,
            callSite=f"connect('s3://me:{SECRET}@host/x')",
            labelSelector={"api_token": SECRET},
        ),
        lifecycle(task_id(1), ("FAILED", 1), error=("TASK_EXECUTION_EXCEPTION", f"KeyError: DB_PASSWORD={SECRET}")),
        profile(task_id(1), span("deserialize", 1, 2, msgspec.json.encode({"auth_token": SECRET}).decode())),
        task(task_id(2), taskName="tokenize(max_tokens=5)", serializedRuntimeEnv='{"pip": ["torch"]}'),
        lifecycle(task_id(2), ("FAILED", 1), error=("TASK_EXECUTION_EXCEPTION", 'KeyError: "it\'s \\ 7"\n\x1b[0m☃')),
        profile(task_id(2), span("execute", 1, 2)),
        actor(name=f"db --password {SECRET}", serializedRuntimeEnv=ENVIRONMENT),
        actor_life(actor_step("DEAD", 2, deathCause=death, reprName=f"Db(secret='{SECRET}')")),
        job(entrypoint=f"TOKEN={SECRET} python x.py", config={"serializedRuntimeEnv": ENVIRONMENT, "metadata": {}}),
        job_life("CREATED", 0),
        node(labels={"secret": SECRET, "zone": "a"}),
        node_life("DEAD", 3, deathInfo={"reasonMessage": f"password: {SECRET}"}),
        worker(),
        worker_dead(3, detail=f"bearer={SECRET}"),
    ]


def documents() -> list[Event]:
    message = {"event_id": "1", "source_type": "GCS", "severity": "INFO", "message": f"pwd={SECRET}", "timestamp": 1}
    return [
        document("log_event", "events/event_GCS.log", message | {"custom_fields": {"jwt": SECRET, "n": 1}}),
        polled("runtime_envs", {"runtime_env": {"env_vars": {"A": SECRET}}, "success": 0, "error": f"pwd={SECRET}"}),
        polled("placement_groups", {"placement_group_id": "ab" * 18, "name": f"token:{SECRET}", "state": "CREATED"}),
    ]
