"""A stand-in for the Ray Dashboard: scripted answers, late or wrong on command, and a record of the requests.

It starts with what a real dashboard of Ray 2.60 answered in the captured session: two nodes, seven jobs, Serve, Data
and Train in use. A test changes one answer and looks at what becomes of it.
"""

from __future__ import annotations

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from ray_history.archive.layout import endpoint_name
from ray_history.collector.polling.endpoints import UNFINISHED_TASKS
from tests.support.captured import captured

NODES = "/api/v0/nodes?detail=1&limit=10000"
PLACEMENT_GROUPS = "/api/v0/placement_groups?detail=1&limit=10000"
RUNTIME_ENVS = "/api/v0/runtime_envs?detail=1&limit=10000"
SERVE = "/api/serve/applications/"
JOBS = "/api/jobs/"
TRAIN = "/api/train/v2/runs/v1"
OLD_TRAIN = "/api/train/v2/runs"
SUMMARY = "/nodes?view=summary"
ACTORS = "/api/v0/actors?detail=1&limit=10000"
LOGICAL_ACTORS = "/logical/actors"

_CAPTURED = (
    *("/api/version", "/api/v0/cluster_metadata", "/timezone", JOBS, PLACEMENT_GROUPS, SERVE, TRAIN, SUMMARY),
    *("/api/v0/workers?detail=1&limit=10000", RUNTIME_ENVS, "/api/cluster_status", "/api/cluster_status?format=1"),
)


def datasets(job: str) -> str:
    return f"/api/data/datasets/{job}"


def rows(*found: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An answer of the state API."""
    counts = {"total": len(found), "num_after_truncation": len(found), "num_filtered": len(found)}
    warnings = {"partial_failure_warning": "", "warnings": None}
    return {"result": True, "msg": "", "data": {"result": {**counts, "result": list(found), **warnings, **more}}}


def job(name: str | None, status: str) -> dict[str, Any]:
    """A row of /api/jobs/ with the fields of a captured one."""
    return {**json.loads(captured().polled["restful__api__jobs"])[0], "job_id": name, "status": status}


class DashboardStandIn:
    """Use as a context manager; `answers` may be changed at any time."""

    def __init__(self) -> None:
        polled = captured().polled
        self.nodes = sorted(name.removeprefix("restful__nodes__") for name in polled if "nodes__" in name)
        self.answers: dict[str, Any] = {url: polled[endpoint_name(url)] for url in _CAPTURED}
        self.answers |= {f"/nodes/{node}": polled[f"restful__nodes__{node}"] for node in self.nodes}
        self.answers[NODES] = rows(*({"node_id": node, "state": "ALIVE"} for node in self.nodes))
        self.answers[ACTORS] = rows({"actor_id": "a1", "state": "ALIVE"})
        self.answers[LOGICAL_ACTORS] = {"result": True, "msg": "", "data": {"actors": {"a1": {"state": "ALIVE"}}}}
        self.answers[UNFINISHED_TASKS.url] = rows({"task_id": "t1", "state": "RUNNING"})
        self.answers["/events"] = {"result": True, "data": {"events": {"global": [{"eventId": "e1"}]}}}
        self.answers[OLD_TRAIN] = 500, b"Train state data is not available."
        self.answers[datasets("07000000")] = polled["restful__api__data__datasets__07000000"]
        """By URL as in the key: a body, a JSON value, or a status and one of both; other URLs answer 404."""
        self.actors = {"_StatsActor", "TrainStateActor"}
        """Classes of which an actor is alive."""
        self.delays: dict[str, float] = {}
        """Seconds before an answer begins."""
        self.token: str | None = None
        self.refuses_with = 401
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.over = threading.Event()
        self._server = _Server(("127.0.0.1", 0), self)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def asked(self, url: str) -> int:
        """The number of requests for a URL, cached or not."""
        return sum(_plain(request) == url for request in self.requests)

    def forget(self) -> None:
        self.requests.clear()
        self.headers.clear()

    def answer(self, url: str, headers: dict[str, str]) -> tuple[int, bytes]:
        self.requests.append(url)
        self.headers.append(headers)
        if self.token and headers.get("x-ray-authorization") != f"Bearer {self.token}":
            return self.refuses_with, b"Unauthorized"
        plain = _plain(url)
        self.over.wait(self.delays.get(plain, 0))
        wanted = re.search(r"filter_keys=class_name&filter_predicates=%3D&filter_values=(\w+)", plain)
        if plain.startswith("/api/v0/actors") and wanted:
            found = [{"class_name": wanted[1]}] if wanted[1] in self.actors else []
            return 200, json.dumps(rows(*found)).encode()
        unknown = {"datasets": []} if plain.startswith("/api/data/datasets/") else (404, b"not found")
        found_answer = self.answers.get(plain, unknown)
        status, body = found_answer if isinstance(found_answer, tuple) else (200, found_answer)
        return status, body if isinstance(body, bytes) else json.dumps(body).encode()


def _plain(url: str) -> str:
    """The URL without the parameters that are not part of its key."""
    return re.sub(r"[?&]nocache=1$", "", url).removesuffix("&" + UNFINISHED_TASKS.parameters)


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # joined by server_close(): nothing outlives its test
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], stand_in: DashboardStandIn) -> None:
        self.stand_in = stand_in
        super().__init__(address, _Exchange)


class _Exchange(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        status, body = self.server.stand_in.answer(self.path, headers)
        try:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            return  # it did not want to wait any longer

    def log_message(self, *_: object) -> None:
        """Do not log; see `requests`."""


def soon(seconds: float = 10) -> float:
    """A deadline that is far enough."""
    return time.monotonic() + seconds
