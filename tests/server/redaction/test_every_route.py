"""No route reveals values with the name of a secret, wherever they are, unless the operator allows it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pytest

from ray_history.history.registry import TABLES
from ray_history.server.app import AppConfig
from ray_history.server.routes import ROUTES
from tests.history.rebuilt import ACTOR, JOB, NODE, task_id
from tests.server.serving import Served, served
from tests.server.ui.written_sessions import SESSION, ran, write_session
from tests.support.waiting import until

from .secretive import SECRET, documents, told

S = f"/s/default/written/{SESSION}"
KNOWN = {"node_id": NODE, "actor_id": ACTOR, "job_id": JOB, "job_or_submission_id": JOB, "media_type": "file"}
LOG = "events/event_GCS.log"
ONE = f"filter_keys=task_id&filter_predicates=%3D&filter_values={task_id(1)}"
QUERIES = (
    *("", "?detail=1", "?detail=1&limit=100000", "?detail=1&raw=1", "?view=details", "?view=summary"),
    *("?summary_by=lineage", f"?job_id={JOB}", f"?node_id={NODE}&filename={LOG}", f"?detail=1&{ONE}"),
)
TELLING = frozenset(
    {
        *(f"/api/v0/{table}" for table in TABLES),
        *("/api/v0/tasks/summarize", "/api/v0/tasks/timeline", "/api/v0/logs/{media_type}", "/events"),
        *("/api/jobs/", "/api/jobs/{job_or_submission_id}", "/logical/actors", "/logical/actors/{actor_id}"),
        *("/nodes", "/nodes/{node_id}", "/_digest", "/_download", "/_session"),
    }
)
"""Routes that show secrets if the operator allows it."""
HERE = ("/", "/?q=KeyError", "/clusters", "/metrics")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Served]]:
    """One server with the defaults, and one that shows secrets."""
    folder = tmp_path_factory.mktemp("secrets")
    (message,) = [each["body"] for each in documents() if each["source"] == "log_event"]
    store = write_session(
        folder,
        told(),
        endpoints={each["name"]: each["body"] for each in documents() if each["source"] == "endpoint"},
        logs={(NODE, LOG): msgspec.json.encode(message) + b"\n"},
    )
    with served(store, folder / "cache") as usual, served(store, folder / "other", AppConfig(redact=False)) as showing:
        yield usual, showing


def paths(route: str) -> list[str]:
    path = re.sub(r"\{(\w+)(?::path)?\}", lambda name: KNOWN.get(name[1], "x"), route)
    return [f"{S}{path}{query}" for query in QUERIES]


def telling(server: Served, paths: Iterable[str]) -> list[str]:
    return [path for path in paths if SECRET.encode() in server.get(path).body]


@pytest.mark.parametrize("route", [*(route.path for route in ROUTES), "/_session", "/_status"])
def test_no_route_reveals_a_secret(servers: tuple[Served, Served], route: str) -> None:
    usual, showing = servers
    assert telling(usual, paths(route)) == []
    if route in TELLING:
        assert any(telling(showing, [path]) for path in paths(route))


def test_the_list_of_sessions_reveals_no_secret_to_a_search(servers: tuple[Served, Served]) -> None:
    usual, showing = servers
    for server in servers:
        server.get(f"{S}/_digest")
    until(lambda: telling(showing, HERE), "the summary is there")
    until(lambda: b"KeyError" in usual.get("/?q=KeyError").body)
    assert telling(usual, HERE) == []
    assert b"was running" not in usual.get("/?q=hunter2").body
    assert b"was running" in showing.get("/?q=hunter2").body


def test_names_that_differ_only_in_a_secret_are_counted_together(tmp_path: Path) -> None:
    events = [each for number in (1, 2) for each in ran(number, f"load(password={SECRET}{number})", 1, 2)]
    with served(write_session(tmp_path, [*events, *ran(3, "fine", 1, 2)]), tmp_path / "cache") as server:
        answer = server.get(f"{S}/api/v0/tasks/summarize").json["data"]["result"]["result"]
        tree = server.get(f"{S}/api/v0/tasks/summarize?summary_by=lineage").json["data"]["result"]["result"]
    summary = answer["node_id_to_summary"]["cluster"]["summary"]
    assert {name: counts["state_counts"] for name, counts in summary.items()} == {
        "load(password=<redacted>": {"FINISHED": 2},
        "fine": {"FINISHED": 1},
    }
    top = tree["node_id_to_summary"]["cluster"]["summary"]
    assert {node["name"]: node["state_counts"] for node in top} == {
        name: counts["state_counts"] for name, counts in summary.items()
    }
