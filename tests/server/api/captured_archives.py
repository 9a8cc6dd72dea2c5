"""Archives of the captured session, whole and without some of its sources, and what asks for their answers."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from ray_history.archive import layout
from ray_history.archive.event_files import encode_events
from ray_history.archive.layout import Generation
from ray_history.server.api import actors, cluster_status, data, events, jobs, misc, nodes, serve, train
from tests.server.serving import Answer, Served
from tests.support.captured import captured

SESSION = captured().session
HEAD_NODE = "381dbb332c19a792bbab4412448055d8c7ae4561f44587859ade752b"
SIDE_NODE = "e1b0ecf032fb73ce8aaf62b706baec4939d7c4222fc1abf012d26a71"
LONG_ACTOR = "c61af9386886c7e530ea18010b000000"
DEAD_ACTOR = "2b9c3fc99d07c52063bfa5d504000000"
SECRET = "hunter2-never-shown"

MODULES = (actors, cluster_status, data, events, jobs, misc, nodes, serve, train)
"""The modules whose routes the dashboard's frontend reads."""


def without(*parts: str) -> Callable[[Path], None]:
    """Removes folders from an archive."""

    def remove(folder: Path) -> None:
        for found in [path for path in folder.rglob("*") if path.is_dir() and path.name in parts]:
            shutil.rmtree(found)

    return remove


def with_secrets(folder: Path) -> None:
    """Adds secrets to polled answers, jobs and a platform event."""
    endpoints = folder / "fetched_endpoints"
    application = {"deployed_app_config": {"runtime_env": {"env_vars": {"A": SECRET}}, "args": {"hf_token": SECRET}}}
    serve = {"applications": {"app": {"source": "declarative", **application}}}
    (endpoints / "restful__api__serve__applications").write_bytes(msgspec.json.encode(serve))
    (endpoints / "restful__api__custom__thing?x=1").write_bytes(msgspec.json.encode({"api_key": SECRET, "fine": 1}))
    for name in ("restful__nodes?view=summary", f"restful__nodes__{HEAD_NODE}"):
        body = msgspec.json.decode((endpoints / name).read_bytes())
        node = body["data"].get("detail") or body["data"]["summary"][0]
        node["cmdline"] += [f"--redis-password={SECRET}", "--api-key", SECRET, f'{{"env_vars": {{"A": "{SECRET}"}}']
        (endpoints / name).write_bytes(msgspec.json.encode(body))
    rows = msgspec.json.decode((endpoints / "restful__api__jobs").read_bytes())
    rows.append(rows[0] | {"submission_id": "secretive", "job_id": None, "driver_info": None})
    rows[-1] |= {"entrypoint": f"DB_PASSWORD={SECRET} python x.py", "metadata": {"api_key": SECRET}}
    rows[-1] |= {"runtime_env": {"env_vars": {"A": SECRET}, "pip": [f"https://user:{SECRET}@host/x.whl"]}}
    (endpoints / "restful__api__jobs").write_bytes(msgspec.json.encode(rows))
    event = {
        "eventId": "cG9k",
        "eventType": "PLATFORM_EVENT",
        "timestamp": "2026-11-15T20:57:00Z",
        "severity": "WARNING",
        "message": "Back-off pulling image",
        "platformEvent": {
            "source": {"platform": "KUBERNETES", "component": "kubelet", "metadata": {}},
            "objectKind": "Pod",
            "objectName": "head-x7",
            "reason": "BackOff",
            "message": f"Back-off pulling image, token={SECRET}",
            "customFields": {"registry_password": SECRET, "some_count": "3"},
        },
    }
    key = layout.event_file_key("", HEAD_NODE, None, 1_794_787_200_000_000_999)
    (folder / key).write_bytes(encode_events([msgspec.json.encode(event)]))


def with_a_replaced_replica(folder: Path) -> None:
    """Marks one of Serve's replicas as stopped when it was polled."""
    file = folder / "fetched_endpoints" / "restful__api__serve__applications"
    body = msgspec.json.decode(file.read_bytes())
    hello = body["applications"]["fixapp"]["deployments"]["Hello"]
    hello["recent_dead_replicas"] = [hello["replicas"].pop() | {"state": "STOPPED"}]
    file.write_bytes(msgspec.json.encode(body))


ODD = [[], 3, "text", {"data": 3}, {"data": {"summary": [3, {"raylet": []}], "detail": {"now": "x", "workers": 1}}}]


def with_odd_answers(folder: Path) -> None:
    """Replaces polled answers by others of any shape but the right one."""
    for number, file in enumerate(sorted((folder / "fetched_endpoints").iterdir())):
        rows: dict[str, Any] = {"datasets": [1, {}], "train_runs": [{"attempts": 2}], "applications": []}
        file.write_bytes(msgspec.json.encode([rows, *ODD][number % (1 + len(ODD))]))


ARCHIVES: dict[str, tuple[Generation, Callable[[Path], None]]] = {
    "running": (Generation.A, without()),
    "whole": (Generation.C, without()),
    "events-only": (Generation.C, without("logs", "fetched_endpoints")),
    "logs-only": (Generation.C, without("fetched_endpoints", "node_events", "job_events")),
    "unpolled": (Generation.C, without("fetched_endpoints")),
    "polled-only": (Generation.C, without("logs", "node_events", "job_events")),
    "odd-answers": (Generation.C, with_odd_answers),
    "secretive": (Generation.C, with_secrets),
    "replaced": (Generation.C, with_a_replaced_replica),
}
"""By cluster. All sessions ended long ago, except for the first, which seems to be running."""


def ask(server: Served, cluster: str, url: str, method: str = "GET") -> Answer:
    return server.get(f"/s/default/{cluster}/{SESSION}{url}", method=method)


def every_url() -> list[str]:
    """Each of the routes once, with IDs that exist."""
    values = {
        "node_id": HEAD_NODE,
        "actor_id": LONG_ACTOR,
        "job_or_submission_id": "fx-env",
        "job_id": "07000000",
        "protocol": "gcs",
        "label": "State",
        "package_name": "x.zip",
    }
    paths = [route.path for module in MODULES for route in module.routes]
    queries = ["/nodes?view=hostNameList", "/events?job_id=04000000", "/api/cluster_status?format=1"]
    return [re.sub(r"{(\w+)}", lambda part: values[part[1]], path) for path in paths] + queries


_IDS = (
    *("actorId", "actor_id", "eventId", "workerId", "submission_id", "replica_id", "dataset", "operator", "pid"),
    *("attempt_id", "id"),
)


def differences(live: Any, ours: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The leaves that differ; rows are matched by their IDs."""
    if isinstance(live, dict) and isinstance(ours, dict):
        for key in live.keys() | ours.keys():
            yield from differences(live.get(key, "<absent>"), ours.get(key, "<absent>"), f"{path}.{key}")
    elif isinstance(live, list) and isinstance(ours, list):
        live_rows, our_rows = by_id(live), by_id(ours)
        for key in live_rows.keys() | our_rows.keys():
            found = our_rows.get(key, "<absent>")
            yield from differences(live_rows.get(key, "<absent>"), found, f"{path}[{key}]")
    elif live != ours or isinstance(live, bool) is not isinstance(ours, bool):
        yield path, live, ours


def by_id(items: list[Any]) -> dict[Any, Any]:
    for key in ("raylet", *_IDS):
        ids = [item.get(key) if isinstance(item, dict) else None for item in items]
        if key == "raylet":
            ids = [raylet.get("nodeId") if isinstance(raylet, dict) else None for raylet in ids]
        if None not in ids and len(set(map(str, ids))) == len(items):
            return {str(identity): item for identity, item in zip(ids, items, strict=True)}
    return dict(enumerate(items))
