"""Ray Data: `/api/data/datasets/{job_id}`, as polled, or rebuilt from Ray's export files as far as these go."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from ray_history.server.api.polled import add_newest, exported, is_later, newest_first, polled_answer
from ray_history.server.http.responses import plain_json
from ray_history.server.loose_json import object_of, objects_of
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.routes import OBJECT, SessionRoute, json_of

_FINAL_STATES = ("FINISHED", "FAILED")
_NO_PROGRESS: dict[str, Any] = {"progress": 0, "total": 0, "total_rows": 0}
_NO_USAGE: dict[str, Any] = {
    "ray_data_output_rows": {"max": 0},
    "ray_data_spilled_bytes": {"max": 0},
    "ray_data_current_bytes": {"value": 0, "max": 0},
    "ray_data_cpu_usage_cores": {"value": 0, "max": 0},
    "ray_data_gpu_usage_cores": {"value": 0, "max": 0},
    "ray_data_memory_usage_bytes": {"value": 0, "max": 0},
}


def datasets(request: SessionRequest) -> Response:
    """The datasets of a job, newest first."""
    job_id = request.path_param("job_id")
    found: dict[str, dict[str, Any]] = {}
    for metadata in exported(request, "EXPORT_DATASET_METADATA"):
        if metadata.get("job_id") == job_id and isinstance(metadata.get("dataset_id"), str):
            add_newest(found, metadata["dataset_id"], _exported_dataset(metadata), "state", _FINAL_STATES)
    answer = object_of(polled_answer(request, f"/api/data/datasets/{job_id}"))
    for dataset in objects_of(answer.get("datasets")):
        if is_later(request, dataset.get("start_time"), 1e9):
            continue
        if is_later(request, dataset.get("end_time"), 1e9):
            dataset |= {"state": "RUNNING", "end_time": None}
        add_newest(found, str(dataset.get("dataset")), dataset, "state", _FINAL_STATES)
    end = request.view.end
    for dataset in found.values():
        if end is not None and dataset.get("state") not in _FINAL_STATES:
            dataset |= {"state": "FAILED", "end_time": end / 1e9}
    return plain_json(request.redacted({"datasets": newest_first(found.values(), "start_time")}))


def _exported_dataset(metadata: dict[str, Any]) -> dict[str, Any]:
    """A dataset in the dashboard's form; export files hold no counts of blocks and rows."""
    operators = objects_of(object_of(metadata.get("topology")).get("operators"))
    return {
        "dataset": metadata["dataset_id"],
        "job_id": metadata.get("job_id"),
        "state": metadata.get("state"),
        **_NO_PROGRESS,
        "start_time": metadata.get("start_time"),
        "end_time": metadata.get("execution_end_time") or None,
        "operators": [
            {
                "operator": operator.get("id"),
                "name": operator.get("name"),
                **_NO_PROGRESS,
                "queued_blocks": 0,
                "state": operator.get("state"),
                **_NO_USAGE,
            }
            for operator in operators
        ],
        **_NO_USAGE,
    }


routes = [SessionRoute("/api/data/datasets/{job_id}", datasets, content=json_of(OBJECT), forwarded=True)]
