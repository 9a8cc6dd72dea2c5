"""Running clusters: listed, entered, forwarded to their heads, or shown from the archive."""

from __future__ import annotations

import base64
import http.client
import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.server.auth import AuthSettings, make_backend
from ray_history.server.live import gateway
from ray_history.server.live import heads as heads_module
from ray_history.server.redaction.rules import has_secrets, redacted
from ray_history.server.routes import ROUTES
from ray_history.server.sessions.routes import forwarded_paths
from tests.server.ui.markup import parsed
from tests.support.captured import captured, write_archive
from tests.support.kube_stand_in import ray_cluster
from tests.support.waiting import until

from .place import Place, place

pytestmark = pytest.mark.timeout(180)
STORED = captured().session
LIVE = "/s/default/demo/live"
NOTE = "x-ray-history-note"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = open_store(DirectorySettings(tmp_path_factory.mktemp("live") / "archive"))
    write_archive(store, Generation.C, Cluster("default", "demo"))
    write_archive(store, Generation.C, Cluster("team", "other"))
    return store


@pytest.fixture
def here(store: Store, tmp_path: Path) -> Iterator[Place]:
    with place(store, tmp_path) as found:
        found.kube.put("RayCluster", ray_cluster("default", "demo"))
        found.until_known()
        yield found


# Listed and entered.


def test_a_running_cluster_is_listed_once_followed_by_its_older_sessions(store: Store, tmp_path: Path) -> None:
    with place(store, tmp_path) as here:
        before = here.rows()
        assert {row["sessionName"] for row in before} == {STORED}
        later = ray_cluster("team", "other", owner=("RayJob", "nightly"), service=None)
        later["metadata"]["creationTimestamp"] = "2026-11-15T20:58:00Z"
        here.kube.put("RayCluster", later)
        here.until_known()
        assert here.rows()[:2] == [
            {
                "name": "other",
                "namespace": "team",
                "sessionName": "live",
                "createTime": "2026-11-15 20:58:00 +0000 UTC",
                "createTimeStamp": 1794776280,
                "ownerKind": "rayjob",
                "ownerName": "nightly",
            },
            next(row for row in before if row["name"] == "other"),
        ]
        assert len(here.rows()) == 3


def test_a_running_session_is_listed_once_while_its_head_cannot_be_asked(store: Store, tmp_path: Path) -> None:
    with place(store, tmp_path) as here:
        here.kube.put("RayCluster", ray_cluster("team", "other", service=None))
        here.until_known()
        assert [row["sessionName"] for row in here.rows() if row["name"] == "other"] == ["live"]
        assert here.server.get(f"/s/team/other/{STORED}/api/version").status == 200


def test_the_stored_part_of_the_running_session_is_not_listed_but_opens(here: Place) -> None:
    here.head.session = STORED
    changed = ray_cluster("default", "demo")
    changed["status"]["head"]["podName"] = "a-new-head"
    here.kube.put("RayCluster", changed)
    until(lambda: [row["sessionName"] for row in here.rows() if row["name"] == "demo"] == ["live"])
    answer = here.server.get(f"/s/default/demo/{STORED}/api/v0/nodes")
    assert answer.json["data"]["result"]["total"] == 2
    assert NOTE not in answer.headers


def test_a_session_that_a_running_head_reports_is_live_however_old_its_files_are(tmp_path: Path) -> None:
    store = open_store(DirectorySettings(tmp_path / "archive"))
    write_archive(store, Generation.C, Cluster("default", "demo"))
    for file in (tmp_path / "archive").rglob("*"):
        os.utime(file, (1e9, 1e9))
    stored = f"/s/default/demo/{STORED}"
    with place(store, tmp_path) as here:
        assert here.server.get(f"{stored}/_completeness").json["state"] == "ended"
        here.head.session = STORED
        here.kube.put("RayCluster", ray_cluster("default", "demo"))
        until(lambda: [row["sessionName"] for row in here.rows()] == ["live"])
    with place(store, tmp_path) as here:
        here.head.session = STORED
        here.kube.put("RayCluster", ray_cluster("default", "demo"))
        until(lambda: [row["sessionName"] for row in here.rows()] == ["live"])
        assert here.server.get(f"{stored}/_completeness").json["state"] == "live"
        assert {row["state"] for row in here.server.get(f"{stored}/api/v0/nodes").rows} == {"ALIVE"}


def test_an_older_session_of_a_running_cluster_opens_from_the_archive(here: Place) -> None:
    entered = here.server.get(f"/enter_cluster/default/demo/{STORED}")
    assert entered.json["session"] == STORED
    asked = len(here.passed_on())
    assert here.server.get("/api/v0/nodes", cookies(entered)).json["data"]["result"]["total"] == 2
    assert len(here.passed_on()) == asked


@pytest.mark.parametrize(
    "path",
    ["default/demo/live", "default/demo/latest", "default/raycluster/demo", "default/RayCluster/demo/live"],
)
def test_entering_live_or_latest_leads_to_the_head(here: Place, path: str) -> None:
    entered = here.server.get(f"/enter_cluster/{path}")
    assert entered.json == {"result": "success", "name": "demo", "namespace": "default", "session": "live"}
    here.head.answers["/nodes"] = (200, {"Content-Type": "application/json"}, b'{"from": "the head"}')
    answer = here.server.get("/nodes?view=summary", cookies(entered))
    assert answer.json == {"from": "the head"}
    assert ("GET", "/nodes?view=summary") in [(method, path) for method, path, _ in here.head.requests]


def test_the_cluster_of_a_rayservice_is_entered_by_its_owner_the_newest_that_is_ready(here: Place) -> None:
    for name, ready in (("serve-a", True), ("serve-b", True), ("serve-c", False)):
        thing = ray_cluster("default", name, owner=("RayService", "chat"), service="" if ready else None)
        thing["metadata"]["creationTimestamp"] = f"2026-11-16T0{ord(name[-1]) - ord('a')}:00:00Z"
        here.kube.put("RayCluster", thing)
    until(lambda: sum(row["sessionName"] == "live" for row in here.rows()) == 4)
    assert here.server.get("/enter_cluster/default/rayservice/chat").json["name"] == "serve-b"


def test_without_permission_the_list_has_a_note_and_stored_sessions_work(store: Store, tmp_path: Path) -> None:
    with place(store, tmp_path) as here:
        until(lambda: here.kube.watching == 1)
        here.kube.rules.clear()
        here.kube.end_watches()
        until(lambda: "not allowed to list" in here.server.get("/clusters").headers.get(NOTE, ""))
        assert here.server.get(f"/s/default/demo/{STORED}/api/v0/nodes").status == 200
        assert "ray_history_live_missing 1" in here.server.get("/metrics").body.decode()


def test_entering_live_says_why_running_clusters_are_unknown(store: Store, tmp_path: Path) -> None:
    with place(store, tmp_path) as here:
        here.kube.rules.clear()
        here.kube.end_watches()
        until(lambda: "not allowed to list" in here.server.get("/clusters").headers.get(NOTE, ""))
        refused = here.server.get("/enter_cluster/default/nothing/live")
        assert refused.status == 404
        assert "no running cluster default/nothing" in refused.json["msg"]
        assert "not allowed to list running clusters" in refused.json["msg"]


def test_a_suspended_cluster_is_listed_as_such_and_shown_from_the_archive(here: Place) -> None:
    suspended = ray_cluster("default", "demo")
    suspended["spec"]["suspend"] = True
    here.kube.put("RayCluster", suspended)
    waiting = ray_cluster("default", "waiting", service=None)
    waiting["spec"]["suspend"] = True
    here.kube.put("RayCluster", waiting)
    until(lambda: [row.get("state") for row in here.rows() if row["sessionName"] == "live"] == ["suspended"] * 2)
    asked = len(here.head.requests)
    assert [row["sessionName"] for row in here.rows() if row["name"] == "demo"] == ["live", STORED]
    answer = here.server.get(f"{LIVE}/api/v0/nodes")
    assert answer.json["data"]["result"]["total"] == 2
    assert "the cluster is suspended" in answer.headers[NOTE]
    assert here.server.get("/enter_cluster/default/demo/latest").json["session"] == STORED
    assert here.server.get("/enter_cluster/default/demo/live").json["session"] == "live"
    nothing = here.server.get("/s/default/waiting/live/api/v0/nodes")
    assert (nothing.status, "default/waiting is suspended" in nothing.json["msg"]) == (503, True)
    # A look at the version, which began before, may still come.
    assert [path for _, path, _ in here.head.requests[asked:] if path != "/api/version"] == []
    page = here.server.get("/select_cluster?state=suspended", {"Accept": "text/html"}).body.decode()
    assert "waiting" in page
    assert 'title="suspended"' in page
    here.kube.put("RayCluster", ray_cluster("default", "demo"))
    until(lambda: "state" not in next(row for row in here.rows() if row["name"] == "demo"), "it is resumed")


# Forwarding to the head.


def test_only_path_query_and_accept_are_forwarded_to_the_head(here: Place) -> None:
    sent = {
        "Cookie": "cluster_name=x; ray-authentication-token=mine",
        "Authorization": "Bearer mine",
        "X-Ray-Authorization": "Bearer mine",
        "X-Forwarded-For": "192.0.2.1",
        "Origin": "https://elsewhere.example",
        "Accept": "application/json",
    }
    assert here.server.get(f"{LIVE}/api/v0/tasks?detail=1&filter_keys=name&filter_values=a%20b%26c", sent).status == 200
    method, path, headers = here.passed_on()[-1]
    assert (method, path) == ("GET", "/api/v0/tasks?detail=1&filter_keys=name&filter_values=a%20b%26c")
    assert {name.lower() for name in headers} == {"host", "accept", "accept-encoding", "user-agent"}
    assert headers["Accept"] == "application/json"
    assert "mine" not in str(headers)


def test_only_harmless_parts_of_the_heads_answer_reach_the_viewer(here: Place) -> None:
    hostile = {
        "Content-Type": "text/html",
        "Set-Cookie": "session_name=theirs",
        "Content-Security-Policy": "default-src *",
        "Access-Control-Allow-Origin": "*",
        "X-Frame-Options": "ALLOWALL",
        "Clear-Site-Data": '"*"',
        "Content-Disposition": 'attachment; filename="a.log"',
        "Service-Worker-Allowed": "/",
    }
    here.head.answers["/api/v0/logs/file"] = (200, hostile, b"<script>alert(1)</script>")
    answer = here.server.get(f"{LIVE}/api/v0/logs/file?node_id=x&filename=y")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-disposition"] == 'attachment; filename="a.log"'
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert {"set-cookie", "access-control-allow-origin", "clear-site-data", "service-worker-allowed"}.isdisjoint(
        answer.headers
    )


def test_a_head_speaks_for_its_own_cluster_only(tmp_path: Path) -> None:
    store = open_store(DirectorySettings(tmp_path / "archive"))
    for namespace, name in (("default", "demo"), ("team", "other")):
        write_archive(store, Generation.C, Cluster(namespace, name))
    for file in (tmp_path / "archive").rglob("*"):
        os.utime(file, (1e9, 1e9))
    with place(store, tmp_path) as here:
        here.head.session = STORED  # that of `team/other` has the same name
        here.kube.put("RayCluster", ray_cluster("default", "demo"))
        until(lambda: here.server.get(f"/s/default/demo/{STORED}/_completeness").json["state"] == "live")
        assert here.server.get(f"/s/team/other/{STORED}/_completeness").json["state"] == "ended"


def test_a_head_cannot_fill_the_memory(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads_module, "MAX_BODY", 1 << 20)
    here.head.answers["/nodes"] = (200, {"Content-Type": "application/json"}, b'"%s"' % (b"x" * (1 << 20)))
    answer = here.server.get(f"{LIVE}/nodes?view=summary")
    assert "answer is larger than 1 MiB" in answer.headers[NOTE]
    assert len(answer.body) < 1 << 20


def test_pages_come_from_the_server_not_from_the_head(here: Place) -> None:
    here.head.answers["/"] = (200, {"Content-Type": "text/html"}, b"<script>theirs()</script>")
    here.head.answers["/static/js/theirs.js"] = (200, {"Content-Type": "text/javascript"}, b"theirs()")
    page = here.server.get(f"{LIVE}/")
    assert b"theirs" not in page.body
    assert b"<html" in page.body
    assert here.server.get(f"{LIVE}/static/js/theirs.js").status == 404
    assert here.server.get(LIVE).status == 307


def test_secrets_in_the_heads_answers_are_redacted(here: Place, store: Store, tmp_path: Path) -> None:
    secret = {"runtime_env": {"env_vars": {"HF_TOKEN": "hf_abc"}}}
    body = (200, {"Content-Type": "application/json"}, json.dumps(secret).encode())
    here.head.answers["/api/jobs/"] = body
    assert here.server.get(f"{LIVE}/api/jobs").json == {"runtime_env": {"env_vars": {"HF_TOKEN": "<redacted>"}}}
    (tmp_path / "open").mkdir()
    with place(store, tmp_path / "open", choices={"redact": False}) as unguarded:
        unguarded.kube.put("RayCluster", ray_cluster("default", "demo"))
        unguarded.until_known()
        unguarded.head.answers["/api/jobs/"] = body
        assert unguarded.server.get(f"{LIVE}/api/jobs").json == secret


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/packages/gcs/_ray_pkg_1.zip", 501),
        ("/api/v0/delay/5", 501),
        ("/api/v0/logs/../../../etc/passwd", 501),
        ("/api/jobs/%2e%2e/logs", 400),
        ("/api/actors/kill?actor_id=1", 501),
        ("/test/dump", 404),
        ("/worker/traceback?pid=1", 404),
        ("/memory_profile", 404),
        ("/logs/raylet.out", 404),
    ],
)
def test_other_paths_never_reach_the_head(here: Place, path: str, status: int) -> None:
    answer = here.server.get(LIVE + path)
    assert answer.status == status
    assert {seen.partition("?")[0] for _, seen, _ in here.head.requests} <= {"/api/version"}


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_a_running_cluster_cannot_be_changed(here: Place, method: str) -> None:
    assert here.server.get(f"{LIVE}/api/jobs/", method=method).status == 405
    assert all(seen == "GET" for seen, _, _ in here.head.requests)


def test_names_in_paths_are_forwarded_as_one_part(here: Place) -> None:
    here.server.get(f"{LIVE}/api/jobs/a%20b%3Fc%23d")
    assert here.passed_on()[-1][1] == "/api/jobs/a%20b%3Fc%23d"


def test_a_trailing_slash_makes_no_difference(here: Place) -> None:
    here.server.get(f"{LIVE}/api/serve/applications")
    here.server.get(f"{LIVE}/api/cluster_status/?format=1")
    assert [path for _, path, _ in here.passed_on()] == [
        "/api/serve/applications/",
        "/api/cluster_status?format=1",
    ]


def test_errors_of_the_head_are_forwarded(here: Place) -> None:
    told = (404, {"Content-Type": "text/plain"}, b"Job nope does not exist")
    here.head.answers["/api/jobs/nope"] = told
    answer = here.server.get(f"{LIVE}/api/jobs/nope")
    assert (answer.status, answer.body) == (404, b"Job nope does not exist")
    assert NOTE not in answer.headers


def test_every_forwarded_path_is_a_read_only_one_of_the_dashboard() -> None:
    forwarded = list(forwarded_paths(ROUTES))
    acting = ("profile", "kill", "traceback", "packages")
    assert not [path for path in forwarded if any(word in path for word in acting)]
    assert len(forwarded) == len(set(forwarded)) > 35


# Streams.


@contextmanager
def following(here: Place, headers: dict[str, str] | None = None) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", here.server.port, timeout=60)
    try:
        connection.request("GET", f"{LIVE}/api/v0/logs/stream?node_id=x&filename=y", headers=headers or {})
        yield connection.getresponse()
    finally:
        connection.close()


def test_a_log_is_followed_line_by_line_to_its_end(here: Place) -> None:
    with following(here, {"Accept-Encoding": "gzip, zstd"}) as response:
        assert response.readline() == b"first line\n"
        here.head.more("second line\n")
        assert response.readline() == b"second line\n"
        here.head.more("END")
        assert response.read() == b""
    assert not here.head.left.is_set()


@pytest.mark.parametrize("name", ["export_events/event_EXPORT_ACTOR.log", "y&filename=events/event_GCS.log"])
def test_secrets_in_log_files_of_ray_are_redacted(here: Place, name: str) -> None:
    body = b'{"n": 1}\n{"env_vars": {"A": "hunter2"}}\n'
    here.head.answers["/api/v0/logs/file"] = (200, {"Content-Type": "text/plain"}, body)
    answer = here.server.get(f"{LIVE}/api/v0/logs/file?node_id=x&filename={name}")
    assert answer.body == b'{"n": 1}\n{"env_vars":{"A":"<redacted>"}}\n'
    assert here.server.get(f"{LIVE}/api/v0/logs/file?node_id=x&filename=worker.out").body == body


def test_a_request_to_the_head_ends_when_the_viewer_disconnects(here: Place) -> None:
    with following(here) as response:
        assert response.readline() == b"first line\n"
        response.close()
    assert here.head.left.wait(60)


@pytest.mark.parametrize("through_api_server", [False, True])
def test_the_web_socket_of_a_jobs_log_is_forwarded(store: Store, tmp_path: Path, through_api_server: bool) -> None:
    with place(store, tmp_path, through_api_server=through_api_server) as here:
        here.kube.put("RayCluster", ray_cluster("default", "demo"))
        here.until_known()
        url = f"ws://127.0.0.1:{here.server.port}{LIVE}/api/jobs/j1/logs/tail"
        with connect(url, open_timeout=60) as socket:
            assert socket.recv(60) == "first line\n"
            socket.send("nothing goes back")
            here.head.more("last line\n")
            assert socket.recv(60) == "last line\n"
        with connect(url, open_timeout=60) as socket:
            assert socket.recv(60) == "first line\n"
        if not through_api_server:
            assert here.head.left.wait(60)


def test_an_interrupted_answer_is_never_completed(here: Place) -> None:
    here.head.breaks |= {"/api/v0/logs/file", "/nodes"}
    here.head.answers["/api/v0/logs/file"] = (200, {"Content-Type": "text/plain"}, b"half of")
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        here.server.get(f"{LIVE}/api/v0/logs/file?node_id=x&filename=y")
    until(lambda: "cannot be reached" in here.server.get(f"{LIVE}/nodes?view=summary").headers.get(NOTE, ""))


# Through the API server, and with tokens.


def test_heads_are_reached_through_the_api_server(store: Store, tmp_path: Path) -> None:
    with place(store, tmp_path, through_api_server=True, address=lambda _: "http://nowhere.invalid") as here:
        here.kube.put("RayCluster", ray_cluster("default", "demo"))
        here.until_known()
        here.head.answers["/nodes"] = (200, {"Content-Type": "application/json"}, b'{"from": "the head"}')
        assert here.server.get(f"{LIVE}/nodes?view=summary").json == {"from": "the head"}
        # The server polls the version in the background, at any time.
        asked = [path for _, path, _ in here.kube.requests if "proxy" in path and not path.endswith("/api/version")]
        assert asked[-1] == "/api/v1/namespaces/default/services/demo-head-svc:dashboard/proxy/nodes?view=summary"
        with following(here) as response:
            assert response.readline() == b"first line\n"
            here.head.more("second line\n")
            assert response.readline() == b"second line\n"
        assert here.head.left.wait(60)


@pytest.mark.parametrize(
    ("backend", "told"), [("", "no endpoints available"), ("127.0.0.1:1", "error trying to reach")]
)
def test_a_head_that_the_api_server_cannot_reach_is_shown_from_the_archive(
    store: Store, tmp_path: Path, backend: str, told: str
) -> None:
    with place(store, tmp_path, through_api_server=True) as here:
        here.kube.backends["default", "demo-head-svc"] = backend
        here.kube.put("RayCluster", ray_cluster("default", "demo"))
        here.until_known()
        answer = here.server.get(f"{LIVE}/api/v0/nodes")
        assert answer.json["data"]["result"]["total"] == 2
        assert told in answer.headers[NOTE]


def secret(token: str) -> dict[str, Any]:
    data = {"auth_token": base64.b64encode(token.encode()).decode()}
    return {"metadata": {"namespace": "default", "name": "demo"}, "data": data}


def test_the_clusters_token_is_sent_to_its_head_and_read_again_when_refused(store: Store, tmp_path: Path) -> None:
    with place(store, tmp_path, read_secrets=True) as here:
        here.head.token = "one"
        here.kube.put("Secret", secret("one"))
        here.kube.put("RayCluster", ray_cluster("default", "demo", spec={"authOptions": {"mode": "token"}}))
        here.until_known()
        mine = {"Authorization": "Bearer mine", "X-Ray-Authorization": "Bearer mine"}
        assert NOTE not in here.server.get(f"{LIVE}/nodes", mine).headers
        here.head.token = "two"
        here.kube.put("Secret", secret("two"))
        answer = here.server.get(f"{LIVE}/nodes", mine)
        assert (answer.status, answer.headers.get(NOTE)) == (200, None)
        assert "mine" not in str(here.head.requests)
        here.head.token = "three"
        refused = here.server.get(f"{LIVE}/api/v0/nodes", mine)
        assert "refused the request with 403" in refused.headers[NOTE]


def test_a_cluster_with_an_unavailable_token_is_shown_from_the_archive(store: Store, tmp_path: Path) -> None:
    with place(store, tmp_path) as here:
        here.kube.put("RayCluster", ray_cluster("default", "demo", spec={"authOptions": {"mode": "token"}}))
        here.until_known()
        assert "--use-auth-token-mode" in here.server.get(f"{LIVE}/api/v0/nodes").headers[NOTE]
        assert here.head.requests == []


# The archive as fallback.


def test_a_head_that_does_not_answer_is_replaced_by_the_archive_with_a_note(here: Place) -> None:
    good = here.head.address
    here.kube.backends.clear()
    here.head.answers["/nodes"] = (302, {"Location": "http://169.254.169.254/"}, b"")
    answer = here.server.get(f"{LIVE}/nodes?view=summary")
    assert answer.status == 200
    assert "answered with a redirect" in answer.headers[NOTE]
    assert STORED in answer.headers[NOTE]
    here.head.answers["/nodes"] = (200, {"Content-Type": "application/json"}, b'{"not json')
    assert "malformed JSON" in here.server.get(f"{LIVE}/nodes?view=summary").headers[NOTE]
    here.head.answers["/nodes"] = (200, {"Content-Type": "application/json"}, b'{"back": true}')
    assert here.server.get(f"{LIVE}/nodes?view=summary").json == {"back": True}
    assert here.head.address == good


def test_an_unreachable_head_is_not_contacted_for_a_while(store: Store, tmp_path: Path) -> None:
    with place(store, tmp_path, address=lambda _: "http://127.0.0.1:1") as here:
        here.kube.put("RayCluster", ray_cluster("default", "demo"))
        here.until_known()
        for _ in range(3):
            assert "cannot be reached" in here.server.get(f"{LIVE}/api/v0/nodes").headers[NOTE]
        page = here.server.get(f"{LIVE}/")
        assert page.status == 200
        bar = parsed(page.body).one("header", "hbar").text
        assert "From the archive" in bar
        assert "still live" not in bar
        told = here.server.get("/metrics").body.decode()
        assert "ray_history_live_clusters 1" in told
        silent = [line for line in told.splitlines() if line.startswith("ray_history_heads_silent_total")]
        assert float(silent[0].split()[1]) >= 1


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"_PATIENCE": 1.0, "_QUIET": 0.1, "_RETRY_AFTER": 0.1, "_RETRY_MAX": 0.4}.items():
        monkeypatch.setattr(heads_module, name, seconds)


def archived(here: Place, path: str) -> bool:
    """Whether the archive answers, because the head does not."""
    return "its head cannot be reached: no answer within 1 s" in here.server.get(LIVE + path).headers.get(NOTE, "")


@pytest.mark.usefixtures("impatient")
def test_only_the_first_request_waits_for_a_head_that_hangs(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads_module, "_RETRY_AFTER", 3600.0)
    here.head.hangs = True
    assert archived(here, "/api/v0/nodes")
    before = len(here.head.requests)
    for path in ("/api/v0/nodes", "/nodes?view=summary", "/", "/_status"):
        assert archived(here, path)
    assert len(here.head.requests) == before


def test_the_session_is_opened_while_its_head_hangs(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads_module, "_PATIENCE", 3600.0)
    monkeypatch.setattr(gateway, "_PREPARE_AFTER", 0.01)
    here.head.hangs = True
    with closing(http.client.HTTPConnection("127.0.0.1", here.server.port, timeout=60)) as waiting:
        waiting.request("GET", f"{LIVE}/api/v0/nodes")
        until(lambda: here.server.sessions.open_count == 1, "the archived part is open")
        here.head.hangs = False
        answer = waiting.getresponse()
        assert (answer.status, answer.getheader(NOTE)) == (200, None), "the head is still waited for"


@pytest.mark.usefixtures("impatient")
def test_a_hanging_head_is_probed_less_and_less_often_until_it_is_back(here: Place) -> None:
    here.head.hangs = True
    assert archived(here, "/api/v0/nodes")
    assert here.client is not None
    (outage,) = here.client._outages.values()
    until(lambda: outage.pause == 0.4)
    here.server.get(f"{LIVE}/nodes")
    assert {path for _, path, _ in here.passed_on()} == {"/api/v0/nodes"}, "only the probe contacts it"
    here.head.hangs = False
    until(lambda: outage.ended is not None)
    assert NOTE not in here.server.get(f"{LIVE}/nodes").headers
    here.head.hangs = True
    assert archived(here, "/nodes")
    (again,) = here.client._outages.values()
    assert (again is not outage, again.pause) == (True, 0.4), "it hangs again soon"
    here.kube.delete("RayCluster", "default", "demo")
    until(lambda: not here.client._outages)


def test_the_page_of_a_running_cluster_does_not_wait_for_the_head(here: Place) -> None:
    here.head.ray_version = "2.59.9"
    assert here.server.get(f"{LIVE}/_status").json["note"] == ""
    here.head.hangs = True
    before = len(here.head.requests)
    page = here.server.get(f"{LIVE}/")
    assert (page.status, NOTE in page.headers) == (200, False)
    assert b"Ray 2.59.9" in page.body
    assert len(here.head.requests) == before
    here.head.hangs = False


@pytest.mark.usefixtures("impatient")
def test_an_empty_log_is_followed_until_its_first_line(here: Place) -> None:
    here.head.quiet = True
    connection = http.client.HTTPConnection("127.0.0.1", here.server.port, timeout=60)
    polls = len(here.head.requests) - len(here.passed_on())
    connection.request("GET", f"{LIVE}/api/v0/logs/stream?node_id=x&filename=y")
    until(lambda: len(here.head.requests) - len(here.passed_on()) > polls, "the head is probed")
    here.head.more("late line\n")
    response = connection.getresponse()
    assert response.readline() == b"late line\n"
    assert NOTE not in {name.lower() for name, _ in response.getheaders()}
    connection.close()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("path", ["/api/v0/logs/stream?node_id=x&filename=y", "/api/v0/logs/file?node_id=x&filename=y"])
def test_logs_of_a_head_that_hangs_come_from_the_archive(here: Place, path: str) -> None:
    here.head.hangs = True
    assert archived(here, path)


def test_a_running_cluster_without_stored_data_answers_503(store: Store, tmp_path: Path) -> None:
    with place(store, tmp_path, address=lambda _: "http://127.0.0.1:1") as here:
        here.kube.put("RayCluster", ray_cluster("default", "fresh"))
        here.until_known()
        answer = here.server.get("/s/default/fresh/live/api/v0/nodes")
        assert answer.status == 503
        assert "nothing of it is archived yet" in answer.json["msg"]


def test_without_the_live_proxy_heads_are_never_contacted(store: Store, tmp_path: Path) -> None:
    with place(store, tmp_path, heads=False) as here:
        here.kube.put("RayCluster", ray_cluster("default", "demo"))
        here.until_known()
        answer = here.server.get(f"{LIVE}/api/v0/nodes")
        assert answer.json["data"]["result"]["total"] == 2
        assert "--no-live-proxy" in answer.headers[NOTE]
        assert here.server.get("/enter_cluster/default/demo/latest").json["session"] == STORED
        status = here.server.get(f"{LIVE}/_status").json
        assert status["session"] == STORED
        assert "--no-live-proxy" in status["note"]
        assert here.head.requests == []


def test_a_deleted_cluster_stays_available_for_a_while(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "_AVAILABLE_FOR", 10.0**9)  # the stored session is older than an hour
    entered = cookies(here.server.get("/enter_cluster/default/demo/live"))
    assert NOTE not in here.server.get(f"{LIVE}/nodes").headers
    here.kube.delete("RayCluster", "default", "demo")
    until(lambda: all(row["sessionName"] != "live" for row in here.rows()))
    for answer in (here.server.get(f"{LIVE}/api/v0/nodes"), here.server.get("/api/v0/nodes", entered)):
        assert answer.json["data"]["result"]["total"] == 2
        assert "no longer running" in answer.headers[NOTE]
    monkeypatch.setattr(gateway, "_AVAILABLE_FOR", 3600.0)
    gone = here.server.get(f"{LIVE}/api/v0/nodes")
    assert (gone.status, "`latest` opens" in gone.json["msg"]) == (404, True)
    assert here.server.get("/enter_cluster/default/demo/live").status == 404


def test_without_the_api_server_the_last_known_clusters_are_shown(here: Place) -> None:
    with here.kube.down():
        until(lambda: "may be out of date" in here.server.get("/clusters").headers.get(NOTE, ""))
        assert [row["sessionName"] for row in here.rows() if row["name"] == "demo"] == ["live", STORED]
        assert NOTE not in here.server.get(f"{LIVE}/nodes").headers
        assert here.server.get(f"/s/default/demo/{STORED}/api/v0/nodes").status == 200
    until(lambda: NOTE not in here.server.get("/clusters").headers)


# Access.


def test_a_hidden_cluster_does_not_exist_under_live_either(store: Store, tmp_path: Path) -> None:
    rules = [
        {"token": "ann-token-0123456789", "name": "ann", "namespaces": ["default"]},
        {"token": "bob-token-0123456789", "name": "bob", "namespaces": ["team"]},
    ]
    (tmp_path / "tokens.json").write_text(json.dumps(rules))
    mode = make_backend(AuthSettings("token", str(tmp_path / "tokens.json")), lambda: pytest.fail("not to be asked"))
    ann, bob = ({"Authorization": f"Bearer {name}-token-0123456789"} for name in ("ann", "bob"))
    with place(store, tmp_path, choices={"auth": mode}) as here:
        here.kube.put("RayCluster", ray_cluster("default", "demo"))
        until(lambda: here.server.get("/clusters", ann).json[0]["sessionName"] == "live")
        assert here.server.get(f"{LIVE}/nodes", ann).status == 200
        assert "ann-token" not in str(here.head.requests)
        asked = len(here.head.requests)
        assert {row["namespace"] for row in here.server.get("/clusters", bob).json} == {"team"}
        nothing = here.server.get("/s/default/nothing/live/nodes", bob)
        for path in (f"{LIVE}/nodes", f"{LIVE}/", "/enter_cluster/default/demo/live", f"{LIVE}/api/packages/x/y"):
            answer = here.server.get(path, bob)
            assert answer.status == nothing.status == 404
            assert answer.json["msg"].replace("demo", "nothing") == nothing.json["msg"]
        entered = {"Cookie": "cluster_name=demo; cluster_namespace=default; session_name=live"}
        assert here.server.get("/nodes", {**entered, **bob}).status == 404
        assert here.server.get(f"{LIVE}/nodes").status == 401
        assert {path for _, path, _ in here.head.requests[asked:]} <= {"/api/version"}


def cookies(answer: Any) -> dict[str, str]:
    """The cookies of entering a session."""
    name = answer.json["name"], answer.json["namespace"], answer.json["session"]
    return {"Cookie": "cluster_name={}; cluster_namespace={}; session_name={}".format(*name)}


@pytest.mark.parametrize(
    "body",
    [
        b'{"HF_TOKEN": "x"}',
        b'{"Password": "x"}',
        b'{"runtimeEnv": "no JSON"}',
        b'{"serialized_runtime_env": "no JSON"}',
        b'{"\\u0074oken": "x"}',
        b'["https://a:b@c"]',
        b'{"envVars": {"A": "x"}}',
        b'["--api-key x"]',
    ],
)
def test_json_that_may_contain_secrets_is_recognized(body: bytes) -> None:
    assert has_secrets(body)
    assert redacted(json.loads(body)) != json.loads(body)
    assert not has_secrets(b'{"result": [{"task_id": "01", "state": "RUNNING", "name": "leaf"}]}')
