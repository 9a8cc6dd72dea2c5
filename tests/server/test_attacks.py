"""Requests read nothing outside of their session, and none breaks the server."""

from __future__ import annotations

import random
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.server.routes import ROUTES
from tests.server.serving import Served, served
from tests.support.captured import captured, write_archive

SESSION = captured().session
S = f"/s/default/demo/{SESSION}"
SECRET = "the-secret-outside-of-every-session"

TRAVERSALS = [
    "../" * 12 + "etc/passwd",
    "..%2f" * 12 + "etc%2fpasswd",
    "%2e%2e/" * 12 + "etc/passwd",
    "%252e%252e%252f" * 12 + "etc/passwd",
    "..%5c" * 12 + "etc%5cpasswd",
    "....//" * 12 + "etc/passwd",
    "..;/" * 12 + "etc/passwd",
    "%c0%ae%c0%ae/" * 8 + "etc/passwd",
    "/etc/passwd",
    "//etc/passwd",
    "file:///etc/passwd",
    "%00/etc/passwd",
    "logs%00.txt",
    "..",
    ".",
    "../../secret.txt",
    "..%2f..%2fsecret.txt",
    "#/../../../../etc/passwd",
    "?a=/../../../../etc/passwd",
    "\\..\\..\\secret.txt".replace("\\", "%5c"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("attacks")
    (folder / "secret.txt").write_text(SECRET)
    store = open_store(DirectorySettings(folder / "archive"))
    write_archive(store, Generation.C, Cluster("default", "demo"))
    store.put("secret.txt", SECRET.encode())
    store.put(f"cluster-history/raycluster/default/other/{SESSION}/{'1' * 56}/logs/secret.log", SECRET.encode())
    with served(store, folder / "cache") as running:
        running.get(f"{S}/api/v0/nodes")
        yield running


def harmless(server: Served, path: str, headers: dict[str, str] | None = None) -> None:
    answer = server.get(path, headers)
    assert answer.status < 500 or answer.status in (501, 503), (path, answer.body)
    assert SECRET.encode() not in answer.body, path
    assert b"root:x:0:0" not in answer.body, path
    assert answer.status < 400 or b"Traceback" not in answer.body, path


@pytest.mark.parametrize("payload", TRAVERSALS)
def test_no_path_leaves_the_session(server: Served, payload: str) -> None:
    for path in (
        f"{S}/{payload}",
        f"{S}/static/{payload}",
        f"{S}/api/{payload}",
        f"{S}/nodes/{payload}",
        f"{S}/logical/actors/{payload}",
        f"{S}/api/jobs/{payload}",
        f"{S}/api/jobs/{payload}/logs",
        f"{S}/api/data/datasets/{payload}",
        f"{S}/api/v0/logs/{payload}",
        f"/s/{payload}/demo/{SESSION}/api/v0/nodes",
        f"/s/default/{payload}/{SESSION}/api/v0/nodes",
        f"/s/default/demo/{payload}/api/v0/nodes",
        f"/enter_cluster/{payload}",
        f"/enter_cluster/default/{payload}/latest",
        f"/{payload}",
    ):
        harmless(server, path)


@pytest.mark.parametrize("payload", TRAVERSALS)
def test_no_parameter_leaves_the_session(server: Served, payload: str) -> None:
    for name in ("node_id", "node_ip", "filename", "task_id", "actor_id", "submission_id", "pid", "glob", "suffix"):
        for route in ("/api/v0/logs", "/api/v0/logs/file", "/api/v0/logs/stream"):
            harmless(server, f"{S}{route}?{name}={payload}")
            harmless(server, f"{S}{route}?node_id={'1' * 56}&{name}={quote(payload)}")
    for path in (
        f"/events?job_id={payload}",
        f"/nodes?view={payload}",
        f"/?dashboard={payload}",
        f"/timezone?at={payload}",
    ):
        harmless(server, S + path)


@pytest.mark.parametrize("payload", TRAVERSALS)
def test_no_cookie_leaves_the_session(server: Served, payload: str) -> None:
    value = payload.replace(";", "%3b")
    for name in ("cluster_name", "cluster_namespace", "session_name"):
        cookies = {"cluster_name": "demo", "cluster_namespace": "default", "session_name": SESSION, name: value}
        headers = {"Cookie": "; ".join(f"{key}={text}" for key, text in cookies.items())}
        harmless(server, "/api/v0/logs?node_id=x&glob=*", headers)
        harmless(server, "/", headers)


def test_a_session_of_another_cluster_is_another_session(server: Served) -> None:
    answer = server.get(f"{S}/api/v0/logs/file?node_id={'1' * 56}&filename=secret.log")
    assert answer.status in (400, 404)


PATHS = sorted({route.path for route in ROUTES})
PARAMETERS = sorted({parameter.name for route in ROUTES for parameter in route.parameters})


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_request_crashes_the_server(server: Served, data: st.DataObject) -> None:
    words = st.one_of(
        st.text(max_size=30),
        st.sampled_from(
            ["", "0", "-1", "1e9", "9" * 40, "null", "*", "**/" * 20, "[", "\x00", "é", "' or 1=1 --", "x" * 3000]
        ),
    )
    path = data.draw(st.sampled_from(PATHS))
    for part in (
        "media_type",
        "job_or_submission_id",
        "node_id",
        "actor_id",
        "job_id",
        "name:path",
        "protocol",
        "package_name",
    ):
        path = path.replace(f"{{{part}}}", quote(data.draw(words), safe="") or "x")
    query = data.draw(st.lists(st.tuples(st.sampled_from(PARAMETERS), words), max_size=6))
    asked = "&".join(f"{name}={quote(value, safe='')}" for name, value in query)
    if "/logs/stream" in path:
        return  # follows as long as the session is live
    harmless(server, f"{S}{path}?{asked}")


def test_malformed_requests_are_refused(server: Served) -> None:
    import socket

    chance = random.Random(1)
    for _ in range(30):
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
            connection.sendall(chance.randbytes(chance.randrange(1, 4000)) + b"\r\n\r\n")
            connection.settimeout(5)
            connection.recv(4096)
    assert server.get("/livez").body == b"ok"
