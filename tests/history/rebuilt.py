"""Tables built from events written down in a test, and events as Ray writes them.

Times are seconds after `START`; ids are given in hex, as people read them, and go into events in base64, as Ray does.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray_history.history.build.builder import Builder
from ray_history.history.build.event_lines import EventLines
from ray_history.history.build.runs import Counts, Unreadable
from ray_history.history.engine import Limits
from ray_history.history.events import in_camel_case
from ray_history.history.read.json_rows import row
from ray_history.history.read.tables import Tables
from ray_history.history.read.views import LAST, View
from ray_history.history.registry import SMALL_TABLES

Event = dict[str, Any]
Row = dict[str, Any]

START = 1_794_772_800_000_000_000
"""2026-11-15T20:00:00Z."""
JOB = "02000000"
NODE, OTHER_NODE = "3a" * 28, "0f" * 28
WORKER, OTHER_WORKER = "65" * 28, "3b" * 28
ACTOR = "fa5aea3b69810a5115638395" + JOB
NIL = {"task": "ff" * 24, "placement_group": "ff" * 18}
TABLES = ("tasks", *SMALL_TABLES)

# Building ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rebuilt:
    """What a build left in its directory."""

    directory: Path
    facts: dict[str, Any]
    counts: Counts
    tables: Tables

    def rows(self, table: str, view: View = LAST, *, detail: bool = True) -> list[Row]:
        """A listing, in the order of its rows' text; the same however many rows are made at once."""
        many, few = (row(table, detail=detail, few=few) for few in (False, True))
        sql = f"select {many} as line, {few} from {self.tables.source(table, view)} order by line"
        lines = self.tables.rows(sql)
        assert [line for line, _ in lines] == [line for _, line in lines]
        return [json.loads(line) for line, _ in lines]

    def row(self, table: str, view: View = LAST) -> Row:
        """The only row of a listing."""
        (only,) = self.rows(table, view)
        return only

    def columns(self, table: str, names: str, view: View = LAST) -> list[tuple[Any, ...]]:
        """Columns that no listing prints."""
        return sorted(self.tables.rows(f"select {names} from {self.tables.source(table, view)}"), key=repr)

    def everything(self) -> dict[str, list[str]]:
        """All rows of all tables, all columns."""
        sources = {table: self.tables.source(table) for table in TABLES} | {
            "all_tasks": "observed_tasks",
            "task_counts": self.tables.task_counts(),
        }
        return {
            table: sorted(line for (line,) in self.tables.rows(f"select to_json(t)::varchar from {source} as t"))
            for table, source in sources.items()
        }


def rebuild(
    place: Path,
    events: Iterable[Event | bytes] = (),
    documents: Iterable[Event] = (),
    *,
    cuts: Iterable[int] = (),
    base: Rebuilt | None = None,
    memory: int = 1 << 30,
) -> Rebuilt:
    """Build in a new directory inside `place`. Events are divided into batches at the given positions, and into runs at
    every other one; without any, the only run stays in memory."""
    lines = [event if isinstance(event, bytes) else json.dumps(event).encode() for event in events]
    ends = [0, *sorted(set(cuts)), len(lines)]
    directory = Path(tempfile.mkdtemp(dir=place))
    with Builder(directory, Limits(memory, threads=1), base.directory if base else None) as builder:
        for number, (begin, end) in enumerate(itertools.pairwise(ends)):
            _add(builder, lines[begin:end])
            if number % 2 == 0 and end < len(lines):
                builder.merge()
        file = builder.work / "documents.jsonl"
        file.write_text("".join(json.dumps(document) + "\n" for document in documents))
        builder.add_documents(file)
        facts = builder.finish()
    return Rebuilt(directory, facts, builder.counts, Tables(directory, threads=1))


def _add(builder: Builder, lines: Sequence[bytes]) -> None:
    batch = EventLines(builder.work / "batch")
    with batch.writing():
        batch.add(b"".join(line + b"\n" for line in lines))
    try:
        builder.add(batch)
    except Unreadable:  # as the indexer does
        renamed = [in_camel_case(line, Counter()) for line in lines]
        with batch.writing():
            for event in filter(None, renamed):
                batch.put(*event)
        builder.add(batch, lenient=True)


# Events --------------------------------------------------------------------------------------------------------------


def b64(hexed: str) -> str:
    return base64.b64encode(bytes.fromhex(hexed)).decode()


def ns(seconds: float) -> int:
    return START + round(seconds * 1e9)


def ms(seconds: float) -> int:
    return ns(seconds) // 1_000_000


def stamp(seconds: float) -> str:
    """A time as Ray prints it: as many digits as it takes, in threes."""
    whole, part = divmod(round(seconds * 1e9), 1_000_000_000)
    digits = f"{part:09}"
    while digits.endswith("000"):
        digits = digits[:-3]
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    return f"2026-11-15T{20 + hours:02}:{minute:02}:{second:02}" + (f".{digits}" if digits else "") + "Z"


def task_id(number: int, job: str = JOB) -> str:
    return f"{number:016x}" + "ff" * 12 + job


def actor_task_id(number: int, actor: str = ACTOR) -> str:
    return f"{number:016x}" + actor


def event(kind: str, payload: Event, at: float = 0, *, key: str | None = None) -> Event:
    """An event in its envelope. The same content has the same id, as when Ray sends an event again."""
    head, *rest = kind.lower().split("_")
    identity = json.dumps([kind, payload, at], sort_keys=True).encode()
    return {
        "eventId": b64(hashlib.blake2b(identity, digest_size=28).hexdigest()),
        "sourceType": "GCS",
        "eventType": kind,
        "timestamp": stamp(at),
        "severity": "INFO",
        "sessionName": "session_2026-11-15_20-00-00_000000_1",
        key or head + "".join(map(str.title, rest)): payload,
        "nodeId": b64(NODE),
        "message": "",
    }


def _definition(task: str, attempt: int) -> Event:
    return {
        "taskId": b64(task),
        "taskAttempt": attempt,
        "jobId": b64(task[-8:]),
        "parentTaskId": b64("ff" * 20 + task[-8:]),
        "placementGroupId": b64(NIL["placement_group"]),
        "serializedRuntimeEnv": "{}",
        "language": "PYTHON",
        "requiredResources": {"CPU": 1.0},
        "refIds": {},
        "labelSelector": {},
        "isDetachedActor": False,
    }


def function(name: str, class_name: str = "") -> Event:
    return {"pythonFunctionDescriptor": {"moduleName": "job", "functionName": name, "className": class_name}}


def task(task: str, attempt: int = 0, at: float = 0, **fields: Any) -> Event:
    payload = {
        **_definition(task, attempt),
        "taskType": "NORMAL_TASK",
        "taskName": "work",
        "taskFunc": function("work"),
    }
    return event("TASK_DEFINITION_EVENT", payload | fields, at)


def actor_task(task: str, attempt: int = 0, at: float = 0, **fields: Any) -> Event:
    payload = {
        **_definition(task, attempt),
        "actorId": b64(task[16:]),
        "actorTaskName": "Counter.inc",
        "actorFunc": function("inc", "Counter"),
    }
    return event("ACTOR_TASK_DEFINITION_EVENT", payload | fields, at)


def steps(*states: tuple[str, float]) -> list[Event]:
    return [{"state": state, "timestamp": stamp(at)} for state, at in states]


def lifecycle(
    task: str,
    *states: tuple[str, float],
    attempt: int = 0,
    node: str = "",
    worker: str = "",
    error: tuple[str, str] | None = None,
    log: Event | None = None,
    at: float | None = None,
    **fields: Any,
) -> Event:
    payload: Event = {
        "taskId": b64(task),
        "taskAttempt": attempt,
        "jobId": b64(task[-8:]),
        "stateTransitions": steps(*states),
        "nodeId": b64(node),
        "workerId": b64(worker),
        "workerPid": 0,
    }
    if error:
        payload["rayErrorInfo"] = {"errorType": error[0], "errorMessage": error[1]}
    if log:
        payload["taskLogInfo"] = log
    moment = at if at is not None else max((moment for _, moment in states), default=0)
    return event("TASK_LIFECYCLE_EVENT", payload | fields, moment)


def span(name: str, start: float, end: float, extra: str = "{}") -> Event:
    return {"startTime": str(ns(start)), "endTime": str(ns(end)), "eventName": name, "extraData": extra}


def profile(task: str, *spans: Event, attempt: int = 0, worker: str = WORKER) -> Event:
    payload = {
        "taskId": b64(task),
        "attemptNumber": attempt,
        "jobId": b64(task[-8:]),
        "profileEvents": {
            "componentType": "worker",
            "componentId": b64(worker),
            "nodeIpAddress": "192.0.2.2",
            "events": list(spans),
        },
    }
    return event("TASK_PROFILE_EVENT", payload, key="taskProfileEvents")


def actor(actor: str = ACTOR, at: float = 0, **fields: Any) -> Event:
    payload = {
        "actorId": b64(actor),
        "jobId": b64(actor[-8:]),
        "name": "",
        "rayNamespace": "ns",
        "serializedRuntimeEnv": "{}",
        "className": "Counter",
        "requiredResources": {"CPU": 0.5},
        "isDetached": False,
        "placementGroupId": "",
        "labelSelector": {},
    }
    return event("ACTOR_DEFINITION_EVENT", payload | fields, at)


def actor_step(state: str, at: float, node: str = "", worker: str = "", pid: int = 0, **fields: Any) -> Event:
    return {
        "state": state,
        "timestamp": stamp(at),
        "nodeId": b64(node),
        "workerId": b64(worker),
        "pid": pid,
        "port": 0,
        "reprName": "",
        "restartReason": "ACTOR_FAILURE",
        **fields,
    }


def actor_life(*transitions: Event, actor: str = ACTOR, at: float = 0) -> Event:
    return event("ACTOR_LIFECYCLE_EVENT", {"actorId": b64(actor), "stateTransitions": list(transitions)}, at)


def node(node: str = NODE, at: float = 0, **fields: Any) -> Event:
    payload = {
        "nodeId": b64(node),
        "nodeIpAddress": "192.0.2.2",
        "labels": {"zone": "a"},
        "startTimestamp": stamp(at),
        "hostname": "vm",
        "nodeName": "192.0.2.2",
        "instanceId": "",
        "instanceTypeName": "",
    }
    return event("NODE_DEFINITION_EVENT", payload | fields, at)


def node_life(state: str, at: float, node: str = NODE, **fields: Any) -> Event:
    step = {
        "state": state,
        "timestamp": stamp(at),
        "resources": {"CPU": 2.0} if state == "ALIVE" else {},
        "aliveSubState": "UNSPECIFIED",
        **fields,
    }
    return event("NODE_LIFECYCLE_EVENT", {"nodeId": b64(node), "stateTransitions": [step]}, at)


def worker(worker: str = WORKER, node: str = NODE, at: float = 0, **fields: Any) -> Event:
    payload = {"workerId": b64(worker), "nodeId": b64(node), "pid": 11446, "workerType": "WORKER"}
    return event("WORKER_DEFINITION_EVENT", payload | fields, at)


def worker_alive(at: float, worker: str = WORKER) -> Event:
    step = {
        "state": "ALIVE",
        "timestamp": stamp(at),
        "workerLaunchTimeMs": str(ms(at) - 100),
        "workerLaunchedTimeMs": str(ms(at) - 50),
        "startTimeMs": str(ms(at)),
        "endTimeMs": "0",
    }
    return event("WORKER_LIFECYCLE_EVENT", {"workerId": b64(worker), "stateTransitions": [step], "jobId": ""}, at)


def worker_dead(at: float, exit_type: str = "SYSTEM_ERROR", detail: str = "gone", worker: str = WORKER) -> Event:
    step = {
        "state": "DEAD",
        "timestamp": stamp(at),
        "endTimeMs": str(ms(at) - 2),
        "deathInfo": {"exitType": exit_type, "exitDetail": detail},
        "workerLaunchTimeMs": "0",
        "workerLaunchedTimeMs": "0",
        "startTimeMs": "0",
    }
    return event("WORKER_LIFECYCLE_EVENT", {"workerId": b64(worker), "stateTransitions": [step], "jobId": ""}, at)


def job(job: str = JOB, at: float = 0, submission: str | None = None, **fields: Any) -> Event:
    metadata = {"owner": "me"} | ({"job_submission_id": submission, "job_name": submission} if submission else {})
    payload = {
        "jobId": b64(job),
        "driverPid": "11631",
        "driverNodeId": b64(NODE),
        "entrypoint": "python job.py",
        "config": {"serializedRuntimeEnv": '{"env_vars": {"A": "1"}}', "metadata": metadata},
    }
    return event("DRIVER_JOB_DEFINITION_EVENT", payload | fields, at)


def job_life(state: str, at: float, job: str = JOB) -> Event:
    return event("DRIVER_JOB_LIFECYCLE_EVENT", {"jobId": b64(job), "stateTransitions": steps((state, at))}, at)


# Documents -----------------------------------------------------------------------------------------------------------


def document(source: str, name: str, body: Any, node: str = "") -> Event:
    return {"source": source, "name": name, "node_id": node, "body": body}


def polled(kind: str, *rows: Row) -> Event:
    """A state API listing as a collector stores it."""
    body = {"result": True, "msg": "", "data": {"result": {"total": len(rows), "result": list(rows)}}}
    return document("endpoint", f"restful__api__v0__{kind}?detail=1&limit=10000", body)


def listed_task(identity: str, *states: tuple[str, float], attempt: int = 0, **fields: Any) -> Row:
    """A row of the state API, as Ray 2.60 answers with `detail=1`."""
    steps = [{"state": state, "created_ms": float(ms(at))} for state, at in states]
    return {
        "task_id": identity,
        "attempt_number": attempt,
        "name": "work",
        "state": states[-1][0] if states else "NIL",
        "job_id": JOB,
        "actor_id": None,
        "type": "NORMAL_TASK",
        "func_or_class_name": "work",
        "parent_task_id": "ff" * 20 + JOB,
        "node_id": NODE,
        "worker_id": WORKER,
        "worker_pid": 17,
        "error_type": None,
        "language": "PYTHON",
        "required_resources": {"CPU": 1.0},
        "runtime_env_info": {"serialized_runtime_env": "{}", "runtime_env_config": {}},
        "placement_group_id": None,
        "events": steps,
        "profiling_data": {},
        "creation_time_ms": None,
        "start_time_ms": None,
        "end_time_ms": None,
        "task_log_info": None,
        "error_message": None,
        "is_debugger_paused": None,
        "call_site": None,
        "label_selector": {},
        "fallback_strategy": {"options": []},
        **fields,
    }


def polled_jobs(*rows: Row) -> Event:
    return document("endpoint", "restful__api__jobs__", list(rows))


def logged_submission(submission: str, end: str, at: int) -> Event:
    """A line of the log about jobs: that one has started, or with `end` how it completed."""
    message = f"Completed a ray job {submission} with a status {end}" if end else f"Started a ray job {submission}."
    body = {"event_id": f"{at:036x}", "timestamp": str(ms(at) // 1000), "source_type": "JOBS", "message": message}
    return document("log_event", "events/event_JOBS.log", body | {"custom_fields": {"submission_id": submission}}, NODE)


def exported_submission(submission: str, status: str, at: int, **fields: Any) -> Event:
    data = {"submission_job_id": submission, "status": status, "entrypoint": "python job.py", "metadata": {}, **fields}
    body = {"event_id": "8a6CFab5E1", "timestamp": ms(at) // 1000, "source_type": "EXPORT_SUBMISSION_JOB"}
    return document("export_event", "export_events/event_EXPORT_SUBMISSION_JOB.log", body | {"event_data": data}, NODE)
