"""The two ends to compare a rebuild with: plain Python without optimisation, and the least that any program must do."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from typing import Any

import msgspec
from isal import isal_zlib

Attempts = dict[tuple[str, int], dict[str, Any]]

DEFINITIONS = {
    "TASK_DEFINITION_EVENT": "taskDefinitionEvent",
    "ACTOR_TASK_DEFINITION_EVENT": "actorTaskDefinitionEvent",
}


def rebuild(files: list[Path]) -> Attempts:
    """One dict per task attempt, in plain Python: gzip, json.loads, and a merge that does not depend on the order."""
    attempts: Attempts = {}
    for file in files:
        with gzip.open(file) as lines:
            for line in lines:
                _merge(attempts, json.loads(line))
    return attempts


def _merge(attempts: Attempts, event: dict[str, Any]) -> None:
    kind = event["eventType"]
    if kind in DEFINITIONS:
        body = event[DEFINITIONS[kind]]
        _attempt(attempts, body["taskId"], body["taskAttempt"])["definition"] = body
    elif kind == "TASK_LIFECYCLE_EVENT":
        body = event["taskLifecycleEvent"]
        _merge_lifecycle(_attempt(attempts, body["taskId"], body["taskAttempt"]), body)
    elif kind == "TASK_PROFILE_EVENT":
        body = event["taskProfileEvents"]
        spans = _attempt(attempts, body["taskId"], body["attemptNumber"])["spans"]
        for span in body["profileEvents"]["events"]:
            spans[span["eventName"], span["startTime"]] = span


def _attempt(attempts: Attempts, task: str, number: int) -> dict[str, Any]:
    row = attempts.get((task, number))
    if row is None:
        row = attempts[task, number] = {"definition": None, "times": {}, "error": None, "logs": {}, "spans": {}}
    return row


def _merge_lifecycle(row: dict[str, Any], body: dict[str, Any]) -> None:
    times = row["times"]
    for transition in body["stateTransitions"]:
        state, moment = transition["state"], _comparable(transition["timestamp"])
        times[state] = min(moment, times.get(state, moment))
    for name in ("nodeId", "workerId", "workerPid", "actorReprName"):
        if body.get(name):  # unset values are printed as "" and 0, and must not overwrite set ones
            row[name] = body[name]
    if "rayErrorInfo" in body:
        row["error"] = body["rayErrorInfo"]
    row["logs"].update(body.get("taskLogInfo", {}))


def _comparable(timestamp: str) -> str:
    """With all nine digits of the fraction, so that comparing texts compares times."""
    whole, _, fraction = timestamp.removesuffix("Z").partition(".")
    return f"{whole}.{fraction:0<9}"


def scan_limit(files: list[Path]) -> float:
    """Seconds one thread needs to read and decompress the files and to find the end of each JSON value."""
    decoder = msgspec.json.Decoder(msgspec.Raw)
    before = time.perf_counter()
    for file in files:
        decoder.decode_lines(isal_zlib.decompress(file.read_bytes(), 31))
    return time.perf_counter() - before
