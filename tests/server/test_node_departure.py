"""Every surface gives the same answer to whether a node left as planned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.history.rebuilt import NODE, OTHER_NODE, Event, ms, node, node_life, polled
from tests.server.serving import Served, served
from tests.server.ui.markup import parsed
from tests.server.ui.written_sessions import SESSION, ran, write_session

_S = f"/s/default/written/{SESSION}"


def planned_by_digest(server: Served) -> bool:
    (gone,) = server.get(f"{_S}/_digest").json["nodes"]
    assert gone["node_id"] == OTHER_NODE
    return bool(gone["expected"])


def planned_by_timeline(server: Served) -> bool:
    page = parsed(server.get(f"{_S}/_session").body)
    lane = page.one("svg", "chart", lambda svg: svg.attributes.get("aria-label", "").startswith("gpu-3 "))
    return not lane.all("rect", "f-bad")


def planned_by_cluster_status(server: Served) -> bool:
    text: str = server.get(f"{_S}/api/cluster_status?format=1").json["data"]["clusterStatus"]
    failures = text.partition("Recent failures:\n")[2].partition("\n\n")[0]
    assert failures == " (no failures)" or OTHER_NODE in failures
    return OTHER_NODE not in failures


def polled_node(message: str) -> dict[str, Any]:
    """A session of a Ray that sends no events about nodes: the dashboard was polled after the node had ended."""
    alive = {"node_id": NODE, "node_ip": "192.0.2.2", "state": "ALIVE", "node_name": "head", "start_time_ms": ms(0)}
    dead = {"node_id": OTHER_NODE, "node_ip": "192.0.2.3", "state": "DEAD", "node_name": "gpu-3"}
    dead |= {"start_time_ms": ms(0), "end_time_ms": ms(60), "state_message": message}
    listing = polled("nodes", alive, dead)
    return {"events": [], "endpoints": {listing["name"]: listing["body"]}}


def exported_node(**death: str) -> dict[str, Any]:
    """A session with events about its nodes."""
    events = [
        *(node(NODE), node_life("ALIVE", 0), node(OTHER_NODE, nodeName="gpu-3"), node_life("ALIVE", 0, OTHER_NODE)),
        node_life("DEAD", 60, OTHER_NODE, **({"deathInfo": death} if death else {})),
    ]
    return {"events": events}


@pytest.mark.parametrize(
    ("session", "is_planned"),
    [
        (polled_node("Expected termination: received SIGTERM"), True),
        (polled_node("Terminated due to idle (no Ray activity): idle for 300 s"), True),
        (polled_node("Terminated due to preemption"), False),
        (polled_node("Unexpected termination: health check failed"), False),
        (polled_node(""), False),
        (exported_node(reason="EXPECTED_TERMINATION", reasonMessage="received SIGTERM"), True),
        (exported_node(reason="AUTOSCALER_DRAIN_IDLE"), True),
        (exported_node(reason="AUTOSCALER_DRAIN_PREEMPTED"), False),
        (exported_node(reason="UNEXPECTED_TERMINATION", reasonMessage="health check failed"), False),
        (exported_node(), False),
    ],
)
def test_a_planned_departure_is_one_everywhere(tmp_path: Path, session: dict[str, Any], is_planned: bool) -> None:
    events: list[Event] = [*session["events"], *ran(1, "fine", 1, 90)]
    store = write_session(tmp_path, events, endpoints=session.get("endpoints"))
    with served(store, tmp_path / "cache") as server:
        surfaces = (planned_by_digest, planned_by_timeline, planned_by_cluster_status)
        assert {surface.__name__: surface(server) for surface in surfaces} == {
            surface.__name__: is_planned for surface in surfaces
        }


def reported_death(server: Served) -> dict[str, str]:
    """What both answers about the node say of its death."""
    summary = server.get(f"{_S}/nodes?view=summary").json["data"]["summary"]
    (gone,) = [node["raylet"] for node in summary if node["raylet"]["nodeId"] == OTHER_NODE]
    detail = server.get(f"{_S}/nodes/{OTHER_NODE}").json["data"]["detail"]["raylet"]
    assert gone["deathInfo"] == detail["deathInfo"]
    return dict(gone["deathInfo"])


@pytest.mark.parametrize(
    "session",
    [
        polled_node("Terminated due to idle (no Ray activity): idle for 300 s"),
        exported_node(reason="AUTOSCALER_DRAIN_IDLE", reasonMessage="idle for 300 s"),
    ],
)
def test_a_dead_node_has_the_death_info_of_ray(tmp_path: Path, session: dict[str, Any]) -> None:
    store = write_session(tmp_path, [*session["events"], *ran(1, "fine", 1, 90)], endpoints=session.get("endpoints"))
    with served(store, tmp_path / "cache") as server:
        assert reported_death(server) == {"reason": "AUTOSCALER_DRAIN_IDLE", "reasonMessage": "idle for 300 s"}
        before = server.get(f"{_S}/nodes?view=summary&at={ms(30)}").json["data"]["summary"]
        assert [node["raylet"].get("deathInfo") for node in before] == [None, None]
