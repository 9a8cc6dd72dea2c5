"""The schema of Ray's exported events, as far as the tables need it.

One tree describes the fields that are read. It becomes the columns of DuckDB's JSON reader, and guides the conversion
of events with snake_case names (Ray's PRESERVE_PROTO_FIELD_NAME) to the usual camelCase. Fields that are not in the
tree are ignored; the bodies of the rare event types are stored completely.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from functools import cache
from typing import Any, TypeAlias, cast

import msgspec

from ray_history.decoding import DECODING_ERRORS
from ray_history.history.sql import all_queries

Shape: TypeAlias = "str | dict[str, Shape] | list[Shape]"
"""A DuckDB type, the fields of an object, or the shape of the elements of an array."""

_DESCRIPTOR: Shape = {"className": "VARCHAR", "functionName": "VARCHAR"}
_FUNCTION: Shape = {
    "pythonFunctionDescriptor": _DESCRIPTOR,
    "javaFunctionDescriptor": _DESCRIPTOR,
    "cppFunctionDescriptor": _DESCRIPTOR,
}
_DEFINITION: dict[str, Shape] = {
    "taskId": "VARCHAR",
    "taskAttempt": "INTEGER",
    "language": "VARCHAR",
    "requiredResources": "JSON",
    "jobId": "VARCHAR",
    "parentTaskId": "VARCHAR",
    "placementGroupId": "VARCHAR",
    "serializedRuntimeEnv": "VARCHAR",
    "runtimeEnvInfo": {"serializedRuntimeEnv": "VARCHAR"},  # its place in Ray 2.49
    "callSite": "VARCHAR",
    "labelSelector": "JSON",
    "fallbackStrategy": "JSON",
}

TASK_PAYLOADS: dict[str, Shape] = {
    "taskDefinitionEvent": {**_DEFINITION, "taskType": "VARCHAR", "taskName": "VARCHAR", "taskFunc": _FUNCTION},
    "actorTaskDefinitionEvent": {
        **_DEFINITION,
        "actorId": "VARCHAR",
        "actorTaskName": "VARCHAR",
        "actorFunc": _FUNCTION,
    },
    "taskLifecycleEvent": {
        "taskId": "VARCHAR",
        "taskAttempt": "INTEGER",
        "jobId": "VARCHAR",
        "stateTransitions": [{"state": "VARCHAR", "timestamp": "VARCHAR"}],
        "rayErrorInfo": {"errorType": "VARCHAR", "errorMessage": "VARCHAR"},
        "nodeId": "VARCHAR",
        "workerId": "VARCHAR",
        "workerPid": "BIGINT",
        "isDebuggerPaused": "BOOLEAN",
        "actorReprName": "VARCHAR",
        "taskLogInfo": {
            "stdoutFile": "VARCHAR",
            "stderrFile": "VARCHAR",
            "stdoutStart": "BIGINT",
            "stdoutEnd": "BIGINT",
            "stderrStart": "BIGINT",
            "stderrEnd": "BIGINT",
        },
    },
    "taskExecutionEvent": {
        "taskId": "VARCHAR",
        "taskAttempt": "INTEGER",
        "jobId": "VARCHAR",
        "taskState": "MAP(VARCHAR, VARCHAR)",
        "rayErrorInfo": {"errorType": "VARCHAR", "errorMessage": "VARCHAR"},
        "nodeId": "VARCHAR",
        "workerId": "VARCHAR",
        "workerPid": "BIGINT",
    },
    "taskProfileEvents": {
        "taskId": "VARCHAR",
        "attemptNumber": "INTEGER",
        "jobId": "VARCHAR",
        "profileEvents": {
            "componentType": "VARCHAR",
            "componentId": "VARCHAR",
            "nodeIpAddress": "VARCHAR",
            # The end is the first field: sorted spans are then in the order in which they were recorded.
            "events": [
                {"endTime": "BIGINT", "startTime": "BIGINT", "eventName": "VARCHAR", "extraData": "VARCHAR"},
            ],
        },
    },
}
"""The payloads about tasks. Nearly all events of a session have one, so each field has its type."""

TASK_EVENTS = {
    "TASK_DEFINITION_EVENT": "taskDefinitionEvent",
    "ACTOR_TASK_DEFINITION_EVENT": "actorTaskDefinitionEvent",
    "TASK_LIFECYCLE_EVENT": "taskLifecycleEvent",
    "TASK_EXECUTION_EVENT": "taskExecutionEvent",
    "TASK_PROFILE_EVENT": "taskProfileEvents",
}
"""The payload of each type of task event."""

RARE_PAYLOADS: dict[str, Shape] = {
    "driverJobDefinitionEvent": {"config": {"metadata": "JSON"}},
    "driverJobLifecycleEvent": {"stateTransitions": [{}]},
    "nodeDefinitionEvent": {"labels": "JSON"},
    "nodeLifecycleEvent": {"stateTransitions": [{"resources": "JSON", "deathInfo": {}}]},
    "actorDefinitionEvent": {
        "requiredResources": "JSON",
        "labelSelector": "JSON",
        "fallbackStrategy": "JSON",
        "refIds": "JSON",
    },
    "actorLifecycleEvent": {
        "stateTransitions": [
            {
                "deathCause": {
                    "actorDiedErrorContext": {"nodeDeathInfo": {}},
                    "creationTaskFailureContext": {},
                    "runtimeEnvFailedContext": {},
                    "actorUnschedulableContext": {},
                    "oomContext": {},
                }
            }
        ]
    },
    "workerDefinitionEvent": {},
    "workerLifecycleEvent": {"stateTransitions": [{"deathInfo": {}}]},
    "placementGroupDefinitionEvent": {"bundles": [{"unitResources": "JSON", "labelSelector": "JSON"}]},
    "placementGroupLifecycleEvent": {"stateTransitions": [{"bundlePlacements": [{}]}]},
    "submissionJobDefinitionEvent": {
        "config": {"metadata": "JSON"},
        "entrypointResources": {"customResources": "JSON"},
    },
    "submissionJobLifecycleEvent": {"stateTransitions": [{}]},
    "platformEvent": {"source": {"metadata": "JSON"}, "customFields": "JSON"},
}
"""The payloads of rare events, thousands per session at most. They are read as JSON; the tree only marks the objects
with arbitrary keys, such as resources and labels."""

KNOWN_TYPES = frozenset({*TASK_EVENTS, *(re.sub("(?=[A-Z])", "_", name).upper() for name in RARE_PAYLOADS)})
"""Ray names an event by its payload: `nodeLifecycleEvent` is that of NODE_LIFECYCLE_EVENT."""

_ENVELOPE: dict[str, Shape] = {
    "eventId": "VARCHAR",
    "eventType": "VARCHAR",
    "timestamp": "VARCHAR",
    "nodeId": "VARCHAR",
    "sessionName": "VARCHAR",
    "severity": "VARCHAR",
    "message": "VARCHAR",
}
_EVENT: dict[str, Shape] = {**_ENVELOPE, **TASK_PAYLOADS, **RARE_PAYLOADS}


def all_columns() -> str:
    """The columns argument of DuckDB's `read_json`."""
    return _columns({**_ENVELOPE, **TASK_PAYLOADS, **dict.fromkeys(RARE_PAYLOADS, "JSON")})


def task_columns(payload: str) -> str:
    """The same, for a file in which all events have one payload about tasks."""
    return _columns({"eventType": "VARCHAR", "timestamp": "VARCHAR", payload: TASK_PAYLOADS[payload]})


def _columns(typed: dict[str, Shape]) -> str:
    return "{" + ", ".join(f"'{name}': '{_type(shape)}'" for name, shape in typed.items()) + "}"


def _type(shape: Shape) -> str:
    if isinstance(shape, str):
        return shape
    if isinstance(shape, list):
        return _type(shape[0]) + "[]"
    return "STRUCT(" + ", ".join(f'"{name}" {_type(field)}' for name, field in shape.items()) + ")"


@cache
def rules_digest() -> str:
    """A digest of the fields read from events and of the queries: tables with another digest are rebuilt."""
    return hashlib.blake2b("\0".join([all_columns(), *all_queries()]).encode(), digest_size=16).hexdigest()


def rare_payload() -> str:
    """SQL: the body of an event of one of the rare types."""
    return "coalesce(" + ", ".join(f'"{name}"' for name in RARE_PAYLOADS) + ")"


# Events as bytes, for files that DuckDB cannot read -------------------------------------------------------------------


def in_camel_case(event: bytes, rejected: Counter[str]) -> tuple[str, bytes] | None:
    """The event's type, and the event with camelCase names. Anything else is counted in `rejected` and gives None."""
    try:
        decoded = msgspec.json.decode(event)
    except DECODING_ERRORS:
        decoded = None
    if not isinstance(decoded, dict):
        rejected["not a JSON object"] += 1
        return None
    renamed = cast("dict[str, Any]", _convert(decoded, _EVENT))
    kind = renamed.get("eventType")
    if not isinstance(kind, str):
        rejected["no event type"] += 1
        return None
    return kind, msgspec.json.encode(renamed)


def _convert(value: Any, shape: Shape) -> Any:
    if isinstance(shape, list) and isinstance(value, list):
        return [_convert(element, shape[0]) for element in value]
    if isinstance(shape, dict) and isinstance(value, dict):
        return {(camel := _camel(key)): _convert(inner, shape.get(camel, "JSON")) for key, inner in value.items()}
    return value


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)
