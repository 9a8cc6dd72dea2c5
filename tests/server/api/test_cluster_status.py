"""The autoscaler's report: as polled, closed by the end of the cluster, or made from the tables."""

from __future__ import annotations

import re

import pytest

from ray_history.server.api import cluster_status
from tests.server.api.captured_archives import HEAD_NODE, ask
from tests.server.serving import Served

pytestmark = pytest.mark.xdist_group("captured archives")


@pytest.mark.parametrize("cluster", ["whole", "unpolled"])
def test_the_report_of_an_ended_session_has_no_nodes_but_keeps_demands(server: Served, cluster: str) -> None:
    text = ask(server, cluster, "/api/cluster_status?format=1").json["data"]["clusterStatus"]
    nodes, resources = text.split("Resources\n")
    assert "Active:\n (no active nodes: the cluster was terminated)\n" in nodes
    assert HEAD_NODE not in nodes
    assert resources.split("\n")[1] == "Total Usage in the last report:"
    assert "{'CPU': 100.0}: 1+ pending tasks/actors" in resources
    raw = ask(server, cluster, "/api/cluster_status?format=1&raw=1").json["data"]["clusterStatus"]
    assert f" 1 node_{HEAD_NODE}\n" in raw
    if cluster == "whole":
        status = ask(server, cluster, "/api/cluster_status").json["data"]["clusterStatus"]
        assert status["autoscalerReport"]["activeNodes"] == {}
        assert status["loadMetricsReport"]["resourceDemand"] == [[{"CPU": 100.0}, 1]]
        assert len(ask(server, cluster, "/api/cluster_status?raw=1").json["data"]["clusterStatus"]) > 5


def test_reports_of_older_versions_of_ray_are_closed_too() -> None:
    nodes = "Node status\n---\nHealthy:\n 1 head\n 2 small\nPending:\n a: small\nRecent failures:\n x: y\n\n"
    old = nodes + "Resources\n--\nUsage:\n 1 CPU"
    closed = (
        "Node status\n---\nHealthy:\n (no healthy nodes: the cluster was terminated)\n"
        "Pending:\n (no pending nodes: the cluster was terminated)\nRecent failures:\n x: y\n\n"
    )
    assert cluster_status.without_nodes(old) == closed + "Resources\n--\nUsage in the last report:\n 1 CPU"


def test_the_report_at_a_moment_is_made_from_the_tables(server: Served) -> None:
    text = ask(server, "whole", "/api/cluster_status?format=1&at=1794776170000").json["data"]["clusterStatus"]
    assert text.startswith("======== Autoscaler status: 2026-11-15 20:56:10.000000 ========\nNode status\n-----")
    assert f" 1 node_{HEAD_NODE}" in text
    assert re.search(r"^ \d+[.]\d+/6[.]0 CPU", text, re.MULTILINE)
    assert re.search(r"^ 0B/45.51GiB memory$", text, re.MULTILINE)
    last = ask(server, "whole", "/api/cluster_status?format=1&at=1794776281000").json["data"]["clusterStatus"]
    assert " 0.7/6.0 CPU (0.0 used of 0.1 reserved in placement groups)\n" in last, "as in the report of that moment"
    assert text.count("(unavailable in history server)") == 2


def test_without_polling_the_report_is_made_from_the_tables(server: Served) -> None:
    text = ask(server, "unpolled", "/api/cluster_status?format=1").json["data"]["clusterStatus"]
    assert "{'CPU': 100.0}: 1+ pending tasks/actors" in text
    assert ask(server, "unpolled", "/api/cluster_status").json == {
        "result": True,
        "msg": "Got cluster status.",
        "data": {"autoscalingStatus": None, "autoscalingError": None, "clusterStatus": None},
    }
