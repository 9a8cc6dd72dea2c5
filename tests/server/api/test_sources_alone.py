"""What is shown of a session of which only one kind of source is left, and what is said to be unknown."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.api.captured_archives import DEAD_ACTOR, HEAD_NODE, LONG_ACTOR, SIDE_NODE, ask
from tests.server.serving import Served
from tests.server.ui.markup import parsed
from tests.support.captured import captured

pytestmark = pytest.mark.xdist_group("captured archives")

BROWSER = {"Accept": "text/html,*/*;q=0.8", "Sec-Fetch-Mode": "navigate"}


def rows(server: Served, cluster: str, table: str) -> list[dict[str, Any]]:
    """As last observed."""
    return ask(server, cluster, f"/api/v0/{table}?detail=1&raw=1&limit=1000").rows


def warning(server: Served, cluster: str, table: str) -> str:
    text: str = ask(server, cluster, f"/api/v0/{table}").json["data"]["result"]["partial_failure_warning"]
    return text


def live(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = captured().truth[name]["data"]["result"]["result"]
    return found


def page(server: Served, cluster: str) -> str:
    return " ".join(parsed(ask(server, cluster, "/_session").body).text.split())


# Events alone --------------------------------------------------------------------------------------------------------


def test_events_alone_show_what_ran(server: Served) -> None:
    for table, name in (("tasks", "v0_tasks"), ("actors", "v0_actors"), ("nodes", "v0_nodes")):
        assert len(rows(server, "events-only", table)) == len(live(name)), table
    assert ask(server, "events-only", f"/logical/actors/{DEAD_ACTOR}").json["data"]["detail"]["state"] == "DEAD"
    assert ask(server, "events-only", f"/nodes/{HEAD_NODE}").json["data"]["detail"]["raylet"]["nodeId"] == HEAD_NODE
    summary = ask(server, "events-only", "/api/v0/tasks/summarize").json["data"]["result"]["result"]
    assert summary["node_id_to_summary"]["cluster"]["summary"]
    assert "LongActor.f" in ask(server, "events-only", "/api/v0/tasks?limit=1000").body.decode()


def test_events_alone_do_not_say_how_much_was_used_and_what_was_submitted(server: Served) -> None:
    for table in ("placement_groups", "runtime_envs"):
        assert f"/api/v0/{table} was not polled" in warning(server, "events-only", table)
        assert f"/api/v0/{table} was not polled" in page(server, "events-only")
    assert "/api/jobs/ was not polled" in warning(server, "events-only", "jobs")
    assert "they are in log files, and none were stored" in warning(server, "events-only", "cluster_events")
    (groups,) = [{row["name"] for row in rows(server, "events-only", "placement_groups")}]
    assert groups == {""}
    drivers = [row for row in rows(server, "events-only", "jobs") if row["submission_id"]]
    assert {row["driver_agent_http_address"] for row in drivers} == {None}
    assert ask(server, "events-only", f"/nodes/{HEAD_NODE}").json["data"]["detail"]["mem"] == [0, 0, 0.0, 0]


# Polled answers alone ------------------------------------------------------------------------------------------------


def test_polled_answers_alone_show_nodes_workers_actors_and_jobs(server: Served) -> None:
    nodes = {row["node_id"]: row for row in rows(server, "polled-only", "nodes")}
    assert {row["node_id"]: row["resources_total"] for row in live("v0_nodes")} == {
        node_id: row["resources_total"] for node_id, row in nodes.items()
    }
    assert nodes[HEAD_NODE]["is_head_node"]
    assert len(rows(server, "polled-only", "workers")) == len(live("v0_workers_all"))
    actors = {row["actor_id"]: row for row in rows(server, "polled-only", "actors")}
    assert actors.keys() == {row["actor_id"] for row in live("v0_actors")}
    assert (actors[LONG_ACTOR]["state"], actors[LONG_ACTOR]["class_name"]) == ("ALIVE", "LongActor")
    shown = ask(server, "polled-only", f"/logical/actors/{DEAD_ACTOR}").json["data"]["detail"]
    assert shown["exitDetail"].startswith("The actor is dead because all references")
    assert ask(server, "polled-only", "/api/jobs/fx-long").json["job_id"] == "0b000000"


def test_polled_answers_alone_do_not_say_what_ran(server: Served) -> None:
    assert rows(server, "polled-only", "tasks") == []
    for path in ("tasks", "tasks/summarize"):
        assert "No event was received from Ray" in warning(server, "polled-only", path)
    assert "Tasks and actors are unknown" in warning(server, "polled-only", "tasks")
    assert "Actors: shown from the dashboard's last answer (as of " in warning(server, "polled-only", "actors")
    actor = next(row for row in rows(server, "polled-only", "actors") if row["actor_id"] == LONG_ACTOR)
    assert (actor["ray_namespace"], actor["is_detached"], actor["serialized_runtime_env"]) == (None, None, None)
    assert "Nothing recorded" in page(server, "polled-only")


# Log files alone -----------------------------------------------------------------------------------------------------


def test_log_files_alone_show_nodes_processes_submissions_and_cluster_events(server: Served) -> None:
    assert {row["node_id"] for row in rows(server, "logs-only", "nodes")} == {HEAD_NODE, SIDE_NODE}
    types = {row["worker_id"]: row["worker_type"] for row in live("v0_workers_all")}
    assert {row["worker_id"]: row["worker_type"] for row in rows(server, "logs-only", "workers")} == types
    assert all(row["pid"] for row in rows(server, "logs-only", "workers"))
    submissions = {row["submission_id"]: row["status"] for row in rows(server, "logs-only", "jobs")}
    assert submissions["fx-fail"] == "FAILED"
    assert rows(server, "logs-only", "cluster_events")
    assert ask(server, "logs-only", f"/api/v0/logs?node_id={HEAD_NODE}").status == 200


def test_log_files_alone_do_not_say_what_ran(server: Served) -> None:
    for table in ("tasks", "actors"):
        assert rows(server, "logs-only", table) == []
        assert "are unknown" in warning(server, "logs-only", table)
    assert ask(server, "logs-only", f"/logical/actors/{LONG_ACTOR}").json["data"]["detail"] is None
    node = next(row for row in rows(server, "logs-only", "nodes") if row["node_id"] == HEAD_NODE)
    assert (node["node_ip"], node["node_name"], node["start_time_ms"], node["resources_total"]) == (
        None,
        None,
        None,
        {},
    )
    worker = rows(server, "logs-only", "workers")[0]
    assert (worker["ip"], worker["exit_type"], worker["worker_launch_time_ms"]) == (None, None, None)
    assert "/api/v0/workers was not polled" in warning(server, "logs-only", "workers")
    assert "Nothing recorded" in page(server, "logs-only")
