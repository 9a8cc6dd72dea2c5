"""Nodes as the dashboard shows them."""

from __future__ import annotations

import pytest

from tests.server.api.captured_archives import HEAD_NODE, LONG_ACTOR, SIDE_NODE, ask
from tests.server.serving import Served

pytestmark = pytest.mark.xdist_group("captured archives")


def test_nodes_of_an_ended_session_are_dead_and_their_logs_are_shown(server: Served) -> None:
    summary = ask(server, "whole", "/nodes?view=summary").json["data"]["summary"]
    ends = {(node["raylet"]["state"], node["raylet"]["stateMessage"]) for node in summary}
    assert ends == {("DEAD", "The cluster was terminated.")}
    assert all(int(node["raylet"]["endTimeMs"]) > 0 for node in summary)
    with_logs = ask(server, "whole", "/nodes?view=logs").json["data"]["summary"]
    assert {node["raylet"]["state"] for node in with_logs} == {"ALIVE"}, "the frontend shows the logs of no others"
    observed = ask(server, "whole", "/nodes?view=summary&raw=1").json["data"]["summary"]
    assert {node["raylet"]["state"] for node in observed} == {"ALIVE"}
    assert {row["state"] for row in ask(server, "whole", "/api/v0/nodes").rows} == {"DEAD"}
    assert all(node["cpu"] > 0 and node["raylet"]["resourcesTotal"]["CPU"] == 3.0 for node in summary)
    detail = ask(server, "whole", f"/nodes/{SIDE_NODE}").json["data"]["detail"]
    assert (detail["raylet"]["state"], detail["raylet"]["stateMessage"]) == ("DEAD", "The cluster was terminated.")
    assert detail["actors"][LONG_ACTOR]["state"] == "DEAD"
    assert detail["workers"]


def test_host_names_of_an_ended_session_are_those_at_its_end(server: Served) -> None:
    assert ask(server, "whole", "/nodes?view=HOSTNAMELIST").json["data"]["hostNameList"] == ["vm"]


def test_nodes_and_processes_at_a_moment_show_nothing_of_a_later_poll(server: Served) -> None:
    moment = 1794776200000
    for node in ask(server, "whole", f"/nodes?at={moment}").json["data"]["summary"]:
        assert node["now"] * 1000 == moment
        assert (node["cpu"], node["mem"], node["raylet"]["numWorkers"]) == (0, [0, 0, 0, 0], 0)
        assert node["hostname"] == "vm"
        assert node["raylet"]["nodeManagerPort"] > 0
    detail = ask(server, "whole", f"/nodes/{HEAD_NODE}?at={moment}").json["data"]["detail"]
    last = ask(server, "whole", f"/nodes/{HEAD_NODE}").json["data"]["detail"]
    assert 0 < len(detail["workers"]) < len(last["workers"])
    assert all(worker["createTime"] * 1000 <= moment for worker in detail["workers"])
    assert {worker["pid"] for worker in detail["workers"]} <= {worker["pid"] for worker in last["workers"]}
    assert all(actor["processStats"] is None for actor in detail["actors"].values())


def test_nodes_at_a_moment_show_the_resources_held_then(server: Served) -> None:
    texts = ask(server, "whole", "/nodes?at=1794776170000").json["data"]["nodeLogicalResources"]
    assert texts[HEAD_NODE].startswith("0.2/3.0 CPU\n")
    assert texts[SIDE_NODE].startswith("0.1/3.0 CPU\n")


def test_a_node_without_a_poll_has_the_same_shape(server: Served) -> None:
    polled_ones = ask(server, "whole", "/nodes").json["data"]["summary"]
    answer = ask(server, "events-only", "/nodes").json["data"]
    for node, with_usage in zip(answer["summary"], polled_ones, strict=True):
        assert node["raylet"]["nodeId"] == with_usage["raylet"]["nodeId"]
        assert with_usage.keys() - node.keys() <= {"hostMem", "cgroupMem"}
        assert with_usage["raylet"]["resourcesTotal"] == node["raylet"]["resourcesTotal"]
        assert (node["cpu"], node["mem"], node["hostname"]) == (0, [0, 0, 0, 0], "vm")
    assert answer["nodeLogicalResources"][SIDE_NODE] == (
        "0.0/3.0 CPU\n0B/22.68GiB memory\n0B/190.73MiB object_store_memory\n0.0/2.0 side"
    )


def test_an_unknown_node_does_not_exist(server: Served) -> None:
    unknown = ask(server, "whole", f"/nodes/{'0' * 56}")
    assert (unknown.status, unknown.json["result"], unknown.json["data"]) == (404, False, {"result": None})
    assert unknown.json["msg"] == f"Node {'0' * 56} does not exist"
    view = ask(server, "whole", "/nodes?view=details")
    assert (view.status, view.json) == (400, {"result": False, "msg": "Unknown view details", "data": {}})
