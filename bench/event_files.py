"""The speed of reading event files, compared with plain Python.

Each reader runs in its own process, so that peak memory is measured separately; the slow ones read a part of the text.
"""

from __future__ import annotations

import base64
import gzip
import json
import multiprocessing
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ray_history.archive.event_files import Problem, encode_event_chunks, read_event_blocks

SESSION = "session_2026-11-15_20-00-55_739110_9771"
TEXT = 200_000_000
CHUNK = 4 * 1024 * 1024
CALL_SITE = "".join(
    f'  File "/home/ray/pipelines/stage_{depth}/transform.py", line {70 + depth}, in step_{depth}\n    result = run()\n'
    for depth in range(14)
)


def binary_id(rng: random.Random, size: int) -> str:
    return base64.b64encode(rng.randbytes(size)).decode()


def moment(rng: random.Random) -> str:
    return f"2026-11-15T20:{rng.randrange(60):02}:{rng.randrange(60):02}.{rng.randrange(10**9):09}Z"


def envelope(rng: random.Random, kind: str, body_name: str, body: dict[str, object]) -> bytes:
    event = {
        "eventId": binary_id(rng, 28),
        "sourceType": "CORE_WORKER",
        "eventType": kind,
        "timestamp": moment(rng),
        "severity": "INFO",
        "sessionName": SESSION,
        body_name: body,
        "nodeId": "OuG+50xYa19aEjQYEeHpEj0CKvY965tCrJeFTA==",
        "message": "",
    }
    return json.dumps(event, separators=(",", ":")).encode()


def definition(rng: random.Random) -> bytes:
    function = {"moduleName": "core_job", "functionName": f"step_{rng.randrange(50)}", "className": ""}
    body: dict[str, object] = {
        "taskId": binary_id(rng, 24),
        "taskFunc": {"pythonFunctionDescriptor": {**function, "functionHash": rng.randbytes(16).hex()}},
        "taskName": function["functionName"],
        "requiredResources": {"side": 0.1, "CPU": 0.5},
        "jobId": "AgAAAA==",
        "parentTaskId": "//////////////////////////8CAAAA",
        "placementGroupId": "////////////////////////",
        "serializedRuntimeEnv": '{"env_vars": {"FOO": "bar", "HANG": "200", "RAY_worker_niceness": "0"}}',
        "callSite": CALL_SITE,
        "taskAttempt": 0,
        "taskType": "NORMAL_TASK",
        "language": "PYTHON",
        "refIds": {},
        "labelSelector": {},
        "isDetachedActor": False,
    }
    return envelope(rng, "TASK_DEFINITION_EVENT", "taskDefinitionEvent", body)


def lifecycle(rng: random.Random) -> bytes:
    states = ("PENDING_ARGS_AVAIL", "PENDING_NODE_ASSIGNMENT", "SUBMITTED_TO_WORKER", "FINISHED")
    worker = rng.randbytes(28)
    body: dict[str, object] = {
        "taskId": binary_id(rng, 24),
        "stateTransitions": [{"state": state, "timestamp": moment(rng)} for state in states],
        "nodeId": "OuG+50xYa19aEjQYEeHpEj0CKvY965tCrJeFTA==",
        "workerId": base64.b64encode(worker).decode(),
        "taskLogInfo": {"stdoutFile": f"/tmp/ray/{SESSION}/logs/worker-{worker.hex()}-02000000.out"},  # noqa: S108
        "jobId": "AgAAAA==",
        "taskAttempt": 0,
        "workerPid": rng.randrange(4_000_000),
    }
    return envelope(rng, "TASK_LIFECYCLE_EVENT", "taskLifecycleEvent", body)


def profile(rng: random.Random) -> bytes:
    start = 1794772885268501185 + rng.randrange(10**12)
    names = ("task:deserialize_arguments", "task:execute", "task:store_outputs", "submit_task")
    spans = [{"startTime": str(start), "endTime": str(start + 9), "extraData": "{}", "eventName": n} for n in names]
    source = {"componentType": "worker", "componentId": binary_id(rng, 28), "nodeIpAddress": "192.0.2.2"}
    body: dict[str, object] = {
        "taskId": binary_id(rng, 24),
        "jobId": "AgAAAA==",
        "profileEvents": {**source, "events": spans},
        "attemptNumber": 0,
    }
    return envelope(rng, "TASK_PROFILE_EVENT", "taskProfileEvents", body)


def generate(size: int) -> list[bytes]:
    """For each task one definition, two lifecycle events and one profile event, as one worker sends them."""
    rng = random.Random(260)
    events: list[bytes] = []
    while size > 0:
        events += [definition(rng), lifecycle(rng), lifecycle(rng), profile(rng)]
        size -= sum(map(len, events[-4:]))
    return events


def chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


def read_blocks(path: Path) -> int:
    problems: list[Problem] = []
    count = sum(map(len, read_event_blocks(chunks(path), file=path.name, problems=problems)))
    assert not problems
    return count


def python_lines(path: Path) -> int:
    with gzip.open(path) as file:
        return sum(1 for line in file if json.loads(line))


def python_array(path: Path) -> int:
    with path.open("rb") as file:
        return len(json.load(file))


def measured(reader: Callable[[Path], int], path: Path) -> tuple[int, float, float, float]:
    """Events, wall seconds, CPU seconds and the growth of the peak memory in MB."""
    idle = peak_memory()
    wall, cpu = time.perf_counter(), time.process_time()
    count = reader(path)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return count, wall, cpu, peak_memory() - idle


def peak_memory() -> float:
    """In MB, of this process only: `ru_maxrss` also counts what the parent held when it started this process."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


def store(path: Path, events: list[bytes]) -> None:
    if path.suffix == ".gz":
        with path.open("wb") as file:
            file.writelines(encode_event_chunks(events))
    else:
        path.write_bytes(b"[" + b",".join(events) + b"]")


def main() -> None:
    whole = generate(TEXT)
    part = whole[: len(whole) // 4]
    print("file            reader              text MB   events    MB/s   CPU s  peak MB  ratio")
    with tempfile.TemporaryDirectory() as folder:
        for file, baseline, name in (
            ("lines.gz", python_lines, "gzip+json.loads"),
            ("array", python_array, "json.load"),
        ):
            path, base_rate = Path(folder, file), 0.0
            for reader, shown, events in ((baseline, name, part), (read_blocks, "read_event_blocks", whole)):
                store(path, events)
                runs = [in_new_process(reader, path) for _ in range(3)]
                count, wall, cpu, peak = min(runs, key=lambda run: run[1])
                assert count == len(events)
                text = sum(map(len, events)) / 1e6
                base_rate = base_rate or text / wall
                print(
                    f"{file:15} {shown:18} {text:8.0f} {count:8} {text / wall:7.0f} {cpu:7.2f} {peak:8.0f} "
                    f"{text / wall / base_rate:5.1f}x"
                )


def in_new_process(reader: Callable[[Path], int], path: Path) -> tuple[int, float, float, float]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measured, (reader, path))
