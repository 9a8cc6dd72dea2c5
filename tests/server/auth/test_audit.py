"""The audit log: one line for each denial and download, with user and address, and never a token."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from ray_history.archive.stores import Store
from ray_history.server.auth.backends import FileTokens, NoAuth
from ray_history.server.auth.credentials import COOKIE, TrustedPeers
from ray_history.server.auth.rules import RulesFile
from tests.server.auth.people import ADA, BOB, SESSION, WRONG, Asking, asking, bearer, rules_file
from tests.support.captured import captured
from tests.support.waiting import until

S = f"/s/default/demo/{SESSION}"
NODE, LOG = next(place for place in captured().logs if place[1] == "gcs_server.out")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Iterator[Asking]:
    folder = tmp_path_factory.mktemp("audit")
    with asking(folder, FileTokens(RulesFile(rules_file(folder)), TrustedPeers.parse("127.0.0.1")), store) as running:
        yield running


class AuditLog:
    """The log of the server. A line may be written some moments after its answer."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    def facts(self, number: int) -> list[dict[str, Any]]:
        """That number of lines of the audit log."""
        self._wait("ray_history.audit", number)
        return self._facts()

    def nothing(self, answers: int) -> bool:
        """Wait for the access log of all these answers; the audit log has no line then."""
        self._wait("ray_history.access", answers)
        return self._facts() == []

    def _facts(self) -> list[dict[str, Any]]:
        return [json.loads(r.getMessage()) for r in self._caplog.records if r.name == "ray_history.audit"]

    def _wait(self, name: str, number: int) -> None:
        until(lambda: sum(record.name == name for record in list(self._caplog.records)) >= number, f"{number} lines")


@pytest.fixture
def audit_log(caplog: pytest.LogCaptureFixture) -> Iterator[AuditLog]:
    caplog.set_level(logging.INFO, "ray_history")
    yield AuditLog(caplog)
    for token in (ADA, BOB, WRONG):
        assert token not in caplog.text


def test_denials_are_recorded(server: Asking, audit_log: AuditLog) -> None:
    seen_from = {"X-Forwarded-For": "192.0.2.9", "X-Request-Id": "abc"}
    server.get(f"{S}/api/v0/nodes?token={WRONG}", seen_from)
    server.get(f"{S}/api/v0/nodes", {**seen_from, **bearer(WRONG)})
    server.get(f"{S}/api/v0/nodes", {**seen_from, **bearer(BOB)})
    server.get("/enter_cluster/locked/rayjob/nightly", {**seen_from, **bearer(ADA)})
    facts = audit_log.facts(4)
    assert [(fact["event"], fact["status"], fact["who"]) for fact in facts] == [
        ("denied", 401, None),
        ("denied", 403, None),
        ("denied", 404, "bob"),
        ("denied", 404, "ada"),
    ]
    assert {(fact["peer"], fact["request"], fact["method"]) for fact in facts} == {("192.0.2.9", "abc", "GET")}
    assert facts[0]["path"] == f"{S}/api/v0/nodes"


def test_a_missing_session_is_not_a_denial(server: Asking, audit_log: AuditLog) -> None:
    assert server.get("/s/default/nobody/latest/", bearer(ADA)).status_code == 404
    assert audit_log.nothing(1)


@pytest.mark.parametrize(
    "path",
    [
        f"/api/v0/logs/file?node_id={NODE}&filename={LOG}",
        "/api/v0/tasks/timeline?download=1",
        "/api/v0/tasks/timeline",
        "/api/jobs/fx-core/logs",
    ],
)
def test_downloads_are_recorded(server: Asking, audit_log: AuditLog, path: str) -> None:
    answer = server.get(S + path, bearer(ADA))
    assert answer.status_code == 200
    (fact,) = audit_log.facts(1)
    assert (fact["event"], fact["who"], fact["status"]) == ("downloaded", "ada", 200)
    assert fact["path"] == S + path.partition("?")[0]
    assert fact["bytes"] == len(answer.content)


def test_a_log_read_over_a_web_socket_is_recorded(server: Asking, audit_log: AuditLog) -> None:
    url = f"ws://127.0.0.1:{server.server.port}{S}/api/jobs/fx-core/logs/tail"
    with connect(url, additional_headers=bearer(ADA)) as socket:
        text = "".join(str(piece) for piece in socket)
    assert text
    for headers, status in (({}, 401), (bearer(WRONG), 403), (bearer(BOB), 404)):
        with pytest.raises(InvalidStatus) as refused:
            connect(url, additional_headers=headers)
        assert refused.value.response.status_code == status
    facts = audit_log.facts(4)
    assert [(fact["event"], fact["method"]) for fact in facts] == [
        ("downloaded", "WEBSOCKET"),
        *[("denied", "WEBSOCKET")] * 3,
    ]


def test_reading_is_not_recorded(server: Asking, audit_log: AuditLog) -> None:
    for path in ("/api/v0/tasks?limit=1", "/", "/api/version", "/api/v0/logs/file"):
        server.get(S + path, bearer(ADA))
    assert audit_log.nothing(4)


def test_successful_and_failed_sign_ins_are_recorded(server: Asking, audit_log: AuditLog) -> None:
    server.post("/login", token=ADA)
    server.post("/login", token=WRONG)
    assert [(fact["event"], fact["who"]) for fact in audit_log.facts(2)] == [
        ("signed in", "ada"),
        ("sign-in refused", None),
    ]


def test_downloads_are_recorded_without_auth(tmp_path: Path, store: Store, audit_log: AuditLog) -> None:
    with asking(tmp_path, NoAuth(), store) as server:
        server.get(f"{S}/api/v0/tasks/timeline", {"Cookie": f"{COOKIE}={ADA}"})
    (fact,) = audit_log.facts(1)
    assert (fact["event"], fact["who"], fact["peer"]) == ("downloaded", "anybody", "127.0.0.1")


def test_shared_caches_store_no_answer_of_a_viewer(server: Asking) -> None:
    for path in ("/", "/api/v0/nodes", "/api/v0/tasks?limit=1", "/api/version"):
        told = server.get(S + path, bearer(ADA)).headers["cache-control"]
        assert "private" in told or "no-store" in told, path
        assert "public" not in told, path
    assert server.get(f"{S}/").status_code == 401
    assert server.get(f"{S}/").headers["cache-control"] == "no-store"
