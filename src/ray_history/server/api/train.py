"""Ray Train: `/api/train/v2/runs/v1`, as polled, or rebuilt from Ray's export files; `/api/train/v2/runs` as polled.

The structs are the ones in Ray's export files. Other programs write these files, so a field may have any type.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct
from starlette.responses import Response

from ray_history.history.registry import CLUSTER_TERMINATED
from ray_history.server.api.jobs import job_rows
from ray_history.server.api.polled import add_newest, exported, is_later, newest_first, polled_answer
from ray_history.server.http.responses import plain_json
from ray_history.server.loose_json import object_of, objects_of
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.routes import OBJECT, SessionRoute, json_of

T = TypeVar("T")
Run = dict[str, Any]
"""A run, or an attempt of one, in the dashboard's form."""

_FINAL_STATUSES = ("FINISHED", "ERRORED", "ABORTED")
_ABORTED = "Terminated due to system errors or killed by the user."
"""Ray's words for a run whose controller died."""


def train_runs(request: SessionRequest) -> Response:
    """The runs of Train V2, newest first."""
    found = _exported_runs(request)
    answer = object_of(polled_answer(request, "/api/train/v2/runs/v1"))
    for run in objects_of(answer.get("train_runs")):
        if is_later(request, run.get("start_time_ns"), 1):
            continue
        if is_later(request, run.get("end_time_ns"), 1):
            run |= {"status": "RUNNING", "end_time_ns": None}
        add_newest(found, str(run.get("id")), run, "status", _FINAL_STATUSES)
    if found:
        actors = request.tables.source("actors", request.view)
        actor_states: dict[str, str] = dict(request.tables.rows(f"select actor_id, state from {actors}"))
        for run in found.values():
            _update_workers(run, actor_states)
            _close(run, actor_states, request.view.end)
    return plain_json(request.redacted({"train_runs": newest_first(found.values(), "start_time_ns")}))


def train_v1_runs(request: SessionRequest) -> Response:
    """The runs of Train V1, which writes no export files."""
    answer = polled_answer(request, "/api/train/v2/runs")
    return plain_json(request.redacted(answer if isinstance(answer, dict) else {"train_runs": []}))


def _update_workers(run: Run, actor_states: dict[str, str]) -> None:
    """The status of a worker is the state of its actor."""
    for attempt in objects_of(run.get("attempts")):
        for worker in objects_of(attempt.get("workers")):
            worker["status"] = actor_states.get(str(worker.get("actor_id")), worker.get("status"))


def _close(run: Run, actor_states: dict[str, str], end: int | None) -> None:
    """A run whose controller is dead ends as ABORTED, and so do its attempts."""
    if end is None and actor_states.get(str(run.get("controller_actor_id"))) != "DEAD":
        return
    for part in (run, *objects_of(run.get("attempts"))):
        if part.get("status") not in _FINAL_STATUSES:
            part["status"] = "ABORTED"
            part["status_detail"] = _ABORTED if end is None else CLUSTER_TERMINATED
            part["end_time_ns"] = part.get("end_time_ns") or end


# Export files ---------------------------------------------------------------------------------------------------------


def _exported_runs(request: SessionRequest) -> dict[str, Run]:
    """By id."""
    runs: dict[str, Run] = {}
    for state in exported(request, "EXPORT_TRAIN_RUN"):
        if isinstance(state.get("id"), str):
            add_newest(runs, state["id"], _run(state), "status", _FINAL_STATUSES)
    if not runs:
        return {}
    attempts: dict[str, dict[str, Run]] = {}
    for state in exported(request, "EXPORT_TRAIN_RUN_ATTEMPT"):
        attempts_of_run = attempts.setdefault(str(state.get("run_id")), {})
        add_newest(attempts_of_run, str(state.get("attempt_id")), _attempt(state), "status", _FINAL_STATUSES)
    jobs = {job["job_id"]: job for job in job_rows(request, request.tables.source("jobs", request.view))}
    for run_id, run in runs.items():
        run["attempts"] = list(attempts.get(run_id, {}).values())
        run["job_details"] = jobs.get(str(run["job_id"]))
    return runs


def _run(state: dict[str, Any]) -> Run:
    return {
        "id": state["id"],
        "name": state.get("name"),
        "job_id": _hex(state.get("job_id")),
        "controller_actor_id": _hex(state.get("controller_actor_id")),
        "status": state.get("status"),
        "status_detail": state.get("status_detail"),
        "start_time_ns": _integer(state.get("start_time_ns")),
        "end_time_ns": _integer(state.get("end_time_ns")),
        "controller_log_file_path": state.get("controller_log_file_path"),
        "framework_versions": state.get("framework_versions") or {},
        "run_settings": _read(state.get("run_settings"), RunSettings).for_dashboard(),
    }


def _attempt(state: dict[str, Any]) -> Run:
    return {
        "run_id": state.get("run_id"),
        "attempt_id": state.get("attempt_id"),
        "status": state.get("status"),
        "status_detail": state.get("status_detail"),
        "start_time_ns": _integer(state.get("start_time_ns")),
        "end_time_ns": _integer(state.get("end_time_ns")),
        "resources": state.get("resources") or [],
        "workers": [_read(worker, Worker).for_dashboard() for worker in objects_of(state.get("workers"))],
    }


class Worker(Struct):
    world_rank: Any = 0
    local_rank: Any = 0
    node_rank: Any = 0
    actor_id: Any = None
    node_id: Any = None
    node_ip: Any = None
    pid: Any = None
    gpu_ids: Any = None
    status: Any = None
    resources: Any = None
    log_file_path: Any = None

    def for_dashboard(self) -> dict[str, Any]:
        return {
            **msgspec.structs.asdict(self),
            "actor_id": _hex(self.actor_id),
            "node_id": _hex(self.node_id),
            "gpu_ids": self.gpu_ids or [],
            "resources": self.resources or {"resources": {}},
            "processStats": None,
            "gpus": [],
        }


class BackendConfig(Struct):
    framework: Any = None
    config: Any = None

    def for_dashboard(self) -> dict[str, Any]:
        is_known = self.framework not in (None, "TRAINING_FRAMEWORK_UNSPECIFIED")
        return {"framework": str(self.framework).lower() if is_known else None, "config": self.config or {}}


class ScalingConfig(Struct):
    num_workers_fixed: Any = None
    num_workers_range: Any = None
    use_gpu: Any = False
    resources_per_worker: Any = None
    placement_strategy: Any = None
    accelerator_type: Any = None
    use_tpu: Any = False
    topology: Any = None
    label_selector_single: Any = None
    label_selector_list: Any = UNSET

    def for_dashboard(self) -> dict[str, Any]:
        workers = object_of(self.num_workers_range)
        return {
            "num_workers": self.num_workers_fixed or [workers.get("min"), workers.get("max")],
            "use_gpu": self.use_gpu,
            "resources_per_worker": object_of(self.resources_per_worker).get("values"),
            "placement_strategy": self.placement_strategy,
            "accelerator_type": self.accelerator_type,
            "use_tpu": self.use_tpu,
            "topology": self.topology,
            "bundle_label_selector": self._label_selector(),
        }

    def _label_selector(self) -> Any:
        if self.label_selector_list is UNSET:
            return object_of(self.label_selector_single).get("values")
        selectors = objects_of(object_of(self.label_selector_list).get("values"))
        return [selector.get("values") for selector in selectors]


class DataConfig(Struct):
    all: Any = UNSET
    datasets: Any = None
    data_execution_options: Any = None
    enable_shard_locality: Any = False

    def for_dashboard(self) -> dict[str, Any]:
        datasets = object_of(self.datasets).get("values", [])
        return {
            "datasets_to_split": datasets if self.all is UNSET else "all",
            "execution_options": None,
            "data_execution_options": self.data_execution_options,
            "enable_shard_locality": self.enable_shard_locality,
        }


class CheckpointConfig(Struct):
    num_to_keep: Any = None
    checkpoint_score_attribute: Any = None
    checkpoint_score_order: Any = "max"


class RunConfig(Struct):
    name: Any = None
    failure_config: Any = None
    worker_runtime_env: Any = None
    checkpoint_config: Any = None
    storage_path: Any = None
    storage_filesystem: Any = None

    def for_dashboard(self) -> dict[str, Any]:
        checkpoints = _read(self.checkpoint_config, CheckpointConfig)
        return {
            **msgspec.structs.asdict(self),
            "worker_runtime_env": self.worker_runtime_env or {},
            "checkpoint_config": {
                **msgspec.structs.asdict(checkpoints),
                "checkpoint_score_order": str(checkpoints.checkpoint_score_order).lower(),
            },
        }


class RunSettings(Struct):
    """The settings of a run; of each union, such as `num_workers_fixed` and `num_workers_range`, one part is set."""

    train_loop_config: Any = None
    backend_config: Any = None
    scaling_config: Any = None
    datasets: Any = None
    data_config: Any = None
    run_config: Any = None

    def for_dashboard(self) -> dict[str, Any]:
        return {
            "train_loop_config": self.train_loop_config,
            "backend_config": _read(self.backend_config, BackendConfig).for_dashboard(),
            "scaling_config": _read(self.scaling_config, ScalingConfig).for_dashboard(),
            "datasets": self.datasets or [],
            "data_config": _read(self.data_config, DataConfig).for_dashboard(),
            "run_config": _read(self.run_config, RunConfig).for_dashboard(),
        }


def _read(value: Any, kind: type[T]) -> T:
    return msgspec.convert(object_of(value), kind)


def _hex(text: Any) -> Any:
    """An id in hexadecimal, as the dashboard shows it; export files hold it in base64."""
    try:
        return base64.b64decode(text, validate=True).hex()
    except (binascii.Error, TypeError, ValueError):
        return text


def _integer(text: Any) -> int | None:
    return int(text) if re.fullmatch("[0-9]{1,19}", str(text), re.ASCII) else None


routes = [
    SessionRoute("/api/train/v2/runs/v1", train_runs, content=json_of(OBJECT), forwarded=True),
    SessionRoute("/api/train/v2/runs", train_v1_runs, content=json_of(OBJECT), forwarded=True),
]
