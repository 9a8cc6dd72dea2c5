"""Ray's libraries Data and Train.

An answer that was polled is given as it was. Where nobody polled, Data and Train are rebuilt from Ray's export files as
far as these go; else comes the shape that Ray answers when there is nothing to tell.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Any

from starlette.responses import Response

from ray_history.history.registry import CLUSTER_TERMINATED
from ray_history.server.api.jobs import job_rows
from ray_history.server.api.polled import exported, is_later, polled_answer
from ray_history.server.http.responses import plain_json
from ray_history.server.loose_json import object_of, objects_of
from ray_history.server.sessions.endpoint import SessionRequest, shown
from ray_history.server.sessions.routes import OBJECT, SessionRoute, json_of

# Data ----------------------------------------------------------------------------------------------------------------

_VALUE_AND_MAX = ("current_bytes", "cpu_usage_cores", "gpu_usage_cores", "memory_usage_bytes")
_ENDED_DATASET = ("FINISHED", "FAILED")


def datasets(request: SessionRequest) -> Response:
    """The datasets of a job, the newest first."""
    job_id = request.path_param("job_id")
    answer = polled_answer(request, f"/api/data/datasets/{job_id}")
    polled = objects_of(object_of(answer).get("datasets"))
    found: dict[str, dict[str, Any]] = {}
    for told in exported(request, "EXPORT_DATASET_METADATA"):
        if told.get("job_id") == job_id and isinstance(told.get("dataset_id"), str):
            _keep_furthest(found, told["dataset_id"], _dataset(told), "state", _ENDED_DATASET)
    for row in polled:
        if not is_later(request, row.get("start_time"), 1e9):
            if is_later(request, row.get("end_time"), 1e9):
                row |= {"state": "RUNNING", "end_time": None}
            _keep_furthest(found, str(row.get("dataset")), row, "state", _ENDED_DATASET)
    end = request.view.end
    for row in found.values():
        if end is not None and row.get("state") not in _ENDED_DATASET:
            row |= {"state": "FAILED", "end_time": end / 1e9}
    newest_first = sorted(found.values(), key=lambda row: _number(row.get("start_time")), reverse=True)
    return plain_json(shown(request, {"datasets": newest_first}))


def _keep_furthest(
    found: dict[str, dict[str, Any]], key: str, row: dict[str, Any], state: str, ended: tuple[str, ...]
) -> None:
    """A later sighting replaces an earlier one, unless it knows less of the end."""
    known = found.get(key)
    if known is None or known.get(state) not in ended or row.get(state) in ended:
        found[key] = row


def _dataset(told: dict[str, Any]) -> dict[str, Any]:
    """A dataset as the export file tells it: no counts of blocks and rows."""
    nothing: dict[str, Any] = {"progress": 0, "total": 0, "total_rows": 0}
    usage = {"ray_data_output_rows": {"max": 0}, "ray_data_spilled_bytes": {"max": 0}}
    usage |= {f"ray_data_{name}": {"value": 0, "max": 0} for name in _VALUE_AND_MAX}
    operators = objects_of(object_of(told.get("topology")).get("operators"))
    return {
        "dataset": told["dataset_id"],
        "job_id": told.get("job_id"),
        "state": told.get("state"),
        **nothing,
        "start_time": told.get("start_time"),
        "end_time": told.get("execution_end_time") or None,
        "operators": [
            {
                "operator": operator.get("id"),
                "name": operator.get("name"),
                **nothing,
                "queued_blocks": 0,
                "state": operator.get("state"),
                **usage,
            }
            for operator in operators
        ],
        **usage,
    }


# Train ---------------------------------------------------------------------------------------------------------------

_ENDED_RUN = ("FINISHED", "ERRORED", "ABORTED")
_ABORTED = "Terminated due to system errors or killed by the user."


def train_runs(request: SessionRequest) -> Response:
    """The runs of Train V2, the newest first."""
    answer = polled_answer(request, "/api/train/v2/runs/v1")
    polled = objects_of(object_of(answer).get("train_runs"))
    found: dict[str, dict[str, Any]] = {}
    for run in _exported_runs(request):
        found[run["id"]] = run
    for run in polled:
        if not is_later(request, run.get("start_time_ns"), 1):
            if is_later(request, run.get("end_time_ns"), 1):
                run |= {"status": "RUNNING", "end_time_ns": None}
            _keep_furthest(found, str(run.get("id")), run, "status", _ENDED_RUN)
    if found:
        _close_runs(request, found.values())
    newest_first = sorted(found.values(), key=lambda run: _number(run.get("start_time_ns")), reverse=True)
    return plain_json(shown(request, {"train_runs": newest_first}))


def train_runs_of_v1(request: SessionRequest) -> Response:
    """The runs of Train V1, which leaves no export files."""
    answer = polled_answer(request, "/api/train/v2/runs")
    return plain_json(shown(request, answer if isinstance(answer, dict) else {"train_runs": []}))


def _exported_runs(request: SessionRequest) -> list[dict[str, Any]]:
    runs: dict[str, dict[str, Any]] = {}
    attempts: dict[str, dict[str, dict[str, Any]]] = {}
    for told in exported(request, "EXPORT_TRAIN_RUN"):
        if isinstance(told.get("id"), str):
            _keep_furthest(runs, told["id"], _run(told), "status", _ENDED_RUN)
    for told in exported(request, "EXPORT_TRAIN_RUN_ATTEMPT"):
        of_run = attempts.setdefault(str(told.get("run_id")), {})
        _keep_furthest(of_run, str(told.get("attempt_id")), _attempt(told), "status", _ENDED_RUN)
    jobs = (
        {job["job_id"]: job for job in job_rows(request, request.tables.source("jobs", request.view))} if runs else {}
    )
    for run_id, run in runs.items():
        run["attempts"] = list(attempts.get(run_id, {}).values())
        run["job_details"] = jobs.get(str(run["job_id"]))
    return list(runs.values())


def _run(told: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": told["id"],
        "name": told.get("name"),
        "job_id": _hex(told.get("job_id")),
        "controller_actor_id": _hex(told.get("controller_actor_id")),
        "status": told.get("status"),
        "status_detail": told.get("status_detail"),
        "start_time_ns": _integer(told.get("start_time_ns")),
        "end_time_ns": _integer(told.get("end_time_ns")),
        "controller_log_file_path": told.get("controller_log_file_path"),
        "framework_versions": told.get("framework_versions") or {},
        "run_settings": _run_settings(object_of(told.get("run_settings"))),
    }


def _run_settings(told: dict[str, Any]) -> dict[str, Any]:
    """The settings in the dashboard's form; the export's unions (`num_workers_fixed`, `all`) become plain values."""
    backend, scaling, data, run = (
        object_of(told.get(name)) for name in ("backend_config", "scaling_config", "data_config", "run_config")
    )
    framework = backend.get("framework")
    checkpoints = object_of(run.get("checkpoint_config"))
    workers = object_of(scaling.get("num_workers_range"))
    selectors = object_of(scaling.get("label_selector_single")).get("values")
    if "label_selector_list" in scaling:
        listed = objects_of(object_of(scaling["label_selector_list"]).get("values"))
        selectors = [each.get("values") for each in listed]
    return {
        "train_loop_config": told.get("train_loop_config"),
        "backend_config": {
            "framework": None if framework in (None, "TRAINING_FRAMEWORK_UNSPECIFIED") else str(framework).lower(),
            "config": backend.get("config") or {},
        },
        "scaling_config": {
            "num_workers": scaling.get("num_workers_fixed") or ([workers.get("min"), workers.get("max")]),
            "use_gpu": scaling.get("use_gpu", False),
            "resources_per_worker": object_of(scaling.get("resources_per_worker")).get("values"),
            "placement_strategy": scaling.get("placement_strategy"),
            "accelerator_type": scaling.get("accelerator_type"),
            "use_tpu": scaling.get("use_tpu", False),
            "topology": scaling.get("topology"),
            "bundle_label_selector": selectors,
        },
        "datasets": told.get("datasets") or [],
        "data_config": {
            "datasets_to_split": "all" if "all" in data else object_of(data.get("datasets")).get("values", []),
            "execution_options": None,
            "data_execution_options": data.get("data_execution_options"),
            "enable_shard_locality": data.get("enable_shard_locality", False),
        },
        "run_config": {
            "name": run.get("name"),
            "failure_config": run.get("failure_config"),
            "worker_runtime_env": run.get("worker_runtime_env") or {},
            "checkpoint_config": {
                "num_to_keep": checkpoints.get("num_to_keep"),
                "checkpoint_score_attribute": checkpoints.get("checkpoint_score_attribute"),
                "checkpoint_score_order": str(checkpoints.get("checkpoint_score_order", "max")).lower(),
            },
            "storage_path": run.get("storage_path"),
            "storage_filesystem": run.get("storage_filesystem"),
        },
    }


def _attempt(told: dict[str, Any]) -> dict[str, Any]:
    return {
        "run_id": told.get("run_id"),
        "attempt_id": told.get("attempt_id"),
        "status": told.get("status"),
        "status_detail": told.get("status_detail"),
        "start_time_ns": _integer(told.get("start_time_ns")),
        "end_time_ns": _integer(told.get("end_time_ns")),
        "resources": told.get("resources") or [],
        "workers": [
            {
                "world_rank": worker.get("world_rank", 0),
                "local_rank": worker.get("local_rank", 0),
                "node_rank": worker.get("node_rank", 0),
                "actor_id": _hex(worker.get("actor_id")),
                "node_id": _hex(worker.get("node_id")),
                "node_ip": worker.get("node_ip"),
                "pid": worker.get("pid"),
                "gpu_ids": worker.get("gpu_ids") or [],
                "status": worker.get("status"),
                "resources": worker.get("resources") or {"resources": {}},
                "log_file_path": worker.get("log_file_path"),
                "processStats": None,
                "gpus": [],
            }
            for worker in objects_of(told.get("workers"))
        ],
    }


def _close_runs(request: SessionRequest, runs: Iterable[dict[str, Any]]) -> None:
    """Workers get the state of their actors; a run whose controller is dead cannot go on, which Ray calls ABORTED."""
    states: dict[str, str] = dict(
        request.tables.rows(f"select actor_id, state from {request.tables.source('actors', request.view)}")
    )
    end = request.view.end
    for run in runs:
        attempts = objects_of(run.get("attempts"))
        for worker in (worker for attempt in attempts for worker in objects_of(attempt.get("workers"))):
            worker["status"] = states.get(str(worker.get("actor_id")), worker.get("status"))
        is_over = end is not None or states.get(str(run.get("controller_actor_id"))) == "DEAD"
        for part in (run, *attempts):
            if is_over and part.get("status") not in _ENDED_RUN:
                part |= {
                    "status": "ABORTED",
                    "status_detail": CLUSTER_TERMINATED if end is not None else _ABORTED,
                    "end_time_ns": part.get("end_time_ns") or end,
                }


def _hex(text: Any) -> Any:
    """An id of the export file (base64) as it is shown."""
    try:
        return base64.b64decode(text, validate=True).hex()
    except (binascii.Error, TypeError, ValueError):
        return text


def _integer(text: Any) -> int | None:
    return int(text) if re.fullmatch("[0-9]{1,19}", str(text), re.ASCII) else None


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) else 0


routes = [
    SessionRoute("/api/data/datasets/{job_id}", datasets, content=json_of(OBJECT), forwarded=True),
    SessionRoute("/api/train/v2/runs/v1", train_runs, content=json_of(OBJECT), forwarded=True),
    SessionRoute("/api/train/v2/runs", train_runs_of_v1, content=json_of(OBJECT), forwarded=True),
]
