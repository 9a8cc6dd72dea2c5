"""`--auth header`: headers are accepted from trusted proxies only."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_history.archive.stores import Store
from ray_history.server.auth.backends import ProxyHeader
from ray_history.server.auth.credentials import TrustedPeers
from ray_history.server.auth.rules import RulesFile
from tests.server.auth.people import ADA, SESSION, Asking, asking, bearer, rules_file

DEFAULT = f"/s/default/demo/{SESSION}/api/v0/nodes"
LOCKED = f"/s/locked/demo/{SESSION}/api/v0/nodes"
RULES = [
    {"name": "ada", "namespaces": ["default"]},
    {"group": "night-watch", "namespaces": ["locked/demo"]},
]


def mode(folder: Path, peers: str) -> ProxyHeader:
    return ProxyHeader(
        RulesFile(rules_file(folder, RULES)), TrustedPeers.parse(peers), "X-Forwarded-User", "X-Forwarded-Groups"
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Iterator[Asking]:
    folder = tmp_path_factory.mktemp("header")
    with asking(folder, mode(folder, "10.0.0.0/8, 127.0.0.1"), store) as running:
        yield running


def test_users_and_groups_have_the_access_of_the_rules(server: Asking) -> None:
    ada = {"X-Forwarded-User": "ada"}
    assert server.get(DEFAULT, ada).status_code == 200
    assert server.get(LOCKED, ada).status_code == 404
    watch = {"X-Forwarded-User": "eve", "X-Forwarded-Groups": "a, night-watch,b"}
    assert server.get(DEFAULT, watch).status_code == 404
    assert server.get(LOCKED, watch).status_code == 200
    both = {"X-Forwarded-User": "ada", "X-Forwarded-Groups": "night-watch"}
    assert {row["namespace"] for row in server.get("/clusters", both).json()} == {"default", "locked"}
    assert server.get("/clusters", {"X-Forwarded-User": "stranger"}).json() == []


def test_a_group_of_the_same_name_is_not_a_person(server: Asking) -> None:
    assert server.get(LOCKED, {"X-Forwarded-User": "night-watch"}).status_code == 404
    assert server.get(DEFAULT, {"X-Forwarded-User": "x", "X-Forwarded-Groups": "ada"}).status_code == 404


def test_headers_from_other_peers_are_ignored(tmp_path: Path, store: Store) -> None:
    with asking(tmp_path, mode(tmp_path, "10.0.0.0/8"), store) as server:
        for headers in (
            {"X-Forwarded-User": "ada"},
            {"X-Forwarded-User": "ada", "X-Forwarded-For": "10.0.0.1"},
            {"X-Forwarded-User": "ada", "Forwarded": "for=10.0.0.1"},
        ):
            answer = server.get(DEFAULT, headers)
            assert answer.status_code == 401
            assert "through the proxy" in answer.json()["msg"]


def test_a_request_needs_exactly_one_name(server: Asking) -> None:
    assert server.get(DEFAULT).status_code == 401
    assert server.get(DEFAULT, {"X-Forwarded-User": ""}).status_code == 401
    assert server.get(DEFAULT, bearer(ADA)).status_code == 401
    with socket.create_connection(("127.0.0.1", server.server.port), timeout=60) as connection:
        names = "X-Forwarded-User: eve\r\nX-Forwarded-User: ada\r\n"
        connection.sendall(f"GET {DEFAULT} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{names}\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 401")


def test_the_dashboard_does_not_ask_for_a_token(server: Asking) -> None:
    assert server.get("/api/authentication_mode").json() == {"authentication_mode": "disabled"}
    answer = server.get(DEFAULT, {"Accept": "text/html"})
    assert answer.status_code == 401
    assert "location" not in answer.headers
