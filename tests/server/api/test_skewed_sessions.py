"""Every route answers on sessions of other versions of Ray, and of damaged or hostile writers."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_history.archive import layout
from ray_history.archive.event_files import encode_events
from ray_history.archive.layout import Cluster
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.server.routes import ROUTES
from ray_history.server.sessions.routes import VIEW
from tests.history.rebuilt import ACTOR, NODE, Event, actor, actor_life, actor_step, node, node_life
from tests.history.test_skew import broken, in_snake_case, leaves, one_of_each, put, real_events, with_other_numbers
from tests.server.serving import Served, served
from tests.support.captured import captured

SESSION = captured().session
WRONG: list[Any] = [None, [1, [2]], {"a": {"b": 1}}, "text", -1.5, "9223372036854775807", True, 10**30]


def events_with(wrong: Any) -> list[Event]:
    """Every field of some events of every type is wrong once, in real events and in those of a node and an actor."""
    more = (
        node(),
        node_life("ALIVE", 2, resources={"CPU": 4.0, "memory": 1e9}, aliveSubState="DRAINING"),
        actor(requiredResources={"CPU": 1.0}),
        actor_life(actor_step("ALIVE", 3, NODE, "cd" * 28, 3)),
    )
    return [*more, *broken((*one_of_each(), *more), wrong)]


def scattered(value: Any, choice: random.Random, share: float) -> Any:
    """A copy with arbitrary values in some places."""
    value = copy.deepcopy(value)
    for path in [path for path in leaves(value) if choice.random() < share]:
        try:
            put(value, path, copy.deepcopy(choice.choice(WRONG)))
        except (KeyError, IndexError, TypeError):  # inside what was replaced before
            continue
    return value


def write(store: Store, name: str, events: list[Event], change: Callable[[Any], Any]) -> None:
    cluster = Cluster("default", name)
    prefix = layout.session_prefix("", cluster, SESSION)
    store.put(layout.marker_key("", cluster, SESSION), b"")
    lines = [json.dumps(event).encode() for event in events]
    store.put(layout.event_file_key(prefix, NODE, None, 1_794_787_200_000_000_000), encode_events(lines))
    for endpoint, body in captured().polled.items():
        store.put(layout.join(prefix, "fetched_endpoints", endpoint), json.dumps(change(json.loads(body))).encode())
    for (of_node, log), body in captured().logs.items():
        if "events/event_" in log:
            texts = [json.dumps(change(json.loads(line))).encode() for line in body.splitlines()[:200]]
            store.put(layout.log_key(prefix, of_node, log), b"\n".join(texts))


def as_it_is(value: Any) -> Any:
    return value


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("skewed")
    store = open_store(DirectorySettings(folder / "archive"))
    for number, wrong in enumerate((WRONG[1], WRONG[3])):
        choice = random.Random(number)
        write(store, f"wrong-{number}", events_with(wrong), lambda value, c=choice: scattered(value, c, 0.02))
    for number in range(2):
        choice = random.Random(number)
        events = [scattered(event, choice, 0.1) for event in (*choice.sample(real_events(), 400), *one_of_each())]
        write(store, f"scattered-{number}", events, lambda value, c=choice: scattered(value, c, 0.2))
    write(store, "snake", [in_snake_case(event) for event in real_events()], in_snake_case)
    write(store, "numbers", [with_other_numbers(event) for event in real_events()], with_other_numbers)
    with served(store, Path(folder / "cache"), most_open=32) as running:
        yield running


SESSIONS = [*(f"wrong-{number}" for number in range(2)), *(f"scattered-{number}" for number in range(2))]
SESSIONS += ["snake", "numbers"]


def urls(server: Served, base: str) -> Iterator[str]:
    """Every route, with IDs of the session."""
    ids = {"protocol": "gcs", "label": "State", "package_name": "x.zip", "node_id": NODE, "actor_id": ACTOR}
    ids |= {"job_or_submission_id": "fx-env", "job_id": "07000000", "media_type": "file", "name": "raylet.out"}
    for route in ROUTES:
        url = re.sub(r"{(\w+)[^}]*}", lambda part: ids.get(part[1], "1"), route.path)
        views = ("raw=1", "at=2026-11-15T20:57:00Z") if VIEW[0] in route.parameters else ()
        yield from (url, *(f"{url}?{view}" for view in views))
    listings = ("tasks", "actors", "nodes", "jobs", "workers", "placement_groups", "runtime_envs", "cluster_events")
    for table in listings:
        yield f"/api/v0/{table}?detail=1&limit=10000"
        yield f"/api/v0/{table}?detail=1&limit=100000&at=2026-11-15T20:57:00Z"
    yield from ("/_session", "/nodes?view=logs", "/nodes?view=hostNameList", "/events?job_id=04000000")
    yield from ("/api/v0/tasks/summarize?summary_by=lineage", "/api/v0/tasks/timeline?job_id=04000000")
    yield from ("/api/cluster_status?format=1", "/api/cluster_status?format=1&at=2026-11-15T20:57:00Z")
    for node_id in [row["node_id"] for row in server.get(f"{base}/api/v0/nodes?limit=3").rows]:
        yield from (f"/nodes/{node_id}", f"/api/v0/logs?node_id={node_id}")
    for row in server.get(f"{base}/api/v0/actors?limit=5").rows:
        yield f"/logical/actors/{row['actor_id']}"
    for row in server.get(f"{base}/api/v0/tasks?limit=3").rows:
        yield f"/api/v0/logs/file?task_id={row['task_id']}"


@pytest.mark.parametrize("session", SESSIONS)
def test_every_route_answers_on_any_session(server: Served, session: str) -> None:
    base = f"/s/default/{session}/{SESSION}"
    failed = []
    for url in urls(server, base):
        status = server.get(base + url).status
        if status >= 500 and status != 501:
            failed.append((url, status))
    assert failed == []
