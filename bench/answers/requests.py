"""The requests: every route of every session, with good and bad values of each parameter."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, product
from typing import Any
from urllib.parse import quote, urlencode

from bench.answers.archive import Target
from bench.answers.servers import Server

PAGE = {"Accept": "text/html,application/xhtml+xml"}
NOWHERE = "0" * 8
LONG_NUMBER = "9" * 30

QUERY: dict[str, tuple[str, ...]] = {
    "raw": ("1", "0", "maybe"),
    "limit": ("0", "1", "3", "50000", "-1", "x", LONG_NUMBER),
    "offset": ("2", "1000000", "-1", "x"),
    "cursor": ("", "broken"),
    "detail": ("1", "0", "maybe"),
    "order": ("desc", "sideways"),
    "exclude_driver": ("0", "1", "x"),
    "exclude_internal": ("1", "x"),
    "timeout": ("5", "x"),
    "summary_by": ("func_name", "task_name", "lineage", "nothing"),
    "download": ("1", "x"),
    "view": ("summary", "logs", "hostNameList", "nothing"),
    "format": ("1", "0", "x"),
    "glob": ("*.out", "worker*", "**", "[", ""),
    "attempt_number": ("0", "7", "x"),
    "suffix": ("out", "err", "nothing"),
    "lines": ("1", "5", "-1", "0", "x"),
    "filter_ansi_code": ("1", "x"),
    "download_filename": ("saved.txt", "a/b"),
    "interval": ("1", "x"),
    "inline": ("1", "x"),
    "api_type": ("declarative", "imperative", "x"),
    "dashboard": ("2.60.0", "1.0.0", "../x"),
}
"""Values of query parameters that do not depend on the session."""

FILTERS = (
    (("state", "=", "FAILED"),),
    (("state", "!=", "FINISHED"), ("job_id", "=", "04000000")),
    (("STATE", "=", "running"),),
    (("nothing", "=", "x"),),
    (("state", "<", "x"),),
    (("state", "=", "x" * 5000),),
    (("pid", "=", "12"),),
    (("worker_pid", "=", LONG_NUMBER),),
    (("is_debugger_paused", "=", "maybe"),),
)
COLUMNS = ("task_id", "name", "state", "start_time_ms", "pid", "node_id", "nothing", "")

SITE = (
    "/",
    "/livez",
    "/readz",
    "/healthz",
    "/metrics",
    "/login",
    "/logout",
    "/clusters",
    "/clusters/",
    "/clusters?limit=2",
    "/clusters?limit=x",
    "/select_cluster",
    "/select_cluster/",
    "/api/v0/tasks",
    "/_pages/nothing.css",
    "/nothing/at/all",
    "/enter_cluster/",
    "/enter_cluster/states",
    "/enter_cluster/states/ended/latest",
    "/enter_cluster/states/nothing/latest",
    "/enter_cluster/states/ended/live",
    "/enter_cluster/team-b/rayjob/nightly",
    "/enter_cluster/team-b/rayjob/nightly/latest",
    "/enter_cluster/team-c/RayService/chat/latest",
    "/enter_cluster/states/raycluster/ended/session_2000-01-01_00-00-00_000000_1",
    "/enter_cluster/a/b/c/d/e",
    "/s/states/ended",
    "/s/states/ended/latest",
    "/s/states/ended/live/",
    "/s/states/ended/live/api/v0/tasks",
    "/s/states/ended/session_2000-01-01_00-00-00_000000_1/api/v0/tasks",
    "/s/states/nothing/latest/api/v0/tasks",
    "/s/%2e%2e/%2e%2e/latest/",
    "/s/states/ended/nonsense/",
)
"""Paths outside the sessions, and sessions that do not exist."""

HOME = (
    "q=nightly",
    "q=-nightly",
    "q=%22market+simulation%22",
    "q=cluster:ended",
    "q=namespace:states+owner:nightly",
    "q=job:fx+error:killed",
    "q=error:boom",
    "q=ray:2.60",
    "q=s3://x",
    "q=" + "x" * 300,
    *(f"state={state}" for state in ("live", "ended", "lost", "all", "unknown", "x")),
    *(f"sort={order}" for order in ("started", "-started", "duration", "failed", "tasks", "cluster", "-cluster", "x")),
    *(f"range={span}" for span in ("1h", "24h", "7d", "30d", "all", "x")),
    "namespace=states",
    "namespace=states&namespace=team-b",
    "owner=nightly",
    "ray=2.60.0",
    "failed=1",
    "failed=x",
    "complete=0",
    "from=2026-11-01T00:00&to=2026-12-01T00:00",
    "from=yesterday",
    "after=nothing",
    "&".join(f"namespace={number}" for number in range(60)),
)
"""Queries of the home page."""


@dataclass(frozen=True)
class Request:
    """One request."""

    path: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return " ".join([self.method, self.path, *(f"[{name}: {value}]" for name, value in self.headers.items())])


def of_site() -> Iterator[Request]:
    """The pages and routes that belong to no session."""
    for path in SITE:
        yield Request(path)
        yield Request(path, headers=PAGE)
        yield Request(path, "HEAD")
        yield Request(path, "POST")
    for query in HOME:
        yield Request(f"/?{query}", headers=PAGE)
    yield Request(f"/?{HOME[0]}", headers={**PAGE, "X-Requested-With": "fetch"})
    entered = "cluster_name=ended; cluster_namespace=states; session_name=latest"
    for cookie in (entered, entered.replace("latest", "live"), "cluster_name=ended", entered.replace("ended", "none")):
        for path in ("/api/v0/tasks?limit=2", "/", "/nodes?view=summary", "/api/version", "/nothing.js"):
            yield Request(path, headers={"Cookie": cookie})
            yield Request(path, headers={"Cookie": cookie, **PAGE})


def of_session(server: Server, target: Target) -> Iterator[Request]:
    """All routes of a session, as its own `openapi.json` lists them."""
    values = _values(server, target)
    paths = json.loads(server.request("GET", f"{target.path}/openapi.json").body)["paths"]
    for pattern, operations in paths.items():
        parameters = [parameter["name"] for parameter in operations["get"]["parameters"] if parameter["in"] == "query"]
        for path in _filled(target.path + pattern, values, most=3 if target.thorough else 1):
            yield Request(path)
            yield Request(path, headers=PAGE)
            for moment in values["at"]:
                yield Request(f"{path}?{urlencode({'at': moment})}")
            if not target.thorough:
                yield from (Request(f"{path}?{name}=1") for name in parameters if name in ("detail", "raw", "view"))
                continue
            yield Request(path, "HEAD")
            yield Request(path, "POST")
            yield Request(path + "/" if not path.endswith("/") else path[:-1])
            yield Request(path, headers={"Accept-Encoding": "gzip"})
            yield Request(path, headers={"Accept": "application/json"})
            for query in _queries(parameters, values):
                yield Request(f"{path}?{query}")
    yield from _of_logs(target, values)
    for name in ("index.html", "favicon.ico", "static/nothing.js", "api/v0/nothing", "api/nothing", "_nothing"):
        yield Request(f"{target.path}/{name}")
        yield Request(f"{target.path}/{name}", headers=PAGE)


def of_live(server: Server, documented: Target, target: Target) -> Iterator[Request]:
    """The routes of an archived session, requested from a live cluster."""
    paths = json.loads(server.request("GET", f"{documented.path}/openapi.json").body)["paths"]
    for pattern in [*paths, "/nothing.js", "/api/v0/nothing", "/api/authenticate"]:
        for path in _filled(target.path + pattern, {"media_type": ["file"]}, most=1):
            yield Request(path)
            yield Request(path, headers=PAGE)
            yield Request(path, "HEAD")
            yield Request(path, "POST")
            yield Request(f"{path}?at=1794776200000")
            yield Request(f"{path}?limit=2&detail=1")


def _queries(parameters: list[str], values: Mapping[str, list[str]]) -> Iterator[str]:
    """Each parameter alone, and some together."""
    for name in parameters:
        for value in chain(QUERY.get(name, ()), values.get(name, ())):
            yield urlencode({name: value})
    if "filter_keys" in parameters:
        for filters in FILTERS:
            pairs = [
                (f"filter_{part}", value)
                for row in filters
                for part, value in zip(("keys", "predicates", "values"), row, strict=True)
            ]
            yield urlencode([*pairs, ("limit", "20")])
            yield urlencode(pairs[:-1])
        yield urlencode([("filter_keys", "state"), ("filter_predicates", "="), ("filter_values", "x")] * 25)
    if "sort" in parameters:
        for column, order in product(COLUMNS, ("", "desc")):
            yield urlencode({"sort": column, "order": order, "limit": 7, "detail": 1})
        yield urlencode({"cursor": "", "limit": 3, "sort": "name"})
        yield urlencode({"limit": 4, "offset": 3, "detail": 1})
    if {"detail", "limit"} <= set(parameters):
        yield from (f"{urlencode({'at': moment})}&detail=1&limit=50" for moment in values["at"])


def _of_logs(target: Target, values: Mapping[str, list[str]]) -> Iterator[Request]:
    """Log files by node and name, and by what wrote them."""
    logs = f"{target.path}/api/v0/logs"
    for place in values["file"][: 60 if target.thorough else 8]:
        node, name = place.split(" ", 1)
        file = urlencode({"node_id": node, "filename": name})
        yield Request(f"{logs}/file?{file}&lines=-1")
        yield Request(f"{target.path}/logs/{quote(name)}?node_id={node}")
        if target.thorough:
            yield Request(f"{logs}/stream?{file}&lines=3")
            yield Request(f"{logs}/file?{file}&lines=10&filter_ansi_code=1")
            yield Request(f"{logs}/file?{file}&download_filename=x.txt", "HEAD")
    for node in [*values["node_id"], "nothing"]:
        for glob in ("*", "*worker*out", "nothing"):
            yield Request(f"{logs}?{urlencode({'node_id': node, 'glob': glob})}")
        yield Request(f"{logs}/file?{urlencode({'node_id': node, 'filename': '../../etc/passwd'})}")
    for name, suffix in product(("task_id", "actor_id", "submission_id", "pid"), ("out", "err")):
        for value in [*values.get(name, ()), NOWHERE]:
            yield Request(f"{logs}/file?{urlencode({name: value, 'suffix': suffix, 'lines': 20})}")


def _filled(pattern: str, values: Mapping[str, list[str]], most: int) -> Iterator[str]:
    """The path with each of its parameters replaced by values of the session."""
    names = re.findall(r"{(\w+)", pattern)
    choices = [[*values.get(name, [])[:most], "nothing"] for name in names]
    for chosen in product(*choices):
        path = pattern
        for name, value in zip(names, chosen, strict=True):
            path = re.sub(rf"{{{name}[^}}]*}}", quote(value), path)
        yield path


def _values(server: Server, target: Target) -> dict[str, list[str]]:
    """Ids, names and moments of a session, taken from its own answers."""

    def rows(path: str) -> list[dict[str, Any]]:
        answer = json.loads(server.request("GET", f"{target.path}/api/v0/{path}").body)
        return ((answer.get("data") or {}).get("result") or {}).get("result") or []

    tasks = [
        *rows("tasks?limit=1&detail=1"),
        *rows("tasks?limit=2&detail=1&filter_keys=state&filter_predicates=%3D&filter_values=FAILED"),
        *rows("tasks?limit=2&offset=40&detail=1"),
    ]
    actors, nodes, jobs = rows("actors?limit=3&detail=1"), rows("nodes?detail=1"), rows("jobs?detail=1")
    begun = sorted(row["start_time_ms"] for row in rows("tasks?limit=500&detail=1") if row.get("start_time_ms"))
    pages = server.request("GET", f"{target.path}/api/v0/tasks?cursor=&limit=3")
    submitted = _distinct(jobs, "submission_id")
    return {
        "cursor": re.findall(r'"next_cursor": ?"([^"]+)"', pages.body.decode()),
        "at": [str(moment) for moment in [*begun[len(begun) // 2 :][:1], *begun[-1:]]] + ["1", "nonsense"],
        "task_id": _distinct(tasks, "task_id")[:4],
        "actor_id": _distinct(actors, "actor_id"),
        "ids": [",".join(_distinct(actors, "actor_id")), "nothing"],
        "node_id": _distinct(nodes, "node_id")[:3],
        "node_ip": [*_distinct(nodes, "node_ip")[:2], "192.0.2.250"],
        "job_id": [*_distinct(jobs, "job_id")[:4], NOWHERE],
        "submission_id": [*submitted[:6], "nothing"],
        "job_or_submission_id": [*submitted[:2], *_distinct(jobs, "job_id")[:1]],
        "pid": [*_distinct(tasks, "worker_pid")[:3], "0", "x"],
        "media_type": ["file", "stream"],
        "protocol": ["gcs"],
        "package_name": ["x.zip"],
        "name": ["dashboard.log", "events/", "nothing/"],
        "file": _log_files(server, target, _distinct(nodes, "node_id")),
        "filename": ["dashboard.log", "nothing.log"],
    }


def _log_files(server: Server, target: Target, nodes: Iterable[str]) -> list[str]:
    """Node and name of log files, separated by a space."""
    found: list[str] = []
    for node in nodes:
        answer = json.loads(server.request("GET", f"{target.path}/api/v0/logs?node_id={node}&glob=**").body)
        names = chain.from_iterable(((answer.get("data") or {}).get("result") or {}).values())
        found += [f"{node} {name}" for name in names]
    return found[:: max(1, len(found) // 60)]


def _distinct(rows: Iterable[Mapping[str, Any]], name: str) -> list[str]:
    return list(dict.fromkeys(str(row[name]) for row in rows if row.get(name) is not None))
