"""Every route x {no token, a wrong one, one for another namespace, one that may}, from the application's own table.

A route that nobody classified fails here: it is a route of a session, or it stands in one of the lists below, with the
reason why that is safe.
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute

from ray_history.archive.stores import Store
from ray_history.history.engine import Limits
from ray_history.index.cache import Cache
from ray_history.index.indexer import Indexer
from ray_history.server.app import AppConfig, make_app
from ray_history.server.auth.backends import FileTokens
from ray_history.server.auth.credentials import TrustedPeers
from ray_history.server.auth.rules import RulesFile
from ray_history.server.live import LIVE, Fleet, LiveSettings, make_fleet
from ray_history.server.routes import ROUTES
from ray_history.server.sessions.manager import Sessions
from tests.server.auth.people import ADA, BOB, SESSION, WRONG, bearer, rules_file
from tests.server.serving import served
from tests.support.kube_stand_in import KubeStandIn, ray_cluster
from tests.support.waiting import until

BY_PATH = "/s/{namespace}/{cluster}/{session}"
BY_COOKIE = "/"
OPEN = {
    "/livez",
    "/readyz",
    "/readz",
    "/healthz",
    "/metrics",  # numbers only: test_metrics_contain_no_names
    "/login",
    "/logout",
    *(f"{below}/_pages/{{name}}" for below in ("", BY_PATH)),  # styles and scripts of our own pages
    *(f"{below}/api/{name}" for below in ("", BY_PATH) for name in ("authenticate", "authentication_mode")),
}
"""Routes without authentication. Their answers are the same for everyone and contain nothing of a session."""
PAGES = {"/", "/select_cluster", "/select_cluster/"}
LISTS = {"/clusters", "/clusters/"} | PAGES
"""Routes whose answers contain only what the viewer may see."""
ENTERS = {"/enter_cluster/{rest:path}"}
SAME_FOR_ALL = {BY_PATH}
"""Requires authentication, but reads no session: it adds a slash."""

EXAMPLES = {
    "media_type": "file",
    "job_or_submission_id": "fx-core",
    "job_id": "01000000",
    "node_id": "11" * 28,
    "actor_id": "22" * 16,
    "protocol": "gcs",
    "package_name": "x.zip",
    "label": "State",
    "uid": "rayDefaultDashboard",
    "panel": "24",
    "variable": "Instance",
    "slug": "default-dashboard",
    "rest": "anything",
    "name": "index.html",
    "namespace": "default",
    "cluster": "demo",
    "session": "latest",
}
"""Examples for path parameters; a new parameter needs one."""


@dataclass(frozen=True)
class Place:
    """A route and its mount."""

    below: str
    """The path of the session's mount; empty for a route outside of one."""
    route: Route | WebSocketRoute

    @property
    def pattern(self) -> str:
        return self.below.rstrip("/") + self.route.path

    @property
    def methods(self) -> list[str]:
        return sorted(self.route.methods or ()) if isinstance(self.route, Route) else ["WEBSOCKET"]

    def path(self) -> str:
        return re.sub(r"\{(\w+)(:\w+)?\}", lambda found: EXAMPLES[found[1]], self.route.path)


def walk(routes: Sequence[BaseRoute], below: str = "") -> Iterator[Place]:
    for route in routes:
        if isinstance(route, Mount):
            mounted = route.path or BY_COOKIE
            assert not below, f"unclassified mount {mounted} below {below}"
            assert mounted in (BY_PATH, BY_COOKIE), f"unclassified mount {mounted}"
            assert route.routes, f"the routes below {mounted} are unknown: mount something with routes"
            yield from walk(route.routes, mounted)
        else:
            assert isinstance(route, Route | WebSocketRoute), f"{route} is of an unclassified kind"
            yield Place(below, route)


def places(folder: Path, store: Store, fleet: Fleet) -> list[Place]:
    indexer = Indexer(store, Cache(folder / "cache", 1 << 30), Limits())
    sessions = Sessions(indexer, most_open=1, query_memory=1 << 28, threads=1)
    app = make_app(sessions, AppConfig(fleet=fleet))
    sessions.close()
    return list(walk(app.routes))


@dataclass(frozen=True)
class Answer:
    """The comparable parts of an answer."""

    status: int
    headers: dict[str, str]
    body: bytes


class Matrix:
    """The server with all of its routes."""

    def __init__(self, port: int, found: list[Place]) -> None:
        self._port, self.places = port, found

    def ask(
        self, method: str, path: str, token: str | None, cookies: str = "", accept: str = "*/*", form: str | None = None
    ) -> Answer:
        headers = {"Accept": accept} | (bearer(token) if token else {})
        if cookies:
            headers["Cookie"] = cookies
        if form is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        if method == "WEBSOCKET":
            method = "GET"
            headers |= {"Connection": "Upgrade", "Upgrade": "websocket"}
            headers |= {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request(method, path, body=form, headers=headers)
            answer = connection.getresponse()
            told = {name.lower(): value for name, value in answer.getheaders()}
            body = b"" if answer.status == 101 else answer.read()
        finally:
            connection.close()
        for name in ("x-request-id", "date"):
            told.pop(name, None)
        return Answer(answer.status, told, body)


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Iterator[Matrix]:
    """Stored sessions and running clusters, of Ada's namespace and of Bob's; the heads do not answer."""
    folder = tmp_path_factory.mktemp("matrix")
    mode = FileTokens(RulesFile(rules_file(folder)), TrustedPeers())
    with KubeStandIn().running() as api:
        for namespace in ("default", "locked"):
            api.put("RayCluster", ray_cluster(namespace, "demo"))
        (folder / "kubeconfig").write_text(api.kubeconfig())
        running = LiveSettings(kubeconfigs=str(folder / "kubeconfig"), use_kubernetes_proxy=True)
        with served(store, folder / "served", AppConfig(auth=mode, fleet=make_fleet(running))) as server:
            made = Matrix(server.port, places(folder, store, make_fleet(running)))
            until(lambda: b'"live"' in made.ask("GET", "/clusters", ADA).body, "running clusters are found")
            yield made


def cookies(namespace: str, session: str = SESSION) -> str:
    return f"cluster_name=demo; cluster_namespace={namespace}; session_name={session}"


def as_if_nameless(asked: Answer, namespace: str) -> Answer:
    return Answer(asked.status, asked.headers, asked.body.replace(namespace.encode(), b"NAMESPACE"))


def test_every_route_is_classified(matrix: Matrix) -> None:
    outside = {place.pattern for place in matrix.places if not place.below}
    assert outside == OPEN | LISTS | ENTERS | SAME_FOR_ALL, "say in this file who may see it"
    by_path = [place.route for place in matrix.places if place.below == BY_PATH]
    assert by_path == [place.route for place in matrix.places if place.below == BY_COOKIE]
    assert {route.path for route in ROUTES} < {route.path for route in by_path}


def test_without_a_token_all_but_the_open_routes_answer_401(matrix: Matrix) -> None:
    for method, path, cookie in every(matrix, "default"):
        answer = matrix.ask(method, path, None, cookie)
        assert answer.status == 401, (method, path, answer)
        assert answer.headers["www-authenticate"].startswith("Bearer"), path


def test_without_a_token_no_refusal_of_a_page_is_a_failure(matrix: Matrix) -> None:
    for method, path, cookie in every(matrix, "default"):
        answer = matrix.ask(method, path, None, cookie, accept="text/html")
        assert answer.status in (303, 401), (method, path, answer)


def test_with_a_wrong_token_all_but_the_open_routes_answer_403(matrix: Matrix) -> None:
    for method, path, cookie in every(matrix, "default"):
        answer = matrix.ask(method, path, WRONG, cookie)
        assert answer.status == 403, (method, path, answer)
        assert "invalid_token" in answer.headers["www-authenticate"], path


def test_a_session_of_another_namespace_is_answered_as_a_missing_one(matrix: Matrix) -> None:
    """`locked` is hidden from Ada, `absent` does not exist. The answers differ in nothing but the name."""
    for (method, path, cookie), (_, absent_path, absent_cookie) in zip(
        every(matrix, "locked", lists=False), every(matrix, "absent", lists=False), strict=True
    ):
        hidden = as_if_nameless(matrix.ask(method, path, ADA, cookie), "locked")
        absent = as_if_nameless(matrix.ask(method, absent_path, ADA, absent_cookie), "absent")
        assert hidden == absent, (method, path)
        assert hidden.status == 404, (method, path)


def test_viewers_with_permission_get_the_answer(matrix: Matrix) -> None:
    for token, namespace in ((ADA, "default"), (BOB, "locked")):
        for method, path, cookie in every(matrix, namespace):
            answer = matrix.ask(method, path, token, cookie)
            assert "www-authenticate" not in answer.headers, (method, path)
            for missing in (b"there is no session", b"no live cluster"):
                assert missing not in answer.body, (method, path)


def test_open_routes_are_the_same_for_everyone(matrix: Matrix) -> None:
    for place in matrix.places:
        if place.pattern in OPEN - {"/metrics", "/login"}:
            for method in place.methods:
                path = place.pattern.format(namespace="locked", cluster="demo", session=SESSION, name="style.css")
                absent = place.pattern.format(namespace="absent", cluster="demo", session=SESSION, name="style.css")
                assert matrix.ask(method, path, None) == matrix.ask(method, absent, None), path
                assert matrix.ask(method, path, None, accept="text/html").status < 500, path


def test_lists_contain_only_what_the_viewer_may_see(matrix: Matrix) -> None:
    for path in sorted(PAGES):
        for token, theirs, others in ((ADA, b"default", b"locked"), (BOB, b"locked", b"default")):
            told = matrix.ask("GET", path, token).body
            assert b"/s/%b/demo/" % theirs in told
            assert b"/s/%b/" % others not in told
            assert b">%b<" % others not in told
    for path in sorted(LISTS - PAGES):
        assert b"locked" not in matrix.ask("GET", path, ADA).body
        assert b'"namespace":"default"' in matrix.ask("GET", path, ADA).body
        assert b"default" not in matrix.ask("GET", path, BOB).body
        assert b'"namespace":"locked"' in matrix.ask("GET", path, BOB).body


def test_metrics_contain_no_names(matrix: Matrix) -> None:
    matrix.ask("GET", f"/s/locked/demo/{SESSION}/api/v0/nodes", BOB)
    told = matrix.ask("GET", "/metrics", None).body.decode()
    assert set(re.findall(r"[{,](\w+)=", told)) <= {"le", "method", "status", "reason"}, "everybody sees the labels"


def test_a_query_in_a_form_needs_the_same_rights(matrix: Matrix) -> None:
    path = f"/s/default/demo/{SESSION}/prometheus/api/v1/query"
    for token, status in ((None, 401), (WRONG, 403), (BOB, 404)):
        assert matrix.ask("POST", path, token, form="query=1").status == status
    assert "no metrics of this session" in matrix.ask("POST", path, ADA, form="query=1").body.decode()


def test_post_is_only_for_signing_in(matrix: Matrix) -> None:
    assert {place.pattern for place in matrix.places if "POST" in place.methods} <= OPEN
    for place in matrix.places:
        if "POST" not in place.methods and place.pattern not in OPEN:
            path = (f"/s/default/demo/{SESSION}" if place.below == BY_PATH else "") + place.path()
            assert matrix.ask("POST", path, ADA, cookies("default")).status == 405, path
    for path in (f"/s/default/demo/{SESSION}/login", f"/s/default/demo/{SESSION}/api/x/api/authenticate", "/x/logout"):
        assert matrix.ask("POST", path, ADA, cookies("default")).status == 405, path


def every(matrix: Matrix, namespace: str, *, lists: bool = True) -> Iterator[tuple[str, str, str]]:
    """Method, path and cookies of all guarded routes."""
    for place in matrix.places:
        if not place.below and (place.pattern in OPEN or (not lists and place.pattern in LISTS | SAME_FOR_ALL)):
            continue
        if place.below == BY_COOKIE and place.pattern in PAGES and not lists:
            continue  # without a session it is the home page
        for method in place.methods:
            if place.below == BY_PATH:
                for session in (SESSION, LIVE):
                    yield method, f"/s/{namespace}/demo/{session}{place.path()}", ""
            elif place.pattern in ENTERS:
                for rest in ("demo/latest", f"demo/{SESSION}", "raycluster/demo", "rayjob/nightly", "demo/live"):
                    if not (namespace == "default" and "rayjob" in rest):
                        yield method, f"/enter_cluster/{namespace}/{rest}", ""
            elif place.pattern in SAME_FOR_ALL:
                yield method, f"/s/{namespace}/demo/{SESSION}", ""
            else:
                for session in (SESSION, LIVE):
                    yield method, place.path(), cookies(namespace, session)
