"""The environment variables with which Ray exports its events; every Ray process needs them, drivers included."""

from __future__ import annotations

EVENT_TYPES = (
    "TASK_DEFINITION_EVENT",
    "TASK_LIFECYCLE_EVENT",
    "TASK_EXECUTION_EVENT",  # the name of TASK_LIFECYCLE_EVENT in Ray 2.49 and 2.50
    "TASK_PROFILE_EVENT",
    "ACTOR_TASK_DEFINITION_EVENT",
    "ACTOR_TASK_EXECUTION_EVENT",
    "DRIVER_JOB_DEFINITION_EVENT",
    "DRIVER_JOB_LIFECYCLE_EVENT",
    "SUBMISSION_JOB_DEFINITION_EVENT",
    "SUBMISSION_JOB_LIFECYCLE_EVENT",
    "ACTOR_DEFINITION_EVENT",
    "ACTOR_LIFECYCLE_EVENT",
    "NODE_DEFINITION_EVENT",
    "NODE_LIFECYCLE_EVENT",
    "WORKER_DEFINITION_EVENT",
    "WORKER_LIFECYCLE_EVENT",
    "PLACEMENT_GROUP_DEFINITION_EVENT",
    "PLACEMENT_GROUP_LIFECYCLE_EVENT",
    "PLATFORM_EVENT",
)
"""The event types of Ray 2.49 to 2.60. Each version ignores the names that it does not know.

`ALL` means all types only since Ray 2.54; before, it is the name of a type that does not exist: nothing is exported.
"""

EXPOSABLE_EVENT_TYPES = "RAY_DASHBOARD_AGGREGATOR_AGENT_EXPOSABLE_EVENT_TYPES"


REPORT_INTERVALS = {"RAY_task_events_report_interval_ms": "100", "RAY_ray_events_report_interval_ms": "100"}
"""How often processes of Ray report their events, 1000 ms by default: what a process has not reported is lost with it.

After `ray.shutdown()` right behind 130 tasks, Ray 2.60 has not reported the starts and profiles of 76 to 130 of them
with its default; with 100 ms of 0 to 95 on a busy machine, of none on a calm one. Idle processes report nothing.
"""


def export_variables(port: int) -> dict[str, str]:
    """The variables without which Ray exports nothing, for a collector that listens on this port of the same node."""
    return {
        "RAY_enable_ray_event": "true",
        "RAY_enable_core_worker_ray_event_to_aggregator": "true",
        "RAY_DASHBOARD_AGGREGATOR_AGENT_EVENTS_EXPORT_ADDR": f"http://127.0.0.1:{port}/v1/events",
        EXPOSABLE_EVENT_TYPES: ",".join(EVENT_TYPES),
    }


def recording_variables(port: int) -> dict[str, str]:
    """The variables to set: those, and the report intervals."""
    return {**export_variables(port), **REPORT_INTERVALS}
