"""Asking the head which node this is."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from ray_history.collector.node import lookup as node_lookup
from ray_history.collector.node.lookup import NodeLookup
from tests.collector.polling.dashboard_stand_in import DashboardStandIn, rows

NODE = "AB" * 28
URL = "/api/v0/nodes?limit=100&filter_keys=node_ip&filter_predicates=%3D&filter_values=10.0.0.7"


def lookup(stand_in: DashboardStandIn) -> NodeLookup:
    address = urlsplit(stand_in.url)
    env = {"FQ_RAY_IP": str(address.hostname), "RAY_DASHBOARD_PORT": str(address.port), "POD_IP": "10.0.0.7"}
    return NodeLookup(env, lambda: None)


def test_the_living_node_with_our_address_is_this_one() -> None:
    with DashboardStandIn() as head:
        head.answers[URL] = rows({"node_id": "dead", "state": "DEAD"}, {"node_id": NODE, "state": "ALIVE"})
        assert lookup(head)() == NODE.lower()


def test_there_is_at_most_one_request_to_the_head_per_half_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    with DashboardStandIn() as head:
        head.answers[URL] = rows()
        ask = lookup(head)
        assert ask() is None
        head.answers[URL] = rows({"node_id": NODE, "state": "ALIVE"})
        assert ask() is None
        monkeypatch.setattr(node_lookup, "_INTERVAL", 0.0)
        assert ask() == NODE.lower()


def test_without_a_valid_answer_of_the_head_there_is_no_node_id() -> None:
    with DashboardStandIn() as head:
        head.answers[URL] = 200, b"not json"
        assert lookup(head)() is None
        head.answers[URL] = 500, b""
        assert lookup(head)() is None
    assert NodeLookup({"FQ_RAY_IP": "127.0.0.1:1", "POD_IP": "10.0.0.7"}, lambda: None)() is None


def test_there_are_no_requests_outside_kubernetes() -> None:
    assert NodeLookup({}, lambda: None)() is None
